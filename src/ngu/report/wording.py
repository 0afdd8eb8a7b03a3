"""Numbers in words."""

from __future__ import annotations

from collections.abc import Sequence


def percent(share: float) -> str:
    """0.7734 to '77.3 %'."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def plain_number(value: float) -> str:
    """1234.56 to '1,235', 12.34 to '12.3', 400.0 to '400'."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{round(value, 1) or 0.0:.1f}".removesuffix(".0")


def duration(seconds: float) -> str:
    """683 to '11 min 23 s'."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def listing(names: Sequence[str]) -> str:
    """['a', 'b', 'c'] to 'a, b and c'."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))

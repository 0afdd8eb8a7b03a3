"""How a table is made of files under `results/`: a row for each agent or setting, a column for each thing measured.

A cell tells one number for each run of its row, seeds in their order: `86.8, 82.3, 85.6 %`. A cell without a
measurement is empty, but a row without files, or a column that no row has measured, is a mistake and raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ngu.report.results import Results, read_results

RESULTS = Path(__file__).parents[2] / "results"
MILLION = 1_000_000
COVERAGE = "eval/explore/coverage@{}"
"""The share of open cells that the exploratory policy visits in so many steps of an evaluation."""
_NEAR = 0.02
"""A measurement counts as one at a step if it is off by less than this share of it."""

Reading = Callable[[Sequence[Results]], str]
"""What the runs of a row say."""


@dataclass(frozen=True)
class Style:
    """How numbers are written."""

    digits: int = 1
    scale: float = 1.0
    unit: str = ""
    """Behind the last number of a cell."""

    def number(self, value: float) -> str:
        text = f"{value * self.scale:,.{self.digits}f}"
        return text.removeprefix("-") if not any(digit in text for digit in "123456789") else text

    def one(self, value: float | None) -> str:
        """The cell of one run."""
        return "" if value is None else self.cell([self.number(value)])

    def cell(self, texts: Sequence[str]) -> str:
        said = ", ".join(text for text in texts if text)
        return f"{said}{self.unit}" if said else ""


PERCENT = Style(1, 100.0, " %")
WHOLE_PERCENT = Style(0, 100.0, " %")
PLAIN = Style()
WHOLE = Style(0)


def from_command(option: str, usual: str) -> Reading:
    """A setting as the run's command has it, or as its preset does."""

    def read(runs: Sequence[Results]) -> str:
        given = [re.search(rf"{re.escape(option)}[= ](\S+)", run.origin["command"]) for run in runs]
        return ", ".join(dict.fromkeys(found[1] if found else usual for found in given))

    return read


def runs_of(*patterns: str) -> list[Results]:
    """The runs of files under `results/`, in the order of the patterns, then of names."""
    found: list[Results] = []
    for pattern in patterns:
        paths = sorted(RESULTS.glob(pattern))
        if not paths:
            raise ValueError(f"there is no file results/{pattern}")
        found += map(read_results, paths)
    return found


def table(
    head: str,
    rows: Mapping[str, str | tuple[str, ...]],
    columns: Mapping[str, Reading],
    *,
    right: bool = False,
) -> str:
    """A table in Markdown. rows: label -> patterns of files. columns: head -> reading."""
    runs = {label: runs_of(*([files] if isinstance(files, str) else files)) for label, files in rows.items()}
    cells = {label: [read(found) for read in columns.values()] for label, found in runs.items()}
    return markdown([head, *columns], [[label, *said] for label, said in cells.items()], right=right)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: bool = False) -> str:
    """A table of texts; `right` aligns all columns but the first to the right."""
    for name, column in zip(head, zip(*rows, strict=True), strict=True):
        if not any(column):
            raise ValueError(f"no row of the table {head[0]!r} has anything to say in the column {name!r}")
    line = ["---", *(["---:" if right else "---"] * (len(head) - 1))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, line, *rows))


# -------------------------------------------------------------------------------------------------------- readings


def last(*metrics: str, style: Style = PERCENT) -> Reading:
    """The last value of each metric, `50.1 / 70.2`, for each run."""
    return _each(style, lambda run: [run.last(metric) for metric in metrics])


def at(step: float, *metrics: str, style: Style = PERCENT) -> Reading:
    """The values at an agent step, within two percent of it."""
    return _each(style, lambda run: [value_at(run, metric, step) for metric in metrics])


def mean(metric: str, over: float, until: float = 0, *, style: Style = PLAIN) -> Reading:
    """The mean over so many agent steps before a step, or before the end; see `Results.mean`."""
    return _each(style, lambda run: [run.mean(metric, int(over), int(until)) if run.steps >= until else None])


def during(metric: str, start: float, end: float, *, style: Style = PLAIN) -> Reading:
    """The mean over a stretch of agent steps, or over the part of it that a run lasted for."""
    return _each(style, lambda run: [between(run, metric, start, end)])


def best(metric: str, *beside: str, style: Style = PERCENT) -> Reading:
    """The evaluation at which a metric was highest: its value, those of others at that step, and the step."""

    def read(runs: Sequence[Results]) -> str:
        told = []
        for run in runs:
            row = max((row for row in run.rows if metric in row), key=lambda row: row[metric])
            values = " / ".join(style.number(row[name]) for name in (*beside, metric))
            told.append(f"{values}{style.unit} at {millions(row['step'])}")
        return ", ".join(told)

    return read


def steps(runs: Sequence[Results]) -> str:
    """Agent steps at the last measurement."""
    return ", ".join(dict.fromkeys(millions(run.steps) for run in runs))


def seeds(runs: Sequence[Results]) -> str:
    return ", ".join(str(run.seed) for run in runs)


def commits(runs: Sequence[Results]) -> str:
    return ", ".join(dict.fromkeys(run.origin["commit"] for run in runs))


def commands(runs: Sequence[Results]) -> str:
    return ", ".join(f"`{run.origin['command']}`" for run in runs)


def millions(count: float) -> str:
    """`40M`, `1.96M`, `400,000`."""
    return f"{float(f'{count / MILLION:.2f}'):g}M" if count >= MILLION else f"{round(count, -3):,.0f}"


def stretch(start: float, end: float) -> str:
    """`400,000 to 1.5M`."""
    return f"{millions(start)} to {millions(end)}"


def between(run: Results, metric: str, start: float, end: float) -> float | None:
    """The mean over a stretch of agent steps."""
    return run.mean(metric, int(end - start), int(end))


def value_at(run: Results, metric: str, step: float) -> float | None:
    """The measurement that is nearest to a step, if one is near."""
    rows = [row for row in run.rows if metric in row and abs(row["step"] - step) <= _NEAR * step]
    return min(rows, key=lambda row: abs(row["step"] - step))[metric] if rows else None


def _each(style: Style, values: Callable[[Results], Sequence[float | None]]) -> Reading:
    def read(runs: Sequence[Results]) -> str:
        return style.cell(
            [" / ".join(style.number(value) for value in values(run) if value is not None) for run in runs]
        )

    return read

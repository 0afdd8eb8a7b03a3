"""Live progress: a line that changes in place on a terminal, a plain line now and then in a log.

It goes to the standard error stream, so that results on standard output can be piped. It draws no random numbers and
changes nothing it is given.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_RATE_WINDOW = 30.0
"""Rates are means over about this many seconds."""
_SAMPLE_PERIOD = 0.25
"""Seconds between the samples that rates are made of, and between redraws of the live line."""
_LOG_PERIOD = 10.0
"""Seconds between plain lines."""

_SHOWN = {
    "env/coverage": ("coverage", ".1%"),
    "env/solved": ("solved", ".1%"),
    "env/score": ("score", ",.5g"),
    "env/rooms": ("rooms", ".3g"),
    "loss/retrace": ("loss", ".4g"),
    "inverse/accuracy": ("inverse accuracy", ".1%"),
}
"""Metrics of training, where they are measured: what they are called on the line, and their form."""


class Progress:
    """Shows how far a run is: `with Progress(total_steps, start_step) as progress: ... progress.update(...)`."""

    def __init__(
        self,
        total_steps: int,
        start_step: int = 0,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total_steps = total_steps
        self._step = start_step
        self._values: dict[str, float] = {}
        self._console = console or Console(stderr=True)
        self._clock = clock
        self._samples: deque[tuple[float, int, int]] = deque()
        """Times with the steps and updates done by then, a quarter of a second or more apart."""
        self._next_sample = self._next_log = -math.inf
        self._shown_step: int | None = None
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._next_log = self._clock() + _LOG_PERIOD
        # FORCE_COLOR makes rich take a log file for a terminal, hence the question to the file itself.
        if self._console.file.isatty() and self._console.is_terminal and not self._console.is_dumb_terminal:
            # No thread of its own: it is redrawn from `update`.
            self._live = Live(self._render(), console=self._console, auto_refresh=False)
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self._render(), refresh=True)
            self._live.stop()
            self._live = None
        elif self._shown_step != self._step:
            self._print(self.line())

    def update(self, step: int, updates: int, values: Mapping[str, float] | None = None) -> None:
        """Agent steps and learner updates done so far; metrics that are given are shown until newer ones come."""
        self._step = step
        if values:
            self._values.update(values)
        now = self._clock()
        if now < self._next_sample:
            return
        self._next_sample = now + _SAMPLE_PERIOD
        self._samples.append((now, step, updates))
        # Two always stay, so that slow steps have a rate too.
        while len(self._samples) > 2 and self._samples[0][0] < now - _RATE_WINDOW:
            self._samples.popleft()
        if self._live is not None:
            self._live.update(self._render(), refresh=True)
        elif now >= self._next_log:
            self._next_log = now + _LOG_PERIOD
            self._shown_step = step
            self._print(self.line())

    def note(self, text: str) -> None:
        """Prints a message above the live line."""
        self._print(text)

    @property
    def steps_per_second(self) -> float:
        """Mean over the last half minute; 0 before two samples."""
        return self._rate(1)

    @property
    def updates_per_second(self) -> float:
        """Mean over the last half minute; 0 before two samples."""
        return self._rate(2)

    def line(self) -> str:
        """The state as one line of plain text."""
        return ", ".join([f"{self._share():.1%}", *self._counts(), *self._measurements()])

    def _render(self) -> Group:
        bar = ProgressBar(total=max(self._total_steps, 1), completed=min(self._step, self._total_steps), width=24)
        first = Table.grid(padding=(0, 1))
        first.add_row(bar, Text(f"{self._share():6.1%}"), Text("  ".join(self._counts()), no_wrap=True))
        return Group(first, Text("  ".join(self._measurements())))

    def _share(self) -> float:
        return min(self._step / self._total_steps, 1.0) if self._total_steps > 0 else 1.0

    def _counts(self) -> list[str]:
        rate = self.steps_per_second
        missing = max(self._total_steps - self._step, 0)
        left = "done" if not missing else f"{_duration(missing / rate)} left" if rate > 0 else "time left unknown"
        return [f"{self._step:,} of {self._total_steps:,} steps", left]

    def _measurements(self) -> list[str]:
        parts = [f"{_number(self.steps_per_second)} steps/s", f"{_number(self.updates_per_second)} updates/s"]
        for name, (label, form) in _SHOWN.items():
            if name in self._values:
                parts.append(f"{label} {self._values[name]:{form}}")
        if skipped := self._values.get("learner/skipped_updates", 0):
            parts.append(f"{skipped:.0f} skipped updates")
        return parts

    def _rate(self, column: int) -> float:
        if len(self._samples) < 2:
            return 0.0
        first, last = self._samples[0], self._samples[-1]
        return (last[column] - first[column]) / (last[0] - first[0])

    def _print(self, text: str) -> None:
        if self._live is not None:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=self._console.file, flush=True)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02.0f} s" if minutes else f"{seconds:.0f} s"

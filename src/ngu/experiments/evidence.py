"""A claim of the paper and what it rests on here: named files under `results/`, and what to read from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ngu.report.results import Results, read_results
from ngu.report.style import short_number

Verdict = Literal["holds", "holds in part", "not seen at this budget", "does not hold", "not yet tested"]


@dataclass(frozen=True)
class Evidence:
    """Runs under `results/`, and what to read from them."""

    files: str
    """A pattern, such as `disco-maze-small/ngu-seed*.csv`."""
    metric: str
    what: str
    """The metric in words."""
    share: bool = False
    """Values are shares of 1, shown in percent."""
    root: bool = False
    """The root is told, as of a squared error."""
    over: int = 0
    """The mean over so many last agent steps of each run instead of its last value, see `Results.mean`."""
    until: int = 0
    """Such a mean ends at so many agent steps, for runs that went on for longer; 0 is the end."""

    def value(self, run: Results) -> float | None:
        """What a run says, or None if it has not measured it."""
        value = run.mean(self.metric, self.over, self.until) if self.over else run.last(self.metric)
        return math.sqrt(value) if self.root and value is not None else value

    def runs(self, results: Path) -> list[Results]:
        """Those that have measured it, sorted by name."""
        found = (read_results(path) for path in sorted(results.glob(self.files)))
        return [run for run in found if self.value(run) is not None]

    def sentence(self, results: Path) -> str:
        """`3 runs of 2M steps (2 CPU cores): coverage 90.9 % to 94.4 %, mean 92.6 %`."""
        runs = self.runs(results)
        values = np.array([self.value(run) for run in runs], dtype=np.float64)
        steps = sorted(min(run.steps, self.until or run.steps) for run in runs)
        span = " to ".join(dict.fromkeys(short_number(float(f"{count:.2g}")) for count in (steps[0], steps[-1])))
        where = ", ".join(sorted({run.origin.get("machine", "an unknown machine") for run in runs}))
        words = [f"{value:.1%}" if self.share else f"{value:,.1f}" for value in (values.min(), values.max())]
        mean = f"{values.mean():.1%}" if self.share else f"{values.mean():,.1f}"
        numbers = words[0] if len(runs) == 1 else f"{words[0]} to {words[1]}, mean {mean}"
        return f"{len(runs)} run{'s' if len(runs) > 1 else ''} of {span} steps ({where}): {self.what} {numbers}"


@dataclass(frozen=True)
class Claim:
    """One claim."""

    place: str
    says: str
    """In the paper's words, shortened."""
    experiment: str
    """The label of the figure or table that shows it."""
    verdict: Verdict = "not yet tested"
    saw: str = ""
    """What the numbers do not say by themselves."""
    evidence: tuple[Evidence, ...] = ()

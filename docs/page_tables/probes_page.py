"""The tables of docs/probes.md."""

from __future__ import annotations

from collections.abc import Sequence

from ngu.report.results import Results
from page_tables.kept import (
    MILLION,
    PERCENT,
    PLAIN,
    WHOLE_PERCENT,
    between,
    markdown,
    millions,
    runs_of,
    stretch,
    value_at,
)

ERROR, CONSTANT = "probe/position/squared_error", "probe/position/baseline"


def small_maze() -> str:
    """What f knows on the 9x9 maze."""
    return _maze("disco-maze-small/probes/{}-seed0.csv", [20_000, 100_000, 160_000, 200_000, 300_000, 400_000])


def large_maze() -> str:
    """What f knows on the 21x21 maze."""
    steps = [2_400_000, 4_400_000, 8_400_000, 16_400_000, 20_000_000]
    return _maze("reproduce/node/disco-maze/{}-probed-seed0.csv", steps)


def _maze(files: str, steps: Sequence[int]) -> str:
    """Squared errors at some steps, of the learned f and of a random one."""
    (learned,), (random,) = (runs_of(files.format(agent)) for agent in ("ngu", "random-projection"))
    rows = []
    for step in steps:
        accuracy = PERCENT.one(value_at(learned, "inverse/accuracy", step))
        rows.append([millions(step), *_squared_error(learned, step), accuracy, *_squared_error(random, step)])
    told = ["constant", "share"]
    return markdown(["steps", "learned f", *told, "inverse accuracy", "random f", *told], rows)


def _squared_error(run: Results, step: int) -> list[str]:
    """The error at a step, that of a constant answer, and the one as a share of the other."""
    error, constant = value_at(run, ERROR, step), value_at(run, CONSTANT, step)
    return [PLAIN.one(error), PLAIN.one(constant), WHOLE_PERCENT.one(_share(error, constant))]


_MONTEZUMA = {
    "NGU, N = 32": "ngu",
    "NGU, N = 1": "n1",
    "N = 1, f trained on four times as much": "n1-20-frames-xi-0.4",
}
"""Agents, and their files."""
_STRETCHES = [(0, 0.2), (0.3, 0.5), (0.5, 1), (1, 1.5), (1.5, 2), (2, 3), (3, 4)]
"""In millions of agent steps; until the end of the first all play at random."""


def montezuma() -> str:
    """What f knows on Montezuma's Revenge."""
    runs = [runs_of(f"atari/montezuma_revenge/remedies/{name}-seed0.csv")[0] for name in _MONTEZUMA.values()]
    rows = []
    for bounds in _STRETCHES:
        start, end = (bound * MILLION for bound in bounds)
        label = stretch(start, end) + ("" if start else ", at random")
        rows.append([label, *(cell for run in runs for cell in _root_of_squared_error(run, start, end))])
    head = [name for agent in _MONTEZUMA for name in (agent, "constant", "share")]
    return markdown(["agent steps", *head], rows, right=True)


def _root_of_squared_error(run: Results, start: float, end: float) -> list[str]:
    """The root of the error over a stretch, that of a constant answer, and the squares' share."""
    error, constant = between(run, ERROR, start, end), between(run, CONSTANT, start, end)
    return [
        *(PLAIN.one(value and value**0.5) for value in (error, constant)),
        WHOLE_PERCENT.one(_share(error, constant)),
    ]


def _share(error: float | None, constant: float | None) -> float | None:
    return error / constant if error is not None and constant is not None else None


PARTS = [small_maze, large_maze, montezuma]
"""In the order of their places in the page."""

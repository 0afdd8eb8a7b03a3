"""The tables of docs/results.md."""

from __future__ import annotations

from page_tables.kept import COVERAGE, PERCENT, commands, last, table

SMALL = [COVERAGE.format(50), COVERAGE.format(100)]


def small_maze() -> str:
    """The preset on the 9x9 maze."""
    return table(
        "seed",
        {str(seed): f"disco-maze-small/ngu-seed{seed}.csv" for seed in range(3)},
        {
            "after 50 steps": last(SMALL[0], style=PERCENT),
            "after 100 steps": last(SMALL[1]),
            "command": commands,
        },
    )


PARTS = [small_maze]
"""In the order of their places in the page."""

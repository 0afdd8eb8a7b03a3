"""The kinds of environments and what a report makes of each: the one place that tells them apart.

`mazes` shows coverage, ways and scripted policies; `games` shows scores and screens, of all others alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from matplotlib.figure import Figure

from ngu.report import games, mazes
from ngu.report.chapter import Chapter
from ngu.report.film import Film
from ngu.report.groups import Group
from ngu.report.style import Theme


class Kind(Protocol):
    """What a kind of environments offers; see `record.py` for the arguments."""

    def chapter(self, groups: Sequence[Group]) -> Chapter:
        """Its part of a page, about runs in one or more environments of this kind."""
        ...

    def film(self, run: Path, seed: int, policy: str, steps: int | None) -> Film:
        """One episode, played and ready to be drawn."""
        ...

    def poster(self, run: Path, theme: Theme) -> Figure:
        """What the agent does, in one wide picture."""
        ...


KINDS: Mapping[str, Kind] = {
    "disco-maze": mazes,
    "deep-sea": games,
    "random-coin": games,
    "minigrid": games,
    "atari": games,
    "gym": games,
}
"""By `env.name`."""

"""What a report makes of games, of Atari and Gymnasium; see `kinds.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ngu.report.chapter import Chapter
from ngu.report.film import Film
from ngu.report.games.chapter import EPISODE_STEPS, GameChapter
from ngu.report.games.episode import play
from ngu.report.games.film import GameFilm
from ngu.report.games.pictures import novelty_figure
from ngu.report.groups import Group
from ngu.report.style import Theme
from ngu.run_folder import RunFolder

FILM_STEPS = 1000
"""An animation ends after so many steps unless told otherwise: over a minute of an Atari game."""


def chapter(groups: Sequence[Group]) -> Chapter:
    return GameChapter(groups)


def film(run: Path, seed: int, policy: str, steps: int | None) -> Film:
    return GameFilm(play(run, steps=FILM_STEPS if steps is None else steps, seed=seed, policy=policy))


def poster(run: Path, theme: Theme) -> Figure:
    seed = RunFolder.open(run).config.evaluation.seed
    return novelty_figure(play(run, steps=EPISODE_STEPS, seed=seed), theme)

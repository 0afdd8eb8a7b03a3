"""What a report makes of the Random Disco Maze; see `kinds.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ngu.report.chapter import Chapter
from ngu.report.film import Film
from ngu.report.groups import Group
from ngu.report.mazes.chapter import MazeChapter
from ngu.report.mazes.episode import play, play_evaluation
from ngu.report.mazes.film import MazeFilm
from ngu.report.mazes.pictures import poster_figure
from ngu.report.style import Theme
from ngu.run_folder import RunFolder


def chapter(groups: Sequence[Group]) -> Chapter:
    return MazeChapter(groups)


def film(run: Path, seed: int, policy: str, steps: int | None) -> Film:
    played = play(run, episodes=1, seed=seed, policy=policy, steps=steps)
    return MazeFilm(played.episodes[0], max(played.max_steps, 1))


def poster(run: Path, theme: Theme) -> Figure:
    env = RunFolder.open(run).config.env
    return poster_figure(play_evaluation(run), (env.maze_size, env.maze_step_cap), theme)

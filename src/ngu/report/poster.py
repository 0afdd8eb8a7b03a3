"""One wide picture that says what the agent does: what it sees, where it goes, how it compares."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from ngu.report.episode import Played, play_evaluation
from ngu.report.mazes import draw_map, draw_observation, draw_within_episode
from ngu.report.results import write_file
from ngu.report.style import LIGHT, house_style, to_png
from ngu.run_folder import RunFolder


def poster(run: Path, out_png: Path) -> Path:
    """Draws a maze as the agent sees it, its way through it, and its coverage beside that of scripted policies."""
    env = RunFolder.open(run).config.env
    played = play_evaluation(run)
    with house_style():
        write_file(out_png, to_png(_figure(played, (env.maze_size, env.maze_step_cap))))
    return out_png


def _figure(played: Played, maze: tuple[int, int]) -> Figure:
    figure = Figure(figsize=(13.0, 3.6))
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.1, 1.1, 1.75))
    draw_observation(left, played.typical, LIGHT)
    draw_map(middle, played.typical, LIGHT)
    draw_within_episode(right, played, maze, LIGHT)
    return figure

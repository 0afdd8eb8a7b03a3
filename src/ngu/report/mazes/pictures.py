"""Figures of episodes: where the agent went, how fast it covered the maze, and what it was paid for that."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ngu.report.mazes.coverage import scripted_coverage
from ngu.report.mazes.episode import Episode, Played
from ngu.report.style import ALPHA, INTRINSIC, Label, Theme, label_ends, share_axis, style_axes

WALL = (168, 174, 182)
PATH = (250, 250, 251)
AGENT = (213, 94, 0)
"""RGB of the map; the agent's colour is one that the colours of the visits never take."""
VISITS = colormaps["viridis"]


def visit_colours(share: NDArray[np.float64]) -> NDArray[np.uint8]:
    """[..., 3] RGB of a first visit, by its place in the order of all, from 0 to 1."""
    return np.asarray(np.round(255 * np.asarray(VISITS(share))[..., :3]), dtype=np.uint8)


def maze_map(episode: Episode) -> NDArray[np.uint8]:
    """[S, S, 3] RGB: walls, paths, and visited cells coloured in the order of their first visits."""
    picture = np.where(episode.walls[..., None], WALL, PATH).astype(np.uint8)
    share = episode.visit_share
    visited = ~np.isnan(share)
    picture[visited] = visit_colours(share[visited])
    return picture


def draw_observation(ax: Axes, episode: Episode, theme: Theme) -> None:
    """What the agent sees when the episode begins."""
    _draw_pixels(ax, np.moveaxis(episode.observation[0], 0, -1), theme, "What the agent sees")


def draw_map(ax: Axes, episode: Episode, theme: Theme) -> None:
    """The cells that the episode visited, coloured by their order, with its way, its start and its end."""
    share = episode.coverage[-1]
    _draw_pixels(ax, maze_map(episode), theme, f"Where it went: {share:.0%} of the open cells")
    rows, columns = np.divmod(episode.position, episode.size)
    ax.plot(columns, rows, color="white", linewidth=1.0, alpha=0.75, solid_joinstyle="round")
    agent = tuple(channel / 255 for channel in AGENT)
    size = 90 / episode.size
    ax.plot(columns[0], rows[0], "o", color="white", markeredgecolor="black", markersize=size, clip_on=False)
    end = "X" if episode.hit_wall else "s"
    ax.plot(columns[-1], rows[-1], end, color=agent, markeredgecolor="white", markersize=size, clip_on=False)


def _draw_pixels(ax: Axes, picture: NDArray[np.uint8], theme: Theme, title: str) -> None:
    ax.imshow(picture, interpolation="none")
    ax.set_title(title, loc="left", color=theme.ink, fontweight="bold")
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_color(theme.muted)


def map_figure(episode: Episode, theme: Theme) -> Figure:
    """A maze as the agent sees it, and the map of one episode in it."""
    figure = Figure(figsize=(9.0, 4.3))
    left, right = figure.subplots(1, 2)
    draw_observation(left, episode, theme)
    draw_map(right, episode, theme)
    _draw_visit_scale(figure, right, theme)
    return figure


def _draw_visit_scale(figure: Figure, ax: Axes, theme: Theme) -> None:
    """The colours of the visits beside a map."""
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), VISITS), ax=ax, fraction=0.045, pad=0.02, ticks=[0, 1])
    bar.ax.set_yticklabels(["first", "last"])
    bar.set_label("order in which cells were reached", color=theme.muted, labelpad=-12)
    bar.ax.tick_params(colors=theme.muted, length=3)
    bar.outline.set_visible(False)


def poster_figure(played: Played, maze: tuple[int, int], theme: Theme) -> Figure:
    """A maze as the agent sees it, its way through it, and its coverage beside that of scripted policies."""
    figure = Figure(figsize=(13.0, 3.6))
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.1, 1.1, 1.75))
    draw_observation(left, played.typical, theme)
    draw_map(middle, played.typical, theme)
    draw_within_episode(right, played, maze, theme)
    return figure


def within_episode_figure(played: Played, maze: tuple[int, int], theme: Theme) -> Figure:
    """Mean coverage against the step in the episode, of the agent and of the scripted policies."""
    figure = Figure(figsize=(9.0, 3.6))
    draw_within_episode(figure.add_subplot(), played, maze, theme)
    return figure


def draw_within_episode(ax: Axes, played: Played, maze: tuple[int, int], theme: Theme) -> None:
    """See `within_episode_figure`."""
    steps = played.max_steps
    style_axes(
        ax,
        theme,
        title="Coverage in the course of an episode",
        xlabel="step in the episode",
        ylabel="open cells visited",
    )
    ax.set_xlim(0, steps)
    share_axis(ax)
    labels = []
    for name, coverage in scripted_coverage(maze, steps).items():
        ax.plot(np.arange(1, steps + 1), coverage, color=theme.muted, linewidth=1.0, linestyle=(0, (2, 2)))
        labels.append(Label(steps, float(coverage[-1]), f"{name} {coverage[-1]:.0%}", theme.muted))
    mean = played.mean_coverage()
    ax.plot(np.arange(steps + 1), mean, color=theme.colour(0), linewidth=2.2)
    labels.append(Label(steps, float(mean[-1]), f"agent {mean[-1]:.0%}", theme.colour(0), bold=True))
    label_ends(ax, labels, 2.8)


def novelty_figure(episode: Episode, max_modulation: float, theme: Theme) -> Figure:
    """r_i, its episodic part and alpha at each step of an episode, with the first visits to cells marked."""
    figure = Figure(figsize=(9.0, 5.4))
    reward, episodic, alpha = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 2))
    style_axes(reward, theme, title=f"Intrinsic reward {INTRINSIC}", ylabel=INTRINSIC)
    style_axes(episodic, theme, title="Its episodic part", ylabel="reward")
    style_axes(alpha, theme, title=f"Life-long modulator {ALPHA}, before its clip", ylabel=ALPHA)
    alpha.set_xlabel("step in the episode", color=theme.muted)
    steps = np.arange(1, episode.length + 1)
    new = episode.new_cell[1:]
    edges = np.arange(episode.length + 1) + 0.5
    for ax, values in ((reward, episode.reward[1:]), (episodic, episode.episodic[1:])):
        for chosen, colour in ((new, theme.colour(0)), (~new, theme.colour(1))):
            ax.stairs(np.where(chosen, values, 0.0), edges, fill=True, color=colour, linewidth=0)
    reward.set_xlim(edges[0], edges[-1])
    reward.xaxis.set_major_locator(MaxNLocator(integer=True))
    for place, text, colour in ((0.88, "new cell", theme.colour(0)), (0.7, "seen before", theme.colour(1))):
        reward.text(1.02, place, text, color=colour, fontweight="bold", transform=reward.transAxes)
    alpha.plot(steps, episode.alpha[1:], color=theme.ink, linewidth=1.2)
    shown = np.append(episode.alpha[1:], 1.0)
    for bound, text in ((1.0, "clip: at least 1"), (max_modulation, f"clip: at most {max_modulation:g}")):
        if bound <= max(1.0, 1.5 * shown.max()):
            alpha.axhline(bound, color=theme.muted, linewidth=0.9, linestyle=(0, (2, 3)))
            label_ends(alpha, [Label(episode.length, bound, text, theme.muted)], 1.0)
    return figure

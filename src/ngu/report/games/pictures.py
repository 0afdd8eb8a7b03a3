"""Figures of an episode of a game: what was on the screen, and what the agent was paid for it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import MaxNLocator

from ngu.report.games.episode import Episode, Played
from ngu.report.style import ALPHA, FONT_SIZE, INTRINSIC, Label, Theme, label_ends, style_axes

_SCREENS = 8
"""So many screens stand above the curves."""
_WIDTH = 9.0


def novel_steps(episode: Episode, count: int = _SCREENS) -> list[int]:
    """The step of the highest r_i in each of `count` equal parts of an episode, or every step of a short one."""
    edges = np.unique(np.linspace(1, episode.length + 1, count + 1).round().astype(int))
    return [int(low + np.argmax(episode.reward[low:high])) for low, high in pairwise(edges.tolist())]


def novelty_figure(played: Played, theme: Theme) -> Figure:
    """Screens of an episode above score, r_i, alpha and, where they are known, rooms at each of its steps."""
    episode = played.episode
    rooms = episode.rooms
    heights = [1.4 if episode.vectors is None else 0.9, 0.9, 1.3, 0.9, *([0.8] if rooms is not None else [])]
    figure = Figure(figsize=(_WIDTH, 1.6 * sum(heights)))
    grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    steps = novel_steps(episode)
    axes = [figure.add_subplot(grid[1])]
    axes += [figure.add_subplot(grid[row], sharex=axes[0]) for row in range(2, len(heights))]
    if episode.vectors is None:
        _draw_screens(figure, grid, episode, steps, theme)
    else:
        _draw_vectors(figure.add_subplot(grid[0], sharex=axes[0]), episode, theme)
    score, reward, alpha = axes[:3]
    time = np.arange(1, episode.length + 1)
    style_axes(score, theme, title="Score", ylabel="score so far")
    score.step(np.arange(episode.length + 1), episode.score, where="post", color=theme.colour(2), linewidth=1.5)
    if episode.score.min() >= 0:
        top = float(episode.score.max()) * 1.1 or 1.0
        score.set_ylim(-0.05 * top, top)
    style_axes(reward, theme, title=f"Intrinsic reward {INTRINSIC}", ylabel=INTRINSIC)
    reward.stairs(
        episode.reward[1:], np.arange(episode.length + 1) + 0.5, fill=True, color=theme.colour(0), linewidth=0
    )
    reward.set_ylim(0, float(episode.reward.max()) * 1.25 or 1.0)
    if episode.vectors is None:
        _mark(reward, episode, steps, theme)
    style_axes(alpha, theme, title=f"Life-long modulator {ALPHA}, before its clip", ylabel=ALPHA)
    alpha.plot(time, episode.alpha[1:], color=theme.colour(1), linewidth=1.0)
    _draw_clip(alpha, episode, played.max_modulation, theme)
    if rooms is not None:
        style_axes(axes[3], theme, title="Rooms", ylabel="visited so far")
        axes[3].step(np.arange(episode.length + 1), rooms, where="post", color=theme.colour(3), linewidth=1.5)
        axes[3].set_ylim(0, float(rooms[-1]) + 1)
        axes[3].yaxis.set_major_locator(MaxNLocator(4, integer=True))
    for ax in axes[:-1]:
        ax.tick_params(labelbottom=False)
    axes[-1].set_xlim(0, episode.length + 0.5)
    axes[-1].xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes[-1].set_xlabel("step in the episode", color=theme.muted)
    return figure


def _draw_screens(figure: Figure, grid: GridSpec, episode: Episode, steps: list[int], theme: Theme) -> None:
    strip = grid[0].subgridspec(1, _SCREENS, wspace=0.04)
    for number, step in enumerate(steps, start=1):
        ax = figure.add_subplot(strip[number - 1])
        ax.imshow(episode.screen(step), interpolation="none")
        ax.set_title(f"{number}: step {step:,}", color=theme.ink, fontsize=FONT_SIZE - 0.5, pad=4)
        ax.set_xticks([])
        ax.set_yticks([])
        for spine in ax.spines.values():
            spine.set_color(theme.muted)


def _draw_vectors(ax: Axes, episode: Episode, theme: Theme) -> None:
    """Observations that are no pictures: a row for each number, blue where it is positive, red where negative."""
    assert episode.vectors is not None
    largest = np.abs(episode.vectors).max(0)
    share = np.divide(episode.vectors, largest, out=np.zeros_like(episode.vectors), where=largest > 0)
    style_axes(ax, theme, title="Observation: each number by its share of its largest size", ylabel="number")
    extent = (-0.5, episode.length + 0.5, len(largest) - 0.5, -0.5)
    ax.imshow(share.T, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="none", extent=extent)
    ax.grid(False)
    ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.tick_params(labelbottom=False)


def _mark(ax: Axes, episode: Episode, steps: list[int], theme: Theme) -> None:
    """The numbers of the screens over the steps that they show."""
    for number, step in enumerate(steps, start=1):
        ax.annotate(
            str(number),
            xy=(step, episode.reward[step]),
            xytext=(0, 3),
            textcoords="offset points",
            color=theme.ink,
            fontsize=FONT_SIZE - 1,
            fontweight="bold",
            ha="center",
            va="bottom",
        )


def _draw_clip(ax: Axes, episode: Episode, max_modulation: float, theme: Theme) -> None:
    """The bounds that alpha is clipped to, where they are within sight."""
    highest = float(np.append(episode.alpha[1:], 1.0).max())
    labels = []
    for bound, text in ((1.0, "at least 1"), (max_modulation, f"at most {max_modulation:g}")):
        if bound <= 1.5 * highest:
            ax.axhline(bound, color=theme.muted, linewidth=0.9, linestyle=(0, (2, 3)))
            labels.append(Label(episode.length, bound, text, theme.muted))
    label_ends(ax, labels, 1.0)

"""The measurements of `ngu bench` on environments of the host, as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ngu.benchmarks.acting import Growth
from ngu.benchmarks.hosted import HostedBenchmark
from ngu.report.results import write_file
from ngu.report.style import LIGHT, Label, Theme, house_style, label_ends, short_number, style_axes, to_png

_PANEL = (4.6, 3.1)
"""Inches."""
_AXES_HEIGHT = 2.3

Lines = dict[str, list[tuple[float, float]]]
"""Name -> points."""


def write_plot(result: HostedBenchmark, path: Path) -> Path:
    """Draws rates against the ratio of trained to collected steps and, if measured, the growth of acting."""
    with house_style():
        write_file(path, to_png(draw(result, LIGHT)))
    return path


def draw(result: HostedBenchmark, theme: Theme) -> Figure:
    """One panel, or two rows of two."""
    side = 1 if result.growth is None else 2
    figure = Figure(figsize=(_PANEL[0] * side, _PANEL[1] * side))
    axes = figure.subplots(side, side, squeeze=False).flatten().tolist()
    _draw_rates(axes[0], result, theme)
    if result.growth is not None:
        _draw_growth(axes[1:], result.growth, theme)
    return figure


def _draw_rates(ax: Axes, result: HostedBenchmark, theme: Theme) -> None:
    title = f"{result.environment}, {result.num_envs} environments"
    style_axes(ax, theme, title=title, xlabel="trained steps per collected step", ylabel="env steps/s")
    lines = {
        "whole agent": [(rate.replay_ratio, rate.env_steps_per_second) for rate in result.agent],
        "bare emulator": [(rate.replay_ratio, rate.bare_env_steps_per_second) for rate in result.agent],
    }
    _draw_lines(ax, lines, theme)


def _draw_growth(axes: Sequence[Axes], growth: Growth, theme: Theme) -> None:
    over_environments: Lines = {
        f"{fill:,} entries" if fill else "empty memories": [
            (time.num_envs, time.step_ms) for time in growth.environments if time.memory_filled == fill
        ]
        for fill in sorted({time.memory_filled for time in growth.environments})
    }
    over_memory: Lines = {"acting": [(time.memory_filled, time.step_ms) for time in growth.memory_filled]}
    searched: list[tuple[float, float]] = [
        (time.memory_filled, time.knn_ms) for time in growth.memory_filled if time.knn_ms is not None
    ]
    if searched:
        over_memory["k-NN search"] = searched
    over_policies: Lines = {"acting": [(time.num_mixtures, time.step_ms) for time in growth.mixtures]}
    environments = f"{growth.mixtures[0].num_envs} environments"
    for ax, lines, title, xlabel in (
        (axes[0], over_environments, "Acting step over environments", "environments"),
        (axes[1], over_memory, f"Over memory, {environments}", "entries of each memory"),
        (axes[2], over_policies, f"Over policies, {environments}", "N"),
    ):
        style_axes(ax, theme, title=title, xlabel=xlabel, ylabel="ms")
        _draw_lines(ax, lines, theme)


def _draw_lines(ax: Axes, lines: Lines, theme: Theme) -> None:
    """Both axes begin at 0, so that heights can be compared, and have plain numbers."""
    labels = []
    for place, (name, points) in enumerate(lines.items()):
        xs, ys = zip(*points, strict=True)
        ax.plot(xs, ys, color=theme.colour(place), marker="o", markersize=3.5, linewidth=1.4, clip_on=False)
        labels.append(Label(xs[-1], ys[-1], name, theme.colour(place)))
    ax.set_xlim(left=0)
    ax.set_ylim(0, 1.1 * max(y for points in lines.values() for _, y in points))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _position: short_number(value)))
    label_ends(ax, labels, _AXES_HEIGHT)

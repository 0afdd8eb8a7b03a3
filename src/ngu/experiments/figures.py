"""The figures of experiments: learning curves, bars of human-normalised scores, and the two ladders."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from ngu.experiments.collecting import STATISTICS, Collected, Estimate, published_normalised
from ngu.experiments.definition import Column, Experiment, Panel, Task
from ngu.experiments.plan import frames_per_step
from ngu.mixture import betas, discounts
from ngu.report.curves import AXES_HEIGHT, PANEL_SIZE, draw_curve, end_of
from ngu.report.groups import Curve
from ngu.report.style import (
    FONT_SIZE,
    Label,
    Theme,
    frames_axis,
    label_ends,
    share_axis,
    short_number,
    steps_axis,
    style_axes,
)

_MOST_COLUMNS = 4
LADDERS = {
    "beta_distrib": ("beta_i, weight of the intrinsic reward", betas(32, 0.3)),
    "gamma_distrib": ("gamma_i, discount", discounts(32, 0.997, 0.99)),
}
"""The analytic figures: what stands on the vertical axis, and its values (App. A)."""


def draw(experiment: Experiment, collected: Collected, theme: Theme) -> Figure | None:
    """The figure of an experiment; None if it has none, or nothing was measured yet."""
    if experiment.kind == "ladder":
        return _ladder(experiment, theme)
    if experiment.kind == "curves":
        return _curves(experiment, collected, theme)
    if experiment.kind == "bars":
        return _bars(experiment, collected, theme)
    return None


def _ladder(experiment: Experiment, theme: Theme) -> Figure:
    label, values = LADDERS[experiment.name]
    figure = Figure(figsize=PANEL_SIZE)
    ax = figure.add_subplot()
    style_axes(ax, theme, title=experiment.title, xlabel="policy i", ylabel=label)
    ax.plot(range(len(values)), values, color=theme.colour(0), marker="o", markersize=3.5, linewidth=0.8)
    return figure


# ---------------------------------------------------------------------------------------------------------- curves


def _curves(experiment: Experiment, collected: Collected, theme: Theme) -> Figure | None:
    """A pair of axes for each task and panel; tasks of which nothing was measured are left out."""
    pairs = [
        (task, panel, lines)
        for panel in experiment.panels
        for task in experiment.tasks
        if (lines := _lines(experiment, collected, task, panel))
    ]
    if not pairs:
        return None
    columns = min(len(pairs), _MOST_COLUMNS if len(pairs) > _MOST_COLUMNS else 2)
    rows = math.ceil(len(pairs) / columns)
    figure = Figure(figsize=(PANEL_SIZE[0] * columns, (PANEL_SIZE[1] + 0.45) * rows))
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for ax, (task, panel, lines) in zip(axes, pairs, strict=False):
        _draw_curves(ax, task, panel, lines, theme)
    for ax in axes[len(pairs) :]:
        ax.set_axis_off()
    return figure


@dataclass(frozen=True)
class _Line:
    """A column that has been measured."""

    place: int
    """Among all columns, which is its colour."""
    label: str
    curve: Curve


def _lines(experiment: Experiment, collected: Collected, task: Task, panel: Panel) -> list[_Line]:
    """What was measured; training episodes where there was no evaluation, and named so."""
    found = []
    for place, column in enumerate(experiment.columns):
        curve, label = collected.curve(column, task, panel.metrics), column.label
        if curve is None:
            curve, label = collected.training_curve(column, task, panel.metrics), f"{column.label}, in training"
        if curve is not None:
            found.append(_Line(place, label, curve))
    return found


def _draw_curves(ax: Axes, task: Task, panel: Panel, lines: list[_Line], theme: Theme) -> None:
    style_axes(ax, theme, title=f"{task.title}: {panel.title}", xlabel="agent steps", ylabel=panel.unit)
    steps_axis(ax, end_of([line.curve for line in lines]))
    if task.world == "atari":
        frames_axis(ax, frames_per_step(task), theme)
    labels = []
    for line in lines:
        colour = theme.colour(line.place)
        labels.append(Label(*draw_curve(ax, line.curve, colour), line.label, colour))
    if panel.share:
        share_axis(ax)
    else:
        ax.margins(y=0.08)
    label_ends(ax, labels, AXES_HEIGHT)


# ------------------------------------------------------------------------------------------------------------ bars


def _bars(experiment: Experiment, collected: Collected, theme: Theme) -> Figure | None:
    """For each group of games and each statistic, a bar for each agent, and a mark for what the paper printed."""
    pairs = [
        (title, name, tasks)
        for title, names in experiment.groups.items()
        for tasks in [[task for task in experiment.tasks if task.name in names]]
        for name in STATISTICS
    ]
    columns = experiment.columns
    heights = {
        (title, name): [collected.normalised(column, tasks, STATISTICS[name]) for column in columns]
        for title, name, tasks in pairs
    }
    if not any(entry for entries in heights.values() for entry in entries):
        return None
    wide, high = len(STATISTICS), len(experiment.groups)
    figure = Figure(figsize=(PANEL_SIZE[0] * wide, (PANEL_SIZE[1] + 0.5) * high))
    axes = figure.subplots(high, wide, squeeze=False).flatten().tolist()
    for ax, (title, name, tasks) in zip(axes, pairs, strict=True):
        printed = [
            published_normalised(experiment.published.get(column.label, {}), tasks, STATISTICS[name])
            for column in columns
        ]
        _draw_bars(ax, f"{title}: {name} over games", columns, heights[title, name], printed, theme)
    caption = "bars: ours, with 95 % intervals; diamonds: reckoned from the scores that the paper prints"
    figure.supxlabel(caption, fontsize=FONT_SIZE, color=theme.muted)
    return figure


def _draw_bars(
    ax: Axes,
    title: str,
    columns: tuple[Column, ...],
    entries: list[Estimate | None],
    printed: list[float | None],
    theme: Theme,
) -> None:
    style_axes(ax, theme, title=title, ylabel="human-normalised score, %")
    ax.grid(False, axis="x")
    for place, (entry, paper) in enumerate(zip(entries, printed, strict=True)):
        if entry is not None:
            ax.bar(place, entry.value, width=0.6, color=theme.colour(place))
            ends = [[entry.value - entry.low], [entry.high - entry.value]]
            ax.errorbar([place], [entry.value], yerr=np.maximum(ends, 0), color=theme.ink, linewidth=1.2, capsize=3)
        if paper is not None:
            ax.plot([place], [paper], marker="D", markersize=5, color=theme.ink, markerfacecolor="none", linestyle="")
    ax.axhline(100, color=theme.muted, linewidth=0.9, linestyle=(0, (2, 3)))
    _human_axis(ax, [entry.high for entry in entries if entry] + [value for value in printed if value is not None])
    ax.set_xticks(range(len(columns)), [column.label for column in columns], rotation=35, ha="right")


def _human_axis(ax: Axes, values: list[float]) -> None:
    """Linear up to 100 %, logarithmic above: games differ by orders of magnitude, and scores may be negative."""
    ax.set_yscale("symlog", linthresh=100)
    ax.set_ylim(top=1.3 * max(*values, 100.0))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _position: short_number(value)))
    ax.yaxis.set_minor_formatter(NullFormatter())

"""Figures of learning: metrics against agent steps, one line per group of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ngu.errors import UserError
from ngu.report.groups import SCRIPTED_MAZES, Curve, Group, common_maze, make_groups, scripted_coverage
from ngu.report.results import Floats, read_sources, write_file
from ngu.report.style import (
    ALPHA,
    INTRINSIC,
    LIGHT,
    Label,
    Theme,
    house_style,
    label_ends,
    log_axis,
    share_axis,
    steps_axis,
    style_axes,
    to_png,
)

PANEL_SIZE = (5.6, 3.3)
"""Inches of a figure with one pair of axes."""
_AXES_HEIGHT = 2.6
_BIG_RATIO = 30.0
"""Positive values that spread wider than this are drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Line:
    """A metric in a panel."""

    metric: str
    label: str
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes: metrics that belong together."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    share: bool = False
    """Values are shares of 1, shown in percent."""

    @property
    def metrics(self) -> list[str]:
        return [line.metric for line in self.lines]


PANELS = (
    Panel(
        "Inverse model: accuracy",
        "share of actions",
        (Line("inverse/accuracy", "accuracy"), Line("inverse/majority", "commonest action", dashed=True)),
        share=True,
    ),
    Panel(
        f"Intrinsic reward {INTRINSIC} while training",
        "reward per step",
        (Line("novelty/reward", "reward"), Line("novelty/episodic", "episodic part", dashed=True)),
    ),
    Panel(f"Life-long modulator {ALPHA}, before its clip", ALPHA, (Line("novelty/alpha", ALPHA),)),
    Panel(
        "Episode length",
        "steps",
        (Line("eval/explore/length", "evaluation"), Line("env/episode_length", "training", dashed=True)),
    ),
    Panel("Retrace loss of the Q-network", "loss", (Line("loss/retrace", "loss"),)),
    Panel("Loss of the inverse model", "cross-entropy, nats", (Line("loss/inverse", "loss"),)),
    Panel("Loss of RND's predictor", "mean squared error", (Line("loss/rnd", "loss"),)),
)
"""The learning curves of a report, beside the coverage."""


def coverage_metric(policy: str, mark: int) -> str:
    return f"eval/{policy}/coverage@{mark}"


def coverage_figure(groups: Sequence[Group], policy: str, mark: int, theme: Theme) -> Figure:
    """Coverage in evaluation against agent steps, with the scripted policies as lines across."""
    figure = Figure(figsize=PANEL_SIZE)
    ax = figure.add_subplot()
    who = "" if policy == "explore" else f", policy {policy}"
    draw_coverage(ax, groups, policy, mark, theme, title=f"Coverage after {mark} steps{who}")
    return figure


def draw_coverage(ax: Axes, groups: Sequence[Group], policy: str, mark: int, theme: Theme, *, title: str) -> None:
    """See `coverage_figure`."""
    style_axes(ax, theme, title=title, xlabel="agent steps", ylabel="open cells visited")
    metric = coverage_metric(policy, mark)
    curves = [(group, curve) for group in groups if (curve := group.curve(metric)) is not None]
    end = _end([curve for _, curve in curves])
    steps_axis(ax, end)
    share_axis(ax)
    labels = []
    maze = common_maze(groups)
    if maze is not None:
        for name, coverage in scripted_coverage(maze, longest_mark(groups)).items():
            value = float(coverage[mark - 1])
            ax.axhline(value, color=theme.muted, linewidth=0.9, linestyle=(0, (2, 3)), zorder=1)
            labels.append(Label(end, value, f"{name} {value:.0%}", theme.muted))
    for group, curve in curves:
        colour = theme.colour(group.place)
        _draw(ax, curve, colour)
        final = float(np.mean(group.final(metric)))
        text = f"{group.label if len(groups) > 1 else 'agent'} {final:.0%}"
        labels.append(Label(_end([curve]), final, text, colour, bold=True))
    label_ends(ax, labels, _AXES_HEIGHT)


def panel_figure(panel: Panel, groups: Sequence[Group], theme: Theme) -> Figure | None:
    """The metrics of a panel against agent steps; None if no group has any of them."""
    drawn = [
        (group, line, curve)
        for group in groups
        for line in panel.lines
        # A part that is 0 throughout is one that this variant does not have.
        if (curve := group.curve(line.metric)) is not None and (not line.dashed or curve.high.any())
    ]
    if not drawn:
        return None
    figure = Figure(figsize=PANEL_SIZE)
    ax = figure.add_subplot()
    style_axes(ax, theme, title=panel.title, xlabel="agent steps", ylabel=panel.unit)
    steps_axis(ax, _end([curve for _, _, curve in drawn]))
    labels = []
    several = len(groups) > 1
    for group, line, curve in drawn:
        # One group alone: colours tell the metrics apart. Several: colours are groups, dashes are metrics.
        colour = theme.colour(group.place if several else panel.lines.index(line))
        last = _draw(ax, curve, colour, dashed=line.dashed)
        if several and not line.dashed:
            labels.append(Label(*last, group.label, colour))
        elif not several and len(panel.lines) > 1:
            labels.append(Label(*last, line.label, colour))
    dashed = [line.label for line in panel.lines if line.dashed]
    if several and dashed:
        ax.set_title(f"{panel.title} (dashed: {', '.join(dashed)})", loc="left", color=theme.ink, fontweight="bold")
    values = np.concatenate([np.concatenate([curve.low, curve.high]) for _, _, curve in drawn])
    if panel.share:
        share_axis(ax)
    elif values.min() > 0 and values.max() / values.min() > _BIG_RATIO:
        log_axis(ax)
    elif values.min() >= 0:
        ax.set_ylim(0, max(float(values.max()) * 1.08, 1e-9))
    label_ends(ax, labels, _AXES_HEIGHT)
    return figure


def _end(curves: Sequence[Curve]) -> float:
    ends: list[Floats] = [steps[-1:] for curve in curves for steps in (curve.steps, *(tail[0] for tail in curve.tails))]
    return float(np.max(np.concatenate(ends))) if ends else 1.0


def _draw(ax: Axes, curve: Curve, colour: str, *, dashed: bool = False) -> tuple[float, float]:
    """Mean, band and tails; the point where the line ends."""
    marker = "o" if len(curve.steps) == 1 else None
    ax.plot(
        curve.steps, curve.mean, color=colour, linewidth=1.8, linestyle=(0, (4, 2)) if dashed else "-", marker=marker
    )
    if np.any(curve.high > curve.low):
        ax.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    for steps, values in curve.tails:
        ax.plot(steps, values, color=colour, linewidth=0.8, alpha=0.6)
    return float(curve.steps[-1]), float(curve.mean[-1])


def results_figure(groups: Sequence[Group], theme: Theme) -> Figure:
    """The paper's fig_disco_maze (right): coverage against steps, a line per variant, a panel per mark."""
    rows = [[group for group in groups if group.preset == preset] for preset in sorted({g.preset for g in groups})]
    marks = [explore_marks(row) for row in rows]
    columns = max(1, max(map(len, marks)))
    figure = Figure(figsize=(PANEL_SIZE[0] * columns, PANEL_SIZE[1] * len(rows)))
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for row, row_marks, row_axes in zip(rows, marks, axes, strict=True):
        for ax in row_axes[len(row_marks) :]:
            ax.set_axis_off()
        for mark, ax in zip(row_marks, row_axes, strict=False):
            draw_coverage(ax, row, "explore", mark, theme, title=f"{row[0].preset}, after {mark} steps")
    return figure


def explore_marks(groups: Sequence[Group]) -> list[int]:
    """After how many steps the coverage of the exploratory policy was measured."""
    return sorted({mark for group in groups for run in group.runs for mark in run.coverage_marks().get("explore", [])})


def longest_mark(groups: Sequence[Group]) -> int:
    """After how many steps of an episode coverage was last measured, over all policies."""
    return max(
        (marks[-1] for group in groups for run in group.runs for marks in run.coverage_marks().values()), default=1
    )


def write_figure(sources: Sequence[Path], out_png: Path) -> Path:
    """Draws the coverage of runs or results against agent steps, and writes it as a PNG."""
    groups = make_groups(read_sources(sources))
    if not explore_marks(groups):
        raise UserError("there is no coverage to draw, no evaluation has been made yet; let the runs train on.")
    with house_style():
        write_file(out_png, to_png(results_figure(groups, LIGHT)))
    return out_png


def scripted_caption() -> str:
    return f"Grey lines: scripted policies, means over {SCRIPTED_MAZES} mazes; all but the random one see the walls."

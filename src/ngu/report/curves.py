"""Figures of learning: metrics against agent steps, one line per group of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ngu.report.groups import Curve, Group
from ngu.report.results import Floats
from ngu.report.style import (
    ALPHA,
    INTRINSIC,
    Label,
    Theme,
    frames_axis,
    label_ends,
    log_axis,
    share_axis,
    steps_axis,
    style_axes,
)

PANEL_SIZE = (5.6, 3.3)
"""Inches of a figure with one pair of axes."""
AXES_HEIGHT = 2.6
"""About so many of them are the axes."""
_BIG_RATIO = 30.0
"""Positive values that spread wider than this are drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Line:
    """A metric in a panel."""

    metric: str
    label: str
    dashed: bool = False
    absent_if_zero: bool = False
    """Where it is 0 throughout, it is a part that this variant does not have."""


@dataclass(frozen=True)
class Reference:
    """A value to compare with, drawn across where it is within sight."""

    value: float
    label: str


@dataclass(frozen=True)
class Panel:
    """One pair of axes: metrics that belong together."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    share: bool = False
    """Values are shares of 1, shown in percent."""
    linear: bool = False
    """Never on a logarithmic axis."""
    references: tuple[Reference, ...] = ()
    frames: bool = False
    """With an axis of frames under that of agent steps, where there are frames."""

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
    Panel("Controllable states: directions in use", "directions", (Line("inverse/dimensions", "in use"),)),
    Panel(
        "Position by a linear probe of f",
        "squared error",
        (
            Line("probe/position/squared_error", "probe"),
            Line("probe/position/baseline", "constant answer", dashed=True),
        ),
    ),
    Panel(
        "Room by a linear probe of f",
        "share of wrong answers",
        (Line("probe/room/error_rate", "probe"), Line("probe/room/baseline", "constant answer", dashed=True)),
        share=True,
    ),
    Panel(
        f"Intrinsic reward {INTRINSIC} while training",
        "reward per step",
        (
            Line("novelty/reward", "reward"),
            Line("novelty/episodic", "episodic part", dashed=True, absent_if_zero=True),
        ),
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
    Panel("Speed", "agent steps per second", (Line("speed/steps_per_second", "agent steps"),), linear=True),
)
"""The learning curves of a report, beside what the evaluations measured."""


def panel_figure(panel: Panel, groups: Sequence[Group], theme: Theme) -> Figure | None:
    """The metrics of a panel against agent steps; None if no group has any of them."""
    if not _drawn(panel, groups):
        return None
    width, height = PANEL_SIZE
    second_axis = panel.frames and groups[0].world.frames_per_step
    figure = Figure(figsize=(width, height + 0.45 if second_axis else height))
    draw_panel(figure.add_subplot(), panel, groups, theme)
    return figure


def _drawn(panel: Panel, groups: Sequence[Group]) -> list[tuple[Group, Line, Curve]]:
    return [
        (group, line, curve)
        for group in groups
        for line in panel.lines
        if (curve := group.curve(line.metric)) is not None
        and (not line.absent_if_zero or any(part.any() for part in _all_values(curve)))
    ]


def draw_panel(ax: Axes, panel: Panel, groups: Sequence[Group], theme: Theme) -> None:
    """Draws what `panel_figure` shows; all groups play in the same kind of world."""
    drawn = _drawn(panel, groups)
    frames = groups[0].world.frames_per_step
    beside = f" ({frames} frames each)" if frames and not panel.frames else ""
    style_axes(ax, theme, title=panel.title, xlabel=f"agent steps{beside}", ylabel=panel.unit)
    end = end_of([curve for _, _, curve in drawn])
    steps_axis(ax, end)
    if frames and panel.frames:
        frames_axis(ax, frames, theme)
    labels = []
    several = len(groups) > 1
    any_dashed = False
    for group, line, curve in drawn:
        # One group alone: colours tell the metrics apart. Several: colours are groups, dashes are metrics.
        colour = theme.colour(group.place if several else panel.lines.index(line))
        # A group that has the second metric alone (one policy, which explores) has nothing to tell it apart from.
        leads = line is next(first for other, first, _ in drawn if other is group)
        dashed = line.dashed and not leads
        any_dashed |= dashed
        last = draw_curve(ax, curve, colour, dashed=dashed)
        if several and leads:
            labels.append(Label(*last, group.label, colour))
        elif not several and len(panel.lines) > 1:
            labels.append(Label(*last, line.label, colour))
    if several and any_dashed:
        dashes = ", ".join(line.label for line in panel.lines if line.dashed)
        ax.set_title(f"{panel.title} (dashed: {dashes})", loc="left", color=theme.ink, fontweight="bold")
    values = np.concatenate([part for _, _, curve in drawn for part in _all_values(curve)])
    seen = [reference for reference in panel.references if _within_sight(reference.value, values)]
    for reference in seen:
        ax.axhline(reference.value, color=theme.muted, linewidth=0.9, linestyle=(0, (2, 3)), zorder=1)
        labels.append(Label(end, reference.value, reference.label, theme.muted))
    _limit(ax, panel, np.append(values, [reference.value for reference in seen]))
    label_ends(ax, labels, AXES_HEIGHT)


def _all_values(curve: Curve) -> list[Floats]:
    return [curve.low, curve.high, *(values for _, values in (*curve.heads, *curve.tails))]


def _within_sight(value: float, values: Floats) -> bool:
    """Whether showing a value would leave at least half of the height to the curves."""
    low, high = float(values.min()), float(values.max())
    span = max(high - low, 0.1 * max(abs(low), abs(high)))
    return low - span <= value <= high + span


def _limit(ax: Axes, panel: Panel, values: Floats) -> None:
    """The vertical axis."""
    if panel.share:
        share_axis(ax)
    elif values.min() > 0 and values.max() / values.min() > _BIG_RATIO and not panel.linear:
        log_axis(ax)
    elif values.min() >= 0:
        top = float(values.max()) * 1.08 or 1.0
        # A score that stays 0 is no accident: its line must not lie under the axis.
        ax.set_ylim(-0.03 * top if panel.linear else 0, top)


def end_of(curves: Sequence[Curve]) -> float:
    """The last step of the longest run."""
    ends: list[Floats] = [steps[-1:] for curve in curves for steps in (curve.steps, *(tail[0] for tail in curve.tails))]
    return float(np.max(np.concatenate(ends))) if ends else 1.0


def draw_curve(ax: Axes, curve: Curve, colour: str, *, dashed: bool = False) -> tuple[float, float]:
    """Mean, band, heads and tails; the point where the line ends."""
    marker = "o" if len(curve.steps) == 1 else None
    ax.plot(
        curve.steps,
        curve.mean,
        color=colour,
        linewidth=1.8,
        linestyle=(0, (4, 2)) if dashed else "-",
        marker=marker,
        clip_on=marker is None,  # a single point often lies on the edge
    )
    if np.any(curve.high > curve.low):
        ax.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    for steps, values in (*curve.heads, *curve.tails):
        ax.plot(steps, values, color=colour, linewidth=0.8, alpha=0.6)
    # Runs that never measured at the same step have no mean: their lines alone are drawn.
    steps, values = (curve.steps, curve.mean) if len(curve.steps) else max(curve.tails, key=lambda tail: tail[0][-1])
    return float(steps[-1]), float(values[-1])

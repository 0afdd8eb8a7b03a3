"""Coverage of held-out mazes against agent steps, beside that of scripted policies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ngu.envs.scripted import SCRIPTED_POLICIES, run_scripted
from ngu.report.curves import AXES_HEIGHT, PANEL_SIZE, draw_curve, end_of
from ngu.report.groups import Group, by_topic
from ngu.report.results import Floats, Results
from ngu.report.style import Label, Theme, label_ends, share_axis, steps_axis, style_axes

SCRIPTED_MAZES = 200
"""Over so many mazes the scripted policies are averaged."""
SCRIPTED_SEED = 1_000_003

_COVERAGE = re.compile(r"eval/([^/]+)/coverage@(\d+)")


def coverage_metric(policy: str, mark: int) -> str:
    return f"eval/{policy}/coverage@{mark}"


def coverage_marks(run: Results) -> dict[str, list[int]]:
    """For each evaluated policy, after how many steps of an episode its coverage was measured."""
    marks: dict[str, list[int]] = {}
    for name in run.names():
        if found := _COVERAGE.fullmatch(name):
            marks.setdefault(found[1], []).append(int(found[2]))
    # The exploratory policy first: its coverage is what the maze measures.
    return {policy: sorted(marks[policy]) for policy in sorted(marks, reverse=True)}


def policy_marks(groups: Sequence[Group], policy: str) -> list[int]:
    """After how many steps the coverage of a policy was measured in any of the runs."""
    return sorted({mark for group in groups for run in group.runs for mark in coverage_marks(run).get(policy, [])})


def longest_mark(groups: Sequence[Group]) -> int:
    """After how many steps of an episode coverage was last measured, over all policies."""
    return max(
        (marks[-1] for group in groups for run in group.runs for marks in coverage_marks(run).values()), default=1
    )


def common_maze(groups: Sequence[Group]) -> tuple[int, int] | None:
    """Size and step cap of the maze, if all runs were made in the same."""
    mazes = {run.world.maze for group in groups for run in group.runs}
    return mazes.pop() if len(mazes) == 1 else None


@cache
def scripted_coverage(maze: tuple[int, int], steps: int) -> dict[str, Floats]:
    """Mean coverage of each scripted policy after 1, 2, ..., `steps` steps of an episode; the best policy first."""
    size, cap = maze
    curves = {}
    for name in SCRIPTED_POLICIES:
        means = run_scripted(name, size, cap, SCRIPTED_MAZES, SCRIPTED_SEED, range(1, steps + 1))
        curves[name] = np.array([means[step] for step in range(1, steps + 1)])
    return dict(sorted(curves.items(), key=lambda entry: -float(entry[1][-1])))


def scripted_caption() -> str:
    return f"Grey lines: scripted policies, means over {SCRIPTED_MAZES} mazes; all but the random one see the walls."


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
    end = end_of([curve for _, curve in curves])
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
        draw_curve(ax, curve, colour)
        final = float(np.mean(group.final(metric)))
        text = f"{group.label if len(groups) > 1 else 'agent'} {final:.0%}"
        labels.append(Label(end_of([curve]), final, text, colour, bold=True))
    label_ends(ax, labels, AXES_HEIGHT)


def results_figure(groups: Sequence[Group], theme: Theme) -> Figure | None:
    """The paper's fig_disco_maze (right): coverage against steps, a line per variant, a panel per mark.

    None if the exploratory policy was never evaluated.
    """
    rows = [(row, marks) for row in by_topic(groups).values() if (marks := policy_marks(row, "explore"))]
    if not rows:
        return None
    columns = max(len(marks) for _, marks in rows)
    figure = Figure(figsize=(PANEL_SIZE[0] * columns, PANEL_SIZE[1] * len(rows)))
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for (row, marks), row_axes in zip(rows, axes, strict=True):
        for ax in row_axes[len(marks) :]:
            ax.set_axis_off()
        for mark, ax in zip(marks, row_axes, strict=False):
            draw_coverage(ax, row, "explore", mark, theme, title=f"{row[0].topic}, after {mark} steps")
    return figure

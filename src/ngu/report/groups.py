"""Runs that differ in their seed alone are one group: its curves are means with bands over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ngu.config import Config
from ngu.config_reading import to_dict
from ngu.envs.scripted import SCRIPTED_POLICIES, run_scripted
from ngu.presets import VARIANTS
from ngu.report.results import Floats, Results

VARIANT_LABELS = {
    "ngu": "learned controllable states",
    "random-projection": "random projection",
    "rnd-only": "RND alone",
    "no-rnd": "without RND",
}
"""What the variants change, as the paper's figures call it."""

SCRIPTED_MAZES = 200
"""Over so many mazes the scripted policies are averaged."""
SCRIPTED_SEED = 1_000_003


@dataclass
class Curve:
    """One metric over the agent steps of a group: means and bands where every run has values."""

    steps: Floats
    mean: Floats
    low: Floats
    high: Floats
    tails: list[tuple[Floats, Floats]]
    """What the longer runs measured beyond the end of the shortest."""


@dataclass
class Group:
    """Runs of the same preset, variant and settings."""

    label: str
    preset: str
    variant: str
    runs: list[Results]
    place: int
    """Its colour in the palette."""

    @property
    def seeds(self) -> str:
        """The seeds in words."""
        seeds = ", ".join(str(run.seed) for run in self.runs)
        return f"seed {seeds}" if len(self.runs) == 1 else f"{len(self.runs)} seeds ({seeds})"

    def final(self, name: str) -> list[float]:
        """The newest value of a metric, for each run that has one."""
        return [value for run in self.runs if (value := run.last(name)) is not None]

    def curve(self, name: str) -> Curve | None:
        """Mean, minimum and maximum over the runs; None if nothing was measured."""
        series = [entry for entry in (run.series(name) for run in self.runs) if len(entry[0])]
        if not series:
            return None
        begin = max(steps[0] for steps, _ in series)
        end = min(steps[-1] for steps, _ in series)
        grid = np.unique(np.concatenate([steps for steps, _ in series]))
        grid = grid[(grid >= begin) & (grid <= end)]
        values = np.stack([np.interp(grid, *entry) for entry in series])
        tails = [(steps[steps >= end], values[steps >= end]) for steps, values in series if steps[-1] > end]
        return Curve(grid, values.mean(0), values.min(0), values.max(0), tails)


def make_groups(results: Sequence[Results]) -> list[Group]:
    """Sorts runs into groups: by preset and variant, and by the settings in which runs of the same variant differ."""
    kinds: dict[tuple[str, str], list[Results]] = {}
    order = list(VARIANTS)
    for run in sorted(results, key=lambda run: (run.preset, _place(order, run.variant), run.variant, run.seed)):
        kinds.setdefault((run.preset, run.variant), []).append(run)
    several_presets = len({preset for preset, _ in kinds}) > 1
    groups: list[Group] = []
    for (preset, variant), runs in kinds.items():
        label = VARIANT_LABELS.get(variant, variant) + (f", {preset}" if several_presets else "")
        for settings, members in _by_settings(runs).items():
            groups.append(Group(", ".join([label, *settings]), preset, variant, members, len(groups)))
    return groups


def _place(order: list[str], variant: str) -> int:
    return order.index(variant) if variant in order else len(order)


def _by_settings(runs: list[Results]) -> dict[tuple[str, ...], list[Results]]:
    """Splits runs by the values of the settings that are not the same in all of them (the group `run` apart)."""
    flat = [flat_settings(run.config) if run.config else {} for run in runs]
    differing = sorted(
        name
        for name in {name for settings in flat for name in settings}
        if not name.startswith("run.") and len({str(settings.get(name)) for settings in flat}) > 1
    )
    split: dict[tuple[str, ...], list[Results]] = {}
    for run, settings in zip(runs, flat, strict=True):
        names = tuple(f"{name} {settings[name]}" for name in differing if name in settings)
        split.setdefault(names, []).append(run)
    return split


def flat_settings(config: Config) -> dict[str, Any]:
    """Every setting by its dotted name."""
    flat: dict[str, Any] = {}
    for name, value in to_dict(config).items():
        flat |= (
            {f"{name}.{inner}": entry for inner, entry in value.items()} if isinstance(value, dict) else {name: value}
        )
    return flat


def common_maze(groups: Sequence[Group]) -> tuple[int, int] | None:
    """Size and step cap of the maze, if all runs were made in the same."""
    mazes = {run.maze for group in groups for run in group.runs}
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

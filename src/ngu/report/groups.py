"""Runs that differ in their seed alone are one group: its curves are means with bands over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngu.config import Config
from ngu.config_reading import to_dict
from ngu.report.results import Floats, Results
from ngu.report.worlds import World
from ngu.variants import VARIANTS

VARIANT_LABELS = {name: variant.label for name, variant in VARIANTS.items()}
"""What the variants are, as the paper's figures call them."""
MAZE_LABELS = {**VARIANT_LABELS, "ngu": "learned controllable states"}
"""The same on the Disco Maze, where the paper compares controllable states."""


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
    """Runs in the same world, of the same preset, variant and settings."""

    label: str
    """What tells it apart from the other groups of its topic."""
    preset: str
    variant: str
    runs: list[Results]
    place: int
    """Its colour in the palette, among the groups of its topic."""

    @property
    def world(self) -> World:
        """What its runs play in."""
        return self.runs[0].world

    @property
    def topic(self) -> str:
        """The section of the page that it belongs to."""
        return self.runs[0].topic

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
    """Sorts runs into groups: by topic, preset and variant, and by the settings in which such runs still differ."""
    kinds: dict[tuple[str, str, str], list[Results]] = {}
    order = list(VARIANTS)
    for run in sorted(
        results, key=lambda run: (run.topic, run.preset, _place(order, run.variant), run.variant, run.seed)
    ):
        kinds.setdefault((run.topic, run.preset, run.variant), []).append(run)
    groups: list[Group] = []
    for (topic, preset, variant), runs in kinds.items():
        known = MAZE_LABELS if runs[0].world.kind == "disco-maze" else VARIANT_LABELS
        label = [known.get(variant, variant)]
        if len({(other, name) for other, name, _ in kinds if other == topic}) > 1:
            label.append(preset)
        for settings, members in _by_settings(runs).items():
            place = sum(group.topic == topic for group in groups)
            groups.append(Group(", ".join([*label, *settings]), preset, variant, members, place))
    return groups


def full_label(group: Group, groups: Sequence[Group]) -> str:
    """What tells a group apart from others of any topic."""
    return group.label if len(by_topic(groups)) == 1 else f"{group.label}, {group.topic}"


def by_topic(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each section of the page."""
    topics: dict[str, list[Group]] = {}
    for group in groups:
        topics.setdefault(group.topic, []).append(group)
    return topics


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

"""Runs that differ in their seed alone are one group: its curves are means with bands over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any

import numpy as np

from ngu.config import Config
from ngu.config_reading import to_dict
from ngu.report.results import Floats, Results
from ngu.report.worlds import World
from ngu.variants import VARIANTS
from ngu.worlds import foreign_settings

VARIANT_LABELS = {name: variant.label for name, variant in VARIANTS.items()}
"""What the variants are, as the paper's figures call them."""
MAZE_LABELS = {**VARIANT_LABELS, "ngu": "learned controllable states"}
"""The same on the Disco Maze, where the paper compares controllable states."""
_LONGEST = max(map(len, MAZE_LABELS.values()))
"""Letters of a label for which a figure has room beside its lines."""
_NOT_OF_LEARNING = {
    "env.threads", "env.workers", "env.worker_timeout", "env.max_restarts", "evaluation.period", "replay.place",
    "replay.max_memory_share", "learner.max_skipped_updates", "ray.address", "ray.cpus_per_actor", "ray.compression",
    "ray.timeout", "ray.max_failures",
}  # fmt: skip
"""Settings of how and where a run is made, beside the group `run`: agents that differ in them alone learn alike."""


@dataclass
class Curve:
    """One metric over the agent steps of a group: means and bands where every run has values."""

    steps: Floats
    mean: Floats
    low: Floats
    high: Floats
    tails: list[tuple[Floats, Floats]]
    """What the longer runs measured beyond the end of the shortest."""
    heads: list[tuple[Floats, Floats]] = field(default_factory=list)
    """What runs measured before the first step that all have: one may have been evaluated at its end alone."""


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
    key: str = ""
    """What the label stands for, where that is too long to stand in a figure."""

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
        heads = [(steps[steps <= begin], values[steps <= begin]) for steps, values in series if steps[0] < begin]
        return Curve(grid, values.mean(0), values.min(0), values.max(0), tails, heads)


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
            # A file's name says all that the variant's does.
            words = [*settings, *label[1:]] if settings and members[0].config is None else [*label, *settings]
            groups.append(Group(", ".join(words), preset, variant, members, place))
    _shorten(groups)
    return groups


def _shorten(groups: Sequence[Group]) -> None:
    """Gives groups whose labels would leave no room to the lines short ones: the names of their runs, or A, B, C."""
    long = [group for group in groups if len(group.label) > _LONGEST]
    names = [run.path.resolve().name for group in long for run in group.runs]
    one_for_each = len(long) == len(names) == len(set(names))
    if not one_for_each or any(len(name) > _LONGEST for name in names):
        names = [_letters(place) for place in range(len(long))]
    for group, name in zip(long, names, strict=True):
        group.key, group.label = group.label, name


def _letters(place: int) -> str:
    """A to Z, then AA, AB."""
    before, last = divmod(place, len(ascii_uppercase))
    return (_letters(before - 1) if before else "") + ascii_uppercase[last]


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
    """Splits runs by the values of the settings of learning that are not the same in all of them.

    Results files hold no settings: they go with the other runs if these do not differ, else they are for themselves.
    Among them the names of files tell agents of one variant apart, as `epsilon-0.1-seed0.csv` and `ngu-seed0.csv`.
    """
    flat = [learning_settings(run.config) if run.config else {} for run in runs]
    names = sorted({name for settings in flat for name in settings})
    differing = [name for name in names if len({str(settings[name]) for settings in flat if name in settings}) > 1]
    split: dict[tuple[str, ...], list[Results]] = {}
    for run, settings in zip(runs, flat, strict=True):
        values = tuple(f"{name} {_in_a_label(settings[name])}" for name in differing if name in settings)
        if run.config is None and (name := _named(run)) != run.variant:
            values = (name,)
        split.setdefault(values, []).append(run)
    return split


def _named(run: Results) -> str:
    """The agent's name in that of a results file, the variant where there is none."""
    name, numbered, _ = run.path.stem.rpartition("-seed")
    return name if numbered else run.variant


def learning_settings(config: Config) -> dict[str, Any]:
    """Every setting that can make an agent learn something else."""
    left_out = _NOT_OF_LEARNING | {f"env.{name}" for name in foreign_settings(config.env.name)}
    return {
        name: value
        for name, value in flat_settings(config).items()
        if name not in left_out and not name.startswith("run.")
    }


def _in_a_label(value: Any) -> str:
    """Without commas, which stand between the settings of a label."""
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def flat_settings(config: Config) -> dict[str, Any]:
    """Every setting by its dotted name."""
    flat: dict[str, Any] = {}
    for name, value in to_dict(config).items():
        flat |= (
            {f"{name}.{inner}": entry for inner, entry in value.items()} if isinstance(value, dict) else {name: value}
        )
    return flat

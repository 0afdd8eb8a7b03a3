"""What an experiment is: data. Its runs are tasks x arms x seeds; its outcome is a figure, a table, or both.

A *task* is what is played, an *arm* is an agent (a variant, and settings beside it), and a *column* is what is read
from an arm's runs: the policy that the paper evaluates. One *cell* is one task, arm and seed: one run of `ngu train`.
Cells are told apart by the names of task and arm alone, so experiments that share them share their runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ngu.errors import UserError, unknown_name

WorldKind = Literal["atari", "disco-maze", "deep-sea", "random-coin", "minigrid"]
Kind = Literal["table", "curves", "bars", "ladder", "settings"]

SCORE = ("eval/exploit/score", "eval/explore/score")
"""The score that the paper reports is that of beta_0; a single policy (N = 1) is called explore and is the only one."""
EXPLORE_SCORE = ("eval/explore/score",)
"""The score of beta_{N-1}."""


def is_evaluation(metric: str) -> bool:
    return metric.startswith("eval/")


@dataclass(frozen=True)
class Task:
    """What is played."""

    name: str
    """The folder of its runs, and the emulator's name of an Atari game."""
    title: str
    world: WorldKind
    """Which presets can train it; see `scales.py`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings by dotted name, such as `env.game`."""


@dataclass(frozen=True)
class Arm:
    """An agent."""

    name: str
    """The folder of its runs: the variant's name, unless there are settings beside it."""
    label: str
    """What the paper calls it."""
    variant: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """What is read from an arm's runs."""

    label: str
    arm: Arm
    metrics: tuple[str, ...] = SCORE
    """The first of them that a run has measured."""


@dataclass(frozen=True)
class Panel:
    """A figure of learning: one pair of axes for each task."""

    title: str
    """Behind the task's title."""
    unit: str
    metrics: tuple[str, ...] = ()
    """Instead of the columns' own; the first that was measured."""
    share: bool = False
    """Values are shares of 1, shown in percent."""
    tabulated: bool = True
    """Off: drawn alone. The last measurement of training may be a single episode; a table then has the columns' own."""


@dataclass(frozen=True)
class Published:
    """A number as the paper prints it: `465.8k±84.9k`."""

    text: str

    @property
    def value(self) -> float:
        return printed_number(self.text.partition("±")[0])

    @property
    def error(self) -> float | None:
        """What stands behind ±; None where the paper prints none."""
        _, plus_minus, error = self.text.partition("±")
        return printed_number(error) if plus_minus else None

    @property
    def quoted(self) -> bool:
        """Others measured it: the paper prints each number of its own runs with ±, and no other one so."""
        return self.error is None


def printed_number(text: str) -> float:
    """`84.9k` -> 84900.0."""
    if not re.fullmatch(r"-?\d+(\.\d+)?k?", text):
        raise ValueError(f"{text!r} is not a number as the paper prints them")
    return float(text.removesuffix("k")) * (1000 if text.endswith("k") else 1)


Numbers = Mapping[str, Mapping[str, Published]]
"""Row (an agent as the paper calls it) -> task -> number."""


@dataclass(frozen=True)
class Line:
    """A line of one of the paper's tables of settings."""

    name: str
    """As the paper calls it."""
    printed: str
    settings: tuple[str, ...] = ()
    """Those that hold it, by dotted name."""
    built: str = ""
    """What holds it where no setting does, or beside one, in a few words."""
    variant: str = "ngu"
    """Whose settings they are."""


@dataclass(frozen=True)
class Experiment:
    """A figure or table of the paper."""

    name: str
    """Its label in the paper."""
    kind: Kind
    title: str
    place: str
    """Where it stands in the paper."""
    shows: str
    """What the paper shows with it, in a sentence or two."""
    tasks: tuple[Task, ...] = ()
    columns: tuple[Column, ...] = ()
    panels: tuple[Panel, ...] = (Panel("score in evaluation", "score"),)
    """Kind `curves`."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Kind `bars`: names of tasks whose human-normalised scores are averaged."""
    lines: tuple[Line, ...] = ()
    """Kind `settings`: what the paper's table prints."""
    presets: tuple[str, ...] = ()
    """Kind `settings`: whose values stand beside them."""
    frames: int | None = None
    """The paper's frames for each run; None where it does not say."""
    frames_said: bool = True
    """Off: the paper does not say, and those of its other runs are taken."""
    seeds: int = 3
    """The paper's seeds."""
    published: Numbers = field(default_factory=dict)
    """The paper's numbers, by the labels of columns; those of others (`Published.quoted`) need no column."""
    said: tuple[str, ...] = ()
    """Numbers that only the paper's text names."""
    remarks: tuple[str, ...] = ()
    """Where this differs from the paper, or the paper leaves open what it did."""
    smoke: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Names of the tasks and arms that the scale `smoke` runs; empty for the first task and the first two arms."""
    ours: bool = False
    """Not of the paper."""

    @property
    def evaluated(self) -> bool:
        """Whether it is read from evaluations; probes are measured while an agent trains."""
        return any(is_evaluation(name) for column in self.columns for name in column.metrics)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The agents that are trained, each once."""
        return tuple({column.arm.name: column.arm for column in self.columns}.values())

    def only(self, tasks: tuple[str, ...], variants: tuple[str, ...]) -> Experiment:
        """The same with fewer tasks or arms; empty for all."""
        known_tasks, known_arms = [task.name for task in self.tasks], [arm.name for arm in self.arms]
        for kind, wanted, known in (("task", tasks, known_tasks), ("variant", variants, known_arms)):
            for name in wanted:
                if name not in known:
                    raise UserError(unknown_name(f"the {kind} {name} of {self.name}", name, known))
        return replace(
            self,
            tasks=tuple(task for task in self.tasks if not tasks or task.name in tasks),
            columns=tuple(column for column in self.columns if not variants or column.arm.name in variants),
            groups={
                title: kept
                for title, names in self.groups.items()
                if (kept := tuple(name for name in names if not tasks or name in tasks))
            },
        )

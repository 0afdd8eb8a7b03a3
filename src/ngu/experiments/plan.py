"""From an experiment to its runs: the cells, where they lie, the exact commands, and what they cost."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ngu.config import Config
from ngu.envs.atari_game import FRAME_SKIP
from ngu.experiments.definition import Arm, Experiment, Task
from ngu.experiments.scales import RATES, SCALES, Scale
from ngu.presets import PRESETS, preset
from ngu.variants import VARIANTS

EVALUATIONS = 10
"""A run has at least so many evaluations, however small the budget it is given, so that there is a curve."""
_LOGS = 50


@dataclass(frozen=True)
class Cell:
    """One run."""

    task: Task
    arm: Arm
    seed: int
    path: Path
    """The run's folder."""
    steps: int
    """Agent steps that it is to have."""
    preset: str
    settings: Mapping[str, Any]
    """What differs from preset and variant, by dotted name."""

    @property
    def name(self) -> str:
        return f"{self.task.name}/{self.arm.name}/seed-{self.seed}"

    @property
    def log(self) -> Path:
        """What the run prints; beside its folder, which must be empty when it starts."""
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def train(self) -> list[str]:
        """The command line behind `ngu`."""
        return ["train", self.preset, "--variant", self.arm.variant, *options(self.settings)]

    def command(self) -> str:
        """The whole command, for a shell."""
        return shlex.join(["ngu", *self.train])

    def config(self) -> Config:
        """The settings that the command makes."""
        return preset(self.preset, self.arm.variant, self.settings)


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment at a scale and budget."""

    experiment: Experiment
    scale: Scale
    folder: Path
    budget: int | None = None
    """Agent steps of each run; None for those of the preset."""
    seeds: int | None = None
    """None for the paper's."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the user, by dotted name."""

    @property
    def output(self) -> Path:
        """The folder of figure, table and results."""
        return self.folder / "results" / self.experiment.name

    def steps(self, task: Task) -> int:
        """The budget of a task's runs."""
        if self.budget is not None:
            return self.budget
        return int(self._usual(task, "run.steps"))

    def cells(self) -> list[Cell]:
        """Every run; all tasks and arms with the first seed come first, so that a plan cut short is a whole one."""
        tasks, arms = self.experiment.tasks, self.experiment.arms
        return [self._cell(task, arm, seed) for seed in range(self.grid[2]) for task in tasks for arm in arms]

    @property
    def grid(self) -> tuple[int, int, int]:
        """How many tasks, agents and seeds."""
        seeds = 1 if self.scale.smoke else self.experiment.seeds
        return len(self.experiment.tasks), len(self.experiment.arms), seeds if self.seeds is None else self.seeds

    def _usual(self, task: Task, name: str) -> Any:
        """A setting as the scale has it."""
        return self._sized(task).get(name, PRESETS[self.scale.presets[task.world]][name])

    def _sized(self, task: Task) -> Mapping[str, Any]:
        """What the scale changes for a task."""
        return self.scale.settings.get(task.world, {})

    def _cell(self, task: Task, arm: Arm, seed: int) -> Cell:
        steps = self.steps(task)
        parent = self.folder / task.name / arm.name
        asked = {**VARIANTS[arm.variant].changes, **task.settings, **arm.settings}
        # What an experiment is about, the size of a state for instance, is not made smaller by the scale.
        smaller = {name: value for name, value in self._sized(task).items() if name not in asked}
        changes: dict[str, Any] = {**task.settings, **arm.settings, **smaller}
        known = {**VARIANTS[arm.variant].applied(PRESETS[self.scale.presets[task.world]]), **changes}
        if known["mixture.num_mixtures"] > self.scale.most_mixtures:
            changes["mixture.num_mixtures"] = self.scale.most_mixtures
        for name, parts in (("evaluation.period", EVALUATIONS), ("run.log_period", _LOGS)):
            usual = self._usual(task, name)
            if self.budget is not None and not self.scale.smoke and usual > steps // parts:
                changes[name] = max(steps // parts, 1)
        changes |= {"run.keep_checkpoints": 1, **self.settings}
        changes |= {"run.steps": steps, "run.seed": seed, "run.folder": str(parent), "run.name": f"seed-{seed}"}
        return Cell(task, arm, seed, parent / f"seed-{seed}", steps, self.scale.presets[task.world], changes)


def options(settings: Mapping[str, Any]) -> list[str]:
    """Settings by dotted name as options of a command line."""
    tokens: list[str] = []
    for name, value in settings.items():
        group, _, leaf = name.replace("_", "-").rpartition(".")
        if isinstance(value, bool):
            tokens.append(f"--{group}.{leaf if value else f'no-{leaf}'}")
        elif isinstance(value, tuple | list):
            tokens += [f"--{group}.{leaf}", *map(str, value)] if value else [f"--{group}.{leaf}="]
        else:
            tokens.append(f"--{group}.{leaf}={value}")
    return tokens


def smoke_part(experiment: Experiment) -> Experiment:
    """The few cells that show that an experiment works."""
    tasks, arms = experiment.smoke
    tasks = tasks or tuple(task.name for task in experiment.tasks[:1])
    arms = arms or tuple(arm.name for arm in experiment.arms[:2])
    return experiment.only(tasks, arms) if experiment.tasks else experiment


@dataclass(frozen=True)
class Cost:
    """What the runs of an experiment take."""

    cells: int
    frames: float
    """Of all runs; a step of a world without frames counts as one."""
    hours: float | None
    """Of one machine; None where no rate was measured."""
    machine: Literal["GPU", "core"] = "GPU"
    """One H200, or one core of a CPU."""

    @property
    def gpu_hours(self) -> float | None:
        """None where none are needed."""
        return self.hours if self.machine == "GPU" else None


def frames_per_step(task: Task) -> int:
    return FRAME_SKIP if task.world == "atari" else 1


def for_a_cpu(preset_name: str) -> bool:
    """Whether a preset says that it is for a CPU."""
    return bool(PRESETS[preset_name]["run.device"] == "cpu")


def cost(cells: Sequence[Cell]) -> Cost:
    """Of cells at their budgets."""
    return _cost([(cell.task, cell.preset, cell.steps) for cell in cells])


def paper_cost(experiment: Experiment) -> Cost:
    """At the frames and seeds that the experiment has of the paper, or the preset's steps where it has none."""
    runs = []
    for task in experiment.tasks:
        name = SCALES["paper"].presets[task.world]
        if experiment.frames is not None:
            steps = experiment.frames // frames_per_step(task)
        else:
            steps = int(PRESETS[name]["run.steps"])
        runs += [(task, name, steps)] * (len(experiment.arms) * experiment.seeds)
    return _cost(runs)


def _cost(runs: Sequence[tuple[Task, str, int]]) -> Cost:
    """Of runs by task, preset and steps."""
    frames = sum(steps * frames_per_step(task) for task, _, steps in runs)
    rates = [RATES.get(name) for _, name, _ in runs]
    known = [rate for rate in rates if rate is not None]
    machines = {rate.machine for rate in known}
    if len(known) < len(runs) or len(machines) > 1:
        return Cost(len(runs), frames, None)
    seconds = sum(steps / rate.steps_per_second for rate, (_, _, steps) in zip(known, runs, strict=True))
    return Cost(len(runs), frames, seconds / 3600, *machines)

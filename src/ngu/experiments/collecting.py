"""From runs to numbers: each cell's measurements as a small CSV, and what they come to over seeds and tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ngu.envs.atari_games import ATARI_GAMES, human_normalised
from ngu.errors import UserError
from ngu.experiments.definition import Column, Experiment, Published, Task, is_evaluation
from ngu.experiments.plan import Cell, Plan, frames_per_step
from ngu.experiments.statistics import Floats, bootstrap_bands, bootstrap_interval, mean_over_tasks, median_over_tasks
from ngu.report.groups import Curve
from ngu.report.results import EXPORTED, Results, read_results, write_results_csv

_METRICS = tuple(dict.fromkeys((*EXPORTED, "probe/*")))
TRAINING_STRETCH = 1_000_000
"""Agent steps at the end of a run without evaluations whose training episodes speak for it; of short runs the half."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, or a statistic over tasks of such means, with its bootstrap interval."""

    value: float
    low: float
    high: float
    seeds: int
    frames: float
    """Frames behind it, of the run with the fewest; steps where there are no frames."""
    training: bool = False
    """Of the episodes that were learned from, with the actors' epsilons: no run was evaluated."""


class Collected:
    """The results of an experiment's cells."""

    def __init__(self, experiment: Experiment, runs: Mapping[tuple[str, str], Sequence[Results]]) -> None:
        self.experiment = experiment
        self.runs = runs
        """By task and arm; one for each seed that has measured something."""

    def of(self, column: Column, task: Task) -> list[Results]:
        return list(self.runs.get((task.name, column.arm.name), ()))

    def finals(self, column: Column, task: Task, metrics: tuple[str, ...] = ()) -> Floats:
        """The last evaluation of each seed, [S]; of what training measures all the time the mean over its end."""
        names = metrics or column.metrics
        if not any(map(is_evaluation, names)):
            return self._training_means(column, task, names)
        found = [value for run in self.of(column, task) if (value := run.last(measured(run, names))) is not None]
        return np.array(found, dtype=np.float64)

    def estimate(self, column: Column, task: Task, metrics: tuple[str, ...] = ()) -> Estimate | None:
        """The mean over seeds; None where nothing was measured.

        Where no run was evaluated, it is that of the last training episodes.
        """
        names = metrics or column.metrics
        values, training = self.finals(column, task, names), False
        if not len(values):
            names, training = in_training(names), True
            values = self._training_means(column, task, names)
        if not len(values):
            return None
        low, high = bootstrap_interval([values], mean_over_tasks)
        return Estimate(float(values.mean()), low, high, len(values), self._frames(column, [task], names), training)

    def _training_means(self, column: Column, task: Task, names: tuple[str, ...]) -> Floats:
        """The mean over the end of each seed's training, [S]."""
        found = [
            value
            for run in self.of(column, task)
            if names and (value := run.mean(measured(run, names), min(TRAINING_STRETCH, run.steps // 2))) is not None
        ]
        return np.array(found, dtype=np.float64)

    def normalised(
        self, column: Column, tasks: Sequence[Task], statistic: Callable[[Floats], Floats]
    ) -> Estimate | None:
        """Mean or median over games of human-normalised scores in percent; None while a game is missing."""
        games = [task for task in tasks if task.name in ATARI_GAMES]
        strata = [
            np.array([human_normalised(task.name, score) for score in self.finals(column, task)]) for task in games
        ]
        if not strata or not all(len(values) for values in strata):
            return None
        low, high = bootstrap_interval(strata, statistic)
        value = float(statistic(np.array([[values.mean() for values in strata]]))[0])
        return Estimate(value, low, high, min(map(len, strata)), self._frames(column, games))

    def _frames(self, column: Column, tasks: Sequence[Task], metrics: tuple[str, ...] = ()) -> float:
        """Frames before the last value of the run that had the fewest; it may have gone on without another value."""
        counts = [
            steps * frames_per_step(task)
            for task in tasks
            for run in self.of(column, task)
            if (steps := run.last_step(measured(run, metrics or column.metrics)))
        ]
        return min(counts, default=0.0)

    def curve(self, column: Column, task: Task, metrics: tuple[str, ...] = ()) -> Curve | None:
        """Mean over seeds with bootstrap bands against agent steps, where every seed has values."""
        return self._curve(column, task, metrics or column.metrics)

    def training_curve(self, column: Column, task: Task, metrics: tuple[str, ...] = ()) -> Curve | None:
        """The same of training episodes."""
        names = in_training(metrics or column.metrics)
        return self._curve(column, task, names) if names else None

    def _curve(self, column: Column, task: Task, names: tuple[str, ...]) -> Curve | None:
        series = [entry for run in self.of(column, task) if len((entry := run.series(measured(run, names)))[0])]
        if not series:
            return None
        begin, end = max(steps[0] for steps, _ in series), min(steps[-1] for steps, _ in series)
        grid = np.unique(np.concatenate([steps for steps, _ in series]))
        grid = grid[(grid >= begin) & (grid <= end)]
        values = np.stack([np.interp(grid, *entry) for entry in series])
        low, high = bootstrap_bands(values)
        tails = [(steps[steps >= end], tail[steps >= end]) for steps, tail in series if steps[-1] > end]
        return Curve(grid, values.mean(0), low, high, tails)


STATISTICS = {"mean": mean_over_tasks, "median": median_over_tasks}
"""Over tasks."""


def published_normalised(
    numbers: Mapping[str, Published], tasks: Sequence[Task], statistic: Callable[[Floats], Floats]
) -> float | None:
    """The same of the scores that the paper prints; None unless it prints all of them."""
    games = [task.name for task in tasks if task.name in ATARI_GAMES]
    if not games or not all(name in numbers for name in games):
        return None
    return float(statistic(np.array([[human_normalised(name, numbers[name].value) for name in games]]))[0])


def measured(run: Results, names: Sequence[str]) -> str:
    """The first of the names that a run has measured; the return stands in for a score that was not."""
    known = run.names()
    spare = [name.removesuffix("score") + "return" for name in names if name.endswith("/score")]
    return next((name for name in (*names, *spare) if name in known), names[0])


def in_training(names: Sequence[str]) -> tuple[str, ...]:
    """What a run without evaluations measures instead: `env/score/exploit`, or `env/score` of all its policies, for
    `eval/exploit/score`; empty for what is not of evaluations alone."""
    if not all(map(is_evaluation, names)):
        return ()
    parts = [name.split("/") for name in names]
    told = ("/".join(["env", what, *tail]) for _, policy, what, *place in parts for tail in ([policy, *place], place))
    return tuple(dict.fromkeys(told))


def collect(plan: Plan) -> Collected:
    """Exports every cell that has measured something, and reads what lies in the folder of results."""
    runs: dict[tuple[str, str], list[Results]] = {}
    for cell in plan.cells():
        path = csv_path(plan, cell)
        if (cell.path / "metrics.jsonl").is_file():
            _export(cell, path)
        if path.is_file():
            runs.setdefault((cell.task.name, cell.arm.name), []).append(_until(read_results(path), cell))
    return Collected(plan.experiment, runs)


def read_collected(experiment: Experiment, folder: Path) -> Collected:
    """The results in `folder/TASK/AGENT-seedK.csv`, as far as an experiment has use for them."""
    runs = {
        (task.name, arm.name): [read_results(path) for path in paths]
        for task in experiment.tasks
        for arm in experiment.arms
        if (paths := sorted((folder / task.name).glob(f"{arm.name}-seed[0-9]*.csv")))
    }
    return Collected(experiment, runs)


def csv_path(plan: Plan, cell: Cell) -> Path:
    return plan.output / "runs" / cell.task.name / f"{cell.arm.name}-seed{cell.seed}.csv"


def _export(cell: Cell, path: Path) -> None:
    try:
        write_results_csv(cell.path, path, _METRICS)
    except UserError:  # it has begun and measured nothing yet
        with suppress(OSError):  # a place that cannot be written to is told of when the table goes there
            path.unlink(missing_ok=True)


def _until(results: Results, cell: Cell) -> Results:
    """What was measured within the budget: a run may have gone on for longer, for another one."""
    envs = cell.config().env.num_envs  # the last step of all environments may lead a little beyond the budget
    return replace(results, rows=[row for row in results.rows if row["step"] < cell.steps + envs])

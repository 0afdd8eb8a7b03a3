"""A training run from start to end: the runner's loop with evaluation, metrics, checkpoints and progress around it.

The runner decides what is computed; this module only looks at it from outside, at fixed numbers of agent steps, so that
a run that was stopped and resumed computes the same as one that was not.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch

from ngu.checkpoint import check_room, check_shapes, discard_newer, load_newest, prune, save_checkpoint
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.errors import UserError
from ngu.evaluator import Evaluator
from ngu.graphs import enable_fusion
from ngu.machine import machine_name, resident_memory, resolve_device, use_threads
from ngu.metrics import MetricsWriter
from ngu.progress import Progress
from ngu.run_folder import RunFolder, replace_file
from ngu.runners.local import LocalRunner
from ngu.runners.make import make_runner

_STATUS_PERIOD = 2.0
"""Seconds between two writings of a cluster's state."""


@dataclass
class Outcome:
    """How a call of `Training.run` ended."""

    steps: int
    interrupted: bool = False
    """A signal asked the run to stop; the checkpoint is written."""
    evaluation: dict[str, float] = field(default_factory=dict)
    """The last evaluation's metrics."""


class Training:
    """One agent in training, with or without a folder to write to."""

    def __init__(self, config: Config, folder: RunFolder | None = None) -> None:
        self.config = config
        self.folder = folder
        self.device = resolve_device(config.run.device)
        use_threads(config.run.threads)
        if self.device.type == "cuda":
            # Shapes never change, so the fastest kernels may be searched for once; tf32 is ample for the rest.
            torch.backends.cudnn.benchmark = True
            torch.set_float32_matmul_precision("high")
            enable_fusion(config.run.compile)
        self.runner = make_runner(config, self.device)
        self.evaluator: Evaluator | None = None
        self.history: list[dict[str, float]] = []
        """Every line of metrics since this object was made, each with its `step`."""
        self.notes: list[str] = []
        """Sentences to show to the user before training goes on."""
        self._stop = threading.Event()
        self._restarts_told = self._evaluator_restarts_told = 0
        self._next_status = 0.0

    @classmethod
    def start(cls, config: Config, **origin: str) -> Self:
        """A new run with a new folder. The agent is built first: one that does not fit leaves no folder behind.

        `origin` goes to the folder, such as the `command` where it is not that of this process.
        """
        training = cls(config)
        if isinstance(training.runner, LocalRunner):
            training.evaluator = Evaluator(config, training.runner.learner, training.device)
        training.require_room()
        training.folder = RunFolder.create(config, machine=machine_name(training.device), **origin)
        return training

    def require_room(self) -> None:
        """Refuses a run that has no checkpoint yet where its first ones would find no room."""
        settings = self.config.run
        if settings.checkpoint_replay:
            parent = self.folder.path if self.folder else Path(settings.folder).expanduser()
            check_room(parent, self.runner.replay.state_dict(), settings.keep_checkpoints)

    @classmethod
    def resume(cls, path: Path, overrides: dict[str, Any] | None = None) -> Self:
        """Goes on from the newest intact checkpoint of a run's folder, with changed settings if any are given."""
        folder = RunFolder.open(path, lock=True)
        config = with_overrides(folder.config, overrides or {})
        training = cls(config, folder)
        checkpoint = load_newest(folder.checkpoints)
        training.load(checkpoint.state)
        training.notes += checkpoint.passed_over
        if "replay" not in checkpoint.state:
            training.notes.append("this checkpoint has no replay (run.checkpoint_replay is off); it fills anew first.")
        discard_newer(folder.checkpoints, checkpoint.step)
        folder.replace_config(config)
        return training

    def load(self, state: dict[str, Any]) -> None:
        """Takes over a checkpoint's state, after checking that it fits this agent."""
        kind = state["runner"]["kind"]
        if kind != self.config.run.runner:
            raise UserError(f"the checkpoint was written by the runner {kind}; go on with --runner {kind}.")
        own = self.runner.state_dict()
        found = state
        if state["runner"]["device"] != self.device.type:
            # Environments and generators are left behind; see LocalRunner.load_state_dict.
            own, found = (
                {
                    "learner": _networks(parts["learner"]),
                    "actors": {group: _networks(actor) for group, actor in parts["actors"].items()},
                }
                for parts in (own, state)
            )
            self.notes.append(
                f"the checkpoint was written on {state['runner']['device']}: on {self.device.type} episodes begin "
                "anew, and replay fills anew before learning goes on."
            )
        elif not self.runner.restores:
            self.notes.append(
                "running episodes are not saved here: they begin anew, with what was learned and with replay."
            )
        check_shapes({name: own[name] for name in own if name in found}, found)
        self.runner.load_state_dict(state)
        self._restarts_told = self.runner.restarts

    def run(self, until: int | None = None, *, show_progress: bool = True, handle_signals: bool = False) -> Outcome:
        """Trains until `until` agent steps in all (default: run.steps), or until asked to stop."""
        runner, settings = self.runner, self.config.run
        total = settings.steps if until is None else until
        outcome = Outcome(runner.steps)
        self._stop.clear()
        with ExitStack() as stack:
            writer = stack.enter_context(self._metrics_writer()) if self.folder else None
            progress = stack.enter_context(Progress(total, runner.steps)) if show_progress else None
            if handle_signals:
                stack.enter_context(self._stop_on_signals())
            for note in self.notes:
                if progress:
                    progress.note(note)
            self.notes.clear()
            evaluated: int | None = None
            if runner.steps == 0 and self.config.evaluation.period:
                self._evaluate(writer, progress, outcome)
                evaluated = 0
            while runner.steps < total and not self._stop.is_set():
                before = runner.steps
                self._advance(progress)
                steps = runner.steps
                if progress:
                    progress.update(steps, runner.learner.updates)
                if progress and self._restarts_told == 0 and runner.restarts:
                    self._tell_restarts(progress)  # the first at once, others with the metrics
                if _crossed(settings.log_period, before, steps):
                    self._log(writer, progress)
                if _crossed(self.config.evaluation.period, before, steps):
                    self._evaluate(writer, progress, outcome)
                    evaluated = steps
                self._tell_finished(writer, progress, outcome)
                self._write_status()
                if _crossed(settings.checkpoint_period, before, steps) and steps < total:
                    self._save(progress)
            # The checkpoint first: the last lines of metrics empty the running statistics, which a resumed run needs.
            self._save(progress)
            outcome.steps, outcome.interrupted = runner.steps, self._stop.is_set()
            if not outcome.interrupted:
                self._log(writer, progress)
                if evaluated != runner.steps:
                    self._evaluate(writer, progress, outcome)
                self._tell_finished(writer, progress, outcome, wait=True)
        return outcome

    def evaluate(self) -> dict[str, float]:
        """The means of one evaluation with the present weights."""
        if self.evaluator is None:
            self.evaluator = Evaluator(self.config, self.runner.learner, self.device)
        self.runner.settle()
        return self.evaluator.evaluate(self.runner.learner, self.runner.novelty)

    def close(self) -> None:
        """Ends the environments' threads and processes; nothing can be trained afterwards."""
        self.runner.close()
        if self.evaluator is not None:
            self.evaluator.env.close()

    def request_stop(self) -> None:
        """Asks `run` to end after the current step, with a checkpoint."""
        self._stop.set()

    # ---------------------------------------------------------------------------------------------- around the loop

    def _metrics_writer(self) -> MetricsWriter:
        assert self.folder is not None
        settings = self.config.run
        return MetricsWriter(
            self.folder, start_step=self.runner.steps, tensorboard=settings.tensorboard, wandb=settings.wandb
        )

    def _advance(self, progress: Progress | None) -> None:
        """One step; if the environments fail for good, what was learned is saved first."""
        try:
            self.runner.advance()
        except UserError:
            self._save(progress)
            raise

    def _log(self, writer: MetricsWriter | None, progress: Progress | None) -> None:
        runner = self.runner
        values = runner.pop_statistics()
        evaluating = getattr(self.evaluator.env, "restarts", 0) if self.evaluator is not None else 0
        if evaluating:
            values["env/restarts"] += evaluating
        if progress:
            progress.update(runner.steps, runner.learner.updates, values)
            values["speed/steps_per_second"] = progress.steps_per_second
            values["speed/updates_per_second"] = progress.updates_per_second
            values["memory/resident"] = resident_memory() / 2**20
            if self.device.type == "cuda":
                values["memory/gpu"] = torch.cuda.memory_reserved(self.device) / 2**20
        self._write(writer, values)
        if progress and runner.restarts > self._restarts_told:
            self._tell_restarts(progress)
        if progress and self.evaluator is not None and evaluating > self._evaluator_restarts_told:
            reason = getattr(self.evaluator.env, "restart_reason", "")
            progress.note(f"worker processes of the evaluator restarted so far: {evaluating}; {reason}")
            self._evaluator_restarts_told = evaluating
        if values["learner/skipped_in_a_row"] >= self.config.learner.max_skipped_updates:
            self._save(progress)
            where = f"; the last good state is in {self.folder.checkpoints}" if self.folder else ""
            raise UserError(
                f"{int(values['learner/skipped_in_a_row'])} updates in a row had a non-finite loss or gradient and "
                f"were skipped, so training stopped{where}; lower the learning rates or look at the rewards."
            )

    def _tell_restarts(self, progress: Progress) -> None:
        progress.note(self.runner.restart_note)
        self._restarts_told = self.runner.restarts

    def _evaluate(self, writer: MetricsWriter | None, progress: Progress | None, outcome: Outcome) -> None:
        """Evaluates now, or asks for it where that is done beside training."""
        if isinstance(self.runner, LocalRunner):
            self._tell(writer, progress, outcome, self.runner.steps, self.evaluate())
        else:
            self.runner.begin_evaluation()

    def _tell_finished(
        self, writer: MetricsWriter | None, progress: Progress | None, outcome: Outcome, *, wait: bool = False
    ) -> None:
        """Tells of the evaluations that have come in from beside training."""
        if not isinstance(self.runner, LocalRunner):
            skipped = self.runner.skipped_evaluations
            for steps, values in self.runner.finished_evaluations(wait=wait):
                self._tell(writer, progress, outcome, steps, values)
            if progress and self.runner.skipped_evaluations > skipped:
                progress.note("the cluster had no room for the evaluator, so evaluations were left out.")

    def _tell(
        self,
        writer: MetricsWriter | None,
        progress: Progress | None,
        outcome: Outcome,
        steps: int,
        values: dict[str, float],
    ) -> None:
        outcome.evaluation = values
        self._write(writer, values, steps)
        if progress:
            progress.update(self.runner.steps, self.runner.learner.updates, values)
            shown = ", ".join(f"{name.removeprefix('eval/')} {_number(value)}" for name, value in values.items())
            progress.note(f"evaluation at {steps:,} steps: {shown}")

    def _write_status(self) -> None:
        """Leaves word of the cluster now and then, for `ngu status`."""
        if self.folder is None or isinstance(self.runner, LocalRunner) or time.monotonic() < self._next_status:
            return
        self._next_status = time.monotonic() + _STATUS_PERIOD
        replace_file(self.folder.status_path, json.dumps(self.runner.status()).encode())

    def _write(self, writer: MetricsWriter | None, values: dict[str, float], steps: int | None = None) -> None:
        at = self.runner.steps if steps is None else steps
        self.history.append({"step": at, **values})
        if writer:
            writer.write(at, values)

    def _save(self, progress: Progress | None) -> None:
        if self.folder is None:
            return
        without = () if self.config.run.checkpoint_replay else ("replay",)
        path = save_checkpoint(self.folder.checkpoints, self.runner.steps, self.runner.state_dict(), without=without)
        prune(self.folder.checkpoints, self.config.run.keep_checkpoints)
        if progress:
            progress.note(f"checkpoint {path}")

    @contextmanager
    def _stop_on_signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the run after the current step; a second Ctrl-C ends it at once."""

        def ask(number: int, _frame: Any) -> None:
            if self._stop.is_set() and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._stop.set()

        previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _networks(state: dict[str, Any]) -> dict[str, Any]:
    return {name: state[name] for name in ("network", "target", "average", "novelty") if name in state}


def _crossed(period: int, before: int, after: int) -> bool:
    """Whether a multiple of `period` lies in (before, after]; never for a period of 0."""
    return period > 0 and before // period != after // period

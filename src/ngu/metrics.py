"""What a run measures: one JSON line per measurement, the same for TensorBoard, and W&B on request.

A line is `{"step": agent steps, "time": seconds of training, name: value, ...}`; a value that is not finite is null.
Each line is handed to the operating system at once, so a killed run loses at most the line it was writing. Every name
stands in `GLOSSARY`, which is also the docs' page of metrics.
"""

from __future__ import annotations

import errno
import functools
import importlib
import json
import math
import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ngu.config_reading import to_dict
from ngu.errors import UserError, needs_extra
from ngu.run_folder import RunFolder, replace_file

GLOSSARY: dict[str, str] = {
    "env/coverage": "Share of the maze's open cells visited in an episode, mean over the episodes that ended.",
    "env/return": "Sum of the extrinsic rewards of an episode, mean over the episodes that ended.",
    "env/episode_length": "Steps in an episode, mean over the episodes that ended.",
    "env/episodes": "Episodes that ended since the last line.",
    "env/score": "Sum of the game's own rewards in an episode, mean over the episodes that ended.",
    "env/solved": "Share of the episodes that ended with the task solved: treasure found, coin taken, goal reached.",
    "env/rooms": "Different rooms visited in an episode, mean over the episodes that ended.",
    "env/restarts": "Worker processes replaced since the start, because they died, hung or failed.",
    "env/*/exploit": "The same for the actors of beta_0 alone.",
    "env/*/explore": "The same for the actors of beta_{N-1} alone.",
    "env/*/episode_*": "The same for the first, second, ... episode of a meta-episode (novelty.memory_episodes).",
    "env/*": "What an environment of yours measures under that name, at the end of an episode, mean over the episodes.",
    "novelty/reward": "The intrinsic reward r_i, mean over the steps collected.",
    "novelty/episodic": "The episodic part of r_i, 1 / (sqrt(summed similarity) + c), mean over the steps collected.",
    "novelty/alpha": "The life-long modulator alpha before its clip to [1, L], mean over the steps collected.",
    "novelty/rnd_error": "RND's prediction error err(x) on the actors' observations, mean over the steps collected.",
    "novelty/embedding_age": "Agent steps since the f that rewards was copied from the learner's, mean over actors.",
    "actor/q_max": "Value of the best action by the actors' networks, mean over the steps collected.",
    "actor/q_max/episode_*": "The same for the first, second, ... episode of a meta-episode (novelty.memory_episodes).",
    "actor/q_max/*": "The same for the actors of beta_0 (exploit) or beta_{N-1} (explore) alone.",
    "novelty/reward/episode_*": "r_i in the first, second, ... episode of a meta-episode (novelty.memory_episodes).",
    "novelty/reward/*": "r_i of the actors of beta_0 (exploit) or beta_{N-1} (explore) alone.",
    "probe/position/squared_error": "Squared distance between the agent's position and what a probe of f says, mean.",
    "probe/position/baseline": "The same for one constant answer, the mean position of the same steps.",
    "probe/room/cross_entropy": "Cross-entropy of the room that a probe of f says the agent is in, in nats, mean.",
    "probe/room/error_rate": "Share of the steps whose room the probe gets wrong.",
    "probe/room/baseline": "The same for one constant answer, the commonest room of the same steps.",
    "replay/sequences": "Sequences in replay.",
    "replay/priority_mean": "Priority of a sequence in replay, to the power of replay.priority_exponent, mean.",
    "replay/priority_max": "The largest of them.",
    "loss/retrace": "Importance-weighted squared error between Q and its Retrace target, summed over the batch.",
    "loss/inverse": "Cross-entropy of the inverse-dynamics model, summed over the batch, without its L2 penalty.",
    "loss/rnd": "Mean squared error of RND's predictor against its target, summed over the batch.",
    "inverse/accuracy": "Share of actions that h predicts rightly, weighed as in training; compare inverse/majority.",
    "inverse/majority": "Share of the commonest action among those predicted: the accuracy of always guessing it.",
    "inverse/dimensions": "In how many directions f's states differ: the participation ratio of their covariance.",
    "learner/grad_norm": "Norm of the Q-network's gradient before it is clipped.",
    "learner/q_mean": "Value of the actions taken by the online network, mean over the trained steps.",
    "learner/td_error": "Absolute difference between Retrace target and value, mean over the trained steps.",
    "learner/q_exploit": "learner/q_mean of beta_0 alone, over some hundred updates; under h if there is one.",
    "learner/q_explore": "The same of beta_{N-1}.",
    "learner/td_rms_exploit": "Root mean square of beta_0's TD errors, likewise; their unit if mixture.balanced is on.",
    "learner/td_rms_explore": "The same of beta_{N-1}.",
    "learner/followed": "How far the target policy follows the actions taken, min(1, pi / mu): so far traces reach.",
    "learner/valid_share": "Share of the steps in the sampled batches that are not padding.",
    "learner/updates": "Learner updates since the start.",
    "learner/novelty_updates": "Updates of f and RND alone, before all others; see novelty.warm_up_steps.",
    "learner/skipped_updates": "Updates skipped since the start for a loss or gradient that was not finite.",
    "learner/skipped_in_a_row": "Most updates skipped in a row since the last line; see learner.max_skipped_updates.",
    "speed/steps_per_second": "Agent steps per second of wall time, over all environments, automatic resets included.",
    "speed/updates_per_second": "Learner updates per second of wall time.",
    "ray/actors": "Actors of the cluster that have been built and have not failed since.",
    "ray/actor_restarts": "Actors replaced since the start: they died, hung or failed, or their machine was lost.",
    "ray/evaluator_restarts": "Evaluators replaced since this process began.",
    "ray/skipped_evaluations": "Evaluations left out since this process began: the evaluator could not keep pace.",
    "ray/chunks": "Chunks of steps taken into replay since the start.",
    "ray/refused_chunks": "Chunks refused since the start: damaged, or with numbers that are not finite.",
    "ray/waiting_chunks": "Chunks that are complete and wait for the learner: how deep its queue is.",
    "ray/weights_age": "Updates since the weights were made that actors act with, mean over actors.",
    "ray/samples_per_insert": "Trained steps, padding included, for each step collected, since the start.",
    "memory/resident": "MiB of this process in the host's memory; worker processes have their own.",
    "memory/gpu": "MiB of the GPU that PyTorch holds for this process.",
    "eval/*/*/episode_*": "That of the first, second, ... episode of a meta-episode (novelty.memory_episodes), mean.",
    "eval/*/coverage@*": "Share of open cells visited after that many steps by that policy, mean over held-out mazes.",
    "eval/*/score": "Sum of the game's own rewards in an evaluation episode of that policy, mean over the episodes.",
    "eval/*/solved": "Share of the evaluation episodes of that policy that ended with the task solved.",
    "eval/*/rooms": "Different rooms visited in an evaluation episode of that policy, mean over the episodes.",
    "eval/*/human_normalised": "The score in percent of the way from a random player (0) to a human one (100), mean.",
    "eval/*/return": "Sum of the extrinsic rewards of an evaluation episode of that policy, mean over the episodes.",
    "eval/*/length": "Steps in an evaluation episode of that policy, mean over the episodes.",
    "eval/*/*": "What an environment of yours measures under that name in an evaluation episode, mean.",
}
"""Name of a metric -> one sentence. `*` in a name stands for any text: a family of metrics."""


@functools.cache
def explain(name: str) -> str:
    """The glossary's sentence for a metric; a name without one cannot be written."""
    if name in GLOSSARY:
        return GLOSSARY[name]
    for pattern, sentence in GLOSSARY.items():
        if "*" in pattern and re.fullmatch(".+".join(map(re.escape, pattern.split("*"))), name):
            return sentence
    raise ValueError(f"the metric {name!r} is not in ngu.metrics.GLOSSARY; explain it there in one sentence")


def by_policy(evaluation: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Policy -> measurement -> mean, of `eval/...` metrics; `explore, episode 2` is a meta-episode's second alone."""
    found: dict[str, dict[str, float]] = {}
    for name, value in evaluation.items():
        _, policy, measurement, *place = name.split("/")
        who = f"{policy}, {place[0].replace('_', ' ')}" if place else policy
        found.setdefault(who, {})[measurement] = value
    return found


class MetricsWriter:
    """Appends measurements to a run's folder.

    A resumed run starts at the step of its checkpoint: lines beyond `start_step` are dropped, since those steps will
    happen again, and `time` goes on from the last line that is kept.
    """

    def __init__(
        self, folder: RunFolder, *, start_step: int = 0, tensorboard: bool = True, wandb: bool = False
    ) -> None:
        self._path = folder.metrics_path
        # First what may be refused, so that nothing has been touched when it is.
        self._wandb: Any = _start_wandb(folder) if wandb else None
        try:
            time_before = _drop_after(self._path, start_step)
            # Unbuffered: a line is written by one call, and a failed one leaves nothing to be written again on closing.
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            raise UserError(f"cannot write metrics to {self._path}: {error.strerror}.") from None
        self._tensorboard: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # slow to import

            try:
                self._tensorboard = SummaryWriter(str(folder.tensorboard), purge_step=start_step + 1)
            except OSError as error:
                raise UserError(f"cannot write to {folder.tensorboard}: {error.strerror}; move it away.") from None
        self._start_time = time.monotonic() - time_before

    @property
    def seconds(self) -> float:
        """Wall time spent training, over all resumes."""
        return time.monotonic() - self._start_time

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes one line; names outside the glossary raise."""
        row: dict[str, float | None] = {"step": step, "time": round(self.seconds, 3)}
        for name, value in values.items():
            explain(name)
            row[name] = float(value) if math.isfinite(value) else None
        line = (json.dumps(row, allow_nan=False) + "\n").encode()
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._tensorboard is not None:
                for name, value in values.items():
                    self._tensorboard.add_scalar(name, float(value), step)
                self._tensorboard.flush()
        except OSError as error:
            raise UserError(
                f"cannot write metrics to {self._path}: {error.strerror}; make room or make it writable, then resume."
            ) from None
        if self._wandb is not None:
            self._wandb.log({**values, "step": step})

    def close(self) -> None:
        """Ends the files; the writer cannot be used afterwards."""
        self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All lines of a run's metrics; a last line that was cut off by the death of its writer is left out."""
    return [row for _, row in _read_lines(path)]


def last_evaluation(path: Path) -> int:
    """The step of the last evaluation in a metrics file; -1 where there is none, or no file."""
    rows = read_metrics(path) if path.is_file() else []
    return max((row["step"] for row in rows if any(name.startswith("eval/") for name in row)), default=-1)


def _read_lines(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    """Each line as it stands, without its end, and what it says."""
    try:
        *complete, torn = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise UserError(f"there are no metrics at {path}; name the folder of a run that has begun to train.") from None
    except OSError as error:
        raise UserError(f"cannot read the metrics {path}: {error.strerror}.") from None
    lines = []
    for number, line in enumerate(complete, start=1):
        row = _parse(line)
        if row is None:
            raise UserError(
                f"line {number} of the metrics {path} is damaged; remove that line, or {path.parent} to begin anew."
            )
        lines.append((line, row))
    row = _parse(torn)  # only the end of the line may be missing
    return lines if row is None else [*lines, (torn, row)]


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and type(row.get("step")) is int else None


def _drop_after(path: Path, step: int) -> float:
    """Drops the lines beyond `step` and a torn one, all at once or not at all; the `time` of the last line kept."""
    if not path.exists():
        return 0.0
    kept = [(line, row) for line, row in _read_lines(path) if row["step"] <= step]
    content = b"".join(line + b"\n" for line, _ in kept)
    if content != path.read_bytes():
        replace_file(path, content)
    return float(kept[-1][1].get("time") or 0.0) if kept else 0.0


def _start_wandb(folder: RunFolder) -> Any:
    try:
        wandb = importlib.import_module("wandb")
    except ImportError:
        raise UserError(needs_extra("run.wandb needs Weights & Biases", "wandb")) from None
    # The same W&B run goes on when this one is resumed, and no other run of the same name does.
    identity = folder.path / "wandb_id"
    if not identity.exists():
        replace_file(identity, secrets.token_hex(8).encode())
    run = wandb.init(
        project="ngu",
        id=identity.read_text(),
        resume="allow",
        name=folder.path.name,
        dir=str(folder.path),
        config=to_dict(folder.config),
    )
    run.define_metric("*", step_metric="step")  # W&B's own step never goes back, a resumed run's does
    return run

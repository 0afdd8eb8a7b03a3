"""Training on environments in worker processes: what a user sees when they fail."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from conftest import make_tiny_config

from ngu.checkpoint import newest_checkpoint
from ngu.envs.workers import WorkerEnvironments
from ngu.errors import UserError
from ngu.training import Training


def make_training(folder: Path, max_restarts: int) -> Training:
    config = make_tiny_config(
        env__name="gym", env__id="CartPole-v1", env__workers=1, env__max_restarts=max_restarts, evaluation__marks=(),
        evaluation__period=0, run__steps=2000, run__log_period=40, run__checkpoint_period=0, run__tensorboard=False,
        run__folder=str(folder), run__name="run",
    )  # fmt: skip
    return Training.start(config)


def kill_a_worker(env: object) -> None:
    assert isinstance(env, WorkerEnvironments)
    os.kill(env.pids[0], signal.SIGKILL)


def test_a_restart_is_told_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = make_training(tmp_path, max_restarts=3)
    try:
        training.run(200)
        kill_a_worker(training.runner.agent.actors[0].env)
        training.run(400)
    finally:
        training.close()
    told = " ".join("".join(capsys.readouterr()).split())
    assert told.count("worker processes restarted so far: 1;") == 1
    assert "was ended by SIGKILL" in told
    restarts = [row["env/restarts"] for row in training.history if "env/restarts" in row]
    assert (restarts[0], restarts[-1]) == (0, 1)


def test_a_restart_in_the_evaluator_is_told_and_counted_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = make_training(tmp_path, max_restarts=3)
    try:
        assert training.evaluator is not None
        training.run(200)
        kill_a_worker(training.evaluator.env)
        training.evaluate()
        training.run(400)
    finally:
        training.close()
    told = " ".join("".join(capsys.readouterr()).split())
    assert told.count("worker processes of the evaluator restarted so far: 1;") == 1
    assert "was ended by SIGKILL" in told
    restarts = [row["env/restarts"] for row in training.history if "env/restarts" in row]
    assert (restarts[0], restarts[-1]) == (0, 1)


def test_environments_that_fail_for_good_end_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    training = make_training(tmp_path, max_restarts=0)
    try:
        training.run(200, show_progress=False)
        kill_a_worker(training.runner.agent.actors[0].env)
        with pytest.raises(UserError) as failure:
            training.run(2000, show_progress=False)
    finally:
        training.close()
    assert len(str(failure.value).splitlines()) == 1
    assert training.folder is not None
    newest = newest_checkpoint(training.folder.checkpoints)
    assert newest is not None
    assert int(newest.name.removeprefix("step_")) >= 200

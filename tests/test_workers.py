"""Environments in worker processes: the same episodes as anywhere else, in the shape that the agent takes."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gym_factories import Closing, Ledger, Surroundings, Trivial
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from worker_checks import Bookkeeper, batch, copy, nothing_left_behind, play, same, seed_of

from ngu.envs.gym import GymEnvironments, GymFactory
from ngu.envs.priority import EMULATOR_NICENESS
from ngu.envs.protocol import EnvironmentBatch
from ngu.envs.workers import WorkerEnvironments
from ngu.errors import UserError


@pytest.fixture(autouse=True)
def check_what_is_left() -> Iterator[None]:
    with nothing_left_behind():
        yield


@pytest.mark.parametrize(
    ("name", "kwargs", "steps"), [("CartPole-v1", {}, 3000), ("ngu/DiscoMaze-v0", {"size": 7, "step_cap": 12}, 1000)]
)
def test_equals_gymnasiums_own_batch(name: str, kwargs: dict[str, Any], steps: int) -> None:
    num_envs, seed = 5, 7
    factory = GymFactory(name, kwargs)
    oracle = SyncVectorEnv([partial(factory, e) for e in range(num_envs)], autoreset_mode=AutoresetMode.NEXT_STEP)
    picture = len(oracle.single_observation_space.shape) == 3
    with batch(factory, num_envs, workers=2) as env:
        expected, _ = oracle.reset(seed=[seed_of(seed, e) for e in range(num_envs)])
        step = env.reset(seed)
        score, ended, ends = np.zeros(num_envs), np.zeros(num_envs, dtype=bool), 0
        rewards = terminated = truncated = np.zeros(num_envs)
        draw = np.random.default_rng(0)
        for t in range(steps + 1):
            assert np.array_equal(step.observation.numpy(), expected.transpose(0, 3, 1, 2) if picture else expected)
            assert np.array_equal(step.reward.numpy(), rewards)
            assert np.array_equal(step.terminated.numpy(), terminated)
            assert np.array_equal(step.truncated.numpy(), truncated)
            assert np.array_equal(step.first.numpy(), ended if t else np.ones(num_envs))
            assert np.array_equal(step.info["score"].numpy(), score)
            ended = step.ended.numpy().copy()
            ends += int(ended.sum())
            action = draw.integers(env.spec.num_actions, size=num_envs)
            env.send(torch.from_numpy(action))
            expected, rewards, terminated, truncated, _ = oracle.step(action)
            score = np.where(ended, 0, score + rewards)
            step = env.recv()
        assert ends > 100
        assert env.restarts == 0
    oracle.close()


def test_the_number_of_workers_does_not_matter() -> None:
    histories = {}
    for workers in (1, 3, 20):
        with batch(Ledger, 7, workers=workers) as env:
            assert len(env.pids) == min(workers, 7)
            histories[workers] = play(env, 3, 300)
            again = play(env, 3, 300)
            other = play(env, 4, 20)
        assert all(map(same, histories[workers], again))
        assert not any(map(same, histories[workers], other))
        assert all(map(same, histories[workers], histories[1]))
    first = histories[1][0]["observation"]
    assert len(set(first[:, 1].tolist())) == 7  # every environment has a seed of its own


def test_steps_are_possible_and_the_ledger_is_complete() -> None:
    with batch(Ledger, 6, workers=2) as env:
        draw = torch.Generator().manual_seed(0)
        books = Bookkeeper(env.reset(0))
        for _ in range(500):
            action = torch.randint(5, (6,), generator=draw)
            env.send(action)
            books.check(action, env.recv())
        assert books.ends >= books.firsts > 300
        assert not any(books.cut_steps)


def test_a_step_stays_valid_until_the_next() -> None:
    with batch(Ledger, 4, workers=2) as env:
        step = env.reset(0)
        for _ in range(50):
            before = copy(step)
            env.send(torch.zeros(4, dtype=torch.int64))
            deadline = time.monotonic() + 0.002
            while time.monotonic() < deadline:
                assert same(copy(step), before)
            step = env.recv()
            assert not same(copy(step), before)
            assert same(copy(env.recv()), copy(step))  # nothing was sent since


def test_send_returns_at_once() -> None:
    with batch(partial(Ledger, delay=5.0, shortest=12), 2, workers=2) as env:
        env.reset(0)
        begun = time.monotonic()
        env.send(torch.zeros(2, dtype=torch.int64))
        sent = time.monotonic()
        env.recv()
        assert sent - begun < 4.0
        assert time.monotonic() - begun >= 5.0


def test_the_seams_of_a_batch() -> None:
    with batch(GymFactory(Trivial), 3, workers=1) as env:
        as_batch: EnvironmentBatch = env
        assert as_batch.num_envs == 3
        assert as_batch.device == torch.device("cpu")
        assert (as_batch.graph_safe, env.restores, as_batch.generators, as_batch.state_dict()) == (False, False, (), {})
        step = env.reset(0)
        assert (step.reward.dtype, step.first.dtype, step.info["score"].dtype) == (
            torch.float32, torch.bool, torch.float32,
        )  # fmt: skip
        env.send(torch.ones(3, dtype=torch.int64))
        env.load_state_dict({})
        env.maintain()
        assert not bool(env.recv().first.any())


def test_calls_in_the_wrong_order() -> None:
    env = WorkerEnvironments(GymFactory(Trivial), 2, workers=1)
    action = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(RuntimeError, match=r"send\(\) comes once after"):
        env.send(action)
    with pytest.raises(RuntimeError, match=r"recv\(\) comes after reset"):
        env.recv()
    env.reset(0)
    for wrong in ([0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="actions must be numbers from 0 to 1"):
            env.send(torch.tensor(wrong))
    env.send(action)
    with pytest.raises(RuntimeError, match=r"send\(\) comes once after"):
        env.send(action)
    assert bool(env.reset(1).first.all())  # the step under way is dropped
    env.send(action)
    env.close()
    env.close()
    for call in (env.recv, partial(env.send, action), partial(env.reset, 0)):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_workers_use_one_thread_and_leave_interrupts_to_the_parent() -> None:
    with batch(GymFactory(Surroundings), 2, workers=2) as env:
        info = env.reset(0).info
        assert info["thread_limit"].tolist() == info["threads"].tolist() == [1, 1]
        assert info["group_leader"].tolist() == info["interrupts_ignored"].tolist() == [1, 1]
        for pid in env.pids:
            os.kill(pid, signal.SIGINT)
        env.send(torch.zeros(2, dtype=torch.int64))
        env.recv()
        assert env.restarts == 0


@pytest.mark.skipif(sys.platform != "linux", reason="workers are nicer on Linux alone")
def test_workers_step_back_for_the_process_that_acts() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with batch(GymFactory(Surroundings), 2, workers=2) as env:
        assert env.reset(0).info["niceness"].tolist() == [min(own + EMULATOR_NICENESS, 19)] * 2
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_environments_are_closed_in_good_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ngu.envs.workers._FAREWELL", 60.0)
    env = GymEnvironments(Closing, 4, workers=2, kwargs={"folder": str(tmp_path)})
    env.reset(0)
    pids = env.pids
    env.close()
    assert {path.name for path in tmp_path.iterdir()} == {f"closed-{pid}" for pid in pids}


def test_registered_ids_with_a_module() -> None:
    env = GymEnvironments("gym_factories:test/Ledger-v0", 2, workers=1, kwargs={"longest": 3})
    assert env.spec.max_episode_steps == 40
    assert env.spec.measurements == ("score", "progress")
    env.close()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_envs": 0}, "number of environments is 0"),
        ({"workers": -1}, "number of workers is -1"),
        ({"timeout": 0.0}, "time limit is 0.0 seconds"),
        ({"timeout": float("nan")}, "time limit is nan seconds"),
        ({"max_restarts": -1}, "restarts that are allowed is -1"),
    ],
)
def test_settings_that_cannot_work(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        WorkerEnvironments(GymFactory(Trivial), **{"num_envs": 1, **options})

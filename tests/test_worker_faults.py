"""Workers that die, hang or fail: the run goes on, and what it shows is always possible."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from gym_factories import Ledger, Misbehaving, OldReset, Stepping, Trivial, not_an_environment, uneven
from worker_checks import (
    Bookkeeper,
    batch,
    env_name,
    gone,
    nothing_left_behind,
    play,
    processes_of_group,
    same,
    wait_until,
)

from ngu.envs.gym import GymFactory
from ngu.envs.workers import WorkerEnvironments
from ngu.errors import UserError


@pytest.fixture(autouse=True)
def check_what_is_left() -> Iterator[None]:
    with nothing_left_behind():
        yield


@pytest.mark.parametrize("seed", [0, 1])
def test_workers_killed_at_random_moments(seed: int) -> None:
    draw, actions = random.Random(seed), torch.Generator().manual_seed(seed)
    num_envs, kills, killed = 7, 10, set()
    with batch(partial(Ledger, delay=0.0005), num_envs, workers=3) as env:
        books = Bookkeeper(env.reset(seed))

        def kill() -> None:
            pid = draw.choice(env.pids)
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)

        steps = 0
        while len(killed) < kills or steps < 300:
            moment = draw.choice(["idle", "working", "none"]) if len(killed) < kills and draw.random() < 0.2 else "none"
            if moment == "idle":
                kill()
            action = torch.randint(5, (num_envs,), generator=actions)
            env.send(action)
            if moment == "working":
                time.sleep(draw.uniform(0, 0.002))
                kill()
                if draw.random() < 0.3:
                    kill()
            books.check(action, env.recv())
            steps += 1
        assert env.restarts == len(killed)
        assert env.restart_reason.endswith("was ended by SIGKILL.")
        assert not killed & set(env.pids)
    cut = [step for step in books.cut_steps if step]
    assert kills // 3 < len(cut) <= len(killed)
    assert books.ends >= books.firsts > steps / 3


def test_cut_where_an_episode_runs_and_reset_where_none_does() -> None:
    with batch(partial(Ledger, longest=6), 6, workers=2) as env:
        books = Bookkeeper(env.reset(0))
        action = torch.zeros(6, dtype=torch.int64)
        # Until some environment of the first worker has ended, and some other one of it has not.
        while int((books.last["terminated"] | books.last["truncated"])[:3].sum()) not in (1, 2):
            env.send(action)
            books.check(action, env.recv())
        ended = books.last["terminated"] | books.last["truncated"]
        before = books.last
        os.kill(env.pids[0], signal.SIGKILL)
        env.send(action)
        step = env.recv()
        books.check(action, step)
        assert torch.equal(step.first[:3], ended[:3])
        assert torch.equal(step.truncated[:3], ~ended[:3])
        assert books.cut_steps[-1] == [e for e in range(3) if not ended[e]]
        assert torch.equal(step.observation[:3][~ended[:3]], before["observation"][:3][~ended[:3]])
        env.send(action)
        step = env.recv()
        books.check(action, step)
        assert torch.equal(step.first[:3], ~ended[:3])
        assert env.restarts == 1


def test_seeds_after_a_restart_are_new_and_determined() -> None:
    def name_after_kill(kills: int) -> tuple[int, Any]:
        with batch(partial(Ledger, shortest=12), 2, workers=2) as env:

            def kill() -> None:
                for _ in range(kills):
                    os.kill(env.pids[1], signal.SIGKILL)

            history = play(env, 5, 30, {3: kill})
            return int(history[5]["observation"][1, 1]), history

    name, history = name_after_kill(1)
    assert history[4]["truncated"].tolist() == [False, True]
    assert history[5]["first"].tolist() == [False, True]
    assert name == env_name(5, 1, 1) != env_name(5, 1, 0)
    assert all(map(same, history, name_after_kill(1)[1]))
    untouched = name_after_kill(0)[1]
    assert all(
        torch.equal(one["observation"][0], two["observation"][0]) for one, two in zip(history, untouched, strict=True)
    )


def test_reset_in_spite_of_a_dead_worker() -> None:
    with batch(Ledger, 4, workers=2) as env:
        play(env, 0, 10)
        os.kill(env.pids[1], signal.SIGKILL)
        step = env.reset(1)
        Bookkeeper(step)
        assert env.restarts == 1
        assert step.observation[0, 1] == env_name(1, 0, 0)
        assert step.observation[3, 1] == env_name(1, 3, 1)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (
            "raise_an_exception",
            r"environment 1 raised ValueError: the moon is in the wrong house \(gym_factories.py, line \d+\).",
        ),
        ("leave", r"environment 1 raised SystemExit: enough \(gym_factories.py, line \d+\)."),
        ("leave_at_once", "the worker of environments 0 to 1 ended with exit code 3."),
        ("crash", "the worker of environments 0 to 1 was ended by SIGSEGV."),
        ("hang", "the worker of environments 0 to 1 gave no answer for 5 seconds."),
        ("hang_with_the_interpreter", "the worker of environments 0 to 1 gave no answer for 5 seconds."),
        (
            "show_another_shape",
            r"environment 1 is at fault: its observation has shape \(5,\), but its space says \(4,\).",
        ),
        ("forget_a_measurement", "environment 1 is at fault: its info lacks the measurement 'progress'."),
    ],
)
def test_an_environment_that_fails_once(what: str, reason: str, tmp_path: Path) -> None:
    make_env = partial(Misbehaving, what=what, culprit=1, marker=str(tmp_path / "happened"))
    with batch(make_env, 4, workers=2, timeout=5.0) as env:
        action = torch.zeros(4, dtype=torch.int64)
        books = Bookkeeper(env.reset(0))
        for _ in range(30):
            env.send(action)
            books.check(action, env.recv())
        assert env.restarts == 1
        assert [cut for cut in books.cut_steps if cut] == [[0, 1]]
        assert re.fullmatch(reason, env.restart_reason), env.restart_reason


def test_a_worker_that_is_stopped_is_replaced() -> None:
    with batch(Ledger, 4, workers=2, timeout=4.0) as env:
        env.reset(0)
        stopped = env.pids[0]
        os.kill(stopped, signal.SIGSTOP)
        env.send(torch.zeros(4, dtype=torch.int64))
        assert env.recv().truncated.tolist()[:2] == [True, True]
        assert env.restart_reason == "the worker of environments 0 to 1 gave no answer for 4 seconds."
        assert gone([stopped])


def test_what_a_failing_environment_has_started_is_ended_too(tmp_path: Path) -> None:
    make_env = partial(Misbehaving, what="start_a_process_and_hang", marker=str(tmp_path / "happened"))
    with batch(make_env, 1, timeout=15.0) as env:
        env.reset(0)
        action = torch.zeros(1, dtype=torch.int64)
        for _ in range(2):
            env.send(action)
            env.recv()
        env.send(action)
        group = env.pids[0]
        wait_until(lambda: len(processes_of_group(group)) == 2)
        members = processes_of_group(group)
        assert bool(env.recv().truncated[0])
        assert gone(members)


def test_more_failures_than_are_allowed() -> None:
    with batch(partial(Misbehaving, what="raise_an_exception"), 2, workers=1, max_restarts=2) as env:
        env.reset(0)
        pids = []
        with pytest.raises(UserError, match=r"failed more than the 2 times that are allowed, .* the wrong house"):  # noqa: PT012
            for _ in range(100):
                env.send(torch.zeros(2, dtype=torch.int64))
                env.recv()
                pids += env.pids
        assert env.restarts == 2
        assert len(set(pids)) == 3
        assert gone(pids)
        with pytest.raises(RuntimeError, match="closed"):
            env.recv()


def test_an_automatic_reset_that_fails_is_made_again(tmp_path: Path) -> None:
    make_env = partial(
        Misbehaving, what="raise_an_exception", where="reset", episode=1, marker=str(tmp_path / "happened")
    )
    with batch(make_env, 2, workers=1) as env:
        books = Bookkeeper(env.reset(0))
        action = torch.zeros(2, dtype=torch.int64)
        for _ in range(30):
            env.send(action)
            books.check(action, env.recv())
        assert env.restarts == 1
        cut = [step for step in books.cut_steps if step]
        assert cut in ([], [[1]])  # environment 0, whose reset failed, had nothing to cut


def test_an_environment_that_cannot_be_reset_is_told_at_once() -> None:
    with batch(partial(Misbehaving, what="raise_an_exception", where="reset"), 2, workers=1) as env:
        with pytest.raises(UserError, match=r"^environment 0 raised ValueError: .* line \d+\)\.$"):
            env.reset(0)
        assert env.restarts == 0


RIGHT_STEP = "let step return observation, reward, terminated, truncated and info, a dictionary"


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("give_four_values", f"its step returned 4 values; {RIGHT_STEP}"),
        ("give_the_observation_alone", f"its step returned a value of the type ndarray; {RIGHT_STEP}"),
        ("give_no_info", f"its step returned an info of the type NoneType; {RIGHT_STEP}"),
        ("pay_an_array", "its reward is of the type ndarray; give one number"),
        ("pay_none", "its reward is of the type NoneType; give one number"),
        ("measure_a_text", "its measurement 'depth' is of the type str; give one number"),
        ("lack_a_measurement", "its info lacks the measurement 'depth'"),
        ("pay_nan", "its reward is nan"),
        ("pay_too_much", r"its reward is 1e\+39"),
        ("pay_without_end", "its reward is too large for a float; scale it"),
        ("end_with_a_text", "its terminated is of the type str; give True or False"),
        ("end_with_an_array", "its truncated is of the type ndarray; give True or False"),
        ("show_infinity", "its observation holds -inf"),
        ("show_too_much", r"its observation holds 1e\+300"),
        ("show_none", "its observation is object and not of numbers"),
        ("show_complex", "its observation is complex128 and not of numbers"),
    ],
)
def test_an_environment_that_cannot_be_stepped_is_told_at_once(what: str, reason: str) -> None:
    with batch(partial(Stepping, what=what), 2, workers=1) as env:
        env.reset(0)
        env.send(torch.zeros(2, dtype=torch.int64))
        with pytest.raises(UserError, match=rf"^environment 0 is at fault: {reason}\.$"):
            env.recv()
        assert env.restarts == 0


@pytest.mark.parametrize("what", ["give_four_values", "give_the_observation_alone", "pay_none", "give_no_info"])
def test_advice_is_given_where_gymnasiums_own_wrappers_stumble(what: str) -> None:
    with batch(GymFactory("gym_factories:test/Stepping-v0", {"what": what}), 1) as env:
        env.reset(0)
        env.send(torch.zeros(1, dtype=torch.int64))
        with pytest.raises(UserError, match=rf"^environment 0 .*({RIGHT_STEP}|give one number)\.$"):
            env.recv()


@pytest.mark.parametrize("make_env", [GymFactory(OldReset), GymFactory("gym_factories:test/OldReset-v0")])
def test_a_reset_of_before_there_was_an_info(make_env: GymFactory) -> None:
    sentence = "let reset return observation and info, a dictionary"
    with batch(make_env, 1) as env, pytest.raises(UserError, match=rf"^environment 0 .*{sentence}\.$"):
        env.reset(0)


def test_a_step_that_was_cut_proves_nothing() -> None:
    with batch(partial(Stepping, what="pay_nan"), 2, workers=1) as env:
        env.reset(0)
        os.kill(env.pids[0], signal.SIGKILL)
        action = torch.zeros(2, dtype=torch.int64)
        for _ in range(2):  # the cut, and the reset after it
            env.send(action)
            env.recv()
        env.send(action)
        with pytest.raises(UserError, match=r"^environment 0 is at fault: its reward is nan"):
            env.recv()
        assert env.restarts == 1


@pytest.mark.parametrize(
    ("make_env", "sentence"),
    [
        (GymFactory("CartPol-v1"), "the Gymnasium environment CartPol-v1 does not exist; the nearest .* CartPole-v1"),
        (GymFactory("no_such_module:Thing-v0"), "Thing-v0 cannot be made: No module named 'no_such_module'"),
        (GymFactory("CartPole-v1", {"size": 3}), "environment [02] raised TypeError: .* keyword argument 'size'"),
        (GymFactory("Pendulum-v1"), r"actions are a Box of shape .*\.DiscretizeAction"),
        (partial(Misbehaving, what="raise_an_exception", where="constructor"), "environment 0 raised ValueError: the "),
        (partial(Misbehaving, what="leave_at_once", where="constructor"), "ended with exit code 3, before its env"),
        (not_an_environment, "'int', which is no gymnasium.Env"),
        (partial(uneven, odd=(1,)), "environments 0 and 1 have different spaces"),
        (partial(uneven, odd=(2,)), "environments 2 and 3 have different spaces"),
        (partial(uneven, odd=(2, 3)), "environments 0 and 2 have different spaces"),
    ],
)  # fmt: skip
def test_environments_that_cannot_be_made(make_env: Callable[[int], Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        WorkerEnvironments(make_env, 4, workers=2)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_a_constructor_that_hangs() -> None:
    with pytest.raises(UserError, match=r"gave no answer for 0.5 seconds, before its environments were made"):
        WorkerEnvironments(partial(Misbehaving, what="hang", where="constructor"), 1, timeout=0.5)


def test_a_factory_that_cannot_be_sent() -> None:
    lock = threading.Lock()
    with pytest.raises(UserError, match="factory cannot be sent to a worker process"):
        WorkerEnvironments(lambda index: lock and Trivial(), 1)  # noqa: ARG005


def test_an_interrupted_recv_can_be_repeated() -> None:
    def interrupt(*_: Any) -> None:
        raise InterruptedError

    with batch(partial(Ledger, delay=1.0, shortest=12), 4, workers=2) as env:
        books = Bookkeeper(env.reset(0))
        action = torch.zeros(4, dtype=torch.int64)

        def interrupted_recv() -> None:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            env.recv()

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            for _ in range(2):
                env.send(action)
                with pytest.raises(InterruptedError):
                    interrupted_recv()
                books.check(action, env.recv())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert env.restarts == 0

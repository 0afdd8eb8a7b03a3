"""However the parent ends, nothing is left of its workers. These are scripts as users write them, in real processes."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from gym_factories import Trivial
from worker_checks import alive, gone, nothing_left_behind, processes_of_group, wait_until

from ngu.envs.gym import GymFactory
from ngu.envs.workers import WorkerEnvironments


@pytest.fixture(autouse=True)
def check_what_is_left() -> Iterator[None]:
    with nothing_left_behind():
        yield


SCRIPT = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs in the background without it
import gymnasium, numpy, torch
from ngu.envs.gym import GymEnvironments

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (8, 6, 3), numpy.uint8)
    action_space = gymnasium.spaces.Discrete(3)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.integers(256, size=(8, 6, 3), dtype=numpy.uint8), {}
    def step(self, action):
        if action == 2:
            HANG
        return self.np_random.integers(256, size=(8, 6, 3), dtype=numpy.uint8), 1.0, False, False, {}

gymnasium.register(id="Mine-v0", entry_point=Mine, max_episode_steps=9)
env = GymEnvironments("Mine-v0", 4, workers=2)
assert tuple(env.reset(0).observation.shape) == (4, 3, 8, 6)
assert env.spec.max_episode_steps == 9
env.send(torch.ones(4, dtype=torch.int64))
assert env.recv().info["score"].tolist() == [1, 1, 1, 1]
print(*env.pids, flush=True)
"""


def run_script(text: str, hang: str = "pass", **options: Any) -> subprocess.Popen[str]:
    """A user's script, without a guard for its main part."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.replace("HANG", hang) + text],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        **options,
    )  # fmt: skip


@pytest.mark.parametrize("ending", ["", "env.close()"])
def test_a_script_that_ends(ending: str) -> None:
    script = run_script(ending)
    output, errors = script.communicate(timeout=300)
    assert (script.returncode, errors) == (0, "")
    assert gone([int(pid) for pid in output.split()], seconds=0)


def test_a_script_that_fails() -> None:
    script = run_script("1 / 0")
    output, errors = script.communicate(timeout=300)
    assert script.returncode == 1
    assert errors.count("Error") == 1
    assert "ZeroDivisionError" in errors
    assert gone([int(pid) for pid in output.split()], seconds=0)


IN_A_THREAD = """
import threading
def start():
    global env
    env = GymEnvironments("Mine-v0", 4, workers=2)
env.close()
thread = threading.Thread(target=start)
thread.start()
thread.join()
time.sleep(0.2)
assert env.reset(0).first.all() and env.restarts == 0
print(*env.pids)
"""


@pytest.mark.parametrize(
    ("state", "preparation"),
    [
        ("pass", ""),
        ("pass", IN_A_THREAD),  # the thread that started the workers ends long before the parent does
        ("time.sleep(1000)", ""),
        ("import ctypes; ctypes.PyDLL(None).sleep(1000)", ""),  # with the interpreter's lock
        ("import subprocess; subprocess.run(['sleep', '1000'])", ""),
    ],
)
def test_a_parent_that_is_killed_leaves_nothing(state: str, preparation: str) -> None:
    text = preparation + "env.send(torch.full((4,), 2)); time.sleep(0.5); print('now', flush=True); time.sleep(1000)"
    script = run_script(text, hang=state)
    assert script.stdout is not None
    pids: list[int] = []
    while (line := script.stdout.readline().strip()) != "now":
        assert line, script.communicate()[1]
        pids = [int(pid) for pid in line.split()]
    assert len(pids) == 2
    assert all(map(alive, pids))
    wanted = 4 if "subprocess" in state else 2
    wait_until(lambda: sum(len(processes_of_group(pid)) for pid in pids) == wanted)
    members = [member for pid in pids for member in processes_of_group(pid)]
    script.kill()
    _, errors = script.communicate(timeout=300)
    assert errors == ""
    assert gone(members)


def test_ctrl_c_reaches_the_parent_alone() -> None:
    """The terminal sends SIGINT to the whole foreground group; workers are in groups of their own."""
    script = run_script("while True:\n  env.send(torch.zeros(4, dtype=torch.int64)); env.recv()", process_group=0)
    assert script.stdout is not None
    pids = [int(pid) for pid in script.stdout.readline().split()]
    os.killpg(script.pid, signal.SIGINT)
    _, errors = script.communicate(timeout=300)
    assert errors.count("Traceback") == 1
    assert "KeyboardInterrupt" in errors
    assert gone(pids, seconds=0)


def test_a_fork_leaves_the_workers_alone() -> None:
    script = run_script(
        "pid = os.fork()\nif pid == 0:\n    del env\n    import gc; gc.collect(); os._exit(0)\n"
        "os.waitpid(pid, 0)\nenv.send(torch.zeros(4, dtype=torch.int64)); env.recv(); assert env.restarts == 0"
    )
    _, errors = script.communicate(timeout=300)
    assert (script.returncode, errors) == (0, "")


def test_a_batch_that_is_forgotten_ends_its_workers() -> None:
    env = WorkerEnvironments(GymFactory(Trivial), 2, workers=2)
    step, pids = env.reset(0), env.pids
    del env
    gc.collect()
    assert not any(map(alive, pids))
    assert step.first.tolist() == [True, True]  # the memory lives as long as it is looked at

"""What tests of worker processes share: a bookkeeper of what a batch shows, and a look at processes."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gym_factories import Ledger
from torch import Tensor

from ngu.envs.protocol import Step
from ngu.envs.workers import WorkerEnvironments


@contextlib.contextmanager
def batch(make_env: Callable[[int], Any], num_envs: int, **options: Any) -> Iterator[WorkerEnvironments]:
    env = WorkerEnvironments(make_env, num_envs, **options)
    try:
        yield env
    finally:
        env.close()


def seed_of(seed: int, index: int, incarnation: int = 0) -> int:
    return int(np.random.SeedSequence(seed, spawn_key=(index, incarnation)).generate_state(1)[0] // 2)


def copy(step: Step) -> dict[str, Tensor]:
    fields = {name: getattr(step, name) for name in ("observation", "reward", "terminated", "truncated", "first")}
    return {name: tensor.clone() for name, tensor in (fields | step.info).items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def play(env: WorkerEnvironments, seed: int, steps: int, before: dict[int, Callable[[], None]] | None = None) -> Any:
    """All steps of a random policy; `before[t]` is called before the t-th action is sent."""
    draw = torch.Generator().manual_seed(seed)
    history = [copy(env.reset(seed))]
    for t in range(steps):
        (before or {}).get(t, lambda: None)()
        env.send(torch.randint(env.spec.num_actions, (env.num_envs,), generator=draw))
        history.append(copy(env.recv()))
    return history


class Bookkeeper:
    """Checks that what a batch of ledgers shows is possible, step by step, and counts what it sees."""

    def __init__(self, step: Step) -> None:
        self.last = copy(step)
        self.cut_steps: list[list[int]] = []
        self.firsts = self.ends = 0
        assert bool(step.first.all())

    def check(self, action: Tensor, step: Step) -> None:
        now, last = copy(step), self.last
        ended = last["terminated"] | last["truncated"]
        # An episode begins after the last one's end, and only then.
        assert torch.equal(now["first"], ended)
        cut = []
        for e in range(len(action)):
            index, name, time_, shown_action = now["observation"][e].tolist()
            reward, progress, score = (float(now[key][e]) for key in ("reward", "progress", "score"))
            over = bool(now["terminated"][e] | now["truncated"][e])
            assert index == e
            if now["first"][e]:
                self.firsts += 1
                assert (time_, shown_action, reward, progress, score, over) == (0, -1, 0, 0, 0, False)
                continue
            self.ends += over
            if torch.equal(now["observation"][e], last["observation"][e]):
                cut.append(e)
                assert reward == 0
                assert bool(now["truncated"][e])
                assert not bool(now["terminated"][e])
                assert (progress, score) == (last["progress"][e], last["score"][e])
                continue
            assert name == last["observation"][e, 1]
            assert time_ == last["observation"][e, 2] + 1
            assert (shown_action, reward, progress) == (action[e], time_ / 2, time_)
            assert score == time_ * (time_ + 1) / 4
            assert not (over and bool(now["terminated"][e]) == (name % 3 == 0))
        self.cut_steps.append(cut)
        self.last = now


def alive(pid: int) -> bool:
    """The process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    """However slowly a busy machine comes there."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def gone(pids: list[int], seconds: float = 60.0) -> bool:
    """Waits until all have ended."""
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def children() -> set[int]:
    """The processes that this one has started, zombies included."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def segments() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def processes_of_group(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getpgid(int(entry.name)) == group:
                    found.append(int(entry.name))
    return found


def env_name(seed: int, index: int, incarnation: int) -> int:
    oracle = Ledger(index)
    oracle.reset(seed=seed_of(seed, index, incarnation))
    return oracle.name


@contextlib.contextmanager
def nothing_left_behind() -> Iterator[None]:
    """What is done inside may leave no process, no open file and no segment of shared memory."""
    gc.collect()  # what others forgot would otherwise go in the meantime
    before = children(), segments(), open_files()
    yield
    if (children(), segments(), open_files()) != before:
        gc.collect()
        assert (children(), segments(), open_files()) == before

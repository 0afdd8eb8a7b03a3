"""Gymnasium environments that workers import: some that tell exactly where they are, and some that misbehave."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Ledger(gymnasium.Env[Any, Any]):
    """Episodes of random lengths whose observations are [index, name of the episode, time, last action (-1 at first)].

    The reward of the step to time t is t / 2. The name of an episode is a random number, so two are hardly the same.
    Every third episode or so is truncated, the others are terminated.
    """

    measurements = ("progress",)

    def __init__(self, index: int = 0, longest: int = 12, delay: float = 0.0, shortest: int = 1) -> None:
        self.observation_space = spaces.Box(-1.0, np.inf, (4,), np.float32)
        self.action_space = spaces.Discrete(5)
        self.index, self.shortest, self.longest, self.delay = index, shortest, longest, delay

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.name = int(self.np_random.integers(2**20))
        self.length = int(self.np_random.integers(self.shortest, self.longest + 1))
        self.time = 0
        return self.observe(-1), {"progress": 0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.time < self.length, "stepped after its end"
        time.sleep(self.delay)
        self.time += 1
        ended, cut = self.time == self.length, self.name % 3 == 0
        return self.observe(action), self.time / 2, ended and not cut, ended and cut, {"progress": self.time}

    def observe(self, action: int) -> Any:
        return np.array([self.index, self.name, self.time, action], dtype=np.float32)


class Trivial(gymnasium.Env[Any, Any]):
    """Costs nothing to step, and never ends."""

    observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(2)
    picture = np.zeros(4, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return self.picture, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        return self.picture, 0.0, False, False, {}


class Stepping(Trivial):
    """Can be reset; what is wrong with its steps is the name of one of the methods below."""

    def __init__(self, index: int = 0, what: str = "") -> None:  # noqa: ARG002
        self.what = what
        if what in ("lack_a_measurement", "measure_a_text"):
            self.measurements = ("depth",)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=seed, options=options)[0], {"depth": 0}

    def step(self, action: Any) -> Any:
        return getattr(self, self.what)(*super().step(action))

    def lack_a_measurement(self, *outcome: Any) -> Any:
        return outcome

    def give_four_values(self, *outcome: Any) -> Any:
        return (*outcome[:3], outcome[4])

    def pay_an_array(self, observation: Any, _: float, *rest: Any) -> Any:
        return observation, np.zeros(2), *rest

    def pay_none(self, observation: Any, _: float, *rest: Any) -> Any:
        return observation, None, *rest

    def give_the_observation_alone(self, observation: Any, *_: Any) -> Any:
        return observation

    def give_no_info(self, *outcome: Any) -> Any:
        return (*outcome[:4], None)

    def measure_a_text(self, *outcome: Any) -> Any:
        return (*outcome[:4], {"depth": "3"})

    def pay_nan(self, observation: Any, _: float, *rest: Any) -> Any:
        return observation, np.float32(np.nan), *rest

    def pay_too_much(self, observation: Any, _: float, *rest: Any) -> Any:
        return observation, 1e39, *rest

    def pay_without_end(self, observation: Any, _: float, *rest: Any) -> Any:
        return observation, 10**400, *rest

    def end_with_a_text(self, observation: Any, reward: float, *rest: Any) -> Any:
        return observation, reward, "no", *rest[1:]

    def end_with_an_array(self, observation: Any, reward: float, terminated: bool, *rest: Any) -> Any:
        return observation, reward, terminated, np.zeros(2), *rest[1:]

    def show_infinity(self, _: Any, *rest: Any) -> Any:
        return np.array([0.0, 1.0, -np.inf, np.nan]), *rest

    def show_too_much(self, _: Any, *rest: Any) -> Any:
        return np.array([0.0, 1.0, 1e300, 0.0]), *rest

    def show_none(self, _: Any, *rest: Any) -> Any:
        return np.array([None, 1, 2, 3]), *rest

    def show_complex(self, _: Any, *rest: Any) -> Any:
        return np.array([1j, 1, 2, 3]), *rest


class OldReset(Trivial):
    """Returns what Gym's environments did before there was an info."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed, options=options)[0]


class Surroundings(Trivial):
    """Tells about the process it lives in."""

    measurements = ("threads", "thread_limit", "group_leader", "interrupts_ignored", "niceness")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        np.linalg.inv(np.random.default_rng(0).random((300, 300)))  # threads of linear algebra would be there now
        return super().reset(seed=seed, options=options)[0], self.look_around()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return (*super().step(action)[:4], self.look_around())

    def look_around(self) -> dict[str, Any]:
        return {
            "threads": len(list(Path("/proc/self/task").iterdir())),
            "thread_limit": int(os.environ["OMP_NUM_THREADS"]),
            "group_leader": os.getpgrp() == os.getpid(),
            "interrupts_ignored": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
            "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        }


class Pictures(Trivial):
    """Random pictures; actions that count from `start`, and a reward that is the action."""

    def __init__(self, shape: tuple[int, ...], start: int) -> None:
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(3, start=start)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return self.draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        return self.draw(), float(action), False, False, {}

    def draw(self) -> Any:
        return self.np_random.integers(256, size=self.observation_space.shape, dtype=np.uint8)


class Misbehaving(Ledger):
    """A ledger in which something happens at time 3 of environment `culprit`; only once if `marker` names a file.

    Args:
        what: the name of one of the methods below.
        where: "step", "reset" or "constructor".
    """

    def __init__(
        self, index: int, what: str, where: str = "step", culprit: int = 0, marker: str = "", episode: int = 0
    ) -> None:
        super().__init__(index, shortest=6)
        self.what, self.where, self.culprit, self.marker = what, where, culprit, marker
        self.episodes_to_go = episode
        self.happen("constructor")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.episodes_to_go -= 1
        if self.episodes_to_go < 0:
            self.happen("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.time == 2:
            self.happen("step")
        return super().step(action)

    def happen(self, where: str) -> None:
        if where != self.where or self.index != self.culprit:
            return
        if self.marker:
            if Path(self.marker).exists():
                return
            Path(self.marker).touch()
        getattr(self, self.what)()

    def raise_an_exception(self) -> None:
        raise ValueError("the moon is\nin the wrong house")

    def leave(self) -> None:
        sys.exit("enough")

    def leave_at_once(self) -> None:
        os._exit(3)

    def crash(self) -> None:
        ctypes.string_at(0)

    def hang(self) -> None:
        time.sleep(1000)

    def hang_with_the_interpreter(self) -> None:
        """No other Python thread of the process can run meanwhile."""
        ctypes.PyDLL(None).sleep(1000)

    def start_a_process_and_hang(self) -> None:
        subprocess.Popen(["sleep", "1000"])
        time.sleep(1000)

    def show_another_shape(self) -> None:
        self.observe = lambda action: np.zeros(5, dtype=np.float32)  # type: ignore[method-assign]  # noqa: ARG005

    def forget_a_measurement(self) -> None:
        self.measurements = ()
        self.step = lambda action: (self.observe(action), 0.0, False, False, {})  # type: ignore[method-assign]


class Walk(gymnasium.Env[Any, Any]):
    """A walk on a grid from (0, 0), for 9 steps or until x is 4; observations are noise, places stand in `info`."""

    measurements = ("farthest", "x", "y")
    controllable_state = ("x", "y")
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.place, self.time, self.farthest = (0, 0), 0, 0
        return self.observe(), self.info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        (x, y), (dx, dy) = self.place, [(1, 0), (-1, 0), (0, 1), (0, -1)][int(action)]
        self.place, self.time = (x + dx, y + dy), self.time + 1
        self.farthest = max(self.farthest, x + dx)
        return self.observe(), 0.0, self.place[0] == 4, self.time == 9, self.info()

    def observe(self) -> Any:
        return self.np_random.standard_normal(3).astype(np.float32)

    def info(self) -> dict[str, Any]:
        return {"farthest": self.farthest, "x": self.place[0], "y": self.place[1]}


class Closing(Trivial):
    """Writes a file when it is closed in good order."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def close(self) -> None:
        (self.folder / f"closed-{os.getpid()}").touch()


def uneven(index: int, odd: tuple[int, ...]) -> Trivial:
    """Some environments have another number of actions."""
    env = Trivial()
    env.action_space = spaces.Discrete(3 if index in odd else 2)
    return env


def not_an_environment(index: int) -> Any:
    return index


def without_render_mode() -> gymnasium.Env[Any, Any]:
    """Could draw itself, but cannot be asked to."""
    return gymnasium.make("CartPole-v1")


gymnasium.register(id="test/Unasked-v0", entry_point=without_render_mode)
gymnasium.register(id="test/OldReset-v0", entry_point="gym_factories:OldReset", max_episode_steps=5)
gymnasium.register(id="test/Stepping-v0", entry_point="gym_factories:Stepping", max_episode_steps=5)
gymnasium.register(id="test/Walk-v0", entry_point="gym_factories:Walk")
gymnasium.register(id="test/Ledger-v0", entry_point="gym_factories:Ledger", max_episode_steps=40)
gymnasium.register(id="test/Pictures-v0", entry_point="gym_factories:Pictures")

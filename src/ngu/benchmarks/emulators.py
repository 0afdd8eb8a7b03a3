"""The bare emulator: environments on the host, stepped with random actions and without an agent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ngu.envs.protocol import EnvironmentBatch

_ROUNDS = 512
"""Random actions are drawn beforehand, for so many steps, and then used again."""
_SETTLING = 4
"""Steps of all environments before the clock starts."""


@dataclass(frozen=True)
class BareRate:
    """How fast environments are alone."""

    env_steps_per_second: float
    """Every step of every environment, automatic resets included."""
    reset_share: float
    """Share of those steps that are automatic resets, which take an emulator longer than a step."""
    seconds: float
    """How long was measured."""


class BareEmulators:
    """The environments of an agent's groups.

    A runner leaves a step under way in every group. Each measurement begins from there, with environments that have
    been reset before, and leaves them so: agent and bare emulator can take turns on the same emulators.
    """

    def __init__(self, groups: Sequence[EnvironmentBatch]) -> None:
        self.groups = groups
        generator = torch.Generator().manual_seed(0)
        self._actions = [
            torch.randint(env.spec.num_actions, (_ROUNDS, env.num_envs), generator=generator) for env in groups
        ]
        self._round = 0
        self._resets = 0

    def lock_step(self, seconds: float) -> BareRate:
        """All environments as one batch: all are sent off, then all are waited for."""
        for group in range(len(self.groups)):
            self._receive(group)

        def step() -> None:
            for group in range(len(self.groups)):
                self._send(group)
            for group in range(len(self.groups)):
                self._receive(group)

        rate = self._measure(step, seconds)
        for group in range(len(self.groups)):
            self._send(group)
        return rate

    def overlapped(self, seconds: float) -> BareRate:
        """One group after the other is waited for and sent off again, while the emulators of the others work."""

        def step() -> None:
            for group in range(len(self.groups)):
                self._receive(group)
                self._send(group)

        return self._measure(step, seconds)

    def _measure(self, step: Callable[[], None], seconds: float) -> BareRate:
        """The rate of `step`. The clock starts and stops at the same point of it, so as much is begun as is ended."""
        for _ in range(_SETTLING):
            step()
            self._round += 1
        self._resets = 0
        rounds, passed = 0, 0.0
        start = time.perf_counter()
        while passed < seconds:
            step()
            self._round += 1
            rounds += 1
            passed = time.perf_counter() - start
        steps = rounds * sum(env.num_envs for env in self.groups)
        return BareRate(steps / passed, self._resets / steps, passed)

    def _send(self, group: int) -> None:
        self.groups[group].send(self._actions[group][self._round % _ROUNDS])

    def _receive(self, group: int) -> None:
        self._resets += int(self.groups[group].recv().first.numpy().sum())

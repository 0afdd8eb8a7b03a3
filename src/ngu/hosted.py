"""Steps of environments that live on the host, for an actor on any device.

On a GPU everything that a step brings travels in two copies from pinned memory, and actions come back in one. The
copies are asynchronous: the host waits for actions alone, when it sends them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ngu.envs.protocol import EnvironmentBatch, Step

_FLAGS = ("reward", "terminated", "truncated", "first")


class HostedSteps:
    """Carries steps from the environments to the device, and actions back."""

    def __init__(self, env: EnvironmentBatch, device: torch.device) -> None:
        self.env = env
        self._on_gpu = device.type == "cuda"
        spec, envs = env.spec, env.num_envs
        rows = len(_FLAGS) + len(spec.measurements)
        self._observation = torch.zeros(envs, *spec.observation_shape, dtype=spec.observation_dtype, device=device)
        self._numbers = torch.zeros(rows, envs, device=device)
        self._host_observation, self._host_numbers = self._observation, self._numbers
        if self._on_gpu:
            self._host_observation = torch.zeros_like(self._observation, device="cpu").pin_memory()
            self._host_numbers = torch.zeros_like(self._numbers, device="cpu").pin_memory()
            self._pinned_action = torch.zeros(envs, dtype=torch.int64).pin_memory()
            self._action_there = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._waiting_for_action = False
        self._observation_array = self._host_observation.numpy()
        self._numbers_array = self._host_numbers.view(-1).numpy()

    def send(self, action: Tensor) -> None:
        """Starts a step with [E] actions on the device."""
        if not self._on_gpu:
            self.env.send(action)
            return
        if not self._waiting_for_action:
            self.fetch_action(action)
        self._action_there.synchronize()
        self._waiting_for_action = False
        self.env.send(self._pinned_action)

    def fetch_action(self, action: Tensor) -> None:
        """Begins to copy the next actions to the host."""
        if self._on_gpu:
            self._pinned_action.copy_(action, non_blocking=True)
            self._action_there.record()
            self._waiting_for_action = True

    def receive(self) -> None:
        """Waits for the environments and brings what they give to the device."""
        self.take(self.env.recv())

    def take(self, step: Step) -> None:
        """Brings a step to the device."""
        if self._on_gpu and self._waiting_for_action:
            # The last copies from these buffers came before those actions.
            self._action_there.synchronize()
        # NumPy copies on this thread. PyTorch would share out the pictures among its threads and wait for the last of
        # them, and those find no free core while the other groups' emulators work.
        np.copyto(self._observation_array, step.observation.numpy())
        rows = [getattr(step, name) for name in _FLAGS] + [step.info[name] for name in self.env.spec.measurements]
        np.concatenate([row.numpy() for row in rows], out=self._numbers_array)
        if self._on_gpu:
            self._observation.copy_(self._host_observation, non_blocking=True)
            self._numbers.copy_(self._host_numbers, non_blocking=True)

    def step(self) -> Step:
        """The step on the device; its tensors are overwritten by the next."""
        reward, terminated, truncated, first, *measured = self._numbers.unbind()
        return Step(
            observation=self._observation,
            reward=reward,
            terminated=terminated > 0,
            truncated=truncated > 0,
            first=first > 0,
            info=dict(zip(self.env.spec.measurements, measured, strict=True)),
        )

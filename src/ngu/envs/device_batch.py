"""What small games share that are played as tensors on one device; see `EnvironmentBatch`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ngu.envs.protocol import EnvironmentSpec, Step
from ngu.errors import UserError


class DeviceBatch:
    """E games that step together; a game adds its tensors and `_advance`.

    Every tensor of the state is written in place and read by no host, so that steps can be captured in a CUDA graph.
    """

    graph_safe = True
    restores = True
    settings = "env.num_envs"
    """The settings that shape the state, for the sentence about one that does not fit."""

    def __init__(self, num_envs: int, spec: EnvironmentSpec, device: torch.device | str) -> None:
        if num_envs < 1:
            raise UserError(f"the number of environments is {num_envs}; set it to 1 or more.")
        self.num_envs = num_envs
        self.spec = spec
        self.device = torch.device(device)
        self._generator = torch.Generator(self.device)
        self._step = Step(
            observation=self._zeros(*spec.observation_shape, dtype=spec.observation_dtype),
            reward=self._zeros(),
            terminated=self._zeros(dtype=torch.bool),
            truncated=self._zeros(dtype=torch.bool),
            first=self._zeros(dtype=torch.bool),
            info={name: self._zeros() for name in spec.measurements},
        )
        outcome = {name: getattr(self._step, name) for name in ("observation", "reward", "terminated", "truncated")}
        self._state: dict[str, Tensor] = {**outcome, "first": self._step.first, **self._step.info}
        """Name -> [E, ...]: what the last step brought; games add what else they remember."""

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """[E, *shape]"""
        return torch.zeros((self.num_envs, *shape), dtype=dtype, device=self.device)

    def _advance(self, action: Tensor, over: Tensor) -> dict[str, Tensor]:
        """The new state after the actions [E]; games marked in `over` [E] begin a new episode instead."""
        raise NotImplementedError

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        return (self._generator,)

    def reset(self, seed: int) -> Step:
        self._generator.manual_seed(seed)
        self._step.terminated.fill_(True)  # an ended episode gives way to a new one at the next step
        self.send(torch.zeros(self.num_envs, dtype=torch.int64, device=self.device))
        return self.recv()

    def send(self, action: Tensor) -> None:
        over = self._step.ended
        new = {"first": over, **self._advance(action, over)}
        for name, tensor in self._state.items():
            tensor.copy_(new[name])

    def recv(self) -> Step:
        return self._step

    def maintain(self) -> None:
        """Nothing to do between steps."""

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of all state; the observation is part of it, so that a restored batch can go on from `recv`."""
        own = {name: tensor.clone() for name, tensor in self._state.items()}
        return own | {"generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, present in self.state_dict().items():
            if name not in state or state[name].shape != present.shape:
                raise UserError(
                    f"the saved environments do not fit: '{name}' has another shape; use the same {self.settings} and "
                    "run.device as the saved run."
                )
        for name, tensor in self._state.items():
            tensor.copy_(state[name])
        self._generator.set_state(state["generator"].cpu())

    def close(self) -> None:
        """Nothing to end."""

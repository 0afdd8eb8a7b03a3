"""What every environment looks like to the agent: a batch of environments on one device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class EnvironmentSpec:
    """The shapes that networks, memories and replay are built from."""

    observation_shape: tuple[int, ...]
    """Shape of one observation: [C, H, W] for images, [D] for vectors."""
    observation_dtype: torch.dtype
    """`torch.uint8` for images (0 to 255), `torch.float32` for vectors."""
    num_actions: int
    """How many discrete actions there are."""
    max_episode_steps: int | None = None
    """No episode has more transitions than this; None if nothing bounds it."""
    measurements: tuple[str, ...] = ()
    """The names in `Step.info`."""
    controllable_state: tuple[str, ...] = ()
    """Those of them, in order, that make up a hand-crafted controllable state; empty where there is none."""
    probed_position: tuple[str, ...] = ()
    """Those of them that say where the agent is, such as ("x", "y"), for probes of f; empty where none does."""
    probed_room: tuple[str, int] | None = None
    """The one of them that says which room it is in, and how many rooms there are: 0 to that number less 1."""

    @property
    def reported(self) -> tuple[str, ...]:
        """The measurements that metrics are made of. Where an agent stands when its episode ends is none of them."""
        places = {*self.controllable_state, *self.probed_position, *(self.probed_room or ())[:1]}
        return tuple(name for name in self.measurements if name not in places)


@dataclass
class Step:
    """What one call of `recv` brings, for each of the E environments.

    After an episode's last observation (`terminated` or `truncated`) the environment ignores the next action and
    brings the next episode's first observation, marked `first`, with reward 0. That automatic-reset step is no
    experience: nothing led from the old episode to the new one.
    """

    observation: Tensor
    """[E, *observation_shape]"""
    reward: Tensor
    """[E] float32, the extrinsic reward that the step brought."""
    terminated: Tensor
    """[E] bool: the observation ends its episode; its value is 0."""
    truncated: Tensor
    """[E] bool: the episode was cut here (a time limit); its value goes on."""
    first: Tensor
    """[E] bool: the observation begins an episode."""
    info: dict[str, Tensor] = field(default_factory=dict)
    """[E] measurements of the running episode: for reports, such as `coverage`, or of a controllable state."""

    @property
    def ended(self) -> Tensor:
        """[E] bool: terminated or truncated."""
        return self.terminated | self.truncated


class EnvironmentBatch(Protocol):
    """A batch of E environments that step together; all tensors live on `device`.

    Those on the host may be stepped by an actor on a GPU, which copies.

    `send` and `recv` are apart so that other work can run while emulators do. Environments whose whole step is
    tensor work on the device set `graph_safe`: they keep their state in tensors that never move, write into them in
    place and read no tensor on the host, so `send` and `recv` can be captured in a CUDA graph. Host-side work between
    steps belongs in `maintain`.
    """

    spec: EnvironmentSpec
    num_envs: int
    device: torch.device
    graph_safe: bool
    restores: bool
    """A saved state holds the running episodes. Emulators' does not: a resumed run begins new ones."""

    def reset(self, seed: int) -> Step:
        """Begins new episodes everywhere; the same seed gives the same episodes for the same actions."""
        ...

    def send(self, action: Tensor) -> None:
        """Starts one step; `action` is [E] int64."""
        ...

    def recv(self) -> Step:
        """The outcome of the last `send`. Graph-safe environments return the same tensors each time, overwritten."""
        ...

    def maintain(self) -> None:
        """Called between steps, never inside a CUDA graph."""
        ...

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """The random generators that a CUDA graph of a step has to know."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

    def close(self) -> None:
        """Ends threads and processes; a second call changes nothing."""
        ...

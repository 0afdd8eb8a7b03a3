"""Random streams: one seed for each use of randomness in a run, and generators that continue from a checkpoint."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# Each use has a stream of its own, so that a change in one does not move the others.
_STREAMS = ("networks", "environments", "acting", "replay", "learning")


def seed_of(run_seed: int, stream: str, *parts: int) -> int:
    """The seed of one random stream of a run; `parts` tell apart what shares a stream, such as groups of actors."""
    sequence = np.random.SeedSequence([run_seed, _STREAMS.index(stream), *parts])
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)


def make_generator(run_seed: int, stream: str, device: torch.device, *parts: int) -> torch.Generator:
    """A generator of one random stream of a run."""
    return torch.Generator(device).manual_seed(seed_of(run_seed, stream, *parts))


def restore_generator(generator: torch.Generator, state: Tensor) -> None:
    """Continues from a saved state. One from another kind of device does not fit; the generator then stays as it is."""
    if state.shape == generator.get_state().shape:
        generator.set_state(state.cpu())

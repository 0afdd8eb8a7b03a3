"""Episodic novelty: the memory of an episode's controllable states and Algorithm 1 of the paper.

The mathematics is in pure functions, batched over E environments; the memory is the only state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ngu.config import NoveltyConfig
from ngu.graphs import fusable


@dataclass(frozen=True)
class Kernel:
    """The constants of Algorithm 1."""

    neighbours: int
    """k"""
    epsilon: float
    """epsilon of K(x, y) = epsilon / (d^2 / d_m^2 + epsilon)"""
    cluster_distance: float
    """xi"""
    pseudo_count: float
    """c"""
    max_similarity: float
    """s_m"""
    rescale_partial: bool = False
    """Scale the similarities of fewer than k neighbours up to k."""

    @classmethod
    def create(cls, config: NoveltyConfig) -> Kernel:
        return cls(
            neighbours=config.neighbours,
            epsilon=config.kernel_epsilon,
            cluster_distance=config.cluster_distance,
            pseudo_count=config.pseudo_count,
            max_similarity=config.max_similarity,
            rescale_partial=config.rescale_partial,
        )


@fusable
def nearest_squared_distances(query: Tensor, memory: Tensor, filled: Tensor, neighbours: int) -> Tensor:
    """The k smallest squared Euclidean distances from each query to its own memory (lines 1 to 5).

    This is the definition, which computes every slot; `ngu.novelty.nearest.search_nearest` gives the same and computes
    the filled ones.

    Args:
        query: [E, D] controllable states f(x_t).
        memory: [E, M, D] the entries of each environment's memory.
        filled: [E] how many of its M slots hold an entry; the others are ignored.
        neighbours: k.

    Returns:
        [E, min(k, M)] ascending; infinite where the memory holds fewer entries. NaN comes after infinity.
    """
    slots = memory.shape[1]
    distance = (memory - query.unsqueeze(1)).square().sum(-1)
    empty = torch.arange(slots, device=memory.device) >= filled.unsqueeze(1)
    distance = distance.masked_fill(empty, torch.inf)
    return distance.topk(min(neighbours, slots), dim=1, largest=False, sorted=True).values


@fusable
def episodic_reward(squared_distance: Tensor, mean_squared_distance: Tensor, kernel: Kernel) -> Tensor:
    """Lines 7 to 16 of Algorithm 1: from the neighbours' distances to 1 / (sqrt(sum K) + c), or 0 above s_m.

    Args:
        squared_distance: [E, k] infinite where there is no neighbour.
        mean_squared_distance: scalar, the running average d_m^2, already updated with these distances.
        kernel: the constants.

    Returns:
        [E]. With an empty memory this is 1 / c: the caller decides what an episode's first observation is worth.
    """
    # An infinite distance has similarity 0, so missing neighbours drop out by themselves. Where all distances so far
    # are 0 the average is 0 too; 0 / tiny is 0, the similarity of a state to itself is 1.
    scale = mean_squared_distance.clamp_min(torch.finfo(squared_distance.dtype).tiny)
    normalised = (squared_distance / scale - kernel.cluster_distance).clamp_min(0.0)
    similarity = (kernel.epsilon / (normalised + kernel.epsilon)).sum(1)
    if kernel.rescale_partial:
        present = torch.isfinite(squared_distance).sum(1)
        similarity = similarity * (kernel.neighbours / present.clamp_min(1))
    s = similarity.sqrt() + kernel.pseudo_count
    return torch.where(s > kernel.max_similarity, 0.0, 1.0 / s)


class EpisodicMemory:
    """The controllable states of each environment's running episode: E rings of M slots, allocated once.

    `entries` is [E, M, D]. In storage the slots of one component lie side by side, since threads of a GPU that search
    neighbouring slots then read neighbouring numbers; each such row begins on a cache line of 32 numbers.
    """

    def __init__(self, num_envs: int, capacity: int, size: int, device: torch.device) -> None:
        row = -(-capacity // 32) * 32
        self.entries = torch.zeros(num_envs, size, row, device=device).transpose(1, 2)[:, :capacity]
        self.written = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.capacity = capacity

    @property
    def filled(self) -> Tensor:
        """[E] how many slots hold an entry."""
        return self.written.clamp_max(self.capacity)

    def wipe(self, where: Tensor) -> None:
        """Empties the memories of the environments marked in [E] bool."""
        self.written.mul_((~where).to(torch.int64))

    def append(self, state: Tensor, where: Tensor | None = None) -> None:
        """Writes [E, D], an entry for each environment marked in [E] bool (all if None), over a full ring's oldest."""
        slot = (self.written % self.capacity).view(-1, 1, 1).expand(-1, 1, state.shape[1])
        entry = state.unsqueeze(1)
        if where is not None:
            entry = torch.where(where.view(-1, 1, 1), entry, self.entries.gather(1, slot))
        self.entries.scatter_(1, slot, entry)
        self.written.add_(1 if where is None else where)

    def state_dict(self) -> dict[str, Any]:
        return {"entries": self.entries, "written": self.written}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.entries.copy_(state["entries"])
        self.written.copy_(state["written"])


class DistanceScale:
    """d_m^2: the running average of the neighbours' squared distances, one for all environments of an actor.

    It is an exponential average without a start value: each step's mean distance has weight 1 - decay, and the total is
    divided by the weights so far. So it begins as the first mean that was seen.

    Copies of f that are in use at the same time share it, although distances compare only under one f. With an average
    of its own, a copy that serves few episodes would follow what those do: one that stands still would make the scale
    so fine that its flicker is new again. How much f changes while an episode lasts matters less.
    """

    def __init__(self, decay: float, device: torch.device) -> None:
        self.decay = decay
        self.total = torch.zeros((), device=device)
        self.weight = torch.zeros((), device=device)

    def update(self, squared_distance: Tensor) -> Tensor:
        """Adds one step's distances [E, k], infinite where there is no neighbour, and returns the updated average.

        It is 1 before any neighbour was seen (no distance is divided by it then).
        """
        total, weight, average = _averaged(self.total, self.weight, squared_distance, self.decay)
        self.total.copy_(total)
        self.weight.copy_(weight)
        return average

    def reset(self) -> None:
        """Forgets all that was seen."""
        self.total.zero_()
        self.weight.zero_()

    def take_over(self, other: DistanceScale) -> None:
        """Goes on from another actor's average."""
        self.total.copy_(other.total)
        self.weight.copy_(other.weight)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "weight": self.weight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total.copy_(state["total"])
        self.weight.copy_(state["weight"])


@fusable
def _averaged(total: Tensor, weight: Tensor, squared_distance: Tensor, decay: float) -> tuple[Tensor, Tensor, Tensor]:
    """The new total and weight, and the average."""
    present = torch.isfinite(squared_distance)
    count = present.sum()
    mean = torch.where(present, squared_distance, 0.0).sum() / count.clamp_min(1)
    total = torch.where(count > 0, decay * total + (1 - decay) * mean, total)
    weight = torch.where(count > 0, decay * weight + (1 - decay), weight)
    return total, weight, torch.where(weight > 0, total / weight.clamp_min(1 - decay), 1.0)

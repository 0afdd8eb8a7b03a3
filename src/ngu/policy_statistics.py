"""Running means over the learner's updates for each policy of the family: its values, and the size of its TD errors.

The policies live on scales of their own. With the paper's settings novelty pays beta_{N-1} several points at each step,
so its values are in the hundreds, while beta_0 may live on a point now and then. One network that learns the sum of
their squared errors, from sequences drawn by their errors, learns about the large ones. `mixture.balanced` measures
errors in their policy's own unit instead: each policy has the same share of the loss. (Not of the gradient: small
errors, divided by the square of a small unit, then have the larger one; equal gradients did worse on the random-coin
grid, see the docs.) Without it these numbers are metrics alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ngu.graphs import fusable

_NEWEST = 0.01
"""Weight of an update in the running means of the policies that it trains."""

LEAST_ERROR = 0.01
"""Errors below this count as this large: a policy that has nothing to learn is not made to learn its noise."""


@fusable
def _merge(
    mean: Tensor, weight: Tensor, mixture: Tensor, value: Tensor, td_error: Tensor, trained: Tensor
) -> tuple[Tensor, Tensor]:
    """The means [2, N] and their weights [N] after a batch; a policy that it lacks keeps its own."""
    policy = torch.arange(mean.shape[1], device=mean.device)
    member = mixture.unsqueeze(1) == policy  # [B, N]
    each = torch.stack([torch.where(trained, value, 0.0).sum(0), td_error.square().sum(0)])  # [2, B]
    count = torch.where(member, trained.sum(0).unsqueeze(1), 0).sum(0)
    batch_mean = torch.where(member, each.unsqueeze(2), 0.0).sum(1) / count.clamp_min(1)
    # What is not finite is refused by the optimiser, and must not stay here either.
    newest = torch.where((count > 0) & torch.isfinite(batch_mean).all(0), _NEWEST, 0.0)
    batch_mean = torch.nan_to_num(batch_mean, 0.0, 0.0, 0.0)
    weight = weight + newest * (1 - weight)
    return mean + torch.where(weight > 0, newest / weight.clamp_min(_NEWEST), 0.0) * (batch_mean - mean), weight


class PolicyStatistics:
    """Mean value and mean squared TD error of each policy, on the device."""

    def __init__(self, num_mixtures: int, device: torch.device) -> None:
        self.mean = torch.zeros(2, num_mixtures, device=device)
        """Of values and of squared TD errors, [2, N]."""
        self.weight = torch.zeros(num_mixtures, device=device)
        """[N]: 0 for a policy that was never trained, near 1 after some hundreds of updates."""

    def update(self, mixture: Tensor, value: Tensor, td_error: Tensor, trained: Tensor) -> None:
        """Takes in a batch: policies [B]; values of the actions taken, TD errors (0 on padding), mask, [T, B] each."""
        mean, weight = _merge(self.mean, self.weight, mixture, value, td_error, trained)
        self.mean.copy_(mean)
        self.weight.copy_(weight)

    def squared_unit(self, mixture: Tensor) -> Tensor:
        """[B]: what squared TD errors of these policies are measured in."""
        return self.mean[1][mixture].clamp_min(LEAST_ERROR**2)

    def in_units_of(self, own: Tensor, other: Tensor) -> Tensor:
        """[B]: what errors of the policies `other` are multiplied by to be compared with those of `own`."""
        ratio = (self.squared_unit(own) / self.squared_unit(other)).sqrt()
        return torch.where((self.weight[own] > 0) & (self.weight[other] > 0), ratio, 1.0)

    def metrics(self) -> dict[str, float]:
        """For the two ends of the family, as far as they were trained."""
        value, square = self.mean.tolist()
        ends = (("exploit", 0), ("explore", -1)) if len(value) > 1 else ()
        weight = self.weight.tolist()
        told: dict[str, float] = {}
        for name, index in ends:
            if weight[index] > 0:
                told |= {f"learner/q_{name}": value[index], f"learner/td_rms_{name}": square[index] ** 0.5}
        return told

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "weight": self.weight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean.copy_(state["mean"])
        self.weight.copy_(state["weight"])

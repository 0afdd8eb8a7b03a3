"""Adam that never lets a non-finite number through, and never waits for the device to find out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ngu.config import LearnerConfig


@dataclass
class StepReport:
    """What happened in one optimiser step; scalars on the device."""

    grad_norm: Tensor
    """Norm of the gradient before clipping."""
    applied: Tensor
    """bool: False if the loss or the gradient was not finite, and nothing was changed."""
    refused: Tensor
    """bool: not applied, and not just because the loss scale of fp16 was still too large."""


class GuardedAdam:
    """Adam with gradient clipping by norm, dynamic loss scaling for fp16, and a guard against non-finite numbers.

    Give it a loss that is summed over the batch, not averaged: a clip at norm 40 and an epsilon of 1e-4, as in the
    paper, are sizes beside the gradients of sums. Under a mean the clip never binds, and epsilon outweighs the
    gradients of most single weights of a large layer.

    If the loss or any gradient is not finite, weights and moments stay as they are. PyTorch's fused Adam takes that
    decision on the device (`found_inf`), so a CUDA graph can hold the whole step.
    """

    growth_interval = 1000
    least_scale = 2.0**-24

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        config: LearnerConfig,
        learning_rate: float,
        *,
        weight_decay: float = 0.0,
        loss_scaling: bool = False,
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        device = self.parameters[0].device
        self.clip_norm = config.clip_norm
        self.learning_rate = torch.tensor(learning_rate, dtype=torch.float32, device=device)
        self.loss_scaling = loss_scaling
        self.scale = torch.tensor(2.0**14 if loss_scaling else 1.0, device=device)
        self.good_steps = torch.zeros((), dtype=torch.int64, device=device)
        self.adam = torch.optim.Adam(
            self.parameters,
            lr=self.learning_rate,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            weight_decay=weight_decay,
            fused=True,
            capturable=device.type == "cuda",
        )
        for parameter in self.parameters:
            self.adam.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def set_learning_rate(self, value: float) -> None:
        self.learning_rate.fill_(value)

    def step(self, loss: Tensor) -> StepReport:
        """Backpropagates `loss` and takes one step, or none if something is not finite."""
        for parameter in self.parameters:
            parameter.grad = None
        (loss * self.scale if self.loss_scaling else loss).backward()  # type: ignore[no-untyped-call]
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if self.loss_scaling:
            torch._foreach_mul_(gradients, 1 / self.scale)
        norm = nn.utils.get_total_norm(gradients)
        finite = torch.isfinite(norm) & torch.isfinite(loss.detach())
        nn.utils.clip_grads_with_norm_(self.parameters, self.clip_norm, norm)
        # The contract between PyTorch's gradient scaler and its fused optimisers.
        self.adam.grad_scale = None  # type: ignore[attr-defined]
        self.adam.found_inf = (~finite).to(torch.float32)  # type: ignore[attr-defined]
        self.adam.step()
        refused = ~finite
        if self.loss_scaling:
            overflow = torch.isfinite(loss.detach()) & (self.scale > self.least_scale)
            refused = refused & ~overflow
            self._adapt_scale(finite)
        return StepReport(norm, finite, refused)

    def _adapt_scale(self, finite: Tensor) -> None:
        """Halves the loss scale after an overflow, doubles it after a long run without one."""
        self.good_steps.copy_(torch.where(finite, self.good_steps + 1, 0))
        grow = self.good_steps >= self.growth_interval
        factor = torch.where(finite, torch.where(grow, 2.0, 1.0), 0.5)
        self.scale.copy_((self.scale * factor).clamp(self.least_scale, 2.0**24))
        self.good_steps.copy_(torch.where(grow, 0, self.good_steps))

    def state_dict(self) -> dict[str, Any]:
        return {
            "scaled": self.loss_scaling,
            "scale": self.scale,
            "good_steps": self.good_steps,
            "moments": {str(index): dict(self.adam.state[p]) for index, p in enumerate(self.parameters)},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # A run that goes on in fp16 after another precision keeps its own start: from a scale of 1 it would not learn.
        if self.loss_scaling == state["scaled"]:
            self.scale.copy_(state["scale"])
            self.good_steps.copy_(state["good_steps"])
        for index, parameter in enumerate(self.parameters):
            for name, value in state["moments"][str(index)].items():
                self.adam.state[parameter][name].copy_(value)

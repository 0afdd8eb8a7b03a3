"""Linear probes: how much of the agent's place can be read off the embedding f (paper, App. I.1).

A linear map from f(x) predicts where the agent is, as a few numbers such as (x, y), and as one of R rooms. It is
trained beside the agent, on the controllable states that the actors compute for their memories anyway, and nothing
flows back: neither f nor the agent changes by it.

Each acting step first predicts and then trains, so that every error is one on data that the probe had not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ngu.config import LearnerConfig, ProbeConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.graphs import fusable
from ngu.moments import RunningMoments
from ngu.optimiser import GuardedAdam

_MEMORY_OF_INPUTS = 0.99
"""Per acting step, how much of the running mean and deviation of f(x) is kept: f is renewed from time to time."""
_LARGEST_INPUT = 5.0
"""Standardised inputs are cut here: the first states of a renewed f may lie far outside of what the old one gave."""


class LinearProbe:
    """Predicts `spec.probed_position`, P numbers, and `spec.probed_room`, one of R, from f(x), [E, p].

    With z = (f(x) - mean) / deviation, cut to [-5, 5], and y the position standardised in the same way, the loss is the
    sum over the E environments of |W z + b - y|^2 - log softmax(V z + c)[room]. All weights start at 0.
    """

    def __init__(
        self,
        size: int,
        spec: EnvironmentSpec,
        config: ProbeConfig,
        optimiser: LearnerConfig,
        device: torch.device,
    ) -> None:
        self._names = spec.probed_position
        self._room, self.rooms = spec.probed_room or ("", 0)
        self.axes = len(self._names)
        outputs = self.axes + self.rooms
        self.weight = nn.Parameter(torch.zeros(size, outputs, device=device))
        self.bias = nn.Parameter(torch.zeros(outputs, device=device))
        self.inputs = RunningMoments((size,), _MEMORY_OF_INPUTS).to(device)
        self.targets = RunningMoments((self.axes,)).to(device)
        self.optimiser = GuardedAdam([self.weight, self.bias], optimiser, config.learning_rate)
        self.sums = torch.zeros(5 + outputs, dtype=torch.float64, device=device)
        """Since the last log: see `measure`."""

    def observe(self, state: Tensor, info: Mapping[str, Tensor]) -> None:
        """Predicts where the agents are from f(x), [E, p], counts the errors, then learns from them."""
        nowhere = state[:, :0]
        position = torch.stack([info[name] for name in self._names], 1).to(state.dtype) if self.axes else nowhere
        room = info[self._room].to(torch.int64) if self.rooms else torch.zeros_like(state[:, 0], dtype=torch.int64)
        valid = torch.isfinite(state).all(1) & torch.isfinite(position).all(1)
        if self.rooms:
            valid = valid & (room >= 0) & (room < self.rooms)
            room = torch.where(valid, room, 0)
        self.inputs.update(state, valid)
        self.targets.update(position, valid)
        seen = standardised(state, self.inputs, valid).clamp(-_LARGEST_INPUT, _LARGEST_INPUT)
        aim = standardised(position, self.targets, valid)
        with torch.enable_grad():
            told = torch.addmm(self.bias, seen, self.weight)
            missed = (told[:, : self.axes] - aim).square()
            surprise = torch.zeros_like(told[:, 0])
            if self.rooms:
                surprise = nn.functional.cross_entropy(told[:, self.axes :], room, reduction="none")
            loss = torch.where(valid, missed.sum(1) + surprise, 0.0).sum()
        units = missed.detach() * self.targets.deviation.square()
        self.sums.add_(measure(units.sum(1), surprise.detach(), told.detach()[:, self.axes :], position, room, valid))
        self.optimiser.step(loss)

    def state_dict(self) -> dict[str, Any]:
        return {
            "weight": self.weight.detach(),
            "bias": self.bias.detach(),
            "inputs": dict(self.inputs.state_dict()),
            "targets": dict(self.targets.state_dict()),
            "optimiser": self.optimiser.state_dict(),
            "sums": self.sums,
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weight.copy_(state["weight"])
        self.bias.copy_(state["bias"])
        self.inputs.load_state_dict(state["inputs"])
        self.targets.load_state_dict(state["targets"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.sums.copy_(state["sums"])


def standardised(values: Tensor, moments: RunningMoments, valid: Tensor) -> Tensor:
    """(values - mean) / deviation, [E, N]; 0 where values have not varied, and in rows that are not `valid` [E]."""
    usable = valid.unsqueeze(1) & (moments.deviation > 0)
    return torch.where(usable, (values - moments.mean) / torch.where(usable, moments.deviation, 1.0), 0.0)


@fusable
def measure(
    squared_error: Tensor, cross_entropy: Tensor, logits: Tensor, position: Tensor, room: Tensor, valid: Tensor
) -> Tensor:
    """What one step adds to the sums that metrics are made of, [5 + P + R].

    How many rows are valid; over them the sums of squared error, cross-entropy, wrong rooms and |position|^2; the sum
    of positions, [P]; how often each room was the right one, [R].

    Args:
        squared_error, cross_entropy: [E]
        logits: [E, R]
        position: [E, P]
        room: [E] int64
        valid: [E] bool
    """
    rooms = torch.arange(logits.shape[1], device=logits.device)
    # With no rooms at all nothing is named, rightly or wrongly.
    wrong = logits.argmax(1) != room if len(rooms) else torch.zeros_like(valid)
    each = [torch.ones_like(squared_error), squared_error, cross_entropy, wrong, position.square().sum(1)]
    columns = torch.cat([torch.stack([value.double() for value in each], 1), position, room.unsqueeze(1) == rooms], 1)
    return torch.where(valid.unsqueeze(1), columns, 0.0).sum(0)


def pop_errors(probes: Sequence[LinearProbe]) -> dict[str, float]:
    """Means over the probes' steps since the last call, as metrics, beside what one constant answer would have got."""
    axes, rooms = probes[0].axes, probes[0].rooms
    sums: list[float] = torch.stack([probe.sums for probe in probes]).sum(0).tolist()
    for probe in probes:
        probe.sums.zero_()
    count, squared_error, cross_entropy, wrong, square, *rest = sums
    metrics: dict[str, float] = {}
    if count and axes:
        centre = sum((total / count) ** 2 for total in rest[:axes])
        metrics["probe/position/squared_error"] = squared_error / count
        metrics["probe/position/baseline"] = max(square / count - centre, 0.0)
    if count and rooms:
        metrics["probe/room/cross_entropy"] = cross_entropy / count
        metrics["probe/room/error_rate"] = wrong / count
        metrics["probe/room/baseline"] = 1 - max(rest[axes:]) / count
    return metrics

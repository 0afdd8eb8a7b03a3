"""Controllable states: the embedding f, trained by inverse dynamics (paper, Sec. 2); `snapshots.py` has its copies.

f and the classifier h learn p(a_t | x_t, x_{t+1}) = h(f(x_t), f(x_{t+1})): what the action does not influence does not
help to predict it, so f learns to leave it out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ngu.config import NoveltyConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError
from ngu.graphs import fusable
from ngu.networks import Torso, flattened
from ngu.observations import Whitening, prepared


@fusable
def keypoints(maps: Tensor) -> Tensor:
    """Where each channel of [B, C, H, W] is largest, [B, 2 C]: rows, then columns, from -1 to 1 across the picture.

    It is the mean place under the channel's softmax (Levine et al., 2016), in full precision.
    """
    height, width = maps.shape[2:]
    share = torch.unflatten(maps.float().flatten(2).softmax(-1), 2, (height, width))
    rows, columns = (torch.linspace(-1, 1, size, device=maps.device) for size in (height, width))
    # Not as products of matrices, which autocast and TF32 would round.
    return torch.cat([(share.sum(3) * rows).sum(2), (share.sum(2) * columns).sum(2)], 1)


class Embedding(nn.Module):
    """f: observations to controllable states."""

    def __init__(self, spec: EnvironmentSpec, config: NoveltyConfig) -> None:
        super().__init__()
        self.inputs = Whitening.for_control(spec.observation_shape) if config.embedding_whiten else None
        self.torso = Torso(spec, config.filters, config.kernels, config.strides, config.hidden)
        self.keypoints = config.embedding_keypoints
        if self.keypoints and not self.torso.image:
            raise UserError(
                "novelty.embedding_keypoints needs pictures, and these observations are vectors; set it to false."
            )
        if self.keypoints and self.torso.size == self.torso.channels:
            raise UserError(
                "novelty.embedding_keypoints needs convolutions that leave more than one place; use fewer or smaller "
                "ones, or set it to false."
            )
        self.out = nn.Linear(2 * self.torso.channels if self.keypoints else self.torso.size, config.embedding_size)
        self.relu = config.embedding_relu

    def forward(self, observation: Tensor) -> Tensor:
        """[B, *observation_shape] to [B, p] float32.

        The last layer runs in full precision: distances between controllable states are differences of its outputs.
        """
        features = self.read(self.torso.maps(prepared(observation, self.inputs, self.torso.fold)))
        with torch.autocast(features.device.type, enabled=False):
            state: Tensor = self.out(features.float())
            return torch.relu(state) if self.relu else state

    def read(self, maps: Tensor) -> Tensor:
        """What the torso makes of observations, as the last layer takes it in: [B, D]."""
        if self.keypoints:
            return keypoints(maps)
        return flattened(maps) if self.torso.image else maps

    def observe(self, observation: Tensor, valid: Tensor) -> None:
        """Adds [B, *observation_shape] to the statistics of the inputs, if they are whitened; `valid` is [B] bool."""
        if self.inputs is not None:
            self.inputs.observe(observation, valid)

    def store_in(self, dtype: torch.dtype) -> None:
        """Keeps the weights in the type that they are used in, for a copy that is not trained."""
        self.torso.to(dtype)


class InverseDynamics(nn.Module):
    """h(f(x_t), f(x_{t+1})): which action led from one observation to the next."""

    def __init__(self, spec: EnvironmentSpec, config: NoveltyConfig) -> None:
        super().__init__()
        self.embedding = Embedding(spec, config)
        self.classifier = nn.Sequential(
            nn.Linear(2 * config.embedding_size, config.embedding_hidden),
            nn.ReLU(),
            nn.Linear(config.embedding_hidden, spec.num_actions),
        )

    def forward(self, observation: Tensor, next_observation: Tensor) -> tuple[Tensor, Tensor]:
        """Two times [B, *observation_shape] to logits [B, A] and the first one's states [B, p], float32."""
        states = self.embedding(torch.cat([observation, next_observation]))
        pair = torch.cat(states.chunk(2), -1)
        with torch.autocast(pair.device.type, enabled=False):
            logits: Tensor = self.classifier(pair)
        return logits, states[: len(observation)]


def inverse_dynamics_loss(logits: Tensor, action: Tensor, weight: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross entropy summed over transitions, with the accuracy and, for scale, the commonest action's share.

    Args:
        logits: [B, A]
        action: [B] int64
        weight: [B] what each transition counts, in all of these; 0 on padding.
    """
    valid = weight > 0
    count = weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)
    # Padded rows may hold any action; they are replaced before the loss looks at them.
    safe_action = torch.where(valid, action, 0)
    each = nn.functional.cross_entropy(logits, safe_action, reduction="none")
    loss = torch.where(valid, each * weight, 0.0).sum()
    right = torch.where(logits.argmax(-1) == safe_action, weight, 0.0).sum() / count
    actions = torch.arange(logits.shape[-1], device=action.device)
    majority = torch.where(safe_action.unsqueeze(-1) == actions, weight.unsqueeze(-1), 0.0).sum(0).max() / count
    return loss, {"inverse/accuracy": right, "inverse/majority": majority}


@torch.no_grad()
def dimensions_in_use(state: Tensor, valid: Tensor) -> Tensor:
    """In how many directions valid states [B, p] differ: 1 on a line, p where all spread alike, 0 if they are equal.

    It is (tr C)^2 / tr C^2 of their covariance C, the participation ratio. A constant in f is no difference.
    """
    with torch.autocast(state.device.type, enabled=False):
        kept = valid.unsqueeze(-1)
        count = valid.sum().clamp_min(1)
        mean = torch.where(kept, state, 0.0).sum(0) / count
        centred = torch.where(kept, state - mean, 0.0)
        # In units of the spread, since squares of squares of small states are zero.
        centred = centred / centred.square().sum().sqrt().clamp_min(torch.finfo(state.dtype).tiny)
        covariance = centred.T @ centred
        trace, square = covariance.diagonal().sum(), covariance.square().sum()
        return torch.where(square > 0, trace.square() / torch.where(square > 0, square, 1.0), 0.0)

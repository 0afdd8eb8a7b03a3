"""Controllable states: the embedding f, trained by inverse dynamics, and its frozen copies for acting (paper, Sec. 2).

f and the classifier h learn p(a_t | x_t, x_{t+1}) = h(f(x_t), f(x_{t+1})): what the action does not influence does not
help to predict it, so f learns to leave it out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ngu.config import NoveltyConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.graphs import Branch
from ngu.networks import Torso, scaled_observation

_LANES = 8
"""Copies of f that work beside each other on a GPU; further ones come after them."""


class Embedding(nn.Module):
    """f: observations to controllable states."""

    def __init__(self, spec: EnvironmentSpec, config: NoveltyConfig) -> None:
        super().__init__()
        self.torso = Torso(spec, config.filters, config.kernels, config.strides, config.hidden)
        self.out = nn.Linear(self.torso.size, config.embedding_size)

    def forward(self, observation: Tensor) -> Tensor:
        """[B, *observation_shape] to [B, p] float32.

        The last layer runs in full precision: distances between controllable states are differences of its outputs.
        """
        features = self.torso(scaled_observation(observation, self.torso.fold))
        with torch.autocast(features.device.type, enabled=False):
            return torch.relu(self.out(features.float()))

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

    def forward(self, observation: Tensor, next_observation: Tensor) -> Tensor:
        """Two times [B, *observation_shape] to logits [B, A] float32."""
        states = self.embedding(torch.cat([observation, next_observation]))
        pair = torch.cat(states.chunk(2), -1)
        with torch.autocast(pair.device.type, enabled=False):
            logits: Tensor = self.classifier(pair)
        return logits


class EmbeddingSnapshots(nn.Module):
    """Frozen copies of f for acting: an environment takes the newest when its memory is wiped, and keeps it.

    So a memory never mixes two embeddings. There are K copies; one that no running episode uses is renewed with the
    learner's f when new weights arrive, and becomes the newest. Long episodes hold on to theirs: with fewer copies than
    environments it can happen that none is free, and new episodes begin with an f that grows old. All decisions are
    made on the device.
    """

    slot: Tensor
    newest: Tensor
    age: Tensor
    """[K] int64: how often new weights have arrived since a copy was made."""

    def __init__(
        self,
        embedding: Embedding,
        num_envs: int,
        copies: int,
        spec: EnvironmentSpec,
        config: NoveltyConfig,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`dtype` is the type that weights are kept in, where autocast would use them in another than float32."""
        super().__init__()
        self.copies = nn.ModuleList(Embedding(spec, config) for _ in range(copies))
        for copy in self.copies:
            assert isinstance(copy, Embedding)
            copy.load_state_dict(embedding.state_dict())
            copy.store_in(dtype)
        self._branches = [Branch(device, urgent=True) for _ in range(min(copies, _LANES) - 1)]
        self.requires_grad_(False)
        self.register_buffer("slot", torch.zeros(num_envs, dtype=torch.int64))
        self.register_buffer("newest", torch.zeros((), dtype=torch.int64))
        self.register_buffer("age", torch.zeros(copies, dtype=torch.int64))
        self.to(device)

    def begin(self, where: Tensor) -> None:
        """Environments marked in [E] bool change to the newest copy."""
        self.slot.copy_(torch.where(where, self.newest, self.slot))

    def forward(self, observation: Tensor) -> Tensor:
        """[E, *observation_shape] to [E, p], each environment through its own copy."""
        first = self.copies[0]
        assert isinstance(first, Embedding)
        features = scaled_observation(observation, first.torso.fold)
        return self._apart(features) if features.device.type == "cpu" else self._together(features)

    def _together(self, features: Tensor) -> Tensor:
        """Every environment through every copy: on a GPU that costs less than to ask the host who uses which."""
        lanes = len(self._branches) + 1
        each: list[Tensor] = [features] * len(self.copies)
        for lane, branch in enumerate(self._branches, 1):
            with branch.fork():
                each[lane::lanes] = [copy(features) for copy in self.copies[lane::lanes]]
        each[::lanes] = [copy(features) for copy in self.copies[::lanes]]
        for branch in self._branches:
            branch.join()
        states = torch.stack(each)
        index = self.slot.view(1, -1, 1).expand(1, -1, states.shape[-1])
        return states.gather(0, index).squeeze(0)

    def _apart(self, features: Tensor) -> Tensor:
        """Each environment through its own copy alone."""
        used = sorted(set(self.slot.tolist()))
        if len(used) == 1:
            only: Tensor = self.copies[used[0]](features)
            return only
        members = [(self.slot == copy).nonzero().squeeze(1) for copy in used]
        states = [self.copies[copy](features[where]) for copy, where in zip(used, members, strict=True)]
        return torch.cat(states)[torch.cat(members).argsort()]

    @torch.no_grad()
    def renew(self, embedding: Embedding) -> Tensor:
        """Copies `embedding` into a copy that nobody uses, if there is one; [K] bool marks the one that changed."""
        copies = torch.arange(len(self.copies), device=self.slot.device)
        used = (self.slot.unsqueeze(1) == copies).any(0)
        renewed = (~used) & (torch.cumsum(~used, 0) == 1)
        for copy, chosen in zip(self.copies, renewed, strict=True):
            for mine, theirs in zip(copy.parameters(), embedding.parameters(), strict=True):
                mine.copy_(torch.where(chosen, theirs, mine))
        self.newest.copy_(torch.where(renewed.any(), renewed.to(torch.int64).argmax(), self.newest))
        self.age.copy_(torch.where(renewed, 0, self.age + 1))
        return renewed

    @torch.no_grad()
    def replace_all(self, embedding: nn.Module) -> None:
        """Copies `embedding` into all copies, for a new start with empty memories."""
        for copy in self.copies:
            for mine, theirs in zip(copy.parameters(), embedding.parameters(), strict=True):
                mine.copy_(theirs)
        self.age.zero_()


def inverse_dynamics_loss(logits: Tensor, action: Tensor, valid: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross entropy summed over valid transitions, with the accuracy and, for scale, the commonest action's share.

    Args:
        logits: [B, A]
        action: [B] int64
        valid: [B] bool
    """
    count = valid.sum().clamp_min(1)
    # Padded rows may hold any action; they are replaced before the loss looks at them.
    safe_action = torch.where(valid, action, 0)
    each = nn.functional.cross_entropy(logits, safe_action, reduction="none")
    loss = torch.where(valid, each, 0.0).sum()
    right = ((logits.argmax(-1) == safe_action) & valid).sum() / count
    actions = torch.arange(logits.shape[-1], device=action.device)
    majority = ((safe_action.unsqueeze(-1) == actions) & valid.unsqueeze(-1)).sum(0).max() / count
    return loss, {"inverse/accuracy": right, "inverse/majority": majority}

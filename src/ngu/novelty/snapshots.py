"""Frozen copies of the embedding f for acting: a memory never mixes two embeddings (paper, App. F.2: "once/episode").

The weights of all copies lie in one tensor for each layer, [K, ...], so that each environment can go through a copy of
its own in one batched matrix product per layer. So do the statistics that a copy whitens its inputs with.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ngu.graphs import Branch, fusable
from ngu.moments import deviation_of
from ngu.novelty.embedding import Embedding
from ngu.observations import compute_dtype, folded, scaled_observation, whiten

_FEW = 4
"""Up to so many copies a GPU computes all of them for all environments: reckoned, not timed, to cost less than to
gather weights for each environment, of which a maze has a thousand."""


class EmbeddingSnapshots(nn.Module):
    """An environment takes the newest copy of f when its memory is wiped, and keeps it.

    There are K copies; one that no running episode uses is renewed with the learner's f when new weights arrive, and
    becomes the newest. With fewer copies than environments it can happen that long episodes leave none free, and new
    episodes begin with an f that grows old; with one more there is always one. All decisions are made on the device.
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
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`dtype` is the type that weights are kept in, where autocast would use them in another than float32."""
        super().__init__()
        self._template = (copy.deepcopy(embedding).to(device).requires_grad_(False),)
        """An f whose weights are not used, in a tuple, so that it is no part of what is saved."""
        self._branches = [Branch(device, urgent=True) for _ in range(copies - 1 if copies <= _FEW else 0)]
        template = self._template[0]
        template.store_in(dtype)
        self._layers = {name: name.replace(".", "_") for name in _tensors(template)}
        for name, weight in _tensors(template).items():
            stack = as_stacked(weight).expand(copies, *as_stacked(weight).shape).contiguous()
            self.register_buffer(self._layers[name], stack)
        self.register_buffer("slot", torch.zeros(num_envs, dtype=torch.int64, device=device))
        self.register_buffer("newest", torch.zeros((), dtype=torch.int64, device=device))
        self.register_buffer("age", torch.zeros(copies, dtype=torch.int64, device=device))

    def __len__(self) -> int:
        return len(self.age)

    @property
    def stacks(self) -> list[Tensor]:
        """For each of f's `_tensors` those of all copies, [K, ...], in the order of `as_stacked`."""
        return [self.get_buffer(name) for name in self._layers.values()]

    def embedding(self, copy_index: int) -> Embedding:
        """One of the copies, as a module of its own."""
        alone = copy.deepcopy(self._template[0])
        alone.load_state_dict(self._weights(copy_index))
        return alone

    def _weights(self, copy_index: int) -> dict[str, Tensor]:
        """Views of one copy's weights, by the names that f has for them."""
        return {name: unstacked(stack[copy_index]) for name, stack in zip(self._layers, self.stacks, strict=True)}

    def begin(self, where: Tensor) -> None:
        """Environments marked in [E] bool change to the newest copy."""
        self.slot.copy_(torch.where(where, self.newest, self.slot))

    def forward(self, observation: Tensor) -> Tensor:
        """[E, *observation_shape] to [E, p], each environment through its own copy."""
        template = self._template[0]
        # Without statistics of each copy's own all copies take in the same, which is prepared once.
        features = observation if template.inputs is not None else scaled_observation(observation, template.torso.fold)
        if features.device.type == "cpu":
            return self._apart(features)
        return self._together(features) if len(self) <= _FEW else self._batched(features)

    def _apart(self, features: Tensor) -> Tensor:
        """One copy after the other, each for the environments that use it."""
        used = sorted(set(self.slot.tolist()))
        if len(used) == 1:
            return self._state(used[0], features)
        members = [(self.slot == index).nonzero().squeeze(1) for index in used]
        states = [self._state(index, features[where]) for index, where in zip(used, members, strict=True)]
        return torch.cat(states)[torch.cat(members).argsort()]

    def _state(self, copy_index: int, features: Tensor) -> Tensor:
        state: Tensor = functional_call(self._template[0], self._weights(copy_index), (features,))
        return state

    def _together(self, features: Tensor) -> Tensor:
        """Every environment through every copy, beside each other, since only the device knows who uses which."""
        others = []
        for other, branch in enumerate(self._branches, 1):
            with branch.fork():
                others.append(self._state(other, features))
        each = [self._state(0, features), *others]
        for branch in self._branches:
            branch.join()
        states = torch.stack(each)
        index = self.slot.view(1, -1, 1).expand(1, -1, states.shape[-1])
        return states.gather(0, index).squeeze(0)

    def _batched(self, features: Tensor) -> Tensor:
        """Each environment with weights of its own: a convolution is a matrix product with the pixels under it."""
        embedding = self._template[0]
        torso = embedding.torso
        stacks = dict(zip(self._layers, self.stacks, strict=True))
        *names, last_weight, last_bias = [name for name, _ in embedding.named_parameters()]
        weights = [stacks[name].index_select(0, self.slot) for name in names]
        layers = [layer for layer in torso.layers if isinstance(layer, nn.Conv2d | nn.Linear)]
        hidden = features
        if embedding.inputs is not None:
            weight = stacks["inputs.weight"].view(-1, *[1] * (features.dim() - 1))
            deviations = deviation_of(weight, stacks["inputs.square"]).clamp_min(embedding.inputs.least)
            mean, deviation = (each.index_select(0, self.slot) for each in (stacks["inputs.mean"], deviations))
            fold = torso.fold if features.is_cuda else 1
            hidden = whiten(features, mean, deviation, compute_dtype(features.device), fold)
        for layer, weight, bias in zip(layers, weights[::2], weights[1::2], strict=True):
            if isinstance(layer, nn.Conv2d):
                hidden = batched_convolution(hidden, weight, bias, layer.stride[0], torso.fold)
            else:
                hidden = batched_dense(hidden, weight, bias).relu_()
        hidden = embedding.read(hidden)
        with torch.autocast(features.device.type, enabled=False):
            # Most of f's weights: to use all copies for all environments costs less than to gather each one's own.
            # Where PyTorch may use TF32, features of fp16 lose nothing in it, and weights the same at every step.
            every = torch.unflatten(hidden.float() @ stacks[last_weight].flatten(0, 1).T, 1, (len(self), -1))
            index = self.slot.view(-1, 1, 1).expand(-1, 1, every.shape[-1])
            state = every.gather(1, index).squeeze(1) + stacks[last_bias].index_select(0, self.slot)
            return state.relu_() if embedding.relu else state

    @torch.no_grad()
    def renew(self, embedding: Embedding) -> Tensor:
        """Copies `embedding` into a copy that nobody uses, if there is one; [K] bool marks the one that changed."""
        copies = torch.arange(len(self), device=self.slot.device)
        used = (self.slot.unsqueeze(1) == copies).any(0)
        renewed = (~used) & (torch.cumsum(~used, 0) == 1)
        some, chosen = renewed.any(), renewed.to(torch.int64).argmax(0, keepdim=True)
        for stack, theirs in zip(self.stacks, _tensors(embedding).values(), strict=True):
            new = as_stacked(theirs).to(stack.dtype).unsqueeze(0)
            stack.index_copy_(0, chosen, torch.where(some, new, stack.index_select(0, chosen)))
        self.newest.copy_(torch.where(some, chosen.squeeze(0), self.newest))
        self.age.copy_(torch.where(renewed, 0, self.age + 1))
        return renewed

    @torch.no_grad()
    def replace_all(self, embedding: Embedding) -> None:
        """Copies `embedding` into all copies, for a new start with empty memories."""
        for stack, theirs in zip(self.stacks, _tensors(embedding).values(), strict=True):
            stack.copy_(as_stacked(theirs).expand_as(stack))
        self.age.zero_()


def _tensors(embedding: Embedding) -> dict[str, Tensor]:
    """What makes up f: its weights, and the statistics of its inputs if it whitens them."""
    return {**dict(embedding.named_parameters()), **dict(embedding.named_buffers())}


def as_stacked(weight: Tensor) -> Tensor:
    """A layer's weights in the order in which stacks hold them: channels last, [O, K, K, C]."""
    return weight.detach().permute(0, 2, 3, 1) if weight.dim() == 4 else weight.detach()


def unstacked(weight: Tensor) -> Tensor:
    """The same the other way round, [O, C, K, K]; a view."""
    return weight.permute(0, 3, 1, 2) if weight.dim() == 4 else weight


@fusable
def pixels_under(image: Tensor, kernel: int, stride: int) -> Tensor:
    """[E, C, H, W] to [E, places, K * K * C]: what a kernel sees at each of its places."""
    windows = image.unfold(2, kernel, stride).unfold(3, kernel, stride)  # [E, C, H', W', K, K]
    return windows.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)


def batched_convolution(image: Tensor, weight: Tensor, bias: Tensor, stride: int, fold: int) -> Tensor:
    """[E, C, H, W], each with weights [E, O, K, K, C] of its own, to [E, O, H', W'] after a ReLU.

    An image that was folded for a first layer of that stride (see `Torso.fold`) is met with folded weights.
    """
    if image.shape[1] != weight.shape[-1]:
        envs, out = weight.shape[:2]
        parts = folded(weight.flatten(0, 1).permute(0, 3, 1, 2), fold)
        weight, stride = torch.unflatten(parts.permute(0, 2, 3, 1), 0, (envs, out)), 1
    kernel = weight.shape[2]
    width = (image.shape[3] - kernel) // stride + 1
    seen = pixels_under(image.to(weight.dtype), kernel, stride)
    made = torch.baddbmm(bias.unsqueeze(1), seen, weight.flatten(2).transpose(1, 2)).relu_()
    return torch.unflatten(made, 1, (-1, width)).permute(0, 3, 1, 2)


def batched_dense(vector: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[E, D], each with weights [E, O, D] of its own, to [E, O]."""
    made = torch.baddbmm(bias.unsqueeze(2), weight, vector.to(weight.dtype).unsqueeze(2))
    return made.squeeze(2)

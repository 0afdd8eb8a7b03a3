"""The networks: torsos for images and vectors, and the recurrent dueling Q-network Q(x, a, beta_i) (paper, App. H).

Time first, then batch: observations [T, B, ...], values [T, B, A].
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from ngu.bias_relu import bias_relu
from ngu.config import NetworkConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError
from ngu.graphs import fusable
from ngu.observations import Whitening, folded, prepared


def folded_convolution(image: Tensor, weight: Tensor, fold: int) -> Tensor:
    """Of a folded image, what `weight` [O, C, K, K] gives with a stride of `fold` on the image before it was folded."""
    return F.conv2d(image, folded(weight, fold))


class Torso(nn.Module):
    """Convolutions with ReLU for images [B, C, H, W], dense layers with ReLU for vectors [B, D]; flat features out."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        filters: tuple[int, ...],
        kernels: tuple[int, ...],
        strides: tuple[int, ...],
        hidden: tuple[int, ...],
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        self.fold = 1
        """How many pixels a side go into one before the first convolution, on a GPU.

        A wide stride over one channel has no fast kernel there; with its blocks as channels it is an ordinary one."""
        if len(spec.observation_shape) == 3:
            channels, height, width = spec.observation_shape
            if strides and not any(size % strides[0] for size in (height, width, kernels[0])):
                self.fold = strides[0]
            for out, kernel, stride in zip(filters, kernels, strides, strict=True):
                layers += [nn.Conv2d(channels, out, kernel, stride), nn.ReLU()]
                channels, height, width = out, (height - kernel) // stride + 1, (width - kernel) // stride + 1
                if height < 1 or width < 1:
                    raise UserError(
                        f"observations of {spec.observation_shape[1]}x{spec.observation_shape[2]} are too small for "
                        f"convolutions with kernels {kernels} and strides {strides}; use fewer or smaller ones."
                    )
            self.size = channels * height * width
            self.channels = channels
            self.image = True
        elif len(spec.observation_shape) == 1:
            size = spec.observation_shape[0]
            for out in hidden:
                layers += [nn.Linear(size, out), nn.ReLU()]
                size = out
            self.size = self.channels = size
            self.image = False
        else:
            raise UserError(
                f"observations of shape {spec.observation_shape} are neither images [C, H, W] nor vectors [D]; "
                "reshape them with a Gymnasium wrapper."
            )
        self.layers = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, features: Tensor) -> Tensor:
        """[B, *observation_shape] float, or a folded image, to [B, size]."""
        out = self.maps(features)
        return flattened(out) if self.image else out

    def maps(self, features: Tensor) -> Tensor:
        """The same before it is made flat: of images [B, channels, H', W']."""
        out: Tensor = self._fused(features) if self.image and features.is_cuda else self.layers(features)
        return out

    def _fused(self, image: Tensor) -> Tensor:
        """The same layers with bias and ReLU in one kernel, for images that may be folded."""
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d):
                assert layer.bias is not None
                if image.shape[1] == layer.in_channels:
                    image = F.conv2d(image, layer.weight, stride=layer.stride)
                else:
                    image = folded_convolution(image, layer.weight, self.fold)
                image = bias_relu(image, layer.bias)
        return image


def flattened(maps: Tensor) -> Tensor:
    """[B, C, H, W] to [B, H W C]: channels last, as they lie in memory, so that nothing is copied."""
    return maps.permute(0, 2, 3, 1).flatten(1)


class FeatureTorso(nn.Module):
    """A torso and one linear layer: RND's networks."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        filters: tuple[int, ...],
        kernels: tuple[int, ...],
        strides: tuple[int, ...],
        hidden: tuple[int, ...],
        size: int,
    ) -> None:
        super().__init__()
        self.torso = Torso(spec, filters, kernels, strides, hidden)
        self.out = nn.Linear(self.torso.size, size)

    def forward(self, features: Tensor) -> Tensor:
        """[B, *observation_shape] float to [B, size]."""
        out: Tensor = self.out(self.torso(features))
        return out


@dataclass
class AgentInput:
    """What the policy sees at each step; leading dimensions [T, B] or [B]."""

    observation: Tensor
    """x_t"""
    previous_action: Tensor
    """a_{t-1}, int64; -1 at an episode's first observation."""
    extrinsic: Tensor
    """The extrinsic reward that the last step brought."""
    intrinsic: Tensor
    """The intrinsic reward r_i(x_t) that the last step brought."""
    mixture: Tensor
    """[B] int64, the index i of beta_i; constant in time."""

    def between(self, begin: int, end: int | None = None) -> AgentInput:
        """The inputs of some of the steps."""
        part = slice(begin, end)
        return replace(
            self,
            observation=self.observation[part],
            previous_action=self.previous_action[part],
            extrinsic=self.extrinsic[part],
            intrinsic=self.intrinsic[part],
        )


class PreparedInput(AgentInput):
    """The same, with what `QNetwork.prepare` made of x_t as its `observation`."""


@dataclass
class RecurrentState:
    """The LSTM's hidden state and cell, [B, H] each."""

    hidden: Tensor
    cell: Tensor


class QNetwork(nn.Module):
    """Torso, LSTM and dueling heads, conditioned on beta_i, the previous action and both previous rewards."""

    def __init__(self, spec: EnvironmentSpec, num_mixtures: int, config: NetworkConfig) -> None:
        super().__init__()
        self.num_actions = spec.num_actions
        self.num_mixtures = num_mixtures
        self.lstm_size = config.lstm_size
        self.log_rewards = config.log_rewards
        self.inputs = Whitening.for_control(spec.observation_shape) if config.whiten else None
        self.torso = Torso(spec, config.filters, config.kernels, config.strides, config.hidden)
        self.dense = nn.Linear(self.torso.size, config.torso_size)
        inputs = config.torso_size + spec.num_actions + 2 + num_mixtures
        padded = math.ceil(inputs / config.lstm_input_multiple) * config.lstm_input_multiple
        self.padding = padded - inputs
        self.lstm = nn.LSTM(padded, config.lstm_size)
        # With a bias of 0 a new cell keeps half of its content for the next step.
        _, _, input_bias, _ = self.lstm.parameters()  # of the gates for input, forgetting, candidate and output
        with torch.no_grad():
            input_bias.view(4, -1)[1] += config.forget_bias
        self.value = nn.Sequential(
            nn.Linear(config.lstm_size, config.dueling_size), nn.ReLU(), nn.Linear(config.dueling_size, 1)
        )
        self.advantage = nn.Sequential(
            nn.Linear(config.lstm_size, config.dueling_size),
            nn.ReLU(),
            nn.Linear(config.dueling_size, self.num_actions),
        )

    def store_in(self, dtype: torch.dtype) -> None:
        """Keeps the weights in the type that they are used in, for a copy that acts and is not trained."""
        for part in (self.torso, self.dense, self.lstm):
            part.to(dtype)

    def initial_state(self, batch: int) -> RecurrentState:
        """The state at an episode's start."""
        zero = torch.zeros(batch, self.lstm_size, device=self.dense.weight.device)
        return RecurrentState(zero, zero.clone())

    def take_over(self, other: QNetwork) -> None:
        """Copies another one's weights, and the statistics of its inputs."""
        with torch.no_grad():
            torch._foreach_copy_(list(self.parameters()), list(other.parameters()))
        self.take_over_inputs(other)

    def take_over_inputs(self, other: QNetwork) -> None:
        """Copies the statistics alone."""
        for mine, theirs in zip(self.buffers(), other.buffers(), strict=True):
            mine.copy_(theirs)

    def observe(self, observation: Tensor, valid: Tensor) -> None:
        """Adds [B, *observation_shape] to the statistics of the inputs, if they are whitened; `valid` is [B] bool."""
        if self.inputs is not None:
            self.inputs.observe(observation, valid)

    def prepare(self, observation: Tensor) -> Tensor:
        """[B, *observation_shape] as the environments gave it, to what `look` takes in."""
        return prepared(observation, self.inputs, self.torso.fold)

    def look(self, features: Tensor) -> Tensor:
        """The part that needs the observation alone, to [B, torso_size]."""
        return torch.relu(self.dense(self.torso(features)))

    def step(
        self, inputs: AgentInput, state: RecurrentState, seen: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """One step: inputs [B, ...] to values [B, A] and the next state; `seen` is what `look` gave, if it did.

        With plain matrix products: for one step they are several times faster on a CPU than the LSTM's sequence path.
        The cell, which carries memories through a whole episode, stays in full precision.
        """
        core = self._core_input(inputs, seen)
        input_weight, hidden_weight, input_bias, hidden_bias = self.lstm.parameters()
        gates = F.linear(core, input_weight, input_bias)
        recurrent = F.linear(state.hidden.to(core.dtype), hidden_weight, hidden_bias)
        hidden, cell = _lstm_cell(gates, recurrent, state.cell)
        return self._dueling(hidden), RecurrentState(hidden, cell)

    def unroll(self, inputs: AgentInput, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """A sequence: inputs [T, B, ...] from a state [B, H] to values [T, B, A] and the last state."""
        out, state = self._recur(inputs, state)
        return self._dueling(out), state

    def state_after(self, inputs: AgentInput, state: RecurrentState) -> RecurrentState:
        """The last state of a sequence alone."""
        return self._recur(inputs, state)[1]

    def _recur(self, inputs: AgentInput, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """The LSTM's outputs [T, B, H] and its last state."""
        core = self._core_input(inputs)
        out, (hidden, cell) = self.lstm(
            core, (state.hidden.unsqueeze(0).to(core.dtype), state.cell.unsqueeze(0).to(core.dtype))
        )
        return out, RecurrentState(hidden[0].float(), cell[0].float())

    def _core_input(self, inputs: AgentInput, seen: Tensor | None = None) -> Tensor:
        """[..., padded input size of the LSTM]"""
        leading = inputs.previous_action.shape
        if seen is None:
            flat = inputs.observation.flatten(0, len(leading) - 1)
            seen = self.look(flat if isinstance(inputs, PreparedInput) else self.prepare(flat))
        dense = seen.view(*leading, -1)
        beside = _beside_picture(
            inputs.previous_action, inputs.extrinsic, inputs.intrinsic, inputs.mixture, self.num_actions,
            self.num_mixtures, self.padding, self.log_rewards, dense.dtype,
        )  # fmt: skip
        return torch.cat([dense, beside], -1)

    def _dueling(self, features: Tensor) -> Tensor:
        """Q = V + A - mean A, in full precision: values of hundreds differ by tenths between actions."""
        with torch.autocast(features.device.type, enabled=False):
            features = features.float()
            advantage: Tensor = self.advantage(features)
            value: Tensor = self.value(features)
            return _dueling_sum(value, advantage)


@fusable
def _dueling_sum(value: Tensor, advantage: Tensor) -> Tensor:
    return value + advantage - advantage.mean(-1, keepdim=True)


@fusable
def _beside_picture(
    previous_action: Tensor,
    extrinsic: Tensor,
    intrinsic: Tensor,
    mixture: Tensor,
    num_actions: int,
    num_mixtures: int,
    padding: int,
    log_rewards: bool,
    dtype: torch.dtype,
) -> Tensor:
    """Of inputs [...] what the LSTM takes in beside the picture: [..., A + 2 + N + padding] of `dtype`."""
    rewards = torch.stack([extrinsic, intrinsic], -1)
    if log_rewards:
        rewards = torch.sign(rewards) * torch.log1p(rewards.abs())
    parts = [
        _one_hot(previous_action, num_actions).to(dtype),
        rewards.to(dtype),
        _one_hot(mixture, num_mixtures).expand(*previous_action.shape, -1).to(dtype),
    ]
    if padding:
        parts.append(torch.zeros(*previous_action.shape, padding, dtype=dtype, device=previous_action.device))
    return torch.cat(parts, -1)


@fusable
def _lstm_cell(gates: Tensor, recurrent: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden state and cell, [B, H] float32 each, from both matrix products [B, 4 H] and the cell before."""
    keep_input, keep_cell, candidate, keep_output = (gates.float() + recurrent.float()).chunk(4, -1)
    cell = torch.sigmoid(keep_cell) * cell + torch.sigmoid(keep_input) * torch.tanh(candidate)
    return torch.sigmoid(keep_output) * torch.tanh(cell), cell


def _one_hot(index: Tensor, size: int) -> Tensor:
    """One-hot of [...] as [..., size] bool; an index of -1 gives zeros."""
    return index.unsqueeze(-1) == torch.arange(size, device=index.device)

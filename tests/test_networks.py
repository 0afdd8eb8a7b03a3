"""The recurrent dueling Q-network: what it is conditioned on, and that acting and learning see the same one."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ngu.config import NetworkConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError
from ngu.networks import (
    AgentInput,
    FeatureTorso,
    QNetwork,
    RecurrentState,
    Torso,
    folded_convolution,
)
from ngu.observations import folded, scaled_observation

IMAGES = EnvironmentSpec((3, 7, 7), torch.uint8, 4)
VECTORS = EnvironmentSpec((5,), torch.float32, 3)
SMALL = NetworkConfig(filters=(4, 6), hidden=(9,), torso_size=8, lstm_size=10, dueling_size=7)


def random_inputs(spec: EnvironmentSpec, steps: int, batch: int, mixtures: int, seed: int = 0) -> AgentInput:
    random = torch.Generator().manual_seed(seed)
    if spec.observation_dtype == torch.uint8:
        observation = torch.randint(0, 256, (steps, batch, *spec.observation_shape), generator=random).to(torch.uint8)
    else:
        observation = torch.randn(steps, batch, *spec.observation_shape, generator=random)
    return AgentInput(
        observation=observation,
        previous_action=torch.randint(-1, spec.num_actions, (steps, batch), generator=random),
        extrinsic=torch.randn(steps, batch, generator=random),
        intrinsic=torch.randn(steps, batch, generator=random),
        mixture=torch.randint(0, mixtures, (batch,), generator=random),
    )


def random_state(batch: int, size: int = 10) -> RecurrentState:
    return RecurrentState(torch.randn(batch, size), torch.randn(batch, size))


def at(inputs: AgentInput, time: int | slice) -> AgentInput:
    return AgentInput(
        inputs.observation[time], inputs.previous_action[time], inputs.extrinsic[time], inputs.intrinsic[time],
        inputs.mixture,
    )  # fmt: skip


@pytest.mark.parametrize("spec", [IMAGES, VECTORS], ids=["images", "vectors"])
@pytest.mark.parametrize("mixtures", [1, 3])
@pytest.mark.parametrize("multiple", [1, 16])
def test_acting_step_by_step_equals_unrolling(spec: EnvironmentSpec, mixtures: int, multiple: int) -> None:
    torch.manual_seed(0)
    network = QNetwork(spec, mixtures, dataclasses.replace(SMALL, lstm_input_multiple=multiple))
    inputs = random_inputs(spec, 6, 5, mixtures)
    start = state = random_state(5)
    steps = []
    for time in range(6):
        values, state = network.step(at(inputs, time), state)
        steps.append(values)
    unrolled, last = network.unroll(inputs, start)
    assert unrolled.shape == (6, 5, spec.num_actions)
    assert torch.allclose(torch.stack(steps), unrolled, atol=1e-5)
    assert torch.allclose(state.hidden, last.hidden, atol=1e-5)
    assert torch.allclose(state.cell, last.cell, atol=1e-5)


def test_a_step_takes_what_was_seen_beforehand() -> None:
    torch.manual_seed(0)
    network = QNetwork(IMAGES, 2, SMALL)
    inputs, state = at(random_inputs(IMAGES, 1, 3, 2), 0), random_state(3)
    seen = network.look(network.prepare(inputs.observation))
    inputs_elsewhere = dataclasses.replace(inputs, observation=torch.zeros_like(inputs.observation))
    expected, _ = network.step(inputs, state)
    values, _ = network.step(inputs_elsewhere, state, seen)
    assert torch.equal(values, expected)


def test_acting_follows_the_learner_weights() -> None:
    """step and unroll share their weights: training through one is training of the other."""
    network = QNetwork(VECTORS, 1, SMALL)
    inputs, state = random_inputs(VECTORS, 1, 2, 1), random_state(2)
    before = network.step(at(inputs, 0), state)[0]
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1)
    after = network.step(at(inputs, 0), state)[0]
    assert not torch.allclose(before, after)
    assert torch.allclose(after, network.unroll(inputs, state)[0][0], atol=1e-5)


@given(st.integers(1, 5))
@settings(max_examples=5)
def test_a_sequence_can_be_unrolled_in_two_parts(cut: int) -> None:
    torch.manual_seed(0)
    network = QNetwork(VECTORS, 2, SMALL)
    inputs, state = random_inputs(VECTORS, 6, 3, 2), random_state(3)
    whole, _ = network.unroll(inputs, state)
    early, between = network.unroll(at(inputs, slice(None, cut)), state)
    late, _ = network.unroll(at(inputs, slice(cut, None)), between)
    assert torch.allclose(torch.cat([early, late]), whole, atol=1e-5)


def test_values_are_dueling() -> None:
    """Q = V + A - mean A: the mean over the actions is the value head alone."""
    network = QNetwork(VECTORS, 1, SMALL)
    inputs, state = random_inputs(VECTORS, 1, 4, 1), random_state(4)
    values, after = network.step(at(inputs, 0), state)
    assert torch.allclose(values.mean(-1, keepdim=True), network.value(after.hidden), atol=1e-5)
    advantage = network.advantage(after.hidden)
    assert torch.allclose(
        values - values.mean(-1, keepdim=True), advantage - advantage.mean(-1, keepdim=True), atol=1e-5
    )


def test_the_lstm_takes_torso_action_both_rewards_and_policy() -> None:
    network = QNetwork(VECTORS, 4, SMALL)
    assert network.lstm.input_size == SMALL.torso_size + VECTORS.num_actions + 2 + 4
    wide = QNetwork(VECTORS, 4, dataclasses.replace(SMALL, lstm_input_multiple=128))
    assert wide.lstm.input_size == 128


@pytest.mark.parametrize("field", ["observation", "previous_action", "extrinsic", "intrinsic", "mixture"])
def test_every_input_reaches_the_values(field: str) -> None:
    torch.manual_seed(0)
    network = QNetwork(VECTORS, 3, SMALL)
    inputs, state = random_inputs(VECTORS, 1, 2, 3), random_state(2)
    changed = dataclasses.replace(inputs)
    if field == "previous_action":
        inputs.previous_action.fill_(1)
        changed.previous_action = torch.full_like(inputs.previous_action, 2)
    elif field == "mixture":
        changed.mixture = (inputs.mixture + 1) % 3
    else:
        setattr(changed, field, getattr(inputs, field) + 1)
    one, other = network.unroll(inputs, state)[0], network.unroll(changed, state)[0]
    assert ((one - other).abs().amax(-1) > 1e-5).all()


@pytest.mark.parametrize("reward", [0.0, 0.7, -0.7, 30.0, -1000.0])
def test_rewards_can_go_in_as_logarithms(reward: float) -> None:
    """The same network sees sign(r) log(1 + |r|) as another sees r, in steps and in sequences."""
    torch.manual_seed(0)
    plain = QNetwork(VECTORS, 1, SMALL)
    logarithmic = QNetwork(VECTORS, 1, dataclasses.replace(SMALL, log_rewards=True))
    logarithmic.load_state_dict(plain.state_dict())
    inputs, state = random_inputs(VECTORS, 3, 2, 1), random_state(2)
    squashed = math.copysign(math.log(1 + abs(reward)), reward)
    for name, other in (("extrinsic", "intrinsic"), ("intrinsic", "extrinsic")):
        zero = torch.zeros(3, 2)
        before = dataclasses.replace(inputs, **{name: torch.full((3, 2), reward), other: zero})
        after = dataclasses.replace(inputs, **{name: torch.full((3, 2), squashed), other: zero})
        values = logarithmic.unroll(before, state)[0]
        assert torch.allclose(values, plain.unroll(after, state)[0], atol=1e-5)
        first = AgentInput(
            before.observation[0], before.previous_action[0], before.extrinsic[0], before.intrinsic[0], before.mixture
        )
        assert torch.allclose(logarithmic.step(first, state)[0], values[0], atol=1e-5)


def test_the_two_rewards_are_told_apart() -> None:
    torch.manual_seed(0)
    network = QNetwork(VECTORS, 1, SMALL)
    inputs, state = random_inputs(VECTORS, 1, 2, 1), random_state(2)
    swapped = dataclasses.replace(inputs, extrinsic=inputs.intrinsic, intrinsic=inputs.extrinsic)
    assert not torch.allclose(network.unroll(inputs, state)[0], network.unroll(swapped, state)[0], atol=1e-4)


def test_no_previous_action_is_no_action() -> None:
    """-1 gives a one-hot of zeros: changing any action's column changes nothing."""
    network = QNetwork(VECTORS, 1, SMALL)
    inputs, state = random_inputs(VECTORS, 1, 2, 1), random_state(2)
    inputs.previous_action.fill_(-1)
    before = network.unroll(inputs, state)[0]
    with torch.no_grad():
        network.lstm.weight_ih_l0[:, SMALL.torso_size : SMALL.torso_size + 3] += 1.0
    assert torch.equal(network.unroll(inputs, state)[0], before)


def test_sequences_of_a_batch_do_not_touch_each_other() -> None:
    """The classic slip is to shift along the batch where time was meant."""
    torch.manual_seed(0)
    network = QNetwork(VECTORS, 2, SMALL)
    inputs, state = random_inputs(VECTORS, 5, 4, 2), random_state(4)
    together, _ = network.unroll(inputs, state)
    for column in range(4):
        part = slice(column, column + 1)
        alone = AgentInput(
            inputs.observation[:, part], inputs.previous_action[:, part], inputs.extrinsic[:, part],
            inputs.intrinsic[:, part], inputs.mixture[part],
        )  # fmt: skip
        values, _ = network.unroll(alone, RecurrentState(state.hidden[part], state.cell[part]))
        assert torch.allclose(values[:, 0], together[:, column], atol=1e-5)


def test_images_are_scaled_to_one() -> None:
    network = QNetwork(IMAGES, 1, SMALL)
    inputs, state = random_inputs(IMAGES, 2, 3, 1), random_state(3)
    scaled = dataclasses.replace(inputs, observation=inputs.observation.float() / 255)
    assert torch.allclose(network.unroll(inputs, state)[0], network.unroll(scaled, state)[0], atol=1e-5)


def test_mistake_every_action_of_the_environment_has_a_value() -> None:
    """No smaller action set is made up on the way."""
    many = EnvironmentSpec((5,), torch.float32, 18)
    network = QNetwork(many, 1, SMALL)
    values, _ = network.unroll(random_inputs(many, 2, 3, 1), random_state(3))
    assert values.shape == (2, 3, 18)


def test_the_state_begins_at_zero() -> None:
    state = QNetwork(VECTORS, 1, SMALL).initial_state(3)
    assert state.hidden.shape == state.cell.shape == (3, 10)
    assert not state.hidden.any()
    assert not state.cell.any()
    assert state.hidden.data_ptr() != state.cell.data_ptr()


@pytest.mark.parametrize("bias", [0.0, 1.0, 3.0])
def test_a_new_network_remembers_by_its_forget_bias(bias: float) -> None:
    """With neither inputs nor hidden state the cell is kept by sigmoid(bias), but for the small random biases."""
    size = 64
    torch.manual_seed(0)
    network = QNetwork(VECTORS, 1, dataclasses.replace(SMALL, lstm_size=size, forget_bias=bias))
    cell = torch.full((1, size), 1e4)  # so large that what the gates let in does not show
    with torch.no_grad():
        for name, weight in network.lstm.named_parameters():
            if name.startswith("weight"):
                weight.zero_()
        _, state = network.step(
            AgentInput(
                observation=torch.zeros(1, 5),
                previous_action=torch.tensor([-1]),
                extrinsic=torch.zeros(1),
                intrinsic=torch.zeros(1),
                mixture=torch.zeros(1, dtype=torch.int64),
            ),
            RecurrentState(torch.zeros(1, size), cell),
        )
    kept = state.cell / cell
    assert float(kept.mean()) == pytest.approx(float(torch.sigmoid(torch.tensor(bias))), abs=0.02)
    assert float(kept.std()) < 0.06


def test_a_torso_reports_its_size_and_keeps_the_batch() -> None:
    for spec in (IMAGES, VECTORS):
        torso = Torso(spec, (4, 6), (3, 2), (2, 1), (9,))
        assert torso(torch.rand(5, *spec.observation_shape)).shape == (5, torso.size)
        features = FeatureTorso(spec, (4, 6), (3, 2), (2, 1), (9,), 11)
        out = features(torch.rand(5, *spec.observation_shape))
        assert out.shape == (5, 11)
        assert (out < 0).any(), "the last layer is linear"


@given(st.integers(1, 3), st.integers(2, 5), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
@settings(max_examples=20)
def test_a_folded_image_gives_what_the_wide_stride_gives(
    channels: int, stride: int, blocks: int, filters: int, extra: int
) -> None:
    """Pixels of a block as channels and a stride of 1: the same sums, term by term."""
    size, kernel = stride * (blocks + extra - 1), stride * blocks
    image, weight = torch.randn(2, channels, size, size), torch.randn(filters, channels, kernel, kernel)
    expected = torch.nn.functional.conv2d(image, weight, stride=stride)
    assert torch.allclose(folded_convolution(folded(image, stride), weight, stride), expected, atol=1e-4)


@pytest.mark.parametrize("fold", [False, True])
def test_the_layers_as_a_gpu_runs_them_are_the_same_layers(fold: bool) -> None:
    """Atari's torso: it may take images folded in blocks of 4, and has bias and ReLU in one."""
    torch.manual_seed(0)
    torso = Torso(EnvironmentSpec((1, 84, 84), torch.uint8, 18), (4, 6, 6), (8, 4, 3), (4, 2, 1), ())
    assert torso.fold == 4
    image = torch.rand(3, 1, 84, 84)
    inputs = folded(image, 4) if fold else image
    assert torch.allclose(torso._fused(inputs), torso.layers(image), atol=1e-5)


def test_images_are_folded_only_where_blocks_fit() -> None:
    """The maze's stride is 1, and 85 pixels are no whole number of blocks of 4."""
    assert Torso(EnvironmentSpec((3, 21, 21), torch.uint8, 4), (4,), (3,), (1,), ()).fold == 1
    assert Torso(EnvironmentSpec((1, 85, 84), torch.uint8, 4), (4,), (8,), (4,), ()).fold == 1
    assert Torso(EnvironmentSpec((1, 84, 84), torch.uint8, 4), (4,), (6,), (4,), ()).fold == 1


def test_observations_too_small_for_the_convolutions_are_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match="too small"):
        Torso(EnvironmentSpec((3, 4, 4), torch.uint8, 2), (8, 8), (3, 3), (1, 1), ())


def test_observations_of_another_kind_are_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match="neither images"):
        Torso(EnvironmentSpec((4, 4), torch.float32, 2), (8,), (3,), (1,), ())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64, torch.float32])
def test_vectors_of_any_type_are_taken_in(dtype: torch.dtype) -> None:
    """Such as the emulator's memory (bytes), or what NumPy makes by default (doubles)."""
    vectors = torch.tensor([[0, 51, 255]]).to(dtype)
    scaled = scaled_observation(vectors)
    assert scaled.dtype == torch.float32
    assert scaled.tolist()[0] == pytest.approx([0.0, 0.2, 1.0] if dtype == torch.uint8 else [0.0, 51.0, 255.0])

"""Networks that take observations less their running mean, over their deviation: the Q-network and f."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_tiny_config
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_embedding import GAME, GAME_F, IMAGES, POINTS, SMALL, random_snapshots
from test_learner import CPU, SPEC, make_batch, make_learner

from ngu.agent import Pupil, weights_of
from ngu.envs.protocol import EnvironmentSpec
from ngu.networks import PreparedInput, QNetwork
from ngu.novelty.embedding import Embedding
from ngu.novelty.reward import IntrinsicReward
from ngu.novelty.snapshots import EmbeddingSnapshots
from ngu.novelty.transitions import last_transitions
from ngu.observations import Whitening, folded, whiten
from ngu.runners.local import LocalRunner

WHITENED = dataclasses.replace(SMALL, embedding_whiten=True)


def pictures(rows: int, shape: tuple[int, ...] = IMAGES.observation_shape, seed: int = 0) -> torch.Tensor:
    return torch.randint(256, (rows, *shape), generator=torch.Generator().manual_seed(seed)).to(torch.uint8)


def whitened(seen: NDArray[Any], observation: NDArray[Any], least: float) -> NDArray[Any]:
    """The definition: `seen` are all rows that the statistics are of."""
    scale = 255 if seen.dtype == np.uint8 else 1
    mean, deviation = (seen / scale).mean(0), (seen / scale).std(0)
    white: NDArray[Any] = ((observation / scale - mean) / np.maximum(deviation, least)).clip(-5, 5)
    return white


@given(st.integers(0, 1000), st.integers(1, 4), st.sampled_from([0.2, 0.01]), st.booleans())
def test_it_equals_the_definition_over_all_that_was_observed(
    seed: int, batches: int, least: float, image: bool
) -> None:
    random = torch.Generator().manual_seed(seed)
    if image:
        data = torch.randint(256, (batches, 5, 3, 4, 4), generator=random).to(torch.uint8)
        data[:, :, 0] = 7  # a part that never changes
    else:
        data = torch.randn(batches, 5, 6, generator=random) * 3 + 1
    valid = torch.rand(batches, 5, generator=random) < 0.7
    valid[0, 0] = True
    whitening = Whitening(tuple(data.shape[2:]), least)
    for batch, kept in zip(data, valid, strict=True):
        whitening.observe(batch, kept)
    expected = whitened(data[valid].numpy(), data[-1].numpy(), least)
    assert whitening(data[-1]).numpy() == pytest.approx(expected, abs=1e-4)


def test_pictures_never_come_to_the_clip_and_what_hardly_moved_is_five_times_as_large_as_before() -> None:
    """Else a room that differs from the first one everywhere would be one flat picture."""
    whitening = Whitening.for_control((1, 4, 4))
    dark = torch.zeros(8, 1, 4, 4, dtype=torch.uint8)
    whitening.observe(dark, torch.ones(8, dtype=torch.bool))
    shades = torch.arange(0, 256, 17).to(torch.uint8).view(1, 1, 4, 4)
    assert torch.allclose(whitening(shades), shades.float() / 255 * 5, atol=1e-5)


def test_before_anything_was_observed_pictures_keep_all_their_differences() -> None:
    whitening = Whitening.for_control((3, 7, 7))
    observation = pictures(5)
    assert torch.allclose(whitening(observation), observation.float() / 255 * 5, atol=1e-5)


def test_a_still_picture_is_taken_off() -> None:
    """Two frames that differ in one pixel of 147: raw features are nearly the same, whitened inputs are opposites."""
    whitening = Whitening.for_control((3, 7, 7))
    frames = pictures(1).repeat(2, 1, 1, 1)
    frames[:, 0, 3, 3] = torch.tensor([0, 255])
    whitening.observe(frames, torch.ones(2, dtype=torch.bool))
    white = whitening(frames)
    assert white[:, 0, 3, 3].tolist() == pytest.approx([-1.0, 1.0], abs=1e-4)
    assert int((white.abs() > 1e-3).sum()) == 2


# ------------------------------------------------------------------------------------------- the Q-network


def q_network(spec: EnvironmentSpec = SPEC) -> QNetwork:
    torch.manual_seed(0)
    return QNetwork(spec, 1, dataclasses.replace(make_tiny_config().network, whiten=True))


def test_prepared_inputs_give_the_values_of_raw_ones_and_are_not_whitened_twice() -> None:
    network, batch = q_network(), make_batch(make_tiny_config())
    network.observe(batch.inputs.observation.flatten(0, 1) * 3 + 1, torch.ones(54, dtype=torch.bool))
    raw, _ = network.unroll(batch.inputs, batch.state)
    observation = torch.unflatten(
        network.prepare(batch.inputs.observation.flatten(0, 1)), 0, batch.inputs.observation.shape[:2]
    )
    done = PreparedInput(**{**vars(batch.inputs), "observation": observation})
    assert torch.equal(network.unroll(done, batch.state)[0], raw)
    assert torch.equal(done.between(2, 5).observation, observation[2:5])
    assert isinstance(done.between(2, 5), PreparedInput)
    twice = replace(batch.inputs, observation=observation)
    assert not torch.allclose(network.unroll(twice, batch.state)[0], raw, atol=1e-3)


def test_it_takes_over_the_statistics_with_the_weights() -> None:
    one, other = q_network(IMAGES), q_network(IMAGES)
    with torch.no_grad():
        one.dense.bias.add_(1.0)
    one.observe(pictures(9), torch.ones(9, dtype=torch.bool))
    assert not torch.allclose(one.look(one.prepare(pictures(3))), other.look(other.prepare(pictures(3))))
    other.take_over(one)
    assert torch.equal(one.look(one.prepare(pictures(3))), other.look(other.prepare(pictures(3))))
    one.observe(pictures(9, seed=1), torch.ones(9, dtype=torch.bool))
    assert not torch.equal(one.prepare(pictures(3)), other.prepare(pictures(3))), "they share their statistics"


@pytest.mark.parametrize("seed", range(3))
def test_an_update_is_that_of_a_plain_network_on_observations_whitened_beforehand(seed: int) -> None:
    """Statistics are those of the last transitions' next observations, this update's included, for both networks."""
    config = make_tiny_config(network__whiten=True, novelty__hidden=(5,), novelty__train_frames=3)
    plain_config = make_tiny_config(novelty__hidden=(5,), novelty__train_frames=3)
    learner, plain = make_learner(config, seed), make_learner(plain_config, seed)
    batches = [make_batch(config, seed=10 * seed + k) for k in range(3)]
    seen = []
    for batch in batches:
        batch.inputs.observation = batch.inputs.observation * 3 + 1
        index, exists = last_transitions(batch.length, 3)
        last = batch.inputs.observation[index + 1, torch.arange(len(batch.length))]
        seen.append(last[exists].numpy())
        white = whitened(np.concatenate(seen), batch.inputs.observation.numpy(), 0.01)
        done = replace(batch, inputs=replace(batch.inputs, observation=torch.from_numpy(white).float()))
        update, expected = learner.update(batch, 0), plain.update(done, 0)
        assert torch.allclose(update.priority, expected.priority, rtol=1e-3, atol=1e-4)
    for (name, mine), theirs in zip(learner.network.named_parameters(), plain.network.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4), name


def test_who_plays_with_averaged_weights_has_the_newest_statistics() -> None:
    config = make_tiny_config(network__whiten=True, learner__average_share=0.5)
    learner = make_learner(config)
    for seed in range(3):
        learner.update(make_batch(config, seed=seed), 0)
    assert learner.average is not None
    assert learner.average.inputs is not None
    assert learner.network.inputs is not None
    assert torch.equal(learner.average.inputs.mean, learner.network.inputs.mean)
    assert float(learner.average.inputs.weight) > 0


def test_a_process_that_acts_elsewhere_gets_them_with_the_weights() -> None:
    config = make_tiny_config(network__whiten=True, novelty__embedding_whiten=True)
    learner = make_learner(config)
    learner.update(make_batch(config), 0)
    pupil = Pupil(config, SPEC, CPU)
    pupil.load(weights_of(learner))
    batch = make_batch(config, seed=1)
    mine, _ = pupil.network.unroll(batch.inputs, batch.state)
    assert torch.equal(mine, learner.network.unroll(batch.inputs, batch.state)[0])
    assert pupil.novelty.inverse is not None
    assert learner.novelty.inverse is not None
    flat = batch.inputs.observation.flatten(0, 1)
    assert torch.equal(pupil.novelty.inverse.embedding(flat), learner.novelty.inverse.embedding(flat))


# ------------------------------------------------------------------------------------------- f and its copies


def observed(embedding: Embedding, seed: int) -> Embedding:
    shape = embedding.inputs.mean.shape if embedding.inputs is not None else ()
    rows = pictures(6, tuple(shape), seed) // (1 + seed % 4)
    embedding.observe(rows, torch.ones(6, dtype=torch.bool))
    return embedding


@pytest.mark.parametrize("copies", [3, 9])
@pytest.mark.parametrize("spec", [IMAGES, GAME], ids=["7x7", "Atari"])
def test_each_environment_goes_through_the_statistics_of_its_own_copy(spec: EnvironmentSpec, copies: int) -> None:
    """On the CPU, and in both ways of a GPU."""
    config = dataclasses.replace(GAME_F if spec is GAME else SMALL, embedding_whiten=True, embedding_relu=False)
    torch.manual_seed(0)
    snapshots = EmbeddingSnapshots(observed(Embedding(spec, config), 0), 7, copies, CPU)
    versions = [snapshots.embedding(0)] * copies
    for e in range(min(7, copies - 1)):
        new = observed(Embedding(spec, config), e + 1)
        (index,) = snapshots.renew(new).nonzero().flatten().tolist()
        versions[index] = copy.deepcopy(new)
        snapshots.begin(torch.arange(7) == e)
    snapshots.slot.copy_(torch.arange(7) % copies)
    observation = pictures(7, spec.observation_shape, 99)
    expected = torch.cat([versions[e % copies](observation[e : e + 1]) for e in range(7)])
    assert len({round(state.sum().item(), 4) for state in expected.detach()}) > 1
    assert torch.allclose(snapshots(observation), expected, atol=1e-4)
    assert torch.allclose(snapshots._batched(observation), expected, atol=1e-4)
    if copies == 3:
        assert torch.allclose(snapshots._together(observation), expected, atol=1e-4)


def test_statistics_of_a_running_episode_stay_as_they_are() -> None:
    torch.manual_seed(0)
    f = observed(Embedding(IMAGES, WHITENED), 0)
    snapshots = EmbeddingSnapshots(f, 2, 3, CPU)
    before = snapshots(pictures(2))
    observed(f, 5)
    assert torch.equal(snapshots(pictures(2)), before)
    snapshots.renew(f)
    assert torch.equal(snapshots(pictures(2)), before)
    snapshots.begin(torch.tensor([True, False]))
    after = snapshots(pictures(2))
    assert torch.allclose(after[0], f(pictures(2))[0], atol=1e-6)
    assert not torch.allclose(after[0], before[0], atol=1e-3)
    assert torch.allclose(after[1], before[1], atol=1e-6)  # alone in its batch, the other one is added up differently


def test_a_new_start_and_a_saved_state_take_the_statistics_along() -> None:
    torch.manual_seed(0)
    one, other = random_snapshots(IMAGES, WHITENED, 5, 6), random_snapshots(IMAGES, WHITENED, 5, 6)
    new = observed(Embedding(IMAGES, WHITENED), 3)
    one.replace_all(new)
    assert torch.allclose(one(pictures(5)), new(pictures(5)), atol=1e-6)
    other.load_state_dict(one.state_dict())
    assert torch.equal(other(pictures(5)), one(pictures(5)))
    assert torch.equal(other.embedding(2)(pictures(5)), one.embedding(2)(pictures(5)))


def test_the_reward_alone_observes_what_it_is_trained_on() -> None:
    config = dataclasses.replace(WHITENED, lifelong=False)
    intrinsic = IntrinsicReward(POINTS, 3, config)
    points, action = torch.randn(20, 2) * 4 + 2, torch.randint(3, (20,))
    intrinsic.train(points[:-1], action[:-1], points[1:])
    assert intrinsic.model.inverse is not None
    inputs = intrinsic.model.inverse.embedding.inputs
    assert inputs is not None
    assert inputs.mean.tolist() == pytest.approx(points[1:].mean(0).tolist(), abs=1e-5)
    before = inputs.weight.clone()
    intrinsic(torch.randn(3, 2), torch.ones(3, dtype=torch.bool))
    assert torch.equal(inputs.weight, before), "acting changes no statistics"


def test_folded_pictures_are_whitened_before_they_are_folded() -> None:
    """What a GPU gives its first convolution."""
    whitening = Whitening.for_control((1, 8, 8))
    whitening.observe(pictures(5, (1, 8, 8)), torch.ones(5, dtype=torch.bool))
    deviation = whitening.deviation.clamp_min(whitening.least)
    image = pictures(3, (1, 8, 8), 1)
    assert torch.equal(whiten(image, whitening.mean, deviation, torch.float32, 4), folded(whitening(image), 4))


def test_a_whitened_agent_acts_with_what_its_learner_has_observed() -> None:
    runner = LocalRunner(make_tiny_config(network__whiten=True, novelty__embedding_whiten=True), CPU)
    while runner.agent.learner.updates < 12:
        runner.advance()
    for actor in runner.agent.actors:
        actor.fetch(runner.agent.learner.network, runner.agent.learner.novelty)
    (actor,) = runner.agent.actors
    mine, theirs = actor.network.inputs, runner.agent.learner.network.inputs
    assert mine is not None
    assert theirs is not None
    assert torch.equal(mine.mean, theirs.mean)
    assert float(mine.weight) >= 12
    assert runner.agent.learner.novelty.inverse is not None
    f = runner.agent.learner.novelty.inverse.embedding.inputs
    assert f is not None
    assert torch.equal(f.mean, theirs.mean), "both are of the same frames"

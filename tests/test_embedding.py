"""Controllable states: inverse dynamics and the frozen copies of f (paper, Sec. 2)."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ngu.config import LearnerConfig, NoveltyConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError
from ngu.novelty.embedding import Embedding, InverseDynamics, dimensions_in_use, inverse_dynamics_loss, keypoints
from ngu.novelty.model import NoveltyModel, NoveltyTrainer
from ngu.novelty.snapshots import EmbeddingSnapshots
from ngu.novelty.transitions import Transitions, balanced_weight
from ngu.observations import folded, scaled_observation

CPU = torch.device("cpu")
IMAGES = EnvironmentSpec((3, 7, 7), torch.uint8, 4)
POINTS = EnvironmentSpec((2,), torch.float32, 3)
SMALL = NoveltyConfig(
    filters=(4,), kernels=(3,), strides=(1,), hidden=(8,), embedding_size=6, embedding_hidden=10, embedding_snapshots=2
)
ONE_NUMBER = NoveltyConfig(hidden=(), embedding_size=1)


# ------------------------------------------------------------------------------------------- the networks


def test_f_is_convolutions_then_one_relu_layer() -> None:
    f = Embedding(IMAGES, SMALL)
    observation = torch.randint(0, 256, (5, 3, 7, 7), dtype=torch.uint8)
    features = torch.relu(f.torso.layers[0](observation.float() / 255)).flatten(1)
    # In which order the features are laid flat is the torso's own affair.
    flat = f.torso(observation.float() / 255)
    assert torch.allclose(flat.sort(1).values, features.sort(1).values, atol=1e-6)
    assert f(observation).shape == (5, 6)
    assert torch.allclose(f(observation), torch.relu(f.out(flat)), atol=1e-6)


def test_f_may_do_without_its_last_relu() -> None:
    torch.manual_seed(0)  # with few outputs all may be positive
    f = Embedding(IMAGES, dataclasses.replace(SMALL, embedding_relu=False))
    observation = torch.randint(0, 256, (5, 3, 7, 7), dtype=torch.uint8)
    assert torch.allclose(f(observation), f.out(f.torso(observation.float() / 255)), atol=1e-6)
    assert (f(observation) < 0).any()


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6))
def test_keypoints_are_mean_places_under_each_channels_softmax(
    seed: int, rows: int, channels: int, height: int, width: int
) -> None:
    maps = np.random.default_rng(seed).normal(scale=3.0, size=(rows, channels, height, width))
    expected = np.zeros((rows, 2 * channels))
    for b in range(rows):
        for c in range(channels):
            share = np.exp(maps[b, c]) / np.exp(maps[b, c]).sum()
            for i in range(height):
                for j in range(width):
                    expected[b, c] += share[i, j] * (-1 + 2 * i / max(height - 1, 1))
                    expected[b, channels + c] += share[i, j] * (-1 + 2 * j / max(width - 1, 1))
    np.testing.assert_allclose(keypoints(torch.from_numpy(maps)).numpy(), expected, atol=1e-5)


def test_f_of_keypoints_is_their_linear_image() -> None:
    f = Embedding(IMAGES, dataclasses.replace(SMALL, embedding_keypoints=True, embedding_relu=False))
    observation = torch.randint(0, 256, (5, 3, 7, 7), dtype=torch.uint8)
    maps = torch.relu(f.torso.layers[0](observation.float() / 255))
    assert torch.allclose(f(observation), f.out(keypoints(maps)), atol=1e-6)


def test_keypoints_are_in_full_precision_under_autocast() -> None:
    maps = torch.randn(3, 4, 7, 7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = keypoints(maps)
    assert found.dtype == torch.float32
    assert torch.equal(found, keypoints(maps))


def test_keypoints_of_a_single_place_are_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="more than one place"):
        Embedding(EnvironmentSpec((3, 3, 3), torch.uint8, 4), dataclasses.replace(SMALL, embedding_keypoints=True))


def test_keypoints_of_vectors_are_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="needs pictures"):
        Embedding(POINTS, dataclasses.replace(SMALL, embedding_keypoints=True))


def test_an_f_of_keypoints_knows_places_where_nobody_has_been() -> None:
    """A dot that actions move, seen in the left half of the picture alone; then steps in the right half.

    An f of all numbers has weights of its own for those places, which no step has trained.
    """
    spec, size = EnvironmentSpec((1, 24, 24), torch.uint8, 4), 24
    moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]]) * 2

    def pictures(place: torch.Tensor) -> torch.Tensor:
        shown = torch.zeros(len(place), 1, size, size, dtype=torch.uint8)
        for dot in range(9):
            row, column = place[:, 0] + dot // 3, place[:, 1] + dot % 3
            shown[torch.arange(len(place)), 0, row, column] = 255
        return shown

    told = {}
    for by_keypoints in (False, True):
        torch.manual_seed(0)
        config = NoveltyConfig(
            filters=(8, 8), kernels=(4, 3), strides=(2, 1), embedding_size=8, embedding_hidden=32,
            embedding_relu=False, embedding_keypoints=by_keypoints, lifelong=False, learning_rate=3e-3,
        )  # fmt: skip
        model = NoveltyModel(spec, config)
        trainer = NoveltyTrainer(model, config, LearnerConfig())
        random = torch.Generator().manual_seed(0)
        for _ in range(300):
            low, high = torch.tensor([2, 2]), torch.tensor([19, 8])
            before = low + (torch.rand(64, 2, generator=random) * (high - low + 1)).long()
            action = torch.randint(4, (64,), generator=random)
            after = before + moves[action]
            batch = Transitions(pictures(before), action, pictures(after), torch.ones(64))
            report = trainer.train(batch, batch)
        assert report.values["inverse/accuracy"] > 0.9
        assert model.inverse is not None
        before = torch.tensor([[row, column] for row in range(2, 18) for column in range(11, 17)])
        right = []
        for index, move in enumerate(moves):
            with torch.no_grad():
                logits, _ = model.inverse(pictures(before), pictures(before + move))
            right.append((logits.argmax(1) == index).float().mean().item())
        told[by_keypoints] = sum(right) / len(right)
    assert told[True] > 0.6, told
    assert told[False] < 0.3, told


def test_h_sees_both_states_through_the_same_f_in_order() -> None:
    model = InverseDynamics(POINTS, SMALL)
    before, after = torch.randn(7, 2), torch.randn(7, 2)
    expected = model.classifier(torch.cat([model.embedding(before), model.embedding(after)], 1))
    logits, state = model(before, after)
    assert torch.allclose(logits, expected, atol=1e-6)
    assert torch.equal(state, model.embedding(torch.cat([before, after]))[:7])
    assert not torch.allclose(model(after, before)[0], expected, atol=1e-3)


@given(st.integers(0, 2**31), st.integers(1, 20), st.integers(1, 6), st.floats(1e-6, 1e6))
def test_dimensions_in_use_are_the_participation_ratio_of_the_spectrum(
    seed: int, rows: int, size: int, unit: float
) -> None:
    random = np.random.default_rng(seed)
    state = unit * (random.normal(size=(rows, size)) * random.random(size) + random.normal(size=size))
    valid = random.random(rows) < 0.7
    kept = state[valid]
    spread = np.linalg.svd(kept - kept.mean(0), compute_uv=False) ** 2 if len(kept) else np.zeros(1)
    expected = spread.sum() ** 2 / (spread**2).sum() if len(kept) > 1 else 0.0
    # Padding may hold anything.
    shown = torch.from_numpy(np.where(valid[:, None], state, np.nan))
    assert dimensions_in_use(shown, torch.from_numpy(valid)).item() == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_dimensions_of_states_that_hardly_differ_or_not_at_all() -> None:
    valid = torch.ones(4, dtype=torch.bool)
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert dimensions_in_use(square, valid).item() == pytest.approx(2.0)
    assert dimensions_in_use(1e-15 * square, valid).item() == pytest.approx(2.0)
    assert dimensions_in_use(square[:, :1].expand(4, 2) + 3, valid).item() == pytest.approx(1.0)
    assert dimensions_in_use(torch.full((4, 2), 3.0), valid).item() == 0.0


@given(st.integers(0, 2**31), st.integers(1, 20), st.integers(2, 5))
def test_the_loss_is_the_summed_cross_entropy_of_valid_rows(seed: int, rows: int, actions: int) -> None:
    random = np.random.default_rng(seed)
    logits = random.normal(size=(rows, actions))
    action = random.integers(0, actions, size=rows)
    valid = random.random(rows) < 0.7
    # Padding may hold anything, also no action at all.
    shown = np.where(valid, action, -1)
    loss, metrics = inverse_dynamics_loss(torch.tensor(logits), torch.tensor(shown), torch.tensor(valid).double())
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    kept = np.flatnonzero(valid)
    if not len(kept):
        assert loss.item() == 0.0
        return
    assert loss.item() == pytest.approx(sum(-log_p[i, action[i]] for i in kept))
    assert metrics["inverse/accuracy"].item() == pytest.approx(np.mean(logits[kept].argmax(1) == action[kept]))
    assert metrics["inverse/majority"].item() == pytest.approx(np.bincount(action[kept]).max() / len(kept))


@given(st.integers(0, 2**31), st.integers(1, 20), st.integers(2, 5))
def test_a_weight_is_how_often_a_row_stands_there(seed: int, rows: int, actions: int) -> None:
    random = np.random.default_rng(seed)
    logits, action = (
        torch.tensor(random.normal(size=(rows, actions))),
        torch.tensor(random.integers(actions, size=rows)),
    )
    times = torch.tensor(random.integers(0, 4, size=rows))
    weighed, shares = inverse_dynamics_loss(logits, action, times.double())
    logits, action = (x.repeat_interleave(times, 0) for x in (logits, action))
    repeated, expected = inverse_dynamics_loss(logits, action, torch.ones(len(action)).double())
    assert weighed.item() == pytest.approx(repeated.item())
    assert {name: share.item() for name, share in shares.items()} == pytest.approx(
        {name: share.item() for name, share in expected.items()}
    )


def test_with_balanced_actions_f_leaves_out_what_only_the_policy_goes_by() -> None:
    """One number of two says what the greedy action is, the other one moves with the action that is taken.

    The first is the same before and after, so that it says nothing about dynamics. An f that is trained on a greedy
    policy's actions needs it; with balanced actions only the other one counts.
    """
    spec, actions, epsilon = POINTS, 3, 0.2
    told = {}
    for balanced in (False, True):
        torch.manual_seed(0)
        config = dataclasses.replace(ONE_NUMBER, embedding_size=2, embedding_relu=False, lifelong=False)
        model = NoveltyModel(spec, config)
        trainer = NoveltyTrainer(model, config, LearnerConfig())
        random = torch.Generator().manual_seed(0)
        for _ in range(400):
            size = 256
            hint = torch.randint(actions, (size,), generator=random)
            drawn = torch.randint(actions, (size,), generator=random)
            action = torch.where(torch.rand(size, generator=random) < epsilon, drawn, hint)
            behaviour = torch.where(action == hint, 1 - epsilon + epsilon / actions, epsilon / actions)
            before = torch.zeros(size, *spec.observation_shape)
            before[:, 0] = hint - 1.0
            before[:, 1] = torch.randn(size, generator=random)
            after = before.clone()
            after[:, 1] += 0.3 * (action - 1.0) + 0.3 * torch.randn(size, generator=random)
            weight = balanced_weight(behaviour, actions) if balanced else torch.ones(size)
            transitions = Transitions(before, action, after, weight)
            trainer.train(transitions, transitions)
        assert model.inverse is not None
        base = torch.zeros(3, *spec.observation_shape)
        base[1, 0], base[2, 1] = 1.0, 1.0
        with torch.no_grad():
            state = model.inverse.embedding(base)
        told[balanced] = ((state[1] - state[0]).norm() / (state[2] - state[0]).norm()).item()
    assert told[True] < 0.5 * told[False], told


def test_padding_has_no_gradient() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    valid = torch.tensor([True, False, True, False])
    inverse_dynamics_loss(logits, torch.tensor([0, 1, 2, 0]), valid.float())[0].backward()
    assert logits.grad is not None
    assert (logits.grad[~valid] == 0).all()
    assert (logits.grad[valid] != 0).any(1).all()


# ------------------------------------------------------------------------------------------- frozen copies


def constant(value: float) -> Embedding:
    """An f that maps everything to one number, so that a state tells which f made it."""
    f = Embedding(POINTS, ONE_NUMBER)
    with torch.no_grad():
        f.out.weight.zero_()
        f.out.bias.fill_(value)
    return f


events = st.lists(
    st.one_of(st.just("publish"), st.lists(st.booleans(), min_size=4, max_size=4)), min_size=1, max_size=30
)


@given(events, st.integers(2, 4))
def test_an_environment_keeps_its_f_until_it_begins_anew(history: list[str | list[bool]], copies: int) -> None:
    """Twin: a list of versions. Whatever is published in between, an episode sees one version from start to end."""
    snapshots = EmbeddingSnapshots(constant(1.0), 4, copies, CPU)
    mine = [1.0] * 4
    version = newest = 1.0
    for event in history:
        if event == "publish":
            version += 1
            renewed = snapshots.renew(constant(version))
            assert renewed.sum() <= 1
            if renewed.any():
                newest = version
                assert not (snapshots.slot == renewed.int().argmax()).any(), "a copy in use was renewed"
        else:
            snapshots.begin(torch.tensor(event))
            mine = [newest if begins else own for begins, own in zip(event, mine, strict=True)]
        assert snapshots(torch.zeros(4, 2)).flatten().tolist() == mine


@given(events, st.integers(2, 4))
def test_new_weights_are_taken_whenever_a_copy_is_free(history: list[str | list[bool]], copies: int) -> None:
    snapshots = EmbeddingSnapshots(constant(1.0), 4, copies, CPU)
    version = 1.0
    for event in history:
        if event == "publish":
            version += 1
            in_use = set(snapshots.slot.tolist()) | {snapshots.newest.item()}
            renewed = snapshots.renew(constant(version))
            assert renewed.any() or len(in_use) == copies
        else:
            snapshots.begin(torch.tensor(event))


def test_a_new_episode_sees_the_newest_weights_when_few_environments_play_long_episodes() -> None:
    """The copy that nobody plays with is renewed with each new set of weights, also if it is the newest already.

    Otherwise the first weights that arrive in an episode are the ones that the next episode uses, however old.
    """
    snapshots = EmbeddingSnapshots(constant(1.0), 1, 2, CPU)
    snapshots.begin(torch.tensor([True]))
    for version in (2.0, 3.0, 4.0):
        snapshots.renew(constant(version))
        assert snapshots(torch.zeros(1, 2)).item() == 1.0
    snapshots.begin(torch.tensor([True]))
    assert snapshots(torch.zeros(1, 2)).item() == 4.0


def test_a_new_start_replaces_every_copy() -> None:
    snapshots = EmbeddingSnapshots(constant(1.0), 2, 2, CPU)
    snapshots.renew(constant(2.0))
    snapshots.begin(torch.tensor([True, False]))
    snapshots.replace_all(constant(3.0))
    assert snapshots(torch.zeros(2, 2)).flatten().tolist() == [3.0, 3.0]


def test_with_a_copy_more_than_environments_new_episodes_always_get_the_newest() -> None:
    """However long others keep theirs."""
    snapshots = EmbeddingSnapshots(constant(0.0), 3, 4, CPU)
    mine = [0.0, 0.0, 0.0]
    for version in range(1, 30):
        snapshots.renew(constant(version))
        starts = version % 3 if version < 20 else 0  # from then on 1 and 2 never end
        snapshots.begin(torch.arange(3) == starts)
        mine[starts] = float(version)
        assert snapshots(torch.zeros(3, 2)).flatten().tolist() == mine
    assert snapshots.age[snapshots.slot].tolist() == [0, 10, 12]


def test_the_copies_do_not_follow_the_learner_by_themselves() -> None:
    f = constant(1.0)
    snapshots = EmbeddingSnapshots(f, 1, 2, CPU)
    with torch.no_grad():
        f.out.bias.fill_(9.0)
    assert snapshots(torch.zeros(1, 2)).item() == 1.0
    assert not any(stack.requires_grad for stack in snapshots.stacks)


@pytest.mark.parametrize("slots", [[0, 0, 0, 0, 0], [2, 2, 2, 2, 2], [2, 0, 1, 0, 2], [1, 0, 0, 0, 0]])
def test_each_environment_goes_through_its_own_copy(slots: list[int]) -> None:
    """Against all copies for all environments, from which each takes its own: what a GPU does."""
    torch.manual_seed(0)
    snapshots = random_snapshots(IMAGES, SMALL, 5, 3)
    snapshots.slot.copy_(torch.tensor(slots))
    observation = torch.randint(256, (5, 3, 7, 7)).to(torch.uint8)
    every = [snapshots.embedding(index)(scaled_observation(observation)) for index in range(3)]
    expected = torch.stack([every[slot][e] for e, slot in enumerate(slots)])
    assert torch.allclose(snapshots(observation), expected, atol=1e-6)


def random_snapshots(spec: EnvironmentSpec, config: NoveltyConfig, envs: int, copies: int) -> EmbeddingSnapshots:
    snapshots = EmbeddingSnapshots(Embedding(spec, config), envs, copies, CPU)
    for index in range(copies):
        snapshots.slot.fill_(-1)
        snapshots.slot[: min(index, envs)] = torch.arange(min(index, envs))
        if index <= envs:
            assert snapshots.renew(Embedding(spec, config)).int().argmax() == index
    snapshots.slot.copy_(torch.randint(copies, (envs,)))
    return snapshots


@pytest.mark.parametrize("copies", [1, 2, 4])
def test_all_copies_for_all_environments_give_the_same(copies: int) -> None:
    """What a GPU does with few copies."""
    torch.manual_seed(0)
    snapshots = random_snapshots(IMAGES, SMALL, 30, copies)
    features = scaled_observation(torch.randint(256, (30, 3, 7, 7)).to(torch.uint8))
    assert torch.allclose(snapshots._together(features), snapshots._apart(features), atol=1e-6)


GAME = EnvironmentSpec((1, 84, 84), torch.uint8, 18)
GAME_F = NoveltyConfig(filters=(32, 64, 64), kernels=(8, 4, 3), strides=(4, 2, 1))


@pytest.mark.parametrize("folded_input", [False, True])
@pytest.mark.parametrize(
    ("spec", "config", "shape"),
    [
        (IMAGES, SMALL, (3, 7, 7)),
        (GAME, GAME_F, (1, 84, 84)),
        (GAME, dataclasses.replace(GAME_F, embedding_relu=False), (1, 84, 84)),
        (GAME, dataclasses.replace(GAME_F, embedding_keypoints=True), (1, 84, 84)),
        (
            EnvironmentSpec((4, 12, 8), torch.uint8, 2),
            NoveltyConfig(filters=(5,), kernels=(4,), strides=(2,)),
            (4, 12, 8),
        ),
    ],
    ids=["two convolutions", "Atari", "Atari without a last ReLU", "Atari by keypoints", "not square"],
)
def test_weights_for_each_environment_give_the_same(
    spec: EnvironmentSpec, config: NoveltyConfig, shape: tuple[int, ...], folded_input: bool
) -> None:
    """What a GPU does with many copies, also where it has folded images for its first convolution."""
    torch.manual_seed(0)
    snapshots = random_snapshots(spec, config, 7, 9)
    observation = torch.randint(256, (7, *shape)).to(torch.uint8)
    features = scaled_observation(observation)
    expected = snapshots._apart(features)
    if folded_input:
        features = folded(features, snapshots.embedding(0).torso.fold)
    assert (expected > 0).any()
    assert torch.allclose(snapshots._batched(features), expected, atol=1e-5)


def test_weights_for_each_environment_give_the_same_for_vectors() -> None:
    torch.manual_seed(0)
    snapshots = random_snapshots(POINTS, NoveltyConfig(hidden=(8, 6)), 7, 9)
    points = torch.randn(7, *POINTS.observation_shape)
    assert torch.allclose(snapshots._batched(points), snapshots._apart(points), atol=1e-6)


def test_what_is_saved_are_the_weights_that_act() -> None:
    """A loaded state changes the copies, and a renewed copy changes the state."""
    torch.manual_seed(0)
    one, other = random_snapshots(IMAGES, SMALL, 5, 6), random_snapshots(IMAGES, SMALL, 5, 6)
    features = scaled_observation(torch.randint(256, (5, 3, 7, 7)).to(torch.uint8))
    assert not torch.allclose(one._apart(features), other._apart(features))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one._apart(features), other._apart(features))
    assert torch.equal(one._batched(features), other._batched(features))
    other.slot.fill_(1)
    new = Embedding(IMAGES, SMALL)
    assert other.renew(new).tolist() == [True, False, False, False, False, False]
    other.begin(torch.ones(5, dtype=torch.bool))
    for way in (other._apart, other._batched):
        assert torch.allclose(way(features), new(features), atol=1e-6)
    assert sum(weight.numel() for weight in other.stacks) == 6 * sum(weight.numel() for weight in new.parameters())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_a_duplicate_lives_on_by_itself(duplicate: Callable[[EmbeddingSnapshots], EmbeddingSnapshots]) -> None:
    torch.manual_seed(0)
    one = random_snapshots(IMAGES, SMALL, 5, 6)
    features = scaled_observation(torch.randint(256, (5, 3, 7, 7)).to(torch.uint8))
    other, before = duplicate(one), one._apart(features)
    other.slot.fill_(1)
    new = Embedding(IMAGES, SMALL)
    other.renew(new)
    other.begin(torch.ones(5, dtype=torch.bool))
    for way in (other._apart, other._batched):
        assert torch.allclose(way(features), new(features), atol=1e-6)
    assert torch.equal(one._apart(features), before)

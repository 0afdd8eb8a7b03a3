"""r_i = r_episodic * clip(alpha, 1, L), alone and through training (paper, Sec. 2, Eq. 1)."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import Constants, MovingAverage, clone, difference, neighbour_distances, reward_of_distances

from ngu.config import NoveltyConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError
from ngu.novelty.model import NoveltyModel
from ngu.novelty.reward import IntrinsicReward
from ngu.presets import preset

SPEC = EnvironmentSpec((3,), torch.float32, 4)
SMALL = NoveltyConfig(hidden=(8,), embedding_size=4, embedding_hidden=8, rnd_size=6, memory_capacity=50)


def config(**changes: object) -> NoveltyConfig:
    return NoveltyConfig(**{**vars(SMALL), **changes})  # type: ignore[arg-type]


def make(envs: int, settings: NoveltyConfig = SMALL, spec: EnvironmentSpec = SPEC, seed: int = 0) -> IntrinsicReward:
    """A reward whose RND has seen observations, as after a first update."""
    torch.manual_seed(seed)
    intrinsic = IntrinsicReward(spec, envs, settings)
    if intrinsic.model.rnd is not None:
        intrinsic.model.rnd.observe(torch.randn(64, *spec.observation_shape), torch.ones(64, dtype=torch.bool))
        intrinsic.publish(intrinsic.model)
    return intrinsic


def transitions(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Points and what one of four actions makes of them: a step in one of two directions along one of two axes."""
    random = torch.Generator().manual_seed(seed)
    observation = torch.randn(count, 3, generator=random)
    action = torch.randint(0, 4, (count,), generator=random)
    shift = torch.tensor([[1.0, 0, 0], [-1.0, 0, 0], [0, 1.0, 0], [0, -1.0, 0]])
    return observation, action, observation + shift[action]


class Twin:
    """The whole reward once more: transcription of Algorithm 1, NumPy's mean and deviation of all errors so far."""

    def __init__(self, intrinsic: IntrinsicReward) -> None:
        self.settings = intrinsic.config
        model = intrinsic.model
        assert model.inverse is not None
        self.f = clone_module(model.inverse.embedding)
        self.rnd = clone_module(model.rnd) if model.rnd is not None else None
        self.average = MovingAverage(self.settings.distance_decay)
        self.errors: list[float] = []
        self.memories: list[list[np.ndarray]] = [[] for _ in range(intrinsic.num_envs)]
        self.episodes = [0] * intrinsic.num_envs

    @torch.no_grad()
    def __call__(self, observation: torch.Tensor, first: list[bool]) -> list[float]:
        s = self.settings
        constants = Constants(s.neighbours, s.pseudo_count, s.kernel_epsilon, s.cluster_distance, s.max_similarity)
        states = self.f(observation).numpy()
        for env, begins in enumerate(first):
            if begins and self.episodes[env] % s.memory_episodes == 0:
                self.memories[env] = []
            self.episodes[env] += begins
        near = [neighbour_distances(m, state, s.neighbours) for m, state in zip(self.memories, states, strict=True)]
        self.average.update([d for each in near for d in each])
        self.memories = [[*m, state][-s.memory_capacity :] for m, state in zip(self.memories, states, strict=True)]
        episodic = [reward_of_distances(each, self.average.value, constants, s.rescale_partial) for each in near]
        factor = [1.0] * len(first)
        if self.rnd is not None:
            error = self.rnd.error(observation).numpy().astype(float)
            self.errors.extend(error)
            sigma = np.std(self.errors)
            alpha = 1 + (error - np.mean(self.errors)) / sigma if sigma > 0 else np.ones_like(error)
            factor = list(np.clip(alpha, 1.0, s.max_modulation))
        return [0.0 if begins else e * m for begins, e, m in zip(first, episodic, factor, strict=True)]


def clone_module(module: torch.nn.Module) -> torch.nn.Module:
    return copy.deepcopy(module).requires_grad_(False)


@given(
    seed=st.integers(0, 2**31),
    envs=st.integers(1, 4),
    capacity=st.sampled_from([3, 50]),
    memory_episodes=st.sampled_from([1, 3]),
    lifelong=st.booleans(),
)
@settings(max_examples=25)
def test_the_reward_equals_its_twin(seed: int, envs: int, capacity: int, memory_episodes: int, lifelong: bool) -> None:
    intrinsic = make(
        envs,
        config(memory_capacity=capacity, memory_episodes=memory_episodes, lifelong=lifelong, max_modulation=1.5),
        seed=seed % 1000,
    )
    twin = Twin(intrinsic)
    random = torch.Generator().manual_seed(seed)
    first = torch.ones(envs, dtype=torch.bool)
    for _ in range(15):
        observation = torch.randn(envs, 3, generator=random)
        expected = twin(observation, first.tolist())
        assert intrinsic(observation, first).tolist() == pytest.approx(expected, rel=5e-3, abs=1e-5)
        first = torch.rand(envs, generator=random) < 0.2


def test_an_episodes_first_observation_pays_nothing() -> None:
    intrinsic = make(3)
    for _ in range(3):
        assert intrinsic(torch.randn(3, 3), torch.ones(3, dtype=torch.bool)).tolist() == [0.0, 0.0, 0.0]


def test_coming_back_pays_less_and_less() -> None:
    intrinsic = make(1, config(lifelong=False))
    first, later = torch.tensor([True]), torch.tensor([False])
    here, there = torch.zeros(1, 3), torch.full((1, 3), 3.0)
    intrinsic(here, first)
    rewards = [intrinsic(there, later).item() for _ in range(6)]
    assert all(before > after for before, after in itertools.pairwise(rewards))


def test_mistake_the_memory_is_not_kept_between_episodes() -> None:
    """A state pays the same in every episode, however often earlier episodes saw it."""
    intrinsic = make(1, config(lifelong=False, distance_decay=0.0))
    walk = torch.randn(8, 1, 3)
    episodes = [
        [intrinsic(observation, torch.tensor([time == 0])).item() for time, observation in enumerate(walk)]
        for _ in range(3)
    ]
    assert episodes[0] == episodes[1] == episodes[2]
    assert intrinsic.memory is not None
    assert intrinsic.memory.filled.tolist() == [8]


def test_meta_episodes_wipe_the_memory_every_third_episode() -> None:
    intrinsic = make(2, config(memory_episodes=3))
    assert intrinsic.memory is not None
    held = []
    for step in range(14):
        # Environment 0 has episodes of two observations, environment 1 a single long one.
        intrinsic(torch.randn(2, 3), torch.tensor([step % 2 == 0, step == 0]))
        held.append(intrinsic.memory.filled.tolist())
    assert [count for count, _ in held] == [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2]
    assert [count for _, count in held] == list(range(1, 15))


@pytest.mark.parametrize("memory_episodes", [1, 3])
def test_a_memory_never_mixes_two_embeddings(memory_episodes: int) -> None:
    """f is trained between all steps; yet every memory is the work of one f, the newest when it was wiped."""
    settings = config(memory_episodes=memory_episodes, learning_rate=0.05)
    intrinsic = make(4, settings)
    assert intrinsic.memory is not None
    assert intrinsic.snapshots is not None
    random = torch.Generator().manual_seed(1)
    seen: list[list[torch.Tensor]] = [[] for _ in range(4)]
    own_f: list[torch.nn.Module] = [torch.nn.Identity()] * 4
    episodes = [0] * 4
    first = torch.ones(4, dtype=torch.bool)
    begun_with = set()
    for step in range(80):
        observation = torch.randn(4, 3, generator=random)
        newest = clone_module(intrinsic.snapshots.embedding(int(intrinsic.snapshots.newest)))
        intrinsic(observation, first)
        for env in range(4):
            if first[env] and episodes[env] % memory_episodes == 0:
                seen[env] = []
                own_f[env] = newest
                begun_with.add(float(sum(p.sum() for p in newest.parameters())))
            episodes[env] += int(first[env])
            seen[env].append(observation[env])
            held = intrinsic.memory.entries[env, : intrinsic.memory.filled[env]]
            assert torch.allclose(held, own_f[env](torch.stack(seen[env])), atol=1e-6)
        intrinsic.train(*transitions(16, step))
        first = torch.rand(4, generator=random) < 0.25
    assert len(begun_with) >= 3, "the embedding did not change, so the test shows nothing"


def test_a_memory_has_no_more_slots_than_a_meta_episode_can_fill() -> None:
    short = EnvironmentSpec((3,), torch.float32, 4, max_episode_steps=7)
    for count in (1, 2):
        intrinsic = make(2, config(memory_capacity=100, memory_episodes=count), short)
        assert intrinsic.memory is not None
        assert intrinsic.memory.capacity == 8 * count
    unbounded = make(2, config(memory_capacity=100))
    assert unbounded.memory is not None
    assert unbounded.memory.capacity == 100


# ------------------------------------------------------------------------------------------- life-long novelty


def test_alpha_multiplies_the_episodic_reward_within_its_clip() -> None:
    intrinsic = make(5, config(max_modulation=1.2))
    first = torch.ones(5, dtype=torch.bool)
    seen = []
    for _ in range(20):
        parts = intrinsic.parts(torch.randn(5, 3), first)
        factor = torch.where(first, 0.0, parts.alpha.clamp(1.0, 1.2))
        assert torch.allclose(parts.reward, parts.episodic * factor)
        seen += parts.alpha.tolist()
        first = torch.zeros(5, dtype=torch.bool)
    assert min(seen) < 1 < 1.2 < max(seen)


def test_errors_of_an_rnd_that_knows_no_inputs_count_for_nothing() -> None:
    """Whitened with no statistics all inputs look extreme; one such error would hide the later ones for long."""
    torch.manual_seed(0)
    intrinsic = IntrinsicReward(SPEC, 4, SMALL)
    first = torch.ones(4, dtype=torch.bool)
    for _ in range(5):
        assert intrinsic.parts(torch.randn(4, 3), first).alpha.tolist() == [1.0] * 4
        first = torch.zeros(4, dtype=torch.bool)
    assert intrinsic.moments.weight.item() == 0
    intrinsic.train(*transitions(64))
    errors = [intrinsic.parts(torch.randn(4, 3), first).error for _ in range(5)]
    assert intrinsic.moments.deviation.item() == pytest.approx(float(np.std(torch.stack(errors).numpy())), rel=1e-3)


def test_who_stands_still_stays_boring_whatever_copy_of_f_it_has() -> None:
    """An average distance of its own copy would shrink to its flicker, which would then look new."""
    intrinsic = make(4, config(lifelong=False, embedding_snapshots=5, distance_decay=0.9, memory_capacity=500))
    random = torch.Generator().manual_seed(0)
    place = torch.zeros(4, 3)
    rewards = []
    for step in range(300):
        # The first environment's episode is older than the others', and so is its f.
        first = torch.tensor([step == 0, step == 1, step == 1, step == 1])
        place[1:] += torch.randn(3, 3, generator=random)
        place[0] = 0.05 * torch.randn(3, generator=random)
        rewards.append(intrinsic(place, first))
        intrinsic.publish(intrinsic.model)
    assert intrinsic.snapshots is not None
    assert intrinsic.snapshots.slot[0] != intrinsic.snapshots.slot[1]
    still, *moving = torch.stack(rewards[200:]).mean(0).tolist()
    assert still < 0.5
    assert sum(moving) / 3 > 1.0


def test_without_life_long_novelty_alpha_is_one() -> None:
    intrinsic = make(2, config(lifelong=False))
    parts = intrinsic.parts(torch.randn(2, 3), torch.tensor([False, False]))
    assert parts.alpha.tolist() == [1.0, 1.0]
    assert intrinsic.model.rnd is None


def test_rnd_alone_pays_its_error_over_its_deviation() -> None:
    intrinsic = make(3, config(episodic=False))
    errors: list[float] = []
    first = torch.ones(3, dtype=torch.bool)
    for _ in range(10):
        observation = torch.randn(3, 3)
        parts = intrinsic.parts(observation, first)
        errors += parts.error.tolist()
        expected = torch.where(first, 0.0, parts.error / float(np.std(errors)))
        assert parts.reward.tolist() == pytest.approx(expected.tolist(), rel=1e-3)
        first = torch.zeros(3, dtype=torch.bool)
    assert intrinsic.model.inverse is None


def test_a_familiar_place_has_a_smaller_error_after_training() -> None:
    intrinsic = make(1, config(rnd_learning_rate=0.01, rnd_normalise=False))
    assert intrinsic.rnd is not None
    known, new = torch.full((16, 3), 0.5), torch.full((1, 3), -4.0)
    before = intrinsic.rnd.error(known[:1]).item()
    for _ in range(200):
        intrinsic.train(known, torch.zeros(16, dtype=torch.int64), known)
    after = intrinsic.rnd.error(known[:1]).item()
    assert after < 0.05 * before
    assert after < 0.05 * intrinsic.rnd.error(new).item()


# ------------------------------------------------------------------------------------------- training


def test_training_learns_which_action_was_taken() -> None:
    intrinsic = make(1, config(learning_rate=0.01))
    for step in range(300):
        report = intrinsic.train(*transitions(64, step))
    report = intrinsic.train(*transitions(512, 10_000))
    assert report.values["inverse/accuracy"].item() > 0.9
    assert report.values["inverse/majority"].item() < 0.4


def test_random_projection_is_never_trained() -> None:
    intrinsic = make(1, config(controllable_states="random"))
    assert intrinsic.model.inverse is not None
    before = clone(dict(intrinsic.model.inverse.state_dict()))
    report = intrinsic.train(*transitions(32))
    assert not difference(before, dict(intrinsic.model.inverse.state_dict()))
    assert "loss/inverse" not in report.values
    assert "loss/rnd" in report.values


def test_padded_rows_are_not_trained_on() -> None:
    observation, action, after = transitions(12)
    valid = torch.arange(12) < 7
    one, other = make(1), make(1)
    one.train(observation, action, after, valid)
    rubbish = torch.full_like(observation, 77.0)
    rows = valid.unsqueeze(1)
    other.train(torch.where(rows, observation, rubbish), action, torch.where(rows, after, rubbish), valid)
    assert not difference(dict(one.model.state_dict()), dict(other.model.state_dict()))


def test_training_on_nothing_valid_changes_no_weights_much() -> None:
    """All rows padded: the loss is 0; only the L2 penalty could move f, and nothing turns into NaN."""
    intrinsic = make(1, config(l2_weight=0.0))
    before = clone(dict(intrinsic.model.state_dict()))
    report = intrinsic.train(*transitions(8), torch.zeros(8, dtype=torch.bool))
    assert not report.refused.item()
    assert not difference(before, dict(intrinsic.model.state_dict()))


def test_the_l2_penalty_shrinks_the_inverse_dynamics_networks_alone() -> None:
    """With no other gradient, only the penalty moves the weights: towards 0."""
    intrinsic = make(1, config(l2_weight=1.0))
    assert intrinsic.model.inverse is not None
    assert intrinsic.model.rnd is not None
    before = clone(dict(intrinsic.model.inverse.state_dict()))
    predictor = clone(dict(intrinsic.model.rnd.predictor.state_dict()))
    intrinsic.train(*transitions(8), torch.zeros(8, dtype=torch.bool))
    after = intrinsic.model.inverse.state_dict()
    assert all((after[name].norm() < before[name].norm()).item() for name in before)
    assert not difference(predictor, dict(intrinsic.model.rnd.predictor.state_dict()))


@pytest.mark.parametrize("where", ["observation", "next_observation"])
def test_a_non_finite_observation_is_not_trained_on(where: str) -> None:
    intrinsic = make(1)
    intrinsic.train(*transitions(8))
    before, optimisers = clone(dict(intrinsic.model.state_dict())), clone(intrinsic.state_dict()["trainer"])
    observation, action, after = transitions(8, 1)
    (observation if where == "observation" else after)[3, 1] = torch.nan
    report = intrinsic.train(observation, action, after)
    assert report.refused.item()
    now = intrinsic.model.state_dict()
    learned = [name for name in before if name.startswith("inverse.")]
    assert learned
    assert all(torch.equal(before[name], now[name]) for name in learned)
    assert not difference(optimisers["inverse"], intrinsic.state_dict()["trainer"]["inverse"])
    assert all(torch.isfinite(value).all() for value in now.values())
    if where == "next_observation":
        predictor = [name for name in before if "predictor" in name]
        assert all(torch.equal(before[name], now[name]) for name in predictor)
        assert not difference(optimisers["rnd"], intrinsic.state_dict()["trainer"]["rnd"])


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("seen", [0, 1, 4])
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize(
    "changes",
    # A whitened infinity is cut to a number, so f says nothing of it.
    [{}, {"rnd_normalise": False}, {"episodic": False}, {"memory_capacity": 3}, {"embedding_whiten": True}],
)
def test_an_observation_that_is_not_finite_pays_nothing_and_leaves_no_trace(
    value: float, seen: int, trained: bool, changes: dict[str, object]
) -> None:
    settings = config(**changes)
    intrinsic = make(2, settings) if trained else IntrinsicReward(SPEC, 2, settings)
    for time in range(seen):
        intrinsic(torch.randn(2, 3), torch.full((2,), time == 0))
    before = clone(intrinsic.state_dict())
    broken = torch.randn(2, 3)
    broken[:, 1] = value
    assert intrinsic(broken, torch.full((2,), seen == 0)).tolist() == [0.0, 0.0]
    after = intrinsic.state_dict()
    for part in ("memory", "scale", "moments"):
        assert not difference(before.get(part), after.get(part))
    later = torch.zeros(2, dtype=torch.bool)
    rewards = torch.stack([intrinsic(torch.randn(2, 3), later) for _ in range(4)])
    assert (rewards < 100).all()
    assert (rewards[1:] > 0).all() or not (trained or settings.episodic)


def test_a_hand_crafted_state_that_is_not_finite_pays_nothing_and_is_not_remembered() -> None:
    spec = EnvironmentSpec((3,), torch.float32, 4, controllable_state=("x",))
    intrinsic = make(2, config(controllable_states="hand-crafted"), spec)
    assert intrinsic.memory is not None
    for time in range(3):
        place = torch.tensor([[float(time)], [torch.inf if time == 1 else 0.5]])
        reward = intrinsic(torch.randn(2, 3), torch.full((2,), time == 0), controllable_state=place)
        assert reward[1].item() < 10
    assert reward[0].item() > 0
    assert intrinsic.memory.filled.tolist() == [3, 2]


def test_an_environments_very_first_observation_begins_an_episode_whatever_is_said() -> None:
    """With the memory empty a later one would pay 1 / c."""
    told, untold = make(3), make(3)
    walk = torch.randn(5, 3, 3)
    for time, observation in enumerate(walk):
        first = torch.tensor([time == 0, time == 0, time == 3])
        expected = told(observation, first | (torch.tensor(time) == 0))
        reward = untold(observation, first & (time > 0))
        assert torch.equal(reward, expected)
        assert (reward < 100).all()
    assert not difference(told.state_dict(), untold.state_dict())


# ------------------------------------------------------------------------------------------- weights and state


def test_published_rnd_weights_act_at_once_and_embeddings_at_the_next_episode() -> None:
    intrinsic = make(1)
    assert intrinsic.snapshots is not None
    assert intrinsic.rnd is not None
    torch.manual_seed(99)
    other = NoveltyModel(SPEC, SMALL)
    assert other.inverse is not None
    assert other.rnd is not None
    observation = torch.randn(1, 3)
    intrinsic(observation, torch.tensor([True]))
    own = intrinsic.snapshots(observation)
    intrinsic.publish(other)
    assert torch.equal(intrinsic.rnd.error(observation), other.rnd.error(observation))
    assert torch.equal(intrinsic.snapshots(observation), own)
    intrinsic(observation, torch.tensor([True]))
    assert torch.equal(intrinsic.snapshots(observation), other.inverse.embedding(observation))


def play(intrinsic: IntrinsicReward, seed: int) -> list[torch.Tensor]:
    """Ten steps with training in between, from a seed of their own."""
    random = torch.Generator().manual_seed(seed)
    rewards = []
    for step in range(10):
        observation = torch.randn(2, 3, generator=random)
        rewards.append(intrinsic(observation, torch.rand(2, generator=random) < 0.3))
        intrinsic.train(*transitions(8, seed + step))
    return rewards


def test_a_saved_reward_goes_on_exactly() -> None:
    one = make(2)
    play(one, 1)
    other = make(2, seed=5)
    other.load_state_dict(clone(one.state_dict()))
    assert all(torch.equal(a, b) for a, b in zip(play(one, 2), play(other, 2), strict=True))
    assert not difference(one.state_dict(), other.state_dict())


def test_a_reward_saved_before_its_first_training_goes_on_exactly() -> None:
    """The untrained model is state too: RND's target is random, and a copy with another target is another reward."""
    one = make(2)
    one(torch.randn(2, 3), torch.tensor([True, True]))
    other = make(2, seed=5)
    other.load_state_dict(clone(one.state_dict()))
    assert all(torch.equal(a, b) for a, b in zip(play(one, 2), play(other, 2), strict=True))


def test_restart_forgets_the_episodes_and_takes_over_the_statistics() -> None:
    source = make(3)
    play_random = torch.Generator().manual_seed(3)
    for step in range(10):
        source(torch.randn(3, 3, generator=play_random), torch.full((3,), step == 0))
    one, other = make(2, seed=5), make(2, seed=6)
    one(torch.randn(2, 3), torch.tensor([True, True]))
    for reward in (one, other):
        reward.restart(source.model, source)
    before = clone(source.state_dict())
    for step in range(5):
        observation, first = torch.randn(2, 3), torch.full((2,), step == 0)
        assert torch.equal(one(observation, first), other(observation, first))
    assert not difference(before, source.state_dict())


def test_restart_takes_f_and_its_running_distance_from_the_same_side() -> None:
    """The learner's f may be newer than any that the actors have used; d_m^2 was not measured under it."""
    spec = EnvironmentSpec((4,), torch.float32, 3)
    acting = IntrinsicReward(spec, 3)
    generator = torch.Generator().manual_seed(0)
    for step in range(5):
        acting(torch.randn(3, 4, generator=generator), torch.full((3,), step == 0))
    assert acting.snapshots is not None
    newer = NoveltyModel(spec, acting.config)
    other = IntrinsicReward(spec, 2)
    other.restart(newer, acting)
    assert other.snapshots is not None
    observation = torch.randn(2, 4, generator=generator)
    used = acting.snapshots.embedding(int(acting.snapshots.newest))(observation)
    assert newer.inverse is not None
    assert torch.equal(other.snapshots(observation), used)
    assert not torch.allclose(newer.inverse.embedding(observation), used)
    assert other.scale.total.item() == acting.scale.total.item() > 0


def test_who_starts_over_rewards_as_a_new_one_does_with_the_same_model() -> None:
    spec = EnvironmentSpec((4,), torch.float32, 3)
    used, generator = IntrinsicReward(spec, 3), torch.Generator().manual_seed(0)
    for step in range(20):
        observation = torch.randn(3, 4, generator=generator)
        used(observation, torch.full((3,), step == 0))
        used.train(observation, torch.zeros(3, dtype=torch.int64), observation + 1)
    used.start_over(used.model)
    fresh = IntrinsicReward(spec, 3, model=used.model)
    assert used.embedding_age == fresh.embedding_age == 0
    for step in range(20):
        observation = torch.randn(3, 4, generator=generator)
        # The running episodes go on, but it has forgotten them.
        paid, expected = (reward(observation, torch.full((3,), step == 7)) for reward in (used, fresh))
        assert torch.equal(paid, expected)
        assert bool((paid == 0).all()) == (step in (0, 7))


def test_without_either_part_there_is_no_reward_and_nothing_to_train() -> None:
    """Plain R2D2: r_i is 0 everywhere, and no network is there to pay for."""
    config = NoveltyConfig(episodic=False, lifelong=False)
    intrinsic = IntrinsicReward(EnvironmentSpec((3,), torch.float32, 2), 4, config)
    assert not list(intrinsic.model.parameters())
    for time in range(5):
        observation = torch.randn(4, 3, generator=torch.Generator().manual_seed(time))
        assert not intrinsic(observation, torch.full((4,), time == 0)).any()
    report = intrinsic.train(observation, torch.zeros(4, dtype=torch.int64), observation)
    assert report.values == {}
    assert not report.refused


# ------------------------------------------------------------------------------------------- what does not fit

PICTURES = EnvironmentSpec((1, 12, 16), torch.uint8, 4)


@pytest.mark.parametrize(
    ("spec", "given", "sentence"),
    [
        (SPEC, {"observation": np.zeros((2, 3), np.float32)}, "observation is of the type ndarray; give a tensor of"),
        (
            SPEC,
            {"observation": torch.zeros(2, 4)},
            r"observation has the shape \(2, 4\); give a tensor of shape \(2, 3\)",
        ),
        (SPEC, {"observation": torch.zeros(2, 3, dtype=torch.float64)}, "observation is torch.float64; give a tensor"),
        (
            PICTURES,
            {"observation": torch.zeros(2, 12, 16, 1, dtype=torch.uint8)},
            "channels come before height and width",
        ),
        (
            PICTURES,
            {"observation": torch.zeros(2, 1, 12, 16)},
            r"observation is torch.float32; .* torch.uint8, from 0 to 255\.$",
        ),
        (SPEC, {"first": np.ones(2, bool)}, "first is of the type ndarray"),
        (SPEC, {"first": torch.ones(2)}, r"first is torch.float32; give a tensor of shape \(2,\) and torch.bool\.$"),
        (SPEC, {"terminated": torch.ones(3, dtype=torch.bool)}, r"terminated has the shape \(3,\)"),
    ],
)
def test_what_does_not_fit_is_told_and_nothing_is_remembered(
    spec: EnvironmentSpec, given: dict[str, object], sentence: str
) -> None:
    intrinsic = IntrinsicReward(spec, 2, config(filters=(4,), kernels=(3,), strides=(2,)))
    right: dict[str, object] = {
        "observation": torch.zeros(2, *spec.observation_shape, dtype=spec.observation_dtype),
        "first": torch.ones(2, dtype=torch.bool),
    }
    with pytest.raises(UserError, match=sentence):
        intrinsic(**(right | given))  # type: ignore[arg-type]
    assert intrinsic.episodes.tolist() == [0, 0]
    intrinsic(**right)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"action": torch.zeros(5, dtype=torch.int32)}, "action is torch.int32; give a tensor of shape"),
        ({"next_observation": torch.zeros(4, 3)}, r"next_observation has the shape \(4, 3\)"),
        ({"valid": torch.ones(5)}, "valid is torch.float32"),
        ({"observation": np.zeros((5, 3))}, "observation is of the type ndarray"),
        ({"observation": torch.tensor(0.0)}, r"observation has the shape \(\); give a tensor of shape"),
        ({"action": torch.tensor([0, 1, 2, 3, 4])}, "numbers from 0 to 4; the spec has 4 actions, so give 0 to 3"),
        ({"action": torch.full((5,), -1)}, "action holds numbers from -1 to -1"),
    ],
)
def test_transitions_that_do_not_fit_are_told(changed: dict[str, torch.Tensor], sentence: str) -> None:
    observation, action, after = transitions(5)
    with pytest.raises(UserError, match=sentence):
        make(1).train(**({"observation": observation, "action": action, "next_observation": after} | changed))


@pytest.mark.parametrize(
    ("balanced", "behaviour", "sentence"),
    [
        (True, None, "balance_actions is set, but no behaviour is given; give the probabilities"),
        (False, torch.ones(5), "a behaviour is given, but nothing is done with it; set novelty.balance_actions"),
        (True, torch.ones(4), r"behaviour has the shape \(4,\); give a tensor of shape \(5,\)"),
        (True, torch.tensor([0.5, 0.5, 0.0, 0.5, 1.0]), "behaviour holds numbers from 0 to 1; give the probabilities"),
        (True, torch.full((5,), torch.nan), "behaviour holds numbers from nan to nan; give the probabilities"),
    ],
)
def test_probabilities_of_actions_that_do_not_fit_are_told(
    balanced: bool, behaviour: torch.Tensor | None, sentence: str
) -> None:
    intrinsic = IntrinsicReward(SPEC, 1, config(balance_actions=balanced))
    with pytest.raises(UserError, match=sentence):
        intrinsic.train(*transitions(5), behaviour=behaviour)
    valid = torch.tensor([True, True, False, True, True])
    if balanced:  # padding may hold anything
        given = torch.tensor([0.5, 0.5, 0.0, 0.5, 1.0])
        assert not intrinsic.train(*transitions(5), valid, given).refused


def test_balanced_actions_weigh_what_is_given() -> None:
    """The loss of inverse dynamics is the sum over rows by their weights; RND's counts each row alike."""
    torch.manual_seed(0)
    intrinsic = IntrinsicReward(SPEC, 1, config(balance_actions=True))
    torch.manual_seed(0)
    plain = IntrinsicReward(SPEC, 1, config(balance_actions=False))
    before, action, after = transitions(5)
    behaviour, valid = torch.tensor([0.9, 0.1, 0.3, 0.9, 0.05]), torch.tensor([True, True, False, True, True])
    assert intrinsic.model.inverse is not None
    with torch.no_grad():
        logits, _ = intrinsic.model.inverse(before, after)
    each = -logits.log_softmax(-1)[torch.arange(5), action]
    weights = [
        min(mu, (1 - mu) / (SPEC.num_actions - 1)) / mu if there else 0.0
        for mu, there in zip(behaviour.tolist(), valid.tolist(), strict=True)
    ]
    weighed = intrinsic.train(before, action, after, valid, behaviour).values
    assert weighed["loss/inverse"].item() == pytest.approx((each * torch.tensor(weights)).sum().item(), rel=1e-4)
    alike = plain.train(before, action, after, valid).values
    assert alike["loss/inverse"].item() == pytest.approx(each[valid].sum().item(), rel=1e-4)
    assert weighed["loss/rnd"].item() == pytest.approx(alike["loss/rnd"].item(), rel=1e-4)


def test_what_no_reward_can_be_made_of_is_told() -> None:
    with pytest.raises(
        UserError, match=r"the config is of the type Config; .* a preset's is ngu\.preset\(name\)\.novelty"
    ):
        IntrinsicReward(SPEC, 2, preset("gym"))  # type: ignore[arg-type]
    with pytest.raises(
        UserError, match=r"the spec's observation_dtype is <class 'numpy.float32'>; set it to torch.uint8"
    ):
        IntrinsicReward(EnvironmentSpec((3,), np.float32, 4), 2)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"the spec is of the type tuple; give an ngu\.EnvironmentSpec"):
        IntrinsicReward((3,), 2)  # type: ignore[arg-type]
    assert str(IntrinsicReward(SPEC, np.int64(2), device="auto").episodes.device) in ("cpu", "cuda:0")
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="PyTorch finds no CUDA device here; give device='cpu'"):
            IntrinsicReward(SPEC, 2, device="cuda")


@pytest.mark.parametrize(
    ("spec", "given", "sentence"),
    [
        ({}, {"num_envs": 0}, "num_envs is 0; give how many environments step together, 1 or more"),
        ({}, {"num_envs": -1}, "num_envs is -1; give"),
        ({}, {"num_envs": 4.0}, "num_envs is 4.0; give"),
        ({}, {"num_envs": True}, "num_envs is True; give"),
        ({}, {"device": "foo"}, "the device is 'foo'; give cpu, cuda or auto"),
        ({}, {"device": "meta"}, "the device meta is not supported; give cpu, cuda or auto"),
        ({}, {"precision": "fp8"}, "precision is 'fp8'; choose one of fp32, bf16, fp16"),
        ({"num_actions": 0}, {}, "the spec's num_actions is 0; set it to how many there are, 1 or more"),
        ({"num_actions": spaces.Discrete(2)}, {}, r"the spec's num_actions is Discrete\(2\); set it to how many"),
        ({"observation_shape": 4}, {}, r"observation_shape is 4; set it to \(D,\) for vectors, such as \(4,\)"),
        ({"observation_shape": (3, 4)}, {}, r"observation_shape is \(3, 4\); set it to"),
        ({"observation_shape": (0,)}, {}, r"observation_shape is \(0,\); set it to"),
        ({"max_episode_steps": -1}, {}, "max_episode_steps is -1; set it to 1 or more, or None if nothing bounds"),
    ],
)
def test_numbers_no_reward_can_be_made_of_are_told(spec: Any, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        IntrinsicReward(**({"spec": dataclasses.replace(SPEC, **spec), "num_envs": 2, "config": SMALL} | given))


def test_actions_of_padded_rows_may_be_any() -> None:
    observation, action, after = transitions(5)
    valid = torch.tensor([True, True, True, True, False])
    make(1).train(observation, torch.where(valid, action, -1), after, valid)
    make(1).train(observation, torch.full((5,), 99), after, ~valid & valid)


def test_a_state_of_another_reward_is_told_and_changes_nothing() -> None:
    one = make(2)
    one(torch.randn(2, 3), torch.ones(2, dtype=torch.bool))
    before = clone(one.state_dict())
    for other, sentence in (
        ({}, "its episodes is missing"),
        ("state", "its episodes is missing"),
        (make(3).state_dict(), r"its episodes is of shape \(3,\), not of shape \(2,\); make one of the same spec"),
        (make(2, config(memory_capacity=9)).state_dict(), "its memory/entries is of shape"),
        (make(2, config(lifelong=False)).state_dict(), "its rnd/.* is missing"),
        (make(2, config(hidden=(9,))).state_dict(), "its snapshots/.* is of shape"),
    ):
        with pytest.raises(UserError, match=f"the state is not of a reward like this: {sentence}"):
            one.load_state_dict(other)  # type: ignore[arg-type]
    assert not difference(before, one.state_dict())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"neighbours": "10"}, "novelty.neighbours is '10'; give a whole number"),
        ({"memory_capacity": 10.5}, "novelty.memory_capacity is 10.5; give a whole number"),
        ({"max_modulation": None}, "novelty.max_modulation is None; give a number"),
        ({"lifelong": "no"}, "novelty.lifelong is 'no'; give True or False"),
    ],
)
def test_settings_of_another_type_are_told(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        NoveltyConfig(**given)
    assert NoveltyConfig(neighbours=np.int64(3), max_modulation=2).neighbours == 3  # type: ignore[arg-type]

"""Algorithm 1, batched, against its transcription; the memory and the running distance (paper, Sec. 2, App. A.1)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import Constants, MovingAverage, algorithm_1, neighbour_distances, reward_of_distances

from ngu.config import NoveltyConfig
from ngu.novelty.episodic import DistanceScale, EpisodicMemory, Kernel, episodic_reward, nearest_squared_distances
from ngu.novelty.nearest import search_nearest

CPU = torch.device("cpu")


def kernel_of(constants: Constants, rescale: bool = False) -> Kernel:
    return Kernel(constants.k, constants.epsilon, constants.xi, constants.c, constants.s_m, rescale)


class BatchedAlgorithm:
    """The package's parts put together as the reward does, with one f."""

    def __init__(self, envs: int, capacity: int, size: int, constants: Constants, decay: float, rescale: bool) -> None:
        self.memory = EpisodicMemory(envs, capacity, size, CPU)
        self.scale = DistanceScale(decay, CPU)
        self.kernel = kernel_of(constants, rescale)

    def step(self, state: np.ndarray, wipe: np.ndarray) -> np.ndarray:
        query = torch.tensor(state, dtype=torch.float32)
        self.memory.wipe(torch.tensor(wipe))
        distance = search_nearest(query, self.memory.entries, self.memory.filled, self.kernel.neighbours)
        mean = self.scale.update(distance)
        self.memory.append(query)
        return episodic_reward(distance, mean, self.kernel).numpy()


@given(
    seed=st.integers(0, 2**31),
    envs=st.integers(1, 4),
    capacity=st.integers(1, 8),
    k=st.integers(1, 10),
    decay=st.sampled_from([0.0, 0.5, 0.99]),
    s_m=st.sampled_from([1.0, 2.0, 8.0]),
    rescale=st.booleans(),
)
@settings(max_examples=50)
def test_the_batch_equals_the_transcription(
    seed: int, envs: int, capacity: int, k: int, decay: float, s_m: float, rescale: bool
) -> None:
    """Twenty steps from empty memories through partly filled to wrapped rings, with wipes now and then."""
    random = np.random.default_rng(seed)
    constants = Constants(k=k, s_m=s_m)
    batched = BatchedAlgorithm(envs, capacity, 3, constants, decay, rescale)
    memories: list[list[np.ndarray]] = [[] for _ in range(envs)]
    average = MovingAverage(decay)
    # A few places, visited again and again, and some noise: distances of 0, tiny ones and large ones.
    places = random.normal(size=(4, 3)).astype(np.float32)
    for _ in range(20):
        state = places[random.integers(0, 4, size=envs)]
        state = state + (random.random((envs, 1)) < 0.5) * random.normal(scale=0.3, size=(envs, 3))
        state = state.astype(np.float32)
        wipe = random.random(envs) < 0.08
        memories = [[] if wiped else memory for wiped, memory in zip(wipe, memories, strict=True)]
        distances = [neighbour_distances(memories[e], state[e], k) for e in range(envs)]
        average.update([distance for each in distances for distance in each])
        expected = [reward_of_distances(each, average.value, constants, rescale) for each in distances]
        memories = [[*memories[e], state[e]][-capacity:] for e in range(envs)]
        assert batched.step(state, wipe) == pytest.approx(expected, rel=2e-4)


def test_one_environment_equals_algorithm_1_as_printed() -> None:
    random = np.random.default_rng(0)
    constants = Constants()
    batched = BatchedAlgorithm(1, 100, 5, constants, 0.99, False)
    memory: list[np.ndarray] = []
    average = MovingAverage(0.99)
    for _ in range(150):
        state = random.normal(size=5).astype(np.float32)
        expected = algorithm_1(memory, state, average, constants)
        assert batched.step(state[None], np.array([False])).item() == pytest.approx(expected, rel=1e-4)
        memory = [*memory, state][-100:]


@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(1, 12))
@settings(max_examples=40)
def test_the_order_of_the_memory_does_not_matter(seed: int, entries: int, k: int) -> None:
    random = np.random.default_rng(seed)
    memory = torch.tensor(random.normal(size=(1, entries, 4)), dtype=torch.float32)
    query = torch.tensor(random.normal(size=(1, 4)), dtype=torch.float32)
    filled = torch.tensor([entries])
    shuffled = memory[:, torch.tensor(random.permutation(entries))]
    one, other = (nearest_squared_distances(query, m, filled, k) for m in (memory, shuffled))
    assert torch.equal(one, other)


@given(st.integers(0, 2**31), st.integers(0, 6))
@settings(max_examples=30)
def test_unfilled_slots_are_ignored_whatever_they_hold(seed: int, filled: int) -> None:
    random = np.random.default_rng(seed)
    memory = torch.tensor(random.normal(size=(1, 6, 3)), dtype=torch.float32)
    query = memory[:, 5] if filled < 6 else memory[:, 0]
    distance = nearest_squared_distances(query, memory, torch.tensor([filled]), 4)[0]
    expected = neighbour_distances(list(memory[0, :filled].numpy()), query[0].numpy(), 4)
    present = torch.isfinite(distance)
    assert present.sum().item() == len(expected)
    assert distance[present].numpy() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_environments_do_not_see_each_other() -> None:
    memory = torch.zeros(2, 3, 2)
    memory[1] = 5.0
    distance = nearest_squared_distances(torch.zeros(2, 2), memory, torch.tensor([3, 3]), 1)
    assert distance.tolist() == [[0.0], [50.0]]


# ------------------------------------------------------------------------------------------- the known mistakes


def test_mistake_distances_are_squared_and_not_negated() -> None:
    distance = nearest_squared_distances(torch.tensor([[0.0, 0.0]]), torch.tensor([[[3.0, 4.0]]]), torch.tensor([1]), 1)
    assert distance.item() == 25.0
    # Two neighbours at distances 1 and 3, so 1 and 9 squared, d_m^2 = 5: K = eps/(d/5 - xi + eps) each.
    constants = Constants(k=2)
    similarity = 0.01 / (0.2 - 0.008 + 0.01) + 0.01 / (1.8 - 0.008 + 0.01)
    reward = episodic_reward(torch.tensor([[1.0, 9.0]]), torch.tensor([5.0]), kernel_of(constants))
    assert reward.item() == pytest.approx(1 / (similarity**0.5 + 1e-3), rel=1e-5)


def test_farther_means_more_novel() -> None:
    """Negative distances in the kernel turn this round."""
    near, far = (
        episodic_reward(torch.tensor([[d]]), torch.tensor([1.0]), kernel_of(Constants(k=1))).item() for d in (0.1, 10.0)
    )
    assert near < far


def test_mistake_the_nearest_neighbours_count_not_the_farthest() -> None:
    memory = torch.arange(10, dtype=torch.float32).view(1, 10, 1)
    distance = nearest_squared_distances(torch.tensor([[0.0]]), memory, torch.tensor([10]), 3)
    assert distance.tolist() == [[0.0, 1.0, 4.0]]


def test_mistake_the_running_distance_does_not_start_at_zero() -> None:
    """d_m^2 begun at 0 and updated slowly would make d / d_m^2 huge, the similarities 0 and the rewards 1/c = 1000."""
    scale = DistanceScale(0.99, CPU)
    assert scale.update(torch.tensor([[4.0]])).item() == pytest.approx(4.0)
    reward = episodic_reward(torch.tensor([[4.0]]), torch.tensor([4.0]), kernel_of(Constants(k=1)))
    assert 1.0 < reward.item() < 15.0


def test_the_running_distance_does_not_start_at_one() -> None:
    """Begun at 1, small distances would look like no distance at all for a hundred steps."""
    scale = DistanceScale(0.99, CPU)
    assert scale.update(torch.tensor([[1e-4]])).item() == pytest.approx(1e-4)


def test_mistake_the_pseudo_count_is_outside_the_root() -> None:
    constants = Constants(k=1, c=0.5)
    reward = episodic_reward(torch.tensor([[0.0]]), torch.tensor([1.0]), kernel_of(constants))
    assert reward.item() == pytest.approx(1 / (1 + 0.5))


def test_too_similar_states_pay_nothing() -> None:
    """s_m: with k = 10 the sum never exceeds 10, so 8 is idle, as the paper's default has it; 2 is not."""
    distance, mean = torch.zeros(1, 10), torch.ones(1)
    assert episodic_reward(distance, mean, kernel_of(Constants(s_m=2.0))).item() == 0.0
    assert episodic_reward(distance, mean, kernel_of(Constants())).item() == pytest.approx(1 / (10**0.5 + 1e-3))


def test_distances_below_the_cluster_distance_count_as_none() -> None:
    kernel = kernel_of(Constants(k=1, xi=0.5))
    same, near = (episodic_reward(torch.tensor([[d]]), torch.ones(1), kernel) for d in (0.0, 0.5))
    assert same.item() == near.item()


def test_an_empty_memory_pays_one_over_c_here() -> None:
    """The caller settles an episode's first observation; see test_intrinsic_reward.py."""
    reward = episodic_reward(torch.full((1, 3), torch.inf), torch.ones(1), kernel_of(Constants(k=3)))
    assert reward.item() == pytest.approx(1000.0)


def test_a_partial_memory_can_be_rescaled_to_k() -> None:
    distance = torch.tensor([[0.0, torch.inf, torch.inf, torch.inf]])
    plain = episodic_reward(distance, torch.ones(1), kernel_of(Constants(k=4)))
    rescaled = episodic_reward(distance, torch.ones(1), kernel_of(Constants(k=4), rescale=True))
    assert plain.item() == pytest.approx(1 / (1 + 1e-3))
    assert rescaled.item() == pytest.approx(1 / (2 + 1e-3))


def test_a_world_without_distances_divides_nothing_by_zero() -> None:
    """All states the same: d_m^2 is 0, and every similarity is 1."""
    batched = BatchedAlgorithm(1, 10, 2, Constants(), 0.99, False)
    rewards = [batched.step(np.zeros((1, 2)), np.array([False])).item() for _ in range(5)]
    assert rewards[1:] == pytest.approx([1 / (n**0.5 + 1e-3) for n in range(1, 5)])


# ------------------------------------------------------------------------------------------- the running distance


@given(
    st.lists(st.lists(st.floats(0.01, 100.0), max_size=4), min_size=1, max_size=12), st.sampled_from([0.0, 0.9, 0.99])
)
def test_the_running_distance_is_the_weighted_mean(steps: list[list[float]], decay: float) -> None:
    scale = DistanceScale(decay, CPU)
    average = MovingAverage(decay)
    for distances in steps:
        padded = torch.tensor([distances + [torch.inf] * (4 - len(distances))])
        average.update(distances)
        assert scale.update(padded).item() == pytest.approx(average.value, rel=1e-4)


def test_the_running_distance_follows_a_changing_embedding() -> None:
    scale = DistanceScale(0.9, CPU)
    for _ in range(50):
        scale.update(torch.tensor([[1.0]]))
    for _ in range(100):
        last = scale.update(torch.tensor([[100.0]]))
    assert last.item() == pytest.approx(100.0, rel=1e-2)


def test_the_running_distance_is_that_of_all_environments() -> None:
    scale = DistanceScale(0.9, CPU)
    assert scale.update(torch.tensor([[1.0], [100.0], [4.0]])).item() == pytest.approx(35.0)
    assert scale.update(torch.tensor([[torch.inf], [35.0], [torch.inf]])).item() == pytest.approx(35.0)


def test_another_actors_running_distance_can_be_taken_over() -> None:
    source, copy = DistanceScale(0.9, CPU), DistanceScale(0.9, CPU)
    source.update(torch.tensor([[6.0]]))
    copy.update(torch.tensor([[77.0]]))
    copy.take_over(source)
    nothing = torch.full((3, 1), torch.inf)
    assert copy.update(nothing).item() == pytest.approx(6.0)
    source.update(torch.tensor([[1000.0]]))
    assert copy.update(nothing).item() == pytest.approx(6.0)


def test_non_finite_distances_never_reach_the_running_distance() -> None:
    scale = DistanceScale(0.9, CPU)
    scale.update(torch.tensor([[2.0]]))
    assert scale.update(torch.tensor([[torch.nan]])).item() == pytest.approx(2.0)
    assert scale.update(torch.tensor([[2.0]])).item() == pytest.approx(2.0)


# ------------------------------------------------------------------------------------------- the memory


@given(st.integers(1, 6), st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=20))
def test_the_memory_is_a_ring_that_drops_the_oldest_first(capacity: int, wipes: list[tuple[bool, bool]]) -> None:
    memory = EpisodicMemory(2, capacity, 1, CPU)
    twin: list[list[float]] = [[], []]
    for time, wipe in enumerate(wipes):
        memory.wipe(torch.tensor(wipe))
        memory.append(torch.tensor([[time], [100.0 + time]]))
        for env in range(2):
            twin[env] = [*([] if wipe[env] else twin[env]), time + 100.0 * env][-capacity:]
            held = memory.entries[env, : memory.filled[env], 0]
            assert sorted(held.tolist()) == twin[env]


def test_the_kernel_takes_the_constants_of_the_config() -> None:
    config = NoveltyConfig(
        neighbours=3,
        kernel_epsilon=0.1,
        cluster_distance=0.2,
        pseudo_count=0.3,
        max_similarity=4.0,
        rescale_partial=True,
    )
    assert Kernel.create(config) == Kernel(3, 0.1, 0.2, 0.3, 4.0, True)

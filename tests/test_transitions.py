"""Which transitions of a batch train the novelty: the last of each sequence, or those that balance actions."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from ngu.novelty.transitions import (
    balanced_weight,
    drawn_by_weight,
    last_transitions,
)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(1, 7))
def test_the_last_transitions_are_counted_from_the_end(lengths: list[int], count: int) -> None:
    index, exists = last_transitions(torch.tensor(lengths), count)
    for b, length in enumerate(lengths):
        assert index[exists[:, b], b].tolist() == list(range(length))[-count:]
        assert (index[:, b] >= 0).all()


# ------------------------------------------------------------------------------------------- weights


@given(st.integers(2, 18), st.floats(1e-3, 1.0))
def test_balanced_weights_make_all_actions_of_an_epsilon_greedy_policy_as_likely(actions: int, epsilon: float) -> None:
    behaviour = torch.full((actions,), epsilon / actions, dtype=torch.float64)
    behaviour[0] += 1 - epsilon
    weight = balanced_weight(behaviour, actions)
    likely = behaviour * weight
    assert torch.allclose(likely, likely[1].expand(actions))
    assert torch.allclose(weight[1:], torch.ones_like(weight[1:])), "what was drawn at random counts in full"


def test_balanced_weights_of_any_policy_give_no_action_more_than_its_share() -> None:
    behaviour = torch.rand(200, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(-1)
    likely = behaviour * balanced_weight(behaviour, 6)
    assert (likely <= 1 / 6 + 1e-12).all()
    assert (balanced_weight(behaviour, 6) > 0).all()
    assert torch.equal(balanced_weight(torch.full((2,), 0.5), 2), torch.ones(2))


# ------------------------------------------------------------------------------------------- drawing by weight


def test_a_drawn_sum_is_right_on_average() -> None:
    """Whatever is summed: the weights of what was drawn, times what was divided by, estimate those of all."""
    random = torch.Generator().manual_seed(0)
    weight = torch.where(torch.rand(200, generator=random) < 0.1, 1.0, 0.01).double()
    value = torch.randn(200, generator=random).double() + 1
    estimates = []
    for _ in range(4000):
        index, drawn = drawn_by_weight(weight, 30, torch.rand(200, generator=random).double())
        estimates.append((drawn * value[index]).sum())
    estimate = torch.stack(estimates)
    # With 20 or so large weights and 30 places tau stays below 1, and nothing is divided.
    error = estimate.mean() - (weight * value).sum()
    assert error.abs() < 4 * estimate.std() / len(estimate) ** 0.5
    assert estimate.std() < 0.2 * estimate.mean(), "the large weights are never missing"


def test_large_weights_are_always_drawn_and_count_in_full() -> None:
    weight = torch.full((100,), 1e-3)
    weight[::10] = 1.0
    for seed in range(20):
        index, drawn = drawn_by_weight(weight, 20, torch.rand(100, generator=torch.Generator().manual_seed(seed)))
        large = weight[index] == 1
        assert large.sum() == 10
        assert (drawn[large] == 1).all()
        # 90 weights of 0.001 are stood for by the ten others that were drawn.
        assert (drawn[~large] >= 1e-3).all()
        assert drawn[~large].sum() < 10 * 0.09


def test_equal_weights_are_drawn_at_random_and_count_the_same() -> None:
    counts = torch.zeros(40)
    random = torch.Generator().manual_seed(0)
    for _ in range(2000):
        index, drawn = drawn_by_weight(torch.ones(40), 10, torch.rand(40, generator=random))
        assert len(set(index.tolist())) == 10
        assert torch.equal(drawn, torch.ones(10))
        counts[index] += 1
    assert counts.min() > 400
    assert counts.max() < 600


@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(1, 30))
def test_nothing_without_weight_is_drawn_and_nothing_counts_for_more_than_one(seed: int, size: int, count: int) -> None:
    random = torch.Generator().manual_seed(seed)
    weight = torch.rand(size, generator=random) * (torch.rand(size, generator=random) < 0.5)
    count = min(count, size)
    index, drawn = drawn_by_weight(weight, count, torch.rand(size, generator=random))
    assert len(index) == len(drawn) == count
    assert len(set(index.tolist())) == count
    assert (drawn[weight[index] == 0] == 0).all()
    assert (drawn[weight[index] > 0] > 0).all()
    assert (drawn <= 1).all()
    if (weight > 0).sum() <= count:
        assert torch.equal(drawn, weight[index]), "all are there, so each counts what it weighs"

"""The family of policies: beta_i, gamma_i, epsilon_j and who acts with which (paper, App. A)."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ngu.config import MixtureConfig
from ngu.mixture import Mixture, actor_epsilons, actor_mixtures, betas, discounts

sizes = st.integers(min_value=2, max_value=64)
weights = st.floats(min_value=1e-3, max_value=10.0)


@given(sizes, weights)
def test_beta_ladder_is_the_papers_formula(n: int, beta: float) -> None:
    ladder = betas(n, beta)
    assert len(ladder) == n
    for i in range(1, n - 1):
        expected = beta / (1 + np.exp(-10 * (2 * i - (n - 2)) / (n - 2)))
        assert ladder[i] == pytest.approx(expected, rel=1e-12)


@given(sizes, weights)
def test_mistake_beta_0_is_exactly_zero_and_the_last_is_exactly_beta(n: int, beta: float) -> None:
    assert betas(n, beta)[0] == 0.0
    assert betas(n, beta)[-1] == beta
    mixture = Mixture.create(MixtureConfig(num_mixtures=n, beta=beta), torch.device("cpu"))
    assert mixture.beta[0].item() == 0.0
    assert mixture.beta[-1].item() == np.float32(beta)


@given(sizes, weights)
def test_betas_rise(n: int, beta: float) -> None:
    ladder = betas(n, beta)
    assert all(low < high for low, high in itertools.pairwise(ladder))


@given(st.integers(3, 64), weights)
def test_betas_favour_the_two_extremes(n: int, beta: float) -> None:
    """Fig. beta_distrib: the ladder is a sigmoid, symmetric about its middle."""
    ladder = betas(n, beta)
    inner = ladder[1:-1]
    # sigma(x) + sigma(-x) = 1: entry i of the sigmoid and entry (N-2) - i add up to beta.
    for i in range(1, n - 2):
        assert inner[i - 1] + ladder[(n - 2) - i] == pytest.approx(beta, rel=1e-9)


def test_betas_of_the_papers_32() -> None:
    """A few of them by hand, for N = 32 and beta = 0.3."""
    ladder = betas(32, 0.3)
    assert ladder[15] == pytest.approx(0.15)
    assert ladder[1] == pytest.approx(0.3 / (1 + math.exp(10 * 28 / 30)))
    assert ladder[30] == pytest.approx(0.3 / (1 + math.exp(-10)))


def test_a_single_policy_explores_with_beta_and_has_a_discount() -> None:
    """The formulas give beta_0 = 0 and 0 / 0 for N = 1; there, the one policy is the exploratory one."""
    assert betas(1, 0.5) == [0.5]
    assert discounts(1, 0.99, 0.9) == [0.99]


@given(sizes, st.floats(0.5, 0.9999), st.floats(0.5, 0.9999))
def test_discount_ladder_is_the_papers_formula(n: int, one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    ladder = discounts(n, high, low)
    for i in range(n):
        expected = 1 - np.exp(((n - 1 - i) * np.log(1 - high) + i * np.log(1 - low)) / (n - 1))
        assert ladder[i] == pytest.approx(expected, rel=1e-9)
    logs = np.log(1 - np.array(ladder))
    assert np.allclose(np.diff(logs), (np.log(1 - low) - np.log(1 - high)) / (n - 1), atol=1e-6)


@given(sizes)
def test_mistake_the_discount_ladder_is_not_reversed(n: int) -> None:
    """The exploitative policy (index 0) looks farthest ahead."""
    ladder = discounts(n, 0.997, 0.99)
    assert ladder[0] == 0.997
    assert ladder[-1] == 0.99
    assert all(left > right for left, right in itertools.pairwise(ladder))
    config = MixtureConfig(num_mixtures=n, discount_max=0.997, discount_min=0.99)
    discount = Mixture.create(config, torch.device("cpu")).discount
    assert discount[0].item() == np.float32(0.997)
    assert discount[-1].item() == np.float32(0.99)


@given(st.integers(2, 512), st.floats(0.01, 1.0), st.floats(0.0, 10.0))
def test_actor_epsilons_follow_ape_x(actors: int, base: float, alpha: float) -> None:
    ladder = actor_epsilons(actors, base, alpha)
    for j, epsilon in enumerate(ladder):
        assert epsilon == pytest.approx(base ** (1 + alpha * j / (actors - 1)), rel=1e-12)
    assert all(left >= right for left, right in itertools.pairwise(ladder))
    assert all(0 <= epsilon <= 1 for epsilon in ladder)


def test_the_papers_256_actor_epsilons_run_from_0_4_to_0_4_to_the_ninth() -> None:
    ladder = actor_epsilons(256, 0.4, 8.0)
    assert ladder[0] == pytest.approx(0.4)
    assert ladder[-1] == pytest.approx(0.4**9)


def test_a_lone_actor_has_the_base_epsilon() -> None:
    assert actor_epsilons(1, 0.4, 8.0) == [0.4]


@given(st.integers(1, 300), st.integers(1, 40))
def test_every_policy_acts_and_shares_are_even(actors: int, mixtures: int) -> None:
    """The paper's j mod (N-1) would leave policy N-1 without an actor."""
    assigned = actor_mixtures(actors, mixtures)
    counts = np.bincount(assigned, minlength=mixtures)
    assert len(counts) == mixtures
    assert counts.max() - counts.min() <= 1
    if actors >= mixtures:
        assert counts.min() >= 1

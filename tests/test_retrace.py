"""The value transform and transformed Retrace against loops over their definitions (paper, App. E)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import epsilon_greedy_policy, h, h_inverse, transformed_retrace
from oracles import followed_share as followed_by_loops

from ngu.retrace import ValueTransform, epsilon_greedy, followed_share, retrace_targets, reverse_scan, widened

epsilons = st.sampled_from([1e-4, 1e-3, 1e-2, 0.1, 1.0])
values = st.floats(-1e6, 1e6, allow_nan=False)


def double(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64)


# ------------------------------------------------------------------------------------------- h and its inverse


@given(values, epsilons)
def test_h_of_its_inverse_is_the_identity(z: float, epsilon: float) -> None:
    """The paper's print of h^-1 lacks a square and fails this."""
    transform = ValueTransform(epsilon)
    assert transform.squash(transform.expand(double(z))).item() == pytest.approx(z, rel=1e-9, abs=1e-9)


@given(values, epsilons)
def test_the_inverse_of_h_is_the_identity(z: float, epsilon: float) -> None:
    transform = ValueTransform(epsilon)
    assert transform.expand(transform.squash(double(z))).item() == pytest.approx(z, rel=1e-9, abs=1e-9)


@given(values, epsilons)
def test_h_and_its_inverse_are_the_papers_formulas(z: float, epsilon: float) -> None:
    transform = ValueTransform(epsilon)
    assert transform.squash(double(z)).item() == pytest.approx(h(z, epsilon), rel=1e-9, abs=1e-9)
    assert transform.expand(double(z)).item() == pytest.approx(h_inverse(z, epsilon), rel=1e-6, abs=1e-6)


@given(st.floats(-1e5, 1e5, width=32), st.sampled_from([1e-3, 1e-2]))
def test_h_of_its_inverse_in_single_precision(z: float, epsilon: float) -> None:
    """What the learner computes in; the plain formula of h^-1 cancels here."""
    transform = ValueTransform(epsilon)
    assert transform.squash(transform.expand(torch.tensor(z))).item() == pytest.approx(z, rel=1e-5, abs=1e-5)


@given(values, values, epsilons)
def test_h_and_its_inverse_rise(one: float, other: float, epsilon: float) -> None:
    low, high = min(one, other), max(one, other)
    if high - low < 1e-6 * (1 + abs(low)):
        return
    transform = ValueTransform(epsilon)
    assert transform.squash(double(low)).item() < transform.squash(double(high)).item()
    assert transform.expand(double(low)).item() < transform.expand(double(high)).item()


@given(values, epsilons)
def test_h_and_its_inverse_are_odd(z: float, epsilon: float) -> None:
    transform = ValueTransform(epsilon)
    assert transform.squash(double(-z)).item() == -transform.squash(double(z)).item()
    assert transform.expand(double(-z)).item() == -transform.expand(double(z)).item()


def test_h_at_known_points() -> None:
    transform = ValueTransform(1e-3)
    assert transform.squash(double(0.0, 3.0, -3.0)).tolist() == pytest.approx([0.0, 1.003, -1.003])
    identity = ValueTransform(0.0)
    assert identity.squash(double(7.5)).item() == identity.expand(double(7.5)).item() == 7.5


# ------------------------------------------------------------------------------------------- the target policy


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=6, unique=True), st.floats(0, 1))
def test_epsilon_greedy_is_the_definition(q: list[float], epsilon: float) -> None:
    policy = epsilon_greedy(double(*q), epsilon)
    assert policy.sum().item() == pytest.approx(1.0)
    assert policy.numpy() == pytest.approx(epsilon_greedy_policy(np.array(q), epsilon))


# ------------------------------------------------------------------------------------------- the scan


@given(st.integers(1, 130), st.integers(1, 3), st.integers(0, 2**31))
def test_reverse_scan_equals_a_loop(steps: int, batch: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    addend = random.normal(size=(steps, batch))
    factor = random.uniform(-1, 1, size=(steps, batch)) * (random.random((steps, batch)) < 0.9)
    expected = np.zeros((steps + 1, batch))
    for t in reversed(range(steps)):
        expected[t] = addend[t] + factor[t] * expected[t + 1]
    result = reverse_scan(torch.tensor(addend), torch.tensor(factor))
    assert result.numpy() == pytest.approx(expected[:-1], rel=1e-10, abs=1e-12)


# ------------------------------------------------------------------------------------------- Retrace


@dataclass
class Problem:
    """Random sequences of lengths 1 to T: some terminated, some truncated or simply cut at T."""

    online: np.ndarray
    q_target: np.ndarray
    policy: np.ndarray
    action: np.ndarray
    behaviour: np.ndarray
    reward: np.ndarray
    gamma: np.ndarray
    terminated: np.ndarray
    length: np.ndarray

    @classmethod
    def random(cls, seed: int, steps: int, batch: int, actions: int, epsilon: float = 0.01) -> Problem:
        random = np.random.default_rng(seed)
        online = random.normal(size=(steps + 1, batch, actions))
        length = random.integers(1, steps + 1, size=batch)
        ends = random.random(batch) < 0.5
        last = np.arange(steps)[:, None] == length - 1
        return cls(
            online=online,
            q_target=random.normal(scale=5, size=(steps + 1, batch, actions)),
            policy=np.apply_along_axis(epsilon_greedy_policy, -1, online, epsilon),
            action=random.integers(0, actions, size=(steps, batch)),
            behaviour=random.uniform(0.05, 1.0, size=(steps, batch)),
            reward=random.normal(size=(steps, batch)),
            gamma=random.uniform(0.5, 0.999, size=batch),
            terminated=last & ends,
            length=length,
        )

    @property
    def valid(self) -> np.ndarray:
        return np.arange(len(self.action))[:, None] < self.length

    def followed(self, tolerance: float, epsilon: float) -> torch.Tensor:
        """The package's answer."""
        q, policy = torch.tensor(self.online[:-1]), torch.tensor(self.policy[:-1])
        action, behaviour = torch.tensor(self.action), torch.tensor(self.behaviour)
        return followed_share(q, policy, action, behaviour, tolerance, ValueTransform(epsilon))

    def targets(self, trace_decay: float, epsilon: float, tolerance: float = 0.0) -> np.ndarray:
        """The package's answer, with 0 on padding."""
        result = retrace_targets(
            q_target=torch.tensor(self.q_target),
            policy=torch.tensor(self.policy),
            action=torch.tensor(self.action),
            followed=self.followed(tolerance, epsilon),
            reward=torch.tensor(self.reward),
            discount=torch.tensor(np.where(self.terminated, 0.0, self.gamma)),
            valid=torch.tensor(self.valid),
            trace_decay=trace_decay,
            transform=ValueTransform(epsilon),
        )
        return np.where(self.valid, result.numpy(), 0.0)

    def oracle(self, trace_decay: float, epsilon: float, tolerance: float) -> np.ndarray:
        return transformed_retrace(
            q_target=self.q_target,
            policy=self.policy,
            action=self.action,
            followed=followed_by_loops(self.online, self.policy, self.action, self.behaviour, tolerance, epsilon),
            reward=self.reward,
            gamma=self.gamma,
            terminated=self.terminated,
            length=self.length,
            trace_decay=trace_decay,
            epsilon=epsilon,
        )


problems = st.builds(
    Problem.random, st.integers(0, 2**31), st.integers(1, 12), st.integers(1, 4), st.integers(2, 5),
    st.sampled_from([0.0, 0.01, 0.3]),
)  # fmt: skip


tolerances = st.sampled_from([0.0, 0.01, 0.3, 1.0])


@given(problems, st.sampled_from([0.0, 0.5, 0.95, 0.97, 1.0]), st.sampled_from([0.0, 1e-3, 1e-2]), tolerances)
@settings(max_examples=60)
def test_targets_equal_the_loop_over_the_definition(
    problem: Problem, trace_decay: float, epsilon: float, tolerance: float
) -> None:
    targets = problem.targets(trace_decay, epsilon, tolerance)
    assert targets == pytest.approx(problem.oracle(trace_decay, epsilon, tolerance), rel=1e-6, abs=1e-6)


@given(problems, tolerances, tolerances)
@settings(max_examples=30)
def test_traces_reach_further_the_more_is_tolerated(problem: Problem, one: float, other: float) -> None:
    less, more = problem.followed(min(one, other), 1e-3), problem.followed(max(one, other), 1e-3)
    assert (less <= more).all()
    assert (more <= 1).all()


def test_a_tolerance_is_a_share_of_the_value_in_returns() -> None:
    """Values 100, 99.5, 98 before the transform: with 1 % the second counts as the first, the third does not."""
    transform = ValueTransform(1e-3)
    q = transform.squash(double(100.0, 99.5, 98.0)).expand(3, 1, 3)
    policy, action = epsilon_greedy(q, 0.0), torch.arange(3).unsqueeze(1)
    for tolerance, expected in ((0.0, [1.0, 0.0, 0.0]), (0.01, [1.0, 1.0, 0.0]), (0.03, [1.0, 1.0, 1.0])):
        share = followed_share(q, policy, action, torch.full((3, 1), 0.8, dtype=q.dtype), tolerance, transform)
        assert share[:, 0].tolist() == expected
    below = transform.squash(double(-100.0, -100.5, -102.0)).expand(3, 1, 3)
    share = followed_share(below, epsilon_greedy(below, 0.0), action, torch.ones(3, 1), 0.01, transform)
    assert share[:, 0].tolist() == [1.0, 1.0, 0.0]


@given(problems)
@settings(max_examples=30)
def test_with_lambda_0_it_is_the_one_step_target(problem: Problem) -> None:
    next_value = (problem.policy[1:] * problem.q_target[1:]).sum(-1)
    one_step = problem.reward + np.where(problem.terminated, 0.0, problem.gamma) * next_value
    assert problem.targets(0.0, 0.0) == pytest.approx(np.where(problem.valid, one_step, 0.0))


@given(problems)
@settings(max_examples=30)
def test_with_lambda_1_on_policy_it_is_the_n_step_return(problem: Problem) -> None:
    """pi = mu = certain actions: no trace is cut, the values in between cancel, the rewards to the end remain."""
    chosen = np.concatenate([problem.action, problem.action[-1:]])
    problem.policy = np.eye(problem.q_target.shape[2])[chosen]
    problem.behaviour = np.ones_like(problem.behaviour)
    expected = np.zeros(problem.action.shape)
    for b, n in enumerate(problem.length):
        value = (problem.policy[n, b] * problem.q_target[n, b]).sum() * (not problem.terminated[n - 1, b])
        for t in reversed(range(n)):
            value = problem.reward[t, b] + problem.gamma[b] * value
            expected[t, b] = value
    assert problem.targets(1.0, 0.0) == pytest.approx(expected)


@given(problems, st.sampled_from([0.3, 0.9]))
@settings(max_examples=30)
def test_on_policy_it_is_the_lambda_return(problem: Problem, trace_decay: float) -> None:
    """G_t = r_t + gamma ((1 - lambda) V(x_{t+1}) + lambda G_{t+1}) when actions are certain and traces uncut."""
    chosen = np.concatenate([problem.action, problem.action[-1:]])
    problem.policy = np.eye(problem.q_target.shape[2])[chosen]
    problem.behaviour = np.ones_like(problem.behaviour)
    value = (problem.policy * problem.q_target).sum(-1)
    expected = np.zeros(problem.action.shape)
    for b, n in enumerate(problem.length):
        following = value[n, b]
        for t in reversed(range(n)):
            mixed = (1 - trace_decay) * value[t + 1, b] + trace_decay * following
            following = problem.reward[t, b] + problem.gamma[b] * mixed * (not problem.terminated[t, b])
            expected[t, b] = following
    assert problem.targets(trace_decay, 0.0) == pytest.approx(expected)


@given(problems, st.floats(-1e30, 1e30))
@settings(max_examples=30)
def test_padding_never_reaches_a_target(problem: Problem, rubbish: float) -> None:
    before = problem.targets(0.97, 1e-3)
    problem.reward = np.where(problem.valid, problem.reward, rubbish)
    problem.behaviour = np.where(problem.valid, problem.behaviour, 1e-30)
    after_the_end = np.arange(len(problem.action) + 1)[:, None] > problem.length
    problem.q_target = np.where(after_the_end[..., None], rubbish, problem.q_target)
    assert (problem.targets(0.97, 1e-3) == before).all()


def hand_made(steps: int, *, terminated: bool) -> Problem:
    """One sequence, one action, reward 1, all values 10, on policy, gamma 0.5."""
    return Problem(
        online=np.full((steps + 1, 1, 1), 10.0),
        q_target=np.full((steps + 1, 1, 1), 10.0),
        policy=np.ones((steps + 1, 1, 1)),
        action=np.zeros((steps, 1), dtype=np.int64),
        behaviour=np.ones((steps, 1)),
        reward=np.ones((steps, 1)),
        gamma=np.array([0.5]),
        terminated=(np.arange(steps)[:, None] == steps - 1) & terminated,
        length=np.array([steps]),
    )


def test_mistake_terminal_steps_do_not_bootstrap() -> None:
    assert hand_made(1, terminated=True).targets(1.0, 0.0).item() == 1.0
    assert hand_made(2, terminated=True).targets(1.0, 0.0)[:, 0] == pytest.approx([1.5, 1.0])


def test_mistake_time_limits_do_bootstrap() -> None:
    assert hand_made(1, terminated=False).targets(1.0, 0.0).item() == 1 + 0.5 * 10
    assert hand_made(2, terminated=False).targets(1.0, 0.0)[:, 0] == pytest.approx([1 + 0.5 * 6, 6.0])


def test_mistake_the_trace_product_is_taken_once() -> None:
    """Three steps with c = 1/2 each: delta_s arrives at 0 with (gamma / 2)^s, not with (gamma / 2)^(1 + 2 + ...)."""
    problem = hand_made(4, terminated=True)
    problem.q_target = np.zeros_like(problem.q_target)
    problem.reward = np.array([[0.0], [0.0], [0.0], [1.0]])
    assert problem.targets(0.5, 0.0)[:, 0] == pytest.approx([0.25**3, 0.25**2, 0.25, 1.0])


def test_the_first_action_is_never_cut() -> None:
    """c_i starts at i = t + 1: however unlikely a_t was, its own TD error counts in full."""
    problem = hand_made(2, terminated=True)
    problem.q_target = np.zeros_like(problem.q_target)
    problem.policy[0] = 0.0
    assert problem.targets(1.0, 0.0)[:, 0] == pytest.approx([1.5, 1.0])


def test_a_trace_is_cut_by_min_1_and_never_amplified() -> None:
    problem = hand_made(2, terminated=True)
    problem.q_target = np.zeros_like(problem.q_target)
    problem.behaviour = np.full((2, 1), 0.1)
    assert problem.targets(1.0, 0.0)[0, 0] == pytest.approx(1.5)


# ------------------------------------------------------------------------------------------- advantage learning


@given(st.integers(0, 1000), st.sampled_from([0.5, 0.9]))
def test_advantage_learning_widens_gaps_and_leaves_the_best_actions_their_values(seed: int, share: float) -> None:
    """Value iteration in a random world of 5 states and 3 actions, with and without."""
    random = np.random.default_rng(seed)
    reward = torch.from_numpy(random.random((5, 3)))
    leads_to = torch.from_numpy(random.integers(5, size=(5, 3)))
    fixed_points = []
    for widening in (0.0, share):
        q = torch.zeros(5, 3, dtype=torch.float64)
        for _ in range(3000):
            best = q.max(1).values
            q = widened(reward + 0.9 * best[leads_to], q, best.unsqueeze(1), widening)
        fixed_points.append(q)
    plain, wide = fixed_points
    value = plain.max(1).values
    assert torch.allclose(wide.max(1).values, value, atol=1e-6)
    assert torch.equal(wide.argmax(1), plain.argmax(1))
    assert torch.allclose(value.unsqueeze(1) - wide, (value.unsqueeze(1) - plain) / (1 - share), atol=1e-6)

"""One update against loops over the definitions; what it trains, what it leaves alone (paper, App. A and E)."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_tiny_config
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import clone, difference, epsilon_greedy_policy, followed_share, transformed_retrace

from ngu.config import Config, LearnerConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.learner import Learner, learning_rate, renewed_state, retrace_errors, sequence_priority
from ngu.mixture import betas, discounts
from ngu.networks import AgentInput, QNetwork, RecurrentState
from ngu.policy_statistics import PolicyStatistics
from ngu.retrace import ValueTransform
from ngu.runners.local import LocalRunner
from ngu.sequences import Batch, BurnIn

SPEC = EnvironmentSpec((4,), torch.float32, 3)
CPU = torch.device("cpu")


def make_learner(config: Config, seed: int = 0, spec: EnvironmentSpec = SPEC) -> Learner:
    torch.manual_seed(seed)
    learner = Learner(spec, config, CPU, torch.Generator().manual_seed(seed))
    # Right after the start the two networks are the same, which would hide a mix-up.
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return learner


def make_batch(config: Config, batch: int = 6, seed: int = 0, lengths: list[int] | None = None) -> Batch:
    """Random sequences of 1 to T steps, about half of them terminated."""
    random = torch.Generator().manual_seed(seed)
    trace, lookahead = config.replay.trace_length, config.replay.lookahead
    steps = trace + lookahead

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    length = torch.randint(1, trace + 1, (batch,), generator=random) if lengths is None else torch.tensor(lengths)
    # Only a sequence of full length may be followed by something.
    known = torch.where(length == trace, length + torch.randint(0, lookahead + 1, (batch,), generator=random), length)
    time = torch.arange(steps).unsqueeze(1)
    last = time == known - 1
    row_action = torch.randint(0, 3, (steps + 1, batch), generator=random)
    extrinsic, intrinsic = normal(steps + 1, batch), normal(steps + 1, batch).abs()
    return Batch(
        inputs=AgentInput(
            observation=normal(steps + 1, batch, 4),
            previous_action=row_action,
            extrinsic=extrinsic,
            intrinsic=intrinsic,
            mixture=torch.randint(0, config.mixture.num_mixtures, (batch,), generator=random),
        ),
        state=RecurrentState(normal(batch, config.network.lstm_size), normal(batch, config.network.lstm_size)),
        action=row_action[1:].clone(),
        behaviour=torch.rand(steps, batch, generator=random) * 0.9 + 0.1,
        extrinsic=extrinsic[1:].clone(),
        intrinsic=intrinsic[1:].clone(),
        terminated=last & (torch.rand(batch, generator=random) < 0.5),
        valid=time < known,
        trained=time[:trace] < length,
        length=length,
        weight=torch.rand(batch, generator=random) * 0.9 + 0.1,
        place=torch.arange(batch),
        birth=torch.arange(batch),
    )


@torch.no_grad()
def state_by_steps(network: QNetwork, batch: Batch) -> RecurrentState:
    """What a network remembers before the sequences of a batch, one burn-in step and one sequence after the other."""
    hidden, cell = batch.state.hidden.clone(), batch.state.cell.clone()
    before = batch.burn_in
    if before is not None:
        for b in before.exists.nonzero().flatten().tolist():
            state = RecurrentState(before.state.hidden[b : b + 1], before.state.cell[b : b + 1])
            for t in range(len(before.inputs.observation)):
                at = (t, slice(b, b + 1))
                seen = AgentInput(
                    before.inputs.observation[at], before.inputs.previous_action[at], before.inputs.extrinsic[at],
                    before.inputs.intrinsic[at], batch.inputs.mixture[b : b + 1],
                )  # fmt: skip
                _, state = network.step(seen, state)
            hidden[b], cell[b] = state.hidden[0], state.cell[0]
    return RecurrentState(hidden, cell)


class Twin:
    """The update of the Q-network once more: targets and priorities by loops, the gradient by autograd and Adam."""

    def __init__(self, learner: Learner, batch: Batch) -> None:
        config = learner.config
        n = config.mixture.num_mixtures
        beta = np.array(betas(n, config.mixture.beta))[batch.inputs.mixture.numpy()]
        gamma = np.array(discounts(n, config.mixture.discount_max, config.mixture.discount_min))
        network = copy.deepcopy(learner.network)
        q, _ = network.unroll(batch.inputs, state_by_steps(network, batch))
        q_target, _ = learner.target.unroll(batch.inputs, state_by_steps(learner.target, batch))
        online, action = q.detach().double().numpy(), batch.action.numpy()
        before = q_target.detach().double().numpy()
        best, share = online.argmax(-1), config.learner.advantage_learning
        # What the networks mean: their gaps are 1 / (1 - share) of those of returns.
        meant, meant_online = before.copy(), online.copy()
        for t, b, a in np.ndindex(*online.shape):
            meant[t, b, a] += share * max(before[t, b, best[t, b]] - before[t, b, a], 0.0)
            meant_online[t, b, a] += share * (online[t, b].max() - online[t, b, a])
        policy = np.apply_along_axis(epsilon_greedy_policy, -1, online, config.learner.target_epsilon)
        epsilon = 0.0 if config.learner.value_transform == "identity" else config.learner.value_transform_epsilon
        behaviour = batch.behaviour.double().numpy()
        followed = followed_share(meant_online, policy, action, behaviour, config.learner.trace_tolerance, epsilon)
        self.followed = np.mean([followed[t, b] for b, length in enumerate(batch.length) for t in range(length)])
        targets = transformed_retrace(
            q_target=meant,
            policy=policy,
            action=action,
            followed=followed,
            reward=batch.extrinsic.double().numpy() + beta * batch.intrinsic.double().numpy(),
            gamma=gamma[batch.inputs.mixture.numpy()],
            terminated=batch.terminated.numpy(),
            length=batch.valid.sum(0).numpy(),
            trace_decay=config.learner.retrace_lambda,
            epsilon=epsilon,
        )
        for t, b in np.ndindex(*targets.shape):
            targets[t, b] -= share * max(before[t, b, best[t, b]] - before[t, b, action[t, b]], 0.0)
        loss: torch.Tensor = torch.zeros(())
        self.priority = []
        self.of_policy: dict[int, list[tuple[float, float]]] = {}
        """Value and TD error of each step, by policy."""
        losses = []
        for b, length in enumerate(batch.length.tolist()):
            errors = []
            mixture = int(batch.inputs.mixture[b])
            for t in range(length):
                taken = q[t, b, batch.action[t, b]]
                losses.append((mixture, batch.weight[b] * (taken - float(targets[t, b])) ** 2))
                errors.append(abs(targets[t, b] - taken.item()))
                self.of_policy.setdefault(mixture, []).append((taken.item(), errors[-1]))
            share = config.replay.priority_max_share
            self.priority.append(share * max(errors) + (1 - share) * float(np.mean(errors)))
        for mixture, step_loss in losses:
            unit = (
                np.mean([error**2 for _, error in self.of_policy[mixture]]) if config.mixture.balanced and n > 1 else 1
            )
            loss = loss + step_loss / float(unit)
        adam = torch.optim.Adam(network.parameters(), lr=config.learner.learning_rate, eps=config.learner.adam_epsilon)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), config.learner.clip_norm)
        adam.step()
        self.loss, self.weights = loss.item(), network.state_dict()


@given(
    seed=st.integers(0, 10_000),
    mixtures=st.sampled_from([1, 3]),
    balanced=st.booleans(),
    transform=st.sampled_from(["identity", "signed-sqrt"]),
    trace_decay=st.sampled_from([0.0, 0.97]),
    tolerance=st.sampled_from([0.0, 0.05, 0.5]),
    advantage_learning=st.sampled_from([0.0, 0.9]),
)
@settings(max_examples=24)
def test_an_update_equals_its_twin(
    seed: int,
    mixtures: int,
    balanced: bool,
    transform: str,
    trace_decay: float,
    tolerance: float,
    advantage_learning: float,
) -> None:
    config = make_tiny_config(
        mixture__num_mixtures=mixtures, mixture__discount_min=0.9, mixture__balanced=balanced,
        learner__value_transform=transform, learner__retrace_lambda=trace_decay,
        learner__trace_tolerance=tolerance, learner__advantage_learning=advantage_learning,
    )  # fmt: skip
    learner, batch = make_learner(config, seed), make_batch(config, seed=seed)
    twin = Twin(learner, batch)
    update = learner.update(batch, 0)
    assert update.applied.item()
    assert update.priority.numpy() == pytest.approx(twin.priority, rel=1e-3, abs=1e-4)
    statistics = learner.pop_statistics()
    assert statistics["loss/retrace"] == pytest.approx(twin.loss, rel=1e-3)
    assert statistics["learner/followed"] == pytest.approx(twin.followed, rel=1e-3)
    for name, weight in learner.network.state_dict().items():
        assert torch.allclose(weight, twin.weights[name], atol=2e-5), name


@pytest.mark.parametrize("epsilon", [0.0, 0.01])
@pytest.mark.parametrize("tolerance", [0.0, 0.5])
def test_advantage_learning_changes_gaps_alone_where_many_actions_are_deadly(epsilon: float, tolerance: float) -> None:
    """Its fixed point: the best action is worth what it was, others are ten times as much lower, whatever follows.

    One state; half of the actions end the episode at once. If the lowered values were part of targets, the best action
    would be worth 21 instead of 333 to a target policy that is epsilon-greedy with 0.01, even without traces.
    """
    actions, gamma, h = 18, 0.99, ValueTransform(1e-3)
    reward = torch.arange(actions, dtype=torch.float64) / actions
    reward[0] = 5.0
    deadly = torch.arange(actions) >= 9
    first, second = (grid.flatten() for grid in torch.meshgrid(*[torch.arange(actions)] * 2, indexing="ij"))
    action, valid = torch.stack([first, second]), torch.stack([first >= 0, ~deadly[first]])
    nothing = torch.zeros(action.shape, dtype=torch.float64)
    behaviour = torch.full_like(nothing, 1e-3)  # chance: no trace is cut where the target policy does the same
    fixed_points = []
    for share in (0.0, 0.9):
        q = torch.zeros(actions, dtype=torch.float64)
        for _ in range(4000):
            values = q.expand(3, actions**2, actions)
            error, _, _ = retrace_errors(
                values, values, action, behaviour, reward[action], nothing, deadly[action], valid, valid[:1],
                nothing[0], torch.full_like(nothing[0], gamma), epsilon, 0.95, tolerance, share, h,
            )  # fmt: skip
            error = error[0].view(actions, actions)
            q = q + error.mean(1)
        assert error.abs().max() < 1e-6, "all pairs of actions agree"
        fixed_points.append(q)
    plain, wide = fixed_points
    assert h.expand(plain[0]).item() == pytest.approx(500 if epsilon == 0 else 333, rel=1e-3)
    assert wide[0].item() == pytest.approx(plain[0].item(), rel=1e-4)
    assert torch.allclose(wide[0] - wide, (plain[0] - plain) / (1 - 0.9), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("balanced", [False, True])
def test_balanced_the_loss_of_small_rewards_weighs_as_much_as_that_of_large_ones(balanced: bool) -> None:
    """Rewards of one policy are a thousand times those of the other."""
    config = make_tiny_config(mixture__num_mixtures=2, mixture__balanced=balanced)
    losses = []
    for small_ones_count in (True, False):
        learner, batch = make_learner(config), make_batch(config, batch=8)
        batch.inputs.mixture = torch.tensor([0, 1] * 4)
        batch.extrinsic[:, 1::2] *= 1000
        batch.weight.fill_(1.0)
        batch.weight[0::2] = float(small_ones_count)
        learner.update(batch, 0)
        losses.append(learner.pop_statistics()["loss/retrace"])
    share_of_large = losses[1] / losses[0]
    steps = batch.length[1::2].sum() / batch.length.sum()
    assert share_of_large == pytest.approx(float(steps) if balanced else 1.0, rel=1e-4)


def test_balanced_errors_below_the_floor_weigh_less() -> None:
    """A policy with nothing to learn is not made to learn its noise."""
    config = make_tiny_config(mixture__num_mixtures=2, mixture__balanced=True)
    learner = make_learner(config)
    learner.policies.weight.fill_(1.0)
    learner.policies.mean[1] = torch.tensor([1e-6, 4.0])
    assert learner.policies.squared_unit(torch.tensor([0, 1])).tolist() == pytest.approx([1e-4, 4.0])


def test_balanced_priorities_of_crossed_sequences_are_in_units_of_who_collected_them() -> None:
    """Trained as a policy whose errors are a thousand times as large, a sequence does not become a thousand times as
    urgent among those of its own policy."""
    settings = {"mixture__num_mixtures": 2, "mixture__balanced": True, "learner__learning_rate": 1e-9}
    priorities = {}
    for crossing in (0.0, 1.0):
        learner = make_learner(make_tiny_config(**settings, mixture__cross_mixture_ratio=crossing))
        batch = make_batch(learner.config, batch=64)
        batch.inputs.mixture = torch.arange(64) % 2
        learner.policies.weight.fill_(1.0)
        learner.policies.mean[1] = torch.tensor([1.0, 1e6])
        learner.policies.update = lambda *_: None  # type: ignore[method-assign]
        priorities[crossing] = learner.update(batch, 0).priority
    plain = make_learner(make_tiny_config(mixture__num_mixtures=2, mixture__cross_mixture_ratio=1.0))
    raw = plain.update(batch, 0).priority
    expected = torch.where(batch.inputs.mixture == 0, raw / 1000, raw * 1000)
    assert torch.allclose(priorities[1.0], expected, rtol=1e-4)
    assert not torch.allclose(priorities[0.0], expected, rtol=1e-4)


def test_a_policy_that_was_never_trained_has_no_unit_yet() -> None:
    statistics = PolicyStatistics(3, CPU)
    statistics.weight[1:] = 1.0
    statistics.mean[1] = torch.tensor([0.0, 4.0, 100.0])
    own, other = torch.tensor([0, 1, 1, 2]), torch.tensor([1, 0, 2, 1])
    assert statistics.in_units_of(own, other).tolist() == pytest.approx([1.0, 1.0, 0.2, 5.0])


def test_the_ends_of_the_family_are_told_apart() -> None:
    """Running means over updates, for each policy over the updates that train it, as a plain loop has them."""
    config = make_tiny_config(mixture__num_mixtures=3, mixture__balanced=True)
    learner = make_learner(config)
    expected: dict[int, tuple[float, float, float]] = {}
    for seed in range(12):
        batch = make_batch(config, batch=4, seed=seed)
        for policy, steps in Twin(learner, batch).of_policy.items():
            weight, value, square = expected.get(policy, (0.0, 0.0, 0.0))
            weight = 0.99 * weight + 0.01
            here = (float(np.mean([q for q, _ in steps])), float(np.mean([error**2 for _, error in steps])))
            expected[policy] = (
                weight, value + 0.01 / weight * (here[0] - value), square + 0.01 / weight * (here[1] - square),
            )  # fmt: skip
        learner.update(batch, 0)
    metrics = learner.pop_statistics()
    for name, policy in (("exploit", 0), ("explore", 2)):
        assert metrics[f"learner/q_{name}"] == pytest.approx(expected[policy][1], rel=1e-3, abs=1e-4)
        assert metrics[f"learner/td_rms_{name}"] == pytest.approx(expected[policy][2] ** 0.5, rel=1e-3)
    alone = make_learner(make_tiny_config())
    alone.update(make_batch(alone.config), 0)
    assert not [name for name in alone.pop_statistics() if name.endswith(("exploit", "explore"))]


def test_what_is_not_finite_does_not_stay_in_a_policys_unit() -> None:
    config = make_tiny_config(mixture__num_mixtures=2, mixture__balanced=True)
    learner, batch = make_learner(config), make_batch(config)
    learner.update(batch, 0)
    before = clone(learner.policies.state_dict())
    broken = replace(batch, extrinsic=torch.full_like(batch.extrinsic, torch.nan))
    assert not learner.update(broken, 0).applied.item()
    assert not difference(before, learner.policies.state_dict())
    assert learner.update(batch, 0).applied.item()


def test_it_tells_how_far_traces_reach() -> None:
    """The mean of min(1, pi / mu): 1 where every action taken is the greedy one, next to nothing where none is."""
    config = make_tiny_config(learner__target_epsilon=0.03)
    learner, batch = make_learner(config), make_batch(config, lengths=[8, 5, 4, 3, 1, 8])
    with torch.no_grad():
        greedy = learner.network.unroll(batch.inputs, batch.state)[0][:-1].argmax(-1)
    actions = learner.network.num_actions
    for action, behaviour, expected in ((greedy, 0.9, 1.0), ((greedy + 1) % actions, 0.5, 0.03 / actions / 0.5)):
        fresh = make_learner(config)
        fresh.update(replace(batch, action=action, behaviour=torch.full_like(batch.behaviour, behaviour)), 0)
        assert fresh.pop_statistics()["learner/followed"] == pytest.approx(expected, rel=1e-4)


def test_targets_look_past_the_end_of_a_sequence() -> None:
    """What follows a sequence has its say in the targets, and is neither trained nor part of the priority."""
    config = make_tiny_config(replay__lookahead=6)
    learner, batch = make_learner(config), make_batch(config, seed=3, lengths=[8, 8, 8, 5, 1, 8])
    assert batch.valid.sum(0).tolist() != batch.length.tolist()
    update, twin = learner.update(batch, 0), Twin(make_learner(config), batch)
    assert update.priority.numpy() == pytest.approx(twin.priority, rel=1e-3, abs=1e-4)
    statistics = learner.pop_statistics()
    assert statistics["loss/retrace"] == pytest.approx(twin.loss, rel=1e-3)
    assert statistics["learner/valid_share"] == pytest.approx((8 * 4 + 5 + 1) / (8 * 6))
    for name, weight in learner.network.state_dict().items():
        assert torch.allclose(weight, twin.weights[name], atol=2e-5), name
    batch.valid[8:] = False
    blind = make_learner(config).update(batch, 0).priority
    assert not torch.allclose(blind, update.priority, rtol=1e-3)


def test_burn_in_steps_are_not_trained_but_renew_the_state() -> None:
    """Each network goes through them itself; their errors do not count, and no gradient comes from them."""
    config = make_tiny_config(replay__period=5, replay__burn_in=5, replay__lookahead=3)
    learner, batch = make_learner(config), make_batch(config, lengths=[8, 5, 4, 3, 1, 8])
    before = make_batch(config, seed=1)
    plain = Twin(learner, batch)
    batch.burn_in = BurnIn(
        before.inputs.between(0, 5), before.state, torch.tensor([True, False, True, True, True, False])
    )
    twin = Twin(learner, batch)
    same = [mine == pytest.approx(theirs) for mine, theirs in zip(twin.priority, plain.priority, strict=True)]
    assert same == [False, True, False, False, False, True]
    update = learner.update(batch, 0)
    assert update.priority.numpy() == pytest.approx(twin.priority, rel=1e-3, abs=1e-4)
    assert learner.pop_statistics()["loss/retrace"] == pytest.approx(twin.loss, rel=1e-3)
    for name, weight in learner.network.state_dict().items():
        assert torch.allclose(weight, twin.weights[name], atol=2e-5), name


def test_burn_in_goes_with_the_policy_that_is_trained() -> None:
    """With a cross-mixture ratio of 1 and two policies each sequence trains the other one, from its burn-in on."""
    config = make_tiny_config(
        mixture__num_mixtures=2, mixture__cross_mixture_ratio=1.0, replay__period=5, replay__burn_in=5
    )
    batch, before = make_batch(config), make_batch(config, seed=1)
    batch.burn_in = BurnIn(
        replace(before.inputs.between(0, 5), mixture=batch.inputs.mixture),
        before.state,
        torch.tensor([True] * 5 + [False]),
    )
    update = make_learner(config).update(batch, 0)
    batch.inputs.mixture = 1 - batch.inputs.mixture
    twin = Twin(make_learner(config), batch)
    assert update.priority.numpy() == pytest.approx(twin.priority, rel=1e-3, abs=1e-4)


def test_burning_in_with_the_weights_that_acted_gives_the_state_that_they_stored() -> None:
    """Of a run that has not learned yet, so that nothing is stale."""
    config = make_tiny_config(
        env__name="deep-sea", env__sea_size=30, replay__period=5, replay__burn_in=5, replay__min_sequences=300,
        evaluation__marks=(), evaluation__max_steps=30, mixture__num_mixtures=2,
    )  # fmt: skip
    runner = LocalRunner(config, torch.device("cpu"))
    for _ in range(70):
        runner.advance()
    assert runner.agent.learner.updates == 0
    batch = runner.agent.replay.sample(20)
    assert batch.burn_in is not None
    assert 5 < int(batch.burn_in.exists.sum()) < 20
    renewed = renewed_state(runner.agent.learner.network, batch.state, batch.burn_in)
    inside = batch.burn_in.exists
    assert batch.state.hidden[inside].abs().max() > 0.01
    assert torch.allclose(renewed.hidden, batch.state.hidden, atol=1e-5)
    assert torch.allclose(renewed.cell, batch.state.cell, atol=1e-5)


# ------------------------------------------------------------------------------------------- by hand


def constant_values(network: torch.nn.Module, values: list[float]) -> None:
    """Makes a Q-network that says `values` whatever it sees."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        mean = sum(values) / len(values)
        network.value[2].bias.fill_(mean)
        network.advantage[2].bias.copy_(torch.tensor(values) - mean)


def priorities_by_hand(online: list[float], target: list[float], **changes: Any) -> list[float]:
    """|TD error| of two steps, one terminal, one cut, with r_e = 1, r_i = 2, action 0, beta and gamma 1/2."""
    config = make_tiny_config(
        mixture__beta=0.5, mixture__discount_max=0.5, mixture__discount_min=0.5, learner__target_epsilon=0.03, **changes
    )
    learner = make_learner(config)
    constant_values(learner.network, online)
    constant_values(learner.target, target)
    batch = make_batch(config, batch=2, lengths=[1, 1])
    batch.extrinsic.fill_(1.0)
    batch.intrinsic.fill_(2.0)
    batch.action.fill_(0)
    batch.terminated = torch.zeros_like(batch.terminated)
    batch.terminated[0, 0] = True
    priority: list[float] = learner.update(batch, 0).priority.tolist()
    return priority


def test_mistake_the_target_policy_is_epsilon_greedy_in_the_online_network() -> None:
    """Not a softmax, and not greedy in the target network: the online network prefers action 1, the target action 2."""
    _, cut = priorities_by_hand([0.0, 5.0, 1.0], [10.0, 20.0, 40.0])
    next_value = 0.98 * 20.0 + 0.01 * 10.0 + 0.01 * 40.0
    assert cut == pytest.approx(1 + 0.5 * 2 + 0.5 * next_value, rel=1e-4)


def test_mistake_terminal_steps_do_not_bootstrap_and_time_limits_do() -> None:
    terminal, cut = priorities_by_hand([0.0, 5.0, 1.0], [10.0, 10.0, 10.0])
    assert terminal == pytest.approx(1 + 0.5 * 2, rel=1e-4)
    assert cut == pytest.approx(1 + 0.5 * 2 + 0.5 * 10, rel=1e-4)


def test_values_are_transformed_when_asked() -> None:
    """h(r + gamma h^-1(Q)): with Q = h(8) = 2 + eps 8 the target is h(2 + 4)."""
    eps = 1e-3
    q = 2.0 + eps * 8
    _, cut = priorities_by_hand([0.0, 5.0, 1.0], [q, q, q], learner__value_transform="signed-sqrt")
    assert cut == pytest.approx(7**0.5 - 1 + eps * 6, rel=1e-4)


@given(st.integers(0, 2**31), st.floats(0, 1))
def test_priority_is_a_mixture_of_the_largest_and_the_mean_error(seed: int, share: float) -> None:
    random = np.random.default_rng(seed)
    errors, length = random.normal(size=(6, 4)), random.integers(1, 7, size=4)
    valid = np.arange(6)[:, None] < length
    expected = [
        share * np.abs(errors[:n, b]).max() + (1 - share) * np.abs(errors[:n, b]).mean() for b, n in enumerate(length)
    ]
    assert sequence_priority(torch.tensor(errors), torch.tensor(valid), share).numpy() == pytest.approx(expected)


# ------------------------------------------------------------------------------------------- what is trained


def everything(learner: Learner) -> dict[str, Any]:
    """Weights and optimiser state of all networks."""
    state = learner.state_dict()
    return clone({name: state[name] for name in ("network", "target", "novelty", "optimiser", "novelty_trainer")})


def test_mistake_padded_steps_are_not_trained_on() -> None:
    """Whatever lies behind a sequence's end, the update is the same to the last bit."""
    config = make_tiny_config()
    lengths = [1, 2, 3, 5, 7, 8]
    one, other = make_learner(config), make_learner(config)
    batch, padded = make_batch(config, lengths=lengths), make_batch(config, lengths=lengths)
    random = torch.Generator().manual_seed(77)
    for b, length in enumerate(lengths):
        padded.inputs.observation[length + 1 :, b] = 100.0
        padded.inputs.extrinsic[length + 1 :, b] = 1e6
        padded.inputs.intrinsic[length + 1 :, b] = -1e6
        padded.extrinsic[length:, b] = 1e6
        padded.intrinsic[length:, b] = 1e6
        padded.behaviour[length:, b] = 1e-6
        padded.action[length:, b] = torch.randint(0, 3, (8 - length,), generator=random)
        padded.terminated[length:, b] = True
    left, right = one.update(batch, 0), other.update(padded, 0)
    assert torch.allclose(left.priority, right.priority, rtol=1e-5)
    for before, after in zip(one.network.parameters(), other.network.parameters(), strict=True):
        assert torch.allclose(before, after, atol=1e-6)
    assert not difference(dict(one.novelty.state_dict()), dict(other.novelty.state_dict()))


def test_mistake_the_last_five_transitions_train_the_novelty_not_the_first() -> None:
    """Of a sequence of 7 steps these are the observations 2 to 7; 0 and 1 could be anything."""
    config = make_tiny_config()
    batch = make_batch(config, batch=4, lengths=[7, 7, 7, 7])

    def novelty_after(change: int | None) -> dict[str, Any]:
        learner, changed = make_learner(config), copy.deepcopy(batch)
        if change is not None:
            changed.inputs.observation[change] += 1.0
        learner.update(changed, 0)
        return clone(dict(learner.novelty.state_dict()))

    unchanged = novelty_after(None)
    for time in (0, 1, 8):
        assert not difference(unchanged, novelty_after(time))
    for time in (2, 3, 4, 5, 6, 7):
        assert difference(unchanged, novelty_after(time))


@pytest.mark.parametrize("balanced", [False, True])
def test_mistake_inverse_dynamics_gets_the_action_between_its_two_observations(balanced: bool) -> None:
    """And, where actions are balanced, the probability of that action; here all that could be drawn are."""
    config = make_tiny_config(novelty__balance_actions=balanced)
    learner, batch = make_learner(config), make_batch(config, batch=3, lengths=[8, 4, 2])
    inverse = copy.deepcopy(learner.novelty.inverse)
    assert inverse is not None
    losses, right, weights = [], [], []
    for b, length in enumerate([8, 4, 2]):
        for t in range(0 if balanced else max(0, length - 5), length):
            x, y = batch.inputs.observation[t, b], batch.inputs.observation[t + 1, b]
            logits = inverse(x.unsqueeze(0), y.unsqueeze(0))[0].squeeze(0)
            losses.append(-torch.log_softmax(logits, 0)[batch.action[t, b]].item())
            right.append(logits.argmax().item() == batch.action[t, b].item())
            behaviour = batch.behaviour[t, b].item()
            weights.append(min(behaviour, (1 - behaviour) / (len(logits) - 1)) / behaviour if balanced else 1.0)
    learner.update(batch, 0)
    metrics = learner.pop_statistics()
    assert metrics["loss/inverse"] == pytest.approx(np.dot(losses, weights), rel=1e-4)
    assert metrics["inverse/accuracy"] == pytest.approx(np.average(right, weights=weights), rel=1e-4)


def test_balanced_actions_train_f_on_the_random_steps_of_whole_sequences() -> None:
    """The only random step of a sequence comes early, where the last transitions do not reach."""
    config = make_tiny_config(novelty__balance_actions=True, novelty__train_frames=1)
    batch = make_batch(config, batch=4, lengths=[8, 8, 8, 8])
    batch.behaviour[:] = 0.999_999
    batch.behaviour[2] = 1e-6

    def f_after(change: int | None) -> dict[str, Any]:
        learner, changed = make_learner(config), copy.deepcopy(batch)
        if change is not None:
            changed.inputs.observation[change] += 1.0
        learner.update(changed, 0)
        assert learner.novelty.inverse is not None
        return clone(dict(learner.novelty.inverse.state_dict()))

    unchanged = f_after(None)
    assert [bool(difference(unchanged, f_after(time))) for time in range(9)] == [time in (2, 3) for time in range(9)]


def test_rnd_is_trained_on_the_last_next_observations() -> None:
    config = make_tiny_config(novelty__rnd_normalise=False)
    learner, batch = make_learner(config), make_batch(config, batch=3, lengths=[8, 4, 2])
    assert learner.novelty.rnd is not None
    rows = [(t + 1, b) for b, length in enumerate([8, 4, 2]) for t in range(max(0, length - 5), length)]
    seen = torch.stack([batch.inputs.observation[row] for row in rows])
    expected = learner.novelty.rnd.error(seen).sum().item()
    learner.update(batch, 0)
    assert learner.pop_statistics()["loss/rnd"] == pytest.approx(expected, rel=1e-4)


def test_mistake_every_network_is_given_to_an_optimiser() -> None:
    config = make_tiny_config()
    learner = make_learner(config)
    before = everything(learner)
    for step in range(3):
        learner.update(make_batch(config, seed=step), 0)
    after = everything(learner)

    def moved(group: str) -> set[str]:
        return {name for name, value in after[group].items() if not torch.equal(value, before[group][name])}

    assert moved("network") == set(after["network"])
    novelty = moved("novelty")
    learned = {n for n in after["novelty"] if n.startswith("inverse.") or ".predictor." in n}
    assert learned <= novelty
    assert any(n.startswith("inverse.embedding.") for n in novelty)
    assert not any(".target." in n for n in novelty), "RND's target is fixed"
    assert moved("target") == set()


def test_the_target_network_follows_every_period() -> None:
    config = make_tiny_config(learner__target_period=3)
    learner = make_learner(config)
    for step in range(1, 8):
        before = clone(dict(learner.target.state_dict()))
        learner.update(make_batch(config, seed=step), 0)
        followed = not difference(dict(learner.network.state_dict()), dict(learner.target.state_dict()))
        kept = not difference(before, dict(learner.target.state_dict()))
        assert (followed, kept) == ((True, False) if step % 3 == 0 else (False, True))


# ------------------------------------------------------------------------------------------- averaged weights


def test_the_average_is_that_of_the_last_networks() -> None:
    """By its definition, with numbers of a single weight: a_n = a_{n-1} + (w_n - a_{n-1}) / max(1, share n)."""
    learner = make_learner(make_tiny_config(learner__average_share=0.4))
    assert learner.average is not None
    weight, average = learner.network.dense.weight, learner.average.dense.weight
    expected = weight[0, 0].item()
    for step in range(1, 11):
        learner.update(make_batch(learner.config, seed=step), 0)
        expected += (weight[0, 0].item() - expected) / max(1.0, 0.4 * step)
        assert average[0, 0].item() == pytest.approx(expected, rel=1e-4)
    assert not torch.equal(weight, average)


def test_nothing_learns_from_the_average() -> None:
    plain, averaged = (make_learner(make_tiny_config(learner__average_share=share)) for share in (0.0, 0.5))
    for step in range(5):
        left, right = (learner.update(make_batch(learner.config, seed=step), 0) for learner in (plain, averaged))
        assert torch.equal(left.priority, right.priority)
    state = averaged.state_dict()
    del state["average"]
    assert not difference(plain.state_dict(), state)
    assert plain.playing is plain.network
    assert averaged.playing is averaged.average


# ------------------------------------------------------------------------------------------- cross mixture


def test_a_crossed_sequence_is_trained_wholly_as_the_other_policy() -> None:
    """One-hot, discount and reward: with two policies and ratio 1, exactly as if the other one had collected it."""
    settings = {"mixture__num_mixtures": 2, "mixture__discount_min": 0.9}
    crossed = make_learner(make_tiny_config(**settings, mixture__cross_mixture_ratio=1.0))
    plain = make_learner(make_tiny_config(**settings))
    batch = make_batch(crossed.config)
    swapped = copy.deepcopy(batch)
    swapped.inputs.mixture = 1 - swapped.inputs.mixture
    left, right = crossed.update(batch, 0), plain.update(swapped, 0)
    assert torch.equal(left.priority, right.priority)
    assert not difference(everything(crossed), everything(plain))


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0])
def test_the_share_of_crossed_sequences_and_an_even_choice_of_the_others(ratio: float) -> None:
    """Priorities tell which policy a sequence was trained as: each policy's are known from learners that train it."""
    settings = {"mixture__num_mixtures": 4, "mixture__discount_min": 0.9, "replay__trace_length": 4}
    config = make_tiny_config(**settings, mixture__cross_mixture_ratio=ratio)
    batch = make_batch(config, batch=1200)
    by_policy = []
    for policy in range(4):
        as_policy = copy.deepcopy(batch)
        as_policy.inputs.mixture.fill_(policy)
        by_policy.append(make_learner(make_tiny_config(**settings)).update(as_policy, 0).priority)
    priority = make_learner(config).update(batch, 0).priority
    trained = (torch.stack(by_policy) - priority).abs().argmin(0)
    shift = (trained - batch.inputs.mixture) % 4
    share = np.bincount(shift.numpy(), minlength=4) / 1200
    assert share == pytest.approx([1 - ratio, ratio / 3, ratio / 3, ratio / 3], abs=0.04)


# ------------------------------------------------------------------------------------------- what is not finite


BAD = [float("nan"), float("inf"), float("-inf")]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("where", ["extrinsic", "intrinsic", "previous extrinsic", "recurrent state"])
def test_a_non_finite_number_reaches_neither_weights_nor_priorities(where: str, bad: float) -> None:
    config = make_tiny_config(mixture__num_mixtures=2)
    learner = make_learner(config)
    learner.update(make_batch(config, seed=1), 0)
    learner.pop_statistics()
    before = everything(learner)
    batch = make_batch(config)
    batch.inputs.mixture.fill_(1)
    place = {
        "extrinsic": batch.extrinsic,
        "intrinsic": batch.intrinsic,
        "previous extrinsic": batch.inputs.extrinsic,
        "recurrent state": batch.state.cell,
    }[where]
    place[0, 2] = bad
    update = learner.update(batch, 0)
    after = everything(learner)
    if where == "recurrent state" and not np.isnan(bad):
        # An infinite cell is a finite hidden state: tanh bounds it.
        assert all(torch.isfinite(value).all() for value in after["network"].values())
        return
    assert not update.applied.item()
    assert torch.isnan(update.priority).all(), "replay must keep the old priorities"
    for name in ("network", "target", "optimiser"):
        assert not difference(before[name], after[name])
    metrics = learner.pop_statistics()
    assert metrics["learner/skipped_updates"] == 1
    assert metrics["learner/skipped_in_a_row"] == 1
    assert all(np.isfinite(value) for value in metrics.values())
    assert learner.update(make_batch(config, seed=3), 0).applied.item()
    metrics = learner.pop_statistics()
    assert (metrics["learner/skipped_updates"], metrics["learner/skipped_in_a_row"]) == (1, 0)


@pytest.mark.parametrize("bad", BAD)
def test_a_non_finite_observation_reaches_no_weights_and_no_statistics(bad: float) -> None:
    config = make_tiny_config()
    learner = make_learner(config)
    learner.update(make_batch(config, seed=1), 0)
    before = everything(learner)
    batch = make_batch(config, lengths=[8] * 6)
    batch.inputs.observation[5, 2, 1] = bad
    assert not learner.update(batch, 0).applied.item()
    after = everything(learner)
    # RND clips its inputs, so to its predictor an infinite number is a 5; NaN stays NaN.
    untouched = "" if np.isnan(bad) else "inverse."
    weights = [n for n in before["novelty"] if n.startswith(untouched) and ".inputs." not in n]
    assert not difference({n: before["novelty"][n] for n in weights}, {n: after["novelty"][n] for n in weights})
    for name in ("network", "target", "optimiser"):
        assert not difference(before[name], after[name])
    assert not difference(before["novelty_trainer"]["inverse"], after["novelty_trainer"]["inverse"])
    assert all(torch.isfinite(value).all() for value in after["novelty"].values())
    assert learner.pop_statistics()["learner/skipped_updates"] == 1


def test_a_padded_non_finite_reward_is_harmless() -> None:
    config = make_tiny_config()
    learner, batch = make_learner(config), make_batch(config, lengths=[3] * 6)
    batch.extrinsic[5, 1] = float("nan")
    batch.intrinsic[6, 2] = float("inf")
    assert learner.update(batch, 0).applied.item()


# ------------------------------------------------------------------------------------------- schedule and state


def test_the_learning_rate_goes_from_mark_to_mark() -> None:
    config = LearnerConfig(learning_rate=1e-3, rate_steps=(100, 200, 400), rate_factors=(1.0, 1.0, 0.01))
    rates = [learning_rate(config, step) for step in (0, 50, 100, 150, 200, 300, 400, 10_000)]
    assert rates == pytest.approx([0.0, 5e-4, 1e-3, 1e-3, 1e-3, 1e-4, 1e-5, 1e-5])


def test_the_learning_rate_is_constant_without_marks_and_begins_at_a_mark_of_zero() -> None:
    assert learning_rate(LearnerConfig(learning_rate=2e-3), 10**9) == 2e-3
    falling = LearnerConfig(learning_rate=2e-3, rate_steps=(0, 100), rate_factors=(1.0, 0.25))
    assert [learning_rate(falling, step) for step in (0, 50)] == pytest.approx([2e-3, 1e-3])


def test_an_update_uses_the_rate_of_its_agent_steps() -> None:
    """Adam's first step is as long as the rate: half the rate, half the way."""
    config = make_tiny_config(
        learner__learning_rate=4e-3, learner__rate_steps=(0, 400), learner__rate_factors=(1.0, 0.25)
    )
    moves = []
    for steps in (0, 200):
        learner = make_learner(config)
        before = clone(dict(learner.network.state_dict()))
        learner.update(make_batch(config), steps)
        moves.append(learner.network.state_dict()["value.2.bias"] - before["value.2.bias"])
    assert (moves[1] / moves[0]).item() == pytest.approx(0.5, rel=1e-3)


def test_a_saved_learner_goes_on_exactly() -> None:
    config = make_tiny_config(mixture__num_mixtures=3, mixture__cross_mixture_ratio=0.5)
    one = make_learner(config)
    for step in range(4):
        one.update(make_batch(config, seed=step), 0)
    other = make_learner(config, seed=9)
    other.load_state_dict(clone(one.state_dict()))
    for step in range(4, 9):
        left, right = (learner.update(make_batch(config, seed=step), 0) for learner in (one, other))
        assert torch.equal(left.priority, right.priority)
    assert not difference(one.state_dict(), other.state_dict())
    assert one.pop_statistics() == other.pop_statistics()


def test_statistics_are_means_since_the_last_call() -> None:
    config = make_tiny_config()
    single, twice = make_learner(config), make_learner(config)
    first = single.update(make_batch(config, seed=1), 0)
    one = single.pop_statistics()
    single.update(make_batch(config, seed=2), 0)
    two = single.pop_statistics()
    twice.update(make_batch(config, seed=1), 0)
    twice.update(make_batch(config, seed=2), 0)
    both = twice.pop_statistics()
    assert both["loss/retrace"] == pytest.approx((one["loss/retrace"] + two["loss/retrace"]) / 2)
    assert both["learner/updates"] == 2
    assert first.applied.item()

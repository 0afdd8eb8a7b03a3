"""Learning: a batch of sequences in, new weights and new priorities out.

One update trains the Q-network with transformed Retrace double Q-learning on all valid steps, and inverse dynamics and
RND on the last few transitions of each sequence (paper, App. A); with `novelty.balance_actions` inverse dynamics on as
many that are drawn from all. Everything stays on the device: on a GPU an update is one CUDA graph.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ngu.config import Config, LearnerConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.graphs import Branch, Graphed, fusable
from ngu.mixture import Mixture
from ngu.networks import AgentInput, PreparedInput, QNetwork, RecurrentState
from ngu.novelty.model import NoveltyModel, NoveltyReport, NoveltyTrainer
from ngu.novelty.transitions import Transitions, drawn_to_balance_actions, last_of_each
from ngu.optimiser import GuardedAdam
from ngu.policy_statistics import PolicyStatistics
from ngu.precision import autocast
from ngu.randomness import restore_generator
from ngu.retrace import ValueTransform, epsilon_greedy, followed_share, narrowed, retrace_targets, widened
from ngu.sequences import Batch, BurnIn, sequence_priority

_OF_VALUES = (
    "loss/retrace", "learner/grad_norm", "learner/q_mean", "learner/td_error", "learner/followed",
    "learner/valid_share",
)  # fmt: skip
"""Metrics of an update of the Q-network."""


@dataclass
class Update:
    """What an update leaves: new priorities [B], and whether it changed the Q-network."""

    priority: Tensor
    """Not a number where the update was skipped, so that replay keeps the old priority."""
    applied: Tensor


def learning_rate(config: LearnerConfig, agent_steps: int) -> float:
    """The rate after so many agent steps: a linear rise to the first of `rate_steps`, then geometric between them."""
    if not config.rate_steps:
        return config.learning_rate
    begin, factor = config.rate_steps[0], config.rate_factors[0]
    if agent_steps < begin:
        return config.learning_rate * factor * agent_steps / begin
    for end, next_factor in zip(config.rate_steps[1:], config.rate_factors[1:], strict=True):
        if agent_steps < end:
            share = (agent_steps - begin) / (end - begin)
            return float(config.learning_rate * factor * (next_factor / factor) ** share)
        begin, factor = end, next_factor
    return config.learning_rate * factor


@fusable
def retrace_errors(
    q: Tensor,
    q_target: Tensor,
    action: Tensor,
    behaviour: Tensor,
    extrinsic: Tensor,
    intrinsic: Tensor,
    terminated: Tensor,
    valid: Tensor,
    trained: Tensor,
    beta: Tensor,
    discount: Tensor,
    target_epsilon: float,
    trace_decay: float,
    trace_tolerance: float,
    advantage_learning: float,
    transform: ValueTransform,
) -> tuple[Tensor, Tensor, Tensor]:
    """TD errors of the Q-network, 0 where nothing is trained, the values of the actions taken, and how far the target
    policy follows these, [T, B] each.

    The reward of policy i is r_e + beta_i r_i. The target policy is epsilon-greedy with respect to the online network,
    its values come from the target network. So does what advantage learning takes off, with respect to the action that
    is best for the online network: the policy's own action is not lowered where the two disagree.

    Args:
        q, q_target: [T+L+1, B, A]
        action, behaviour, extrinsic, intrinsic, terminated, valid: [T+L, B]
        trained: [T, B]
        beta, discount: [B]
    """
    best = q.detach().argmax(-1, keepdim=True)
    believed = q_target.gather(-1, best).squeeze(-1)
    values = narrowed(q_target, believed, advantage_learning)
    online = narrowed(q.detach(), q.detach().max(-1).values, advantage_learning)
    policy = epsilon_greedy(online, target_epsilon)
    followed = followed_share(online[:-1], policy[:-1], action, behaviour, trace_tolerance, transform)
    target = retrace_targets(
        q_target=values,
        policy=policy,
        action=action,
        followed=followed,
        reward=extrinsic + beta * intrinsic,
        discount=torch.where(terminated, 0.0, discount),
        valid=valid,
        trace_decay=trace_decay,
        transform=transform,
    )
    steps = len(trained)
    index = action[:steps].unsqueeze(-1)
    taken_before = q_target[:steps].gather(-1, index).squeeze(-1)
    target = widened(target[:steps], taken_before, believed[:steps], advantage_learning)
    taken = q[:steps].gather(-1, index).squeeze(-1)
    return torch.where(trained, target - taken, 0.0), taken, followed[:steps]


@fusable
def weighted_loss(td_error: Tensor, weight: Tensor) -> Tensor:
    """Squared errors [T, B], weighed by sequence [B] and summed; see `GuardedAdam` for why they are not averaged."""
    return (td_error.square() * weight).sum()


@fusable
def _summarise(
    taken: Tensor,
    td_error: Tensor,
    followed: Tensor,
    trained: Tensor,
    max_share: float,
) -> tuple[Tensor, Tensor]:
    """New priorities [B]; over the trained steps the means of Q, of |TD error| and of how far the target policy follows
    them; and the share of steps that is no padding."""
    count = trained.sum().clamp_min(1)
    means = [
        torch.where(trained, taken, 0.0).sum() / count,
        td_error.abs().sum() / count,
        torch.where(trained, followed, 0.0).sum() / count,
        trained.float().mean(),
    ]
    return sequence_priority(td_error, trained, max_share), torch.stack(means)


def _values(network: QNetwork, inputs: AgentInput, state: RecurrentState, trained: int) -> Tensor:
    """Values [T+L+1, B, A]; without gradient after the T trained steps, where only the policy is asked for."""
    if len(inputs.observation) == trained + 1:
        return network.unroll(inputs, state)[0]
    values, state = network.unroll(inputs.between(0, trained), state)
    with torch.no_grad():
        values_ahead, _ = network.unroll(inputs.between(trained), state)
    return torch.cat([values, values_ahead])


@torch.no_grad()
def renewed_state(network: QNetwork, stored: RecurrentState, burn_in: BurnIn | None) -> RecurrentState:
    """The state [B, H] that a network itself has before a sequence, where there is something to burn in with."""
    if burn_in is None:
        return stored
    own = network.state_after(burn_in.inputs, burn_in.state)
    exists = burn_in.exists.unsqueeze(1)
    return RecurrentState(torch.where(exists, own.hidden, stored.hidden), torch.where(exists, own.cell, stored.cell))


class Learner:
    """Owns the online and target Q-networks, the novelty model, and their optimisers."""

    def __init__(self, spec: EnvironmentSpec, config: Config, device: torch.device, generator: torch.Generator) -> None:
        self.config = config
        self.device = device
        self.generator = generator
        self.mixture = Mixture.create(config.mixture, device)
        self.network = QNetwork(spec, config.mixture.num_mixtures, config.network).to(device)
        self.target = QNetwork(spec, config.mixture.num_mixtures, config.network).to(device)
        self.target.load_state_dict(self.network.state_dict())
        self.target.requires_grad_(False)
        self.average: QNetwork | None = None
        """The mean of the latest networks, if the config asks for one: it plays, and nothing learns from it."""
        if config.learner.average_share > 0:
            self.average = copy.deepcopy(self.network).requires_grad_(False)
        self.novelty = NoveltyModel(spec, config.novelty).to(device)
        self.precision = config.run.precision
        self.optimiser = GuardedAdam(
            self.network.parameters(),
            config.learner,
            config.learner.learning_rate,
            loss_scaling=self.precision == "fp16" and device.type == "cuda",
        )
        self.novelty_trainer = NoveltyTrainer(self.novelty, config.novelty, config.learner, self.precision)
        self.transform = ValueTransform.create(config.learner)
        self.policies = PolicyStatistics(config.mixture.num_mixtures, device)
        self.balanced = config.mixture.balanced and config.mixture.num_mixtures > 1
        self.updates = 0
        self.novelty_updates = 0
        """Updates of f and RND alone, in a warm-up."""
        self.metrics = [*_OF_VALUES, *self.novelty_trainer.metrics]
        self.sums = torch.zeros(len(self.metrics), dtype=torch.float64, device=device)
        self.summed = self.summed_novelty = 0
        self.skipped = torch.zeros(3, dtype=torch.int64, device=device)
        """Updates skipped in all, in a row until now, and most in a row since the last log."""
        # Most of an update is the LSTM going through time, which leaves most of a GPU free.
        self._novelty_branch, self._target_branch = Branch(device), Branch(device)
        self._update = Graphed(self._learn, device, (generator,))
        self._update_novelty = Graphed(self._learn_novelty, device, (generator,))

    def update(self, batch: Batch, agent_steps: int) -> Update:
        """One update of all networks from a batch; `agent_steps` sets the learning rate."""
        self.optimiser.set_learning_rate(learning_rate(self.config.learner, agent_steps))
        result = self._update(batch)
        self.updates += 1
        self.summed += 1
        self._average()
        if self.updates % self.config.learner.target_period == 0:
            self.target.take_over(self.network)
        return result

    def update_novelty(self, batch: Batch) -> Update:
        """An update of f and RND alone, which leaves priorities as they are."""
        result = self._update_novelty(batch)
        self.novelty_updates += 1
        self.summed_novelty += 1
        if self.average is not None:
            self.average.take_over_inputs(self.network)
        return result

    @property
    def playing(self) -> QNetwork:
        """The network that evaluations and players use."""
        return self.network if self.average is None else self.average

    @torch.no_grad()
    def _average(self) -> None:
        """An exponential average whose memory grows with the number of updates, so that early ones are forgotten."""
        if self.average is not None:
            newest = min(1.0, 1 / (self.config.learner.average_share * self.updates))
            torch._foreach_lerp_(list(self.average.parameters()), list(self.network.parameters()), newest)
            self.average.take_over_inputs(self.network)

    def _learn_novelty(self, batch: Batch) -> Update:
        last = last_of_each(batch, self.config.novelty.train_frames)
        report = self.novelty_trainer.train(self._to_learn_control(batch, last), last)
        self.network.observe(last.next_observation, last.valid)
        self._count(torch.zeros(len(_OF_VALUES), device=self.device), report, report.refused)
        return Update(torch.full_like(batch.weight, torch.nan), ~report.refused)

    def _learn(self, batch: Batch) -> Update:
        last = last_of_each(batch, self.config.novelty.train_frames)
        controlled = self._to_learn_control(batch, last)
        with self._novelty_branch.fork():
            report = self.novelty_trainer.train(controlled, last)
        self.network.observe(last.next_observation, last.valid)
        mixture = self._trained_mixture(batch.inputs.mixture)
        with autocast(self.device, self.precision):
            inputs = self._shared_inputs(batch.inputs, mixture)
            burn_in = batch.burn_in
            if burn_in is not None:
                burn_in = replace(burn_in, inputs=self._shared_inputs(burn_in.inputs, mixture))
            with self._target_branch.fork(), torch.no_grad():
                q_target = self.target.unroll(inputs, renewed_state(self.target, batch.state, burn_in))[0]
            state = renewed_state(self.network, batch.state, burn_in)
            q = _values(self.network, inputs, state, len(batch.trained))
        self._target_branch.join()
        settings = self.config.learner
        td_error, taken, followed = retrace_errors(
            q, q_target, batch.action, batch.behaviour, batch.extrinsic, batch.intrinsic, batch.terminated, batch.valid,
            batch.trained, self.mixture.beta[mixture], self.mixture.discount[mixture], settings.target_epsilon,
            settings.retrace_lambda, settings.trace_tolerance, settings.advantage_learning, self.transform,
        )  # fmt: skip
        self.policies.update(mixture, taken.detach(), td_error.detach(), batch.trained)
        priority, summary = _summarise(
            taken.detach(), td_error.detach(), followed, batch.trained, self.config.replay.priority_max_share
        )
        weight = batch.weight
        if self.balanced:
            weight = weight / self.policies.squared_unit(mixture)
            # Replay compares sequences of the policy that collected them, whichever they were trained as.
            priority = priority * self.policies.in_units_of(batch.inputs.mixture, mixture)
        loss = weighted_loss(td_error, weight)
        step = self.optimiser.step(loss)
        self._novelty_branch.join()
        values = torch.cat([torch.stack([loss.detach(), step.grad_norm]), summary])
        self._count(values, report, step.refused | report.refused)
        return Update(torch.where(step.applied, priority, torch.nan), step.applied)

    def _to_learn_control(self, batch: Batch, last: Transitions) -> Transitions:
        """What trains inverse dynamics: the last transitions, or as many that are drawn to balance actions."""
        if not (self.config.novelty.balance_actions and self.novelty_trainer.inverse):
            return last
        random = torch.rand(batch.trained.numel(), device=self.device, generator=self.generator)
        count = self.config.novelty.train_frames
        return drawn_to_balance_actions(batch, count, self.network.num_actions, random)

    def _shared_inputs(self, inputs: AgentInput, mixture: Tensor) -> PreparedInput:
        """Inputs [T, B, ...] for both networks: the policy that is trained, and observations prepared once."""
        flat = self.network.prepare(inputs.observation.flatten(0, 1))
        observation = torch.unflatten(flat, 0, inputs.observation.shape[:2])
        return PreparedInput(observation, inputs.previous_action, inputs.extrinsic, inputs.intrinsic, mixture)

    def _trained_mixture(self, collected: Tensor) -> Tensor:
        """Which policy each sequence trains, [B]: its own, or with the cross-mixture ratio a random other one."""
        ratio, count = self.config.mixture.cross_mixture_ratio, self.config.mixture.num_mixtures
        if ratio == 0:
            return collected
        draw = torch.rand(2, len(collected), device=self.device, generator=self.generator)
        shift = 1 + (draw[1] * (count - 1)).to(torch.int64).clamp_max(count - 2)
        return torch.where(draw[0] < ratio, (collected + shift) % count, collected)

    @torch.no_grad()
    def _count(self, values: Tensor, report: NoveltyReport, skipped: Tensor) -> None:
        """Adds what there is to tell `_OF_VALUES`, and of novelty, to the running statistics, on the device."""
        novelty = [report.values[name] for name in self.novelty_trainer.metrics]
        values = torch.cat([values, torch.stack(novelty) if novelty else values[:0]])
        # A skipped update is counted, and must not turn the log into NaN.
        self.sums.add_(torch.nan_to_num(values, 0.0, 0.0, 0.0))
        total, in_a_row, longest = self.skipped.unbind()
        in_a_row = torch.where(skipped, in_a_row + 1, 0)
        self.skipped.copy_(torch.stack([total + skipped, in_a_row, torch.maximum(longest, in_a_row)]))

    def pop_statistics(self) -> dict[str, float]:
        """Means since the last call, as metrics."""
        metrics: dict[str, float] = {}
        for name, total in zip(self.metrics, self.sums.tolist(), strict=True):
            count = self.summed if name in _OF_VALUES else self.summed + self.summed_novelty
            if count:
                metrics[name] = total / count
        if self.summed:
            metrics |= self.policies.metrics()
        self.sums.zero_()
        self.summed = self.summed_novelty = 0
        skipped, _, longest = self.skipped.tolist()
        self.skipped[2:].zero_()
        metrics["learner/updates"] = self.updates
        if self.config.warm_up_updates:
            metrics["learner/novelty_updates"] = self.novelty_updates
        metrics["learner/skipped_updates"] = skipped
        metrics["learner/skipped_in_a_row"] = longest
        return metrics

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": dict(self.network.state_dict()),
            "target": dict(self.target.state_dict()),
            **({} if self.average is None else {"average": dict(self.average.state_dict())}),
            "novelty": dict(self.novelty.state_dict()),
            "optimiser": self.optimiser.state_dict(),
            "novelty_trainer": self.novelty_trainer.state_dict(),
            "policies": self.policies.state_dict(),
            "generator": self.generator.get_state(),
            "updates": self.updates,
            "novelty_updates": self.novelty_updates,
            "summed": self.summed,
            "summed_novelty": self.summed_novelty,
            "sums": self.sums,
            "skipped": self.skipped,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.target.load_state_dict(state["target"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.novelty.load_state_dict(state["novelty"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.novelty_trainer.load_state_dict(state["novelty_trainer"])
        self.policies.load_state_dict(state["policies"])
        restore_generator(self.generator, state["generator"])
        self.updates = int(state["updates"])
        self.novelty_updates = int(state["novelty_updates"])
        self.summed = int(state["summed"])
        self.summed_novelty = int(state["summed_novelty"])
        self.sums.copy_(state["sums"])
        self.skipped.copy_(state["skipped"])

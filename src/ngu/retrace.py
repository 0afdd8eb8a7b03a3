"""Transformed Retrace: the value transform h, its inverse, and the targets (paper, App. E).

Pure functions of tensors; time first, then batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ngu.config import LearnerConfig
from ngu.graphs import fusable


@dataclass(frozen=True)
class ValueTransform:
    """h(z) = sign(z)(sqrt(|z| + 1) - 1) + eps z, or the identity when eps is 0."""

    epsilon: float

    @classmethod
    def create(cls, config: LearnerConfig) -> ValueTransform:
        return cls(0.0 if config.value_transform == "identity" else config.value_transform_epsilon)

    def squash(self, value: Tensor) -> Tensor:
        """h: from returns to what the network predicts."""
        if self.epsilon == 0:
            return value
        return value.sign() * ((value.abs() + 1).sqrt() - 1) + self.epsilon * value

    def expand(self, value: Tensor) -> Tensor:
        """h^-1(z) = sign(z)(((sqrt(1 + 4 eps (|z| + 1 + eps)) - 1) / (2 eps))^2 - 1).

        The paper's print lacks the square. With w = 4 eps (|z| + 1 + eps) the fraction equals
        2 (|z| + 1 + eps) / (sqrt(1 + w) + 1), which does not cancel for small eps.
        """
        if self.epsilon == 0:
            return value
        shifted = value.abs() + 1 + self.epsilon
        root = 2 * shifted / ((1 + 4 * self.epsilon * shifted).sqrt() + 1)
        return value.sign() * (root.square() - 1)


@dataclass(frozen=True)
class Objective:
    """What each of B policies maximises: the sum of r_e + beta r_i, discounted, in transformed values."""

    beta: Tensor
    """[B]"""
    discount: Tensor
    """[B]"""
    transform: ValueTransform
    advantage_learning: float = 0.0

    def td_error(
        self,
        taken: Tensor,
        best_before: Tensor,
        extrinsic: Tensor,
        intrinsic: Tensor,
        terminated: Tensor,
        best: Tensor,
    ) -> Tensor:
        """h(r + gamma h^-1(max_a Q(x', a))) - Q(x, a) of one step, [B] each; nothing follows a terminal x'.

        With advantage learning the target is lower, see `widened`; `best_before` is max_a Q(x, a).
        """
        reward = extrinsic + self.beta * intrinsic
        return _one_step_error(
            taken, best_before, reward, self.discount, terminated, best, self.advantage_learning, self.transform
        )


@fusable
def _one_step_error(
    taken: Tensor,
    best_before: Tensor,
    reward: Tensor,
    discount: Tensor,
    terminated: Tensor,
    best: Tensor,
    advantage_learning: float,
    transform: ValueTransform,
) -> Tensor:
    follows = torch.where(terminated, 0.0, transform.expand(best))
    target = transform.squash(reward + discount * follows)
    return widened(target, taken, best_before, advantage_learning) - taken


def widened(target: Tensor, taken: Tensor, best: Tensor, share: float) -> Tensor:
    """Advantage learning (Bellemare et al., 2016): y_t - share (max_a Q(x_t, a) - Q(x_t, a_t)), transformed values.

    The best action keeps its value, and the gaps below it grow to 1 / (1 - share) of what they were. To stand still for
    a step costs but 1 - gamma of all value; where errors are larger than that, who has come to a halt stays there.

    Args:
        target: y_t, [T, B]
        taken, best: [T, B] what the target network says of the action that was taken, and of the policy's best one;
            where it thinks more of the action that was taken, nothing is lowered.
    """
    return target - share * (best - taken).clamp_min(0.0) if share else target


def narrowed(values: Tensor, best: Tensor, share: float) -> Tensor:
    """What values [..., A] with gaps that `widened` has made say of returns: gaps are (1 - share) of what they were.

    Where y_t = Q(x_t, a_t) after widening, y_t was Q(x_t, a_t) + share (max_a Q(x_t, a) - Q(x_t, a_t)) before. Targets
    are made of such values: an epsilon-greedy policy would weigh the lowered ones in, and h^-1 makes the low ones huge.
    """
    return values + share * (best.unsqueeze(-1) - values).clamp_min(0.0) if share else values


def epsilon_greedy(q: Tensor, epsilon: float) -> Tensor:
    """[..., A] action values to [..., A] probabilities: 1 - epsilon on the best action, epsilon spread over all."""
    actions = q.shape[-1]
    greedy = torch.nn.functional.one_hot(q.argmax(-1), actions).to(q.dtype)
    return greedy * (1 - epsilon) + epsilon / actions


def followed_share(
    q: Tensor, policy: Tensor, action: Tensor, behaviour: Tensor, tolerance: float, transform: ValueTransform
) -> Tensor:
    """How far the target policy follows the actions taken, [T, B]: min(1, pi(a|x) / mu(a|x)), as Retrace has it.

    With a tolerance kappa also 1 for every action of at least V - kappa |V|, where V = sum_a pi(a|x) h^-1(Q(x, a)).
    Soft Watkins' Q(lambda) draws the same line (Kapturowski et al., Human-level Atari 200x faster, 2023). Where many
    actions are worth nearly the same the best one changes from update to update; without a tolerance the traces of all
    older sequences then end after a step, and values spread by one step with each new target network.

    Args:
        q, policy: [T, B, A] values of the online network, and the target policy's probabilities.
        action, behaviour: [T, B] the actions taken, and the probabilities mu with which the actor took them.
        tolerance: kappa.
        transform: h.
    """
    index = action.unsqueeze(-1)
    share = (policy.gather(-1, index).squeeze(-1) / behaviour).clamp(max=1.0)
    if tolerance == 0:
        return share
    returns = transform.expand(q)
    value = (policy * returns).sum(-1)
    nearly_best = returns.gather(-1, index).squeeze(-1) >= value - tolerance * value.abs()
    return torch.where(nearly_best, 1.0, share)


def retrace_targets(
    q_target: Tensor,
    policy: Tensor,
    action: Tensor,
    followed: Tensor,
    reward: Tensor,
    discount: Tensor,
    valid: Tensor,
    trace_decay: float,
    transform: ValueTransform,
) -> Tensor:
    """The targets y_t = h(h^-1(Q(x_t, a_t)) + sum_s gamma^(s-t) (prod_{i=t+1..s} c_i) delta^h_s), [T, B].

    With delta^h_t = r_t + gamma sum_a pi(a|x_{t+1}) h^-1(Q(x_{t+1}, a)) - h^-1(Q(x_t, a_t)) and
    c_i = lambda min(1, pi(a_i|x_i) / mu(a_i|x_i)), of which `followed` is what lambda multiplies.

    Args:
        q_target: [T+1, B, A] values of the target network.
        policy: [T+1, B, A] probabilities of the target policy.
        action: [T, B] int64, the actions taken.
        followed: [T, B] in [0, 1], see `followed_share`.
        reward: [T, B] what the step brought.
        discount: [T, B] gamma, and 0 where x_{t+1} is terminal; a truncated step keeps its gamma and so bootstraps.
        valid: [T, B] bool, False on padding; a trace stops at the last valid step.
        trace_decay: lambda.
        transform: h.

    Targets of padded steps are finite and mean nothing.
    """
    value = transform.expand(q_target)
    next_value = (policy[1:] * value[1:]).sum(-1)
    index = action.unsqueeze(-1)
    taken_value = value[:-1].gather(-1, index).squeeze(-1)
    delta = torch.where(valid, reward + discount * next_value - taken_value, 0.0)

    cut = torch.where(valid, trace_decay * followed, 0.0)
    next_cut = torch.cat([cut[1:], torch.zeros_like(cut[:1])])
    return transform.squash(taken_value + reverse_scan(delta, discount * next_cut))


def reverse_scan(addend: Tensor, factor: Tensor) -> Tensor:
    """Solves y_t = addend_t + factor_t y_{t+1} with y_T = 0 along the first dimension.

    By doubling: after n rounds each y_t covers 2^n steps. T steps take log2(T) rounds of a few kernels instead of T.
    """
    steps = addend.shape[0]
    total, weight = addend, factor
    reach = 1
    while reach < steps:
        ahead = torch.zeros_like(total[:reach])
        total = total + weight * torch.cat([total[reach:], ahead])
        weight = weight * torch.cat([weight[reach:], ahead])
        reach *= 2
    return total

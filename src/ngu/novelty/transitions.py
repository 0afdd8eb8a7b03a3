"""Which transitions of a batch of sequences train inverse dynamics and RND (paper, App. A)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ngu.sequences import Batch


@dataclass
class Transitions:
    """F transitions (x_t, a_t, x_{t+1}), [F, ...] each."""

    observation: Tensor
    action: Tensor
    next_observation: Tensor
    weight: Tensor
    """What each counts, in [0, 1]; 0 on padding."""

    @property
    def valid(self) -> Tensor:
        """[F] bool: False on padding."""
        return self.weight > 0


def last_transitions(length: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Time indices [count, B] of each sequence's last transitions, and which of them exist.

    For a length of 7 and a count of 5: 2, 3, 4, 5, 6. Shorter sequences fill up with index 0, marked False.
    """
    index = length - count + torch.arange(count, device=length.device).unsqueeze(1)
    return index.clamp_min(0), index >= 0


def balanced_weight(behaviour: Tensor, num_actions: int) -> Tensor:
    """What transitions count where no action shall count for more than another: mu_least / mu(a|x), in [0, 1].

    `behaviour` is mu(a|x), the probability with which the action was taken. Of an epsilon-greedy policy it tells
    epsilon, and so the probability of its least likely actions: mu itself, or (1 - mu) / (A - 1) where the best one was
    taken. With these weights all actions are as likely in every state, and it does not help h to know the policy.
    """
    others = (1 - behaviour) / max(num_actions - 1, 1)
    return torch.minimum(behaviour, others) / behaviour


def drawn_by_weight(weight: Tensor, count: int, random: Tensor) -> tuple[Tensor, Tensor]:
    """Priority sampling (Duffield, Lund and Thorup, 2007): `count` of M weights, and what each drawn one stands for.

    Who has a small weight is seldom drawn, and then stands for others of its kind with max(w, tau), where tau is the
    largest of the keys w / u that were not drawn. So any sum of w x over M is estimated without bias by the sum over
    the drawn ones, among whom no weight above tau is missing. Here the result is divided by max(1, tau): where weights
    are 1 at most, no drawn one counts for more, and sums stay in proportion.

    Args:
        weight: [M] in [0, 1], of which count is at most M
        random: [M] u, uniform in [0, 1)

    Returns:
        index [count] into M, and weight [count] in [0, 1]: 0 where fewer than `count` weights are above 0.
    """
    key = weight / (1 - random)
    highest, index = key.topk(min(count + 1, len(key)))
    threshold = highest[count] if len(highest) > count else torch.zeros_like(highest[0])
    drawn = weight[index[:count]]
    stands_for = torch.where(drawn > 0, torch.maximum(drawn, threshold), 0.0)
    return index[:count], stands_for / threshold.clamp_min(1.0)


def last_of_each(batch: Batch, count: int) -> Transitions:
    """The last `count` transitions of each sequence's valid part, which count the same."""
    steps = len(batch.trained)
    index, exists = last_transitions(batch.length, min(count, steps))
    column = torch.arange(len(batch.length), device=index.device).expand_as(index)
    return _at(batch, index.flatten(), column.flatten(), exists.flatten().float())


def drawn_to_balance_actions(batch: Batch, count: int, num_actions: int, random: Tensor) -> Transitions:
    """`count` for each sequence, drawn from all sequences so that every action is as likely in every state.

    Of an epsilon-greedy policy these are nearly all of the random steps, and some of the greedy ones.

    Args:
        random: [T * B] uniform in [0, 1)
    """
    steps, sequences = batch.trained.shape
    weight = torch.where(batch.valid, balanced_weight(batch.behaviour, num_actions), 0.0)[:steps].flatten()
    index, drawn = drawn_by_weight(weight, min(count, steps) * sequences, random)
    return _at(batch, index // sequences, index % sequences, drawn)


def _at(batch: Batch, time: Tensor, column: Tensor, weight: Tensor) -> Transitions:
    observation = batch.inputs.observation
    return Transitions(
        observation=observation[time, column],
        action=batch.action[time, column],
        next_observation=observation[time + 1, column],
        weight=weight,
    )

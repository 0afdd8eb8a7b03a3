"""The family of policies Q(x, a, beta_i): its weights, discounts, and who acts with which (paper, App. A).

Pure functions of numbers; index 0 is the exploitative policy, index N-1 the most exploratory one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ngu.config import MixtureConfig


def betas(num_mixtures: int, beta: float) -> list[float]:
    """beta_i = 0 for i = 0, beta for i = N-1, else beta * sigmoid(10 (2i - (N-2)) / (N-2)).

    A single policy (N = 1) explores, so it has beta.
    """
    if num_mixtures == 1:
        return [beta]
    inner = num_mixtures - 2
    middle = [beta * _sigmoid(10 * (2 * i - inner) / inner) for i in range(1, num_mixtures - 1)]
    return [0.0, *middle, beta]


def discounts(num_mixtures: int, discount_max: float, discount_min: float) -> list[float]:
    """gamma_i = 1 - exp(((N-1-i) log(1-gamma_max) + i log(1-gamma_min)) / (N-1)); gamma_max alone when N = 1.

    Evenly spaced in log(1 - gamma), from gamma_max at i = 0 down to gamma_min at i = N-1.
    """
    if num_mixtures == 1:
        return [discount_max]
    last = num_mixtures - 1
    low, high = math.log(1 - discount_max), math.log(1 - discount_min)
    middle = [1 - math.exp(((last - i) * low + i * high) / last) for i in range(1, last)]
    return [discount_max, *middle, discount_min]


def actor_epsilons(num_actors: int, base: float, alpha: float) -> list[float]:
    """epsilon_j = base^(1 + alpha j / (L-1)) for actor j of L; base alone when L = 1."""
    if num_actors == 1:
        return [base]
    return [base ** (1 + alpha * j / (num_actors - 1)) for j in range(num_actors)]


def actor_mixtures(num_actors: int, num_mixtures: int) -> list[int]:
    """Actor j follows policy j mod N, for good.

    The paper prints j mod (N-1), under which policy N-1 would never act and N = 1 would be undefined.
    """
    return [j % num_mixtures for j in range(num_actors)]


def grouped_actors(num_actors: int, num_mixtures: int, groups: int) -> list[int]:
    """The actors in the order of their groups, which are equal parts of the list.

    Actors are dealt to the groups N at a time, so that each group has all policies and all sizes of epsilon.
    """
    return sorted(range(num_actors), key=lambda j: ((j // num_mixtures) % groups, j))


@dataclass(frozen=True)
class Mixture:
    """The ladders as tensors on a device."""

    beta: Tensor
    """[N] float32"""
    discount: Tensor
    """[N] float32"""

    @classmethod
    def create(cls, config: MixtureConfig, device: torch.device) -> Mixture:
        n = config.num_mixtures
        return cls(
            beta=torch.tensor(betas(n, config.beta), dtype=torch.float32, device=device),
            discount=torch.tensor(
                discounts(n, config.discount_max, config.discount_min), dtype=torch.float32, device=device
            ),
        )


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))

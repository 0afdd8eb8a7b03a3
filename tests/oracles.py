"""Naive twins: the paper's definitions written down once more, slowly and without tensors' tricks.

They are plain Python and NumPy in double precision, share no code with the package, and are meant to be compared with
the paper by eye.
"""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

# ------------------------------------------------------------------------------------------- Algorithm 1 (App. A.1)


class MovingAverage:
    """d_m^2: the mean of all means so far, each weighed `decay` times less than the next one."""

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.means: list[float] = []

    def update(self, distances: list[float]) -> None:
        if distances:
            self.means.append(sum(distances) / len(distances))

    @property
    def value(self) -> float:
        if not self.means:
            return 1.0
        weights = [self.decay ** (len(self.means) - 1 - i) for i in range(len(self.means))]
        return sum(w * m for w, m in zip(weights, self.means, strict=True)) / sum(weights)


@dataclass
class Constants:
    k: int = 10
    c: float = 1e-3
    epsilon: float = 1e-2
    xi: float = 8e-3
    s_m: float = 8.0


def neighbour_distances(memory: list[np.ndarray], state: np.ndarray, k: int) -> list[float]:
    """Lines 1 to 5: the squared distances of the k nearest entries, or of all entries when there are fewer."""
    n_k = sorted(memory, key=lambda entry: math.dist(entry, state))[:k]
    d_k = []
    for neighbour in n_k:
        d_k.append(math.dist(state, neighbour) ** 2)
    return d_k


def reward_of_distances(d_k: list[float], d_m: float, constants: Constants, rescale: bool = False) -> float:
    """Lines 7 to 16."""
    # d_n <- d_k / d_m^2. Where all distances are 0, so is their average, and 0 / 0 means "the same place".
    d_n = [d / d_m if d > 0 else 0.0 for d in d_k]
    # d_n <- max(d_n - xi, 0)
    d_n = [max(d - constants.xi, 0.0) for d in d_n]
    # K_v <- epsilon / (d_n + epsilon)
    k_v = [constants.epsilon / (d + constants.epsilon) for d in d_n]
    total = sum(k_v)
    if rescale and k_v:
        total *= constants.k / len(k_v)
    # s <- sqrt(sum K_v) + c
    s = math.sqrt(total) + constants.c
    if s > constants.s_m:
        return 0.0
    return 1.0 / s


def algorithm_1(
    memory: list[np.ndarray], state: np.ndarray, average: MovingAverage, constants: Constants, rescale: bool = False
) -> float:
    """All of it, for one environment."""
    d_k = neighbour_distances(memory, state, constants.k)
    average.update(d_k)  # line 6
    return reward_of_distances(d_k, average.value, constants, rescale)


# ------------------------------------------------------------------------------------------- Retrace (App. E)


def h(z: float, epsilon: float) -> float:
    """h, or the identity for epsilon 0."""
    return z if epsilon == 0 else math.copysign(math.sqrt(abs(z) + 1) - 1, z) + epsilon * z


def h_inverse(z: float, epsilon: float) -> float:
    """h^-1 with the square that the paper's print lacks."""
    if epsilon == 0:
        return z
    root = (math.sqrt(1 + 4 * epsilon * (abs(z) + 1 + epsilon)) - 1) / (2 * epsilon)
    return math.copysign(root**2 - 1, z)


def epsilon_greedy_policy(q: np.ndarray, epsilon: float) -> np.ndarray:
    """[A] values to [A] probabilities."""
    policy = np.full(len(q), epsilon / len(q))
    policy[int(np.argmax(q))] += 1 - epsilon
    return policy


def followed_share(
    q: np.ndarray, policy: np.ndarray, action: np.ndarray, behaviour: np.ndarray, tolerance: float, epsilon: float
) -> np.ndarray:
    """min(1, pi / mu) of each action taken; 1 if it is worth at least V - kappa |V|, where kappa is above 0.

    Shapes: q and policy [T+1, B, A] or [T, B, A]; action and behaviour [T, B].
    """
    shares = np.zeros(action.shape)
    for t, b in np.ndindex(*action.shape):
        a = action[t, b]
        shares[t, b] = min(1.0, policy[t, b, a] / behaviour[t, b])
        returns = [h_inverse(float(z), epsilon) for z in q[t, b]]
        value = sum(probability * each for probability, each in zip(policy[t, b], returns, strict=True))
        if tolerance > 0 and returns[a] >= value - tolerance * abs(value):
            shares[t, b] = 1.0
    return shares


def transformed_retrace(
    q_target: np.ndarray,
    policy: np.ndarray,
    action: np.ndarray,
    followed: np.ndarray,
    reward: np.ndarray,
    gamma: np.ndarray,
    terminated: np.ndarray,
    length: np.ndarray,
    trace_decay: float,
    epsilon: float,
) -> np.ndarray:
    """y_t = h(h^-1(Q(x_t, a_t)) + sum_{s=t}^{n-1} gamma^{s-t} (prod_{i=t+1}^{s} c_i) delta^h_s) for t < n = length.

    With c_i = lambda followed_i. Shapes: q_target and policy [T+1, B, A]; action, followed, reward, terminated [T, B];
    gamma, length [B]. A step into a terminal observation has no next value, and nothing comes after it; any other last
    step has one. Returns [T, B] with 0 on padding.
    """
    steps, batch, actions = len(action), action.shape[1], q_target.shape[2]
    targets = np.zeros((steps, batch))
    for b in range(batch):
        n = int(length[b])

        def q(t: int, a: int, b: int = b) -> float:
            return h_inverse(float(q_target[t, b, a]), epsilon)

        for t in range(n):
            total = 0.0
            for s in range(t, n):
                product = 1.0
                for i in range(t + 1, s + 1):
                    product *= trace_decay * followed[i, b]
                next_value = sum(policy[s + 1, b, a] * q(s + 1, a) for a in range(actions))
                if terminated[s, b]:
                    next_value = 0.0
                delta = reward[s, b] + gamma[b] * next_value - q(s, action[s, b])
                total += gamma[b] ** (s - t) * product * delta
                if terminated[s, b]:
                    break
            targets[t, b] = h(q(t, action[t, b]) + total, epsilon)
    return targets


# ------------------------------------------------------------------------------------------- replay


class DictionaryReplay:
    """A replay that stores every sequence whole, in a dictionary by (stream, number of its first row).

    The rule it spells out: an episode of n transitions gives the sequences that start at 0, P, 2P, ... and hold T
    transitions, and, if those leave the end of the episode uncovered, one more from the next start to the end. Row r of
    a stream is gone once `slots` further rows have been written, and with it the sequence that starts there.
    """

    def __init__(self, streams: int, slots: int, trace: int, period: int) -> None:
        self.slots, self.trace, self.period = slots, trace, period
        self.rows: list[list[dict[str, Any]]] = [[] for _ in range(streams)]
        self.episode: list[int | None] = [None] * streams
        self.sequences: dict[tuple[int, int], list[dict[str, Any]]] = {}

    def add(self, stream: int, row: dict[str, Any]) -> None:
        rows = self.rows[stream]
        rows.append(copy.deepcopy(row))
        now = len(rows) - 1
        if row["first"]:
            self.episode[stream] = now
        begin = self.episode[stream]
        if begin is not None:
            n = now - begin
            starts = range(0, n + 1, self.period)
            full = [start for start in starts if start + self.trace <= n]
            wanted = [(start, start + self.trace) for start in full]
            covered = wanted[-1][1] if wanted else 0
            if (row["terminated"] or row["truncated"]) and covered < n:
                wanted.append((len(full) * self.period, n))
            for start, end in wanted:
                self.sequences.setdefault((stream, begin + start), rows[begin + start : begin + end + 1])
            if row["terminated"] or row["truncated"]:
                self.episode[stream] = None
        self.sequences = {
            (s, start): kept for (s, start), kept in self.sequences.items() if start >= len(self.rows[s]) - self.slots
        }

    def following(self, key: tuple[int, int], steps: int) -> list[dict[str, Any]]:
        """What was written after a sequence, as long as its episode goes on and at most so many rows."""
        stream, start = key
        end = start + len(self.sequences[key])
        found: list[dict[str, Any]] = []
        for row in self.rows[stream][end : end + steps]:
            if row["first"]:
                break
            found.append(row)
        return found

    def left_before_a_cut(self, key: tuple[int, int]) -> float:
        """Transitions from a sequence's first row to where its episode was cut; endless if it is not known to be."""
        stream, start = key
        rows = self.rows[stream][start + 1 :]
        for steps, (row, behind) in enumerate(itertools.pairwise(rows), 1):
            if row["terminated"]:
                break
            if behind["first"]:
                return steps
        return float("inf")


# ------------------------------------------------------------------------------------------- comparing state


def clone(state: Any) -> Any:
    """A state_dict that later steps do not overwrite."""
    if isinstance(state, Tensor):
        return state.detach().clone()
    if isinstance(state, dict):
        return {name: clone(value) for name, value in state.items()}
    return copy.deepcopy(state)


def difference(left: Any, right: Any, path: str = "") -> str:
    """Where two states differ in type, shape or bits; empty if nowhere."""
    if isinstance(left, dict) and isinstance(right, dict):
        if left.keys() != right.keys():
            return f"{path}: {sorted(left.keys() ^ right.keys())}"
        return next((d for name in left if (d := difference(left[name], right[name], f"{path}/{name}"))), "")
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        same = left.dtype == right.dtype and left.shape == right.shape
        bits = (x.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for x in (left, right))
        return "" if same and torch.equal(*bits) else f"{path}: {left} against {right}"
    return "" if left == right else f"{path}: {left} against {right}"

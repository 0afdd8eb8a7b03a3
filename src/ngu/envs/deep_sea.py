"""Deep Sea: a task whose exploration is as hard as its size, a batch of E of them on any torch device.

As bsuite defines it (Osband et al. 2020, "Behaviour Suite for Reinforcement Learning", the experiment `deep_sea`; the
game is that of Osband et al. 2019, "Deep Exploration via Randomized Value Functions"): a diver falls through a sea of
N x N cells, one row a step, and goes left or right by one column. Which of the two actions is right is drawn for each
cell, once. A step to the right costs 0.01 / N; the only reward, 1, is for the step to the right out of the lower right
cell. It is reached by going right at each of the N steps, which a random player does once in 2^N episodes. The best
return is 0.99; never going right gives 0.

The observation is a one-hot picture of the diver's cell, and dark at the end. `deep_sea_gym.py` has the same game for
one player in plain NumPy.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ngu.envs.device_batch import DeviceBatch
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError

MOVE_COST = 0.01
"""What N steps to the right cost."""
MEASUREMENTS = ("solved", "row", "column")
"""Whether the episode has found the treasure, and where the diver is."""
PLACE = ("row", "column")
"""The hand-crafted controllable state, and what f can be probed for."""


def check_sea(size: int, seed: int) -> None:
    """Refuses a sea that cannot be."""
    if size < 2:
        raise UserError(f"the size of the sea is {size}; set it to 2 or more, 10 to 50 are usual.")
    if not 0 <= seed < 2**32:
        raise UserError(f"the seed of the sea is {seed}; set it from 0 to {2**32 - 1}.")


def right_actions(size: int, seed: int) -> NDArray[np.int64]:
    """[N, N] in 0..1: the action that goes right in each cell, the same as bsuite draws for its `mapping_seed`."""
    return np.random.RandomState(seed).binomial(1, 0.5, (size, size)).astype(np.int64)


class DeepSea(DeviceBatch):
    """E Deep Seas of one size and one meaning of actions; observations are [E, 1, N, N] uint8.

    Args:
        num_envs: E.
        size: N.
        sea_seed: which action is right in each cell; the environments' own seed draws nothing.
        device: where everything lives.
    """

    settings = "env.num_envs, env.sea_size"

    def __init__(self, num_envs: int, size: int, sea_seed: int, device: torch.device | str) -> None:
        check_sea(size, sea_seed)
        spec = EnvironmentSpec(
            observation_shape=(1, size, size),
            observation_dtype=torch.uint8,
            num_actions=2,
            max_episode_steps=size,
            measurements=MEASUREMENTS,
            controllable_state=PLACE,
            probed_position=PLACE,
        )
        super().__init__(num_envs, spec, device)
        self.size = size
        self._right = torch.from_numpy(right_actions(size, sea_seed)).flatten().to(self.device)
        self._cells = torch.arange(size * size, device=self.device)

    def _advance(self, action: Tensor, over: Tensor) -> dict[str, Tensor]:
        last = self.size - 1
        row, column = self._state["row"].long(), self._state["column"].long()
        # Below the last row, where an episode has ended, the action does not count.
        right = action == self._right[row.clamp_max(last) * self.size + column]
        found = right & (column == last)
        reward = found.float() - right.float() * (MOVE_COST / self.size)
        row = torch.where(over, 0, row + 1)
        column = torch.where(over, 0, (column + torch.where(right, 1, -1)).clamp(0, last))
        terminated = row == self.size
        diver = self._cells == (row * self.size + column).unsqueeze(1)
        return {
            "observation": (diver * 255).to(torch.uint8).view(-1, 1, self.size, self.size),
            "reward": torch.where(over, 0.0, reward),
            "terminated": terminated,
            "truncated": torch.zeros_like(terminated),
            "solved": (found & ~over).float(),
            "row": row.float(),
            "column": column.float(),
        }

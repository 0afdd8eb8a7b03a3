"""The random-coin grid of Agent57: a batch of E of them on any torch device.

From Badia et al. 2020, "Agent57: Outperforming the Atari Human Benchmark", Section 4.1: an empty room of 15 x 15 cells;
agent and coin are placed at random at the start of each episode; the four actions go left, right, up and down; the step
onto the coin pays 1 and ends the episode, which has at most 200 steps. The two ends of the family of policies want
opposite things: beta_0 takes the coin at once, a policy that lives on novelty avoids it to go on exploring. One network
has to serve both.

What the paper leaves open: the coin is never where the agent begins, a step against the border stays in place, and the
observation is a picture of the whole room, coin red and agent green. `random_coin_gym.py` has the same game for one
player in plain NumPy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ngu.envs.device_batch import DeviceBatch
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError

ACTIONS = ("left", "right", "up", "down")
"""What the actions 0 to 3 do."""
MEASUREMENTS = ("solved", "row", "column")
"""Whether the coin has been collected, and where the agent is."""
PLACE = ("row", "column")
"""The hand-crafted controllable state, and what f can be probed for."""


def check_room(size: int, step_cap: int) -> None:
    """Refuses a room that cannot be."""
    if size < 2:
        raise UserError(f"the size of the room is {size}; set it to 2 or more, the paper has 15.")
    if step_cap < 1:
        raise UserError(f"the step cap is {step_cap}; set it to 1 or more, the paper has 200.")


class RandomCoin(DeviceBatch):
    """E rooms; observations are [E, 3, S, S] uint8.

    Args:
        num_envs: E.
        size: S, cells on a side.
        step_cap: steps after which an episode is truncated.
        device: where everything lives.
    """

    settings = "env.num_envs, env.coin_size"

    def __init__(self, num_envs: int, size: int, step_cap: int, device: torch.device | str) -> None:
        check_room(size, step_cap)
        spec = EnvironmentSpec(
            observation_shape=(3, size, size),
            observation_dtype=torch.uint8,
            num_actions=len(ACTIONS),
            max_episode_steps=step_cap,
            measurements=MEASUREMENTS,
            controllable_state=PLACE,
            probed_position=PLACE,
        )
        super().__init__(num_envs, spec, device)
        self.size = size
        self.step_cap = step_cap
        self._state |= {"coin": self._zeros(dtype=torch.int64), "episode_step": self._zeros(dtype=torch.int64)}
        self._start = self._zeros(dtype=torch.int64)
        self._gap = self._zeros(dtype=torch.int64)
        self._cells = torch.arange(size * size, device=self.device)
        self._down = torch.tensor([0, 0, -1, 1], device=self.device)
        self._right = torch.tensor([-1, 1, 0, 0], device=self.device)

    def _advance(self, action: Tensor, over: Tensor) -> dict[str, Tensor]:
        size, cells = self.size, self.size * self.size
        # Drawn for every room at every step, whether it begins or not: who begins is known on the device alone.
        self._start.random_(0, cells, generator=self._generator)
        self._gap.random_(1, cells, generator=self._generator)
        row = torch.where(
            over, self._start // size, (self._state["row"].long() + self._down[action]).clamp(0, size - 1)
        )
        column = torch.where(
            over, self._start % size, (self._state["column"].long() + self._right[action]).clamp(0, size - 1)
        )
        coin = torch.where(over, (self._start + self._gap) % cells, self._state["coin"])
        episode_step = torch.where(over, 0, self._state["episode_step"] + 1)
        agent = row * size + column
        solved = agent == coin
        pictures = [self._cells == coin.unsqueeze(1), self._cells == agent.unsqueeze(1)]
        dark = torch.zeros_like(pictures[0])
        return {
            "observation": (torch.stack([*pictures, dark], 1) * 255).to(torch.uint8).view(-1, 3, size, size),
            "reward": solved.float(),
            "terminated": solved,
            "truncated": ~solved & (episode_step >= self.step_cap),
            "solved": solved.float(),
            "row": row.float(),
            "column": column.float(),
            "coin": coin,
            "episode_step": episode_step,
        }

"""The random-coin grid for one player, in plain NumPy: `gymnasium.make("ngu/RandomCoin-v0")`.

The rules of `random_coin.py` once more, in the simplest way; the tests prove both equal step for step. Pictures are
[S, S, 3] here (height, width, channels), and [3, S, S] in the batch.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ngu.envs.random_coin import ACTIONS, MEASUREMENTS, PLACE, check_room
from ngu.errors import UserError

MOVES = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}
"""What each action adds to (row, column)."""
Cell = tuple[int, int]


class RandomCoinEnv(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """An empty room with a coin; the step onto it pays 1 and ends the episode.

    Observation: [S, S, 3] uint8, coin red and agent green. Actions: 0 left, 1 right, 2 up, 3 down. Info: `solved`, 1 at
    the step that takes the coin, and `row` and `column` of the agent.

    Args:
        size: S, cells on a side.
        step_cap: steps after which an episode is truncated.
        render_mode: `rgb_array` for a picture with 16 pixels a cell, or None.

    `reset(options={"agent": (row, column), "coin": (row, column)})` places both; without it they are drawn.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012
    measurements = MEASUREMENTS
    controllable_state = PLACE
    probed_position = PLACE
    pixels_per_cell = 16

    def __init__(self, size: int = 15, step_cap: int = 200, render_mode: str | None = None) -> None:
        check_room(size, step_cap)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"the render mode {render_mode!r} does not exist; choose rgb_array, or None.")
        self.size = size
        self.max_episode_steps = step_cap
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(ACTIONS))
        self._ended = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        cells = self.np_random.choice(self.size**2, size=2, replace=False)
        drawn = [(int(cell) // self.size, int(cell) % self.size) for cell in cells]
        given = options or {}
        self.agent: Cell = self._inside(given.get("agent", drawn[0]))
        self.coin: Cell = self._inside(given.get("coin", drawn[1]))
        if self.agent == self.coin:
            raise UserError(f"agent and coin are both placed at {self.coin}; choose two cells.")
        self.episode_step = 0
        self._ended = False
        return self._observation(), self._measure()

    def step(self, action: np.int64 | int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        if self._ended:
            raise gymnasium.error.ResetNeeded("The episode has ended; call reset() to begin the next.")
        down, right = MOVES[ACTIONS[action]]
        ahead = (self.agent[0] + down, self.agent[1] + right)
        if min(ahead) >= 0 and max(ahead) < self.size:
            self.agent = ahead
        self.episode_step += 1
        solved = self.agent == self.coin
        truncated = self.episode_step == self.max_episode_steps and not solved
        self._ended = solved or truncated
        return self._observation(), float(solved), solved, truncated, self._measure()

    def render(self) -> NDArray[np.uint8] | None:
        """What the agent last saw, larger."""
        if self.render_mode is None:
            return None
        return self._observation().repeat(self.pixels_per_cell, axis=0).repeat(self.pixels_per_cell, axis=1)

    def _observation(self) -> NDArray[np.uint8]:
        picture = np.zeros((self.size, self.size, 3), dtype=np.uint8)
        picture[(*self.coin, 0)] = 255
        picture[(*self.agent, 1)] = 255
        return picture

    def _measure(self) -> dict[str, Any]:
        row, column = self.agent
        return {"solved": float(self.agent == self.coin), "row": float(row), "column": float(column)}

    def _inside(self, cell: Cell) -> Cell:
        row, column = cell
        if not (0 <= row < self.size and 0 <= column < self.size):
            raise UserError(f"the cell {tuple(cell)} is outside of the room; give rows and columns below {self.size}.")
        return int(row), int(column)

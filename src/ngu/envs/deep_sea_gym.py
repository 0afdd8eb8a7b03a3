"""Deep Sea for one player, as a Gymnasium environment in plain NumPy: `gymnasium.make("ngu/DeepSea-v0")`.

The rules of `deep_sea.py` once more, in the simplest way; the tests prove both equal step for step.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ngu.envs.deep_sea import MEASUREMENTS, MOVE_COST, PLACE, check_sea, right_actions
from ngu.errors import UserError

_SEA, _SEEN, _DIVER, _TREASURE = (18, 60, 105), (36, 98, 150), (255, 255, 255), (240, 190, 40)


class DeepSeaEnv(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """A diver falls through N rows and goes left or right; the treasure lies in the lower right corner.

    Observation: [N, N] uint8, 255 in the diver's cell. Actions: 0 and 1, which of them goes right is drawn for each
    cell by `sea_seed`. Info: `solved`, 1 at the step that finds the treasure, and `row` and `column` of the diver.

    Args:
        size: N.
        sea_seed: of the meaning of actions; bsuite calls it `mapping_seed`.
        render_mode: `rgb_array` for a picture with the way that the diver came, or None.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012
    measurements = MEASUREMENTS
    controllable_state = PLACE
    probed_position = PLACE
    pixels_per_cell = 8

    def __init__(self, size: int = 20, sea_seed: int = 42, render_mode: str | None = None) -> None:
        check_sea(size, sea_seed)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"the render mode {render_mode!r} does not exist; choose rgb_array, or None.")
        self.size = size
        self.max_episode_steps = size
        self.render_mode = render_mode
        self.right = right_actions(size, sea_seed)
        """[N, N]: the action that goes right in each cell."""
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.row = self.size

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.row = self.column = 0
        self._way = [(0, 0)]
        return self._observation(), self._measure(solved=False)

    def step(self, action: np.int64 | int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        if self.row == self.size:
            raise gymnasium.error.ResetNeeded("The episode has ended; call reset() to begin the next.")
        right = bool(action == self.right[self.row, self.column])
        solved = right and self.column == self.size - 1
        reward = (1.0 if solved else 0.0) - (MOVE_COST / self.size if right else 0.0)
        self.column = min(self.column + 1, self.size - 1) if right else max(self.column - 1, 0)
        self.row += 1
        if self.row < self.size:
            self._way.append((self.row, self.column))
        return self._observation(), reward, self.row == self.size, False, self._measure(solved=solved)

    def render(self) -> NDArray[np.uint8] | None:
        """[8 N, 8 N, 3]: the sea, the way down, the diver and the treasure."""
        if self.render_mode is None:
            return None
        picture = np.full((self.size, self.size, 3), _SEA, dtype=np.uint8)
        picture[-1, -1] = _TREASURE
        for cell in self._way:
            picture[cell] = _SEEN
        picture[self._way[-1]] = _DIVER
        return picture.repeat(self.pixels_per_cell, axis=0).repeat(self.pixels_per_cell, axis=1)

    def _observation(self) -> NDArray[np.uint8]:
        picture = np.zeros((self.size, self.size), dtype=np.uint8)
        if self.row < self.size:
            picture[self.row, self.column] = 255
        return picture

    def _measure(self, *, solved: bool) -> dict[str, Any]:
        return {"solved": float(solved), "row": float(self.row), "column": float(self.column)}

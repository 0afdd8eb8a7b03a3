"""The Random Disco Maze for one player, as a Gymnasium environment in plain NumPy.

`gymnasium.make("ngu/DiscoMaze-v0")` makes one. The rules are written out here once more, in the simplest way, and the
tests prove this game and the batched one in `disco_maze.py` equal step for step. One difference of custom: pictures are
[S, S, 3] here (height, width, channels), as Gymnasium's users expect, and [3, S, S] in the batch.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ngu.envs.disco_maze import ACTIONS, PALETTE, PATH, PLAYER, WALL_COLOURS
from ngu.envs.maze_generator import check_size
from ngu.errors import UserError

MOVES = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}
"""What each action adds to (row, column)."""


def draw_maze(size: int, random: np.random.Generator) -> NDArray[np.bool_]:
    """A random perfect maze, [S, S] with True for walls, by depth-first search from a random room."""
    walls = np.ones((size, size), dtype=np.bool_)
    stack = [_random_room(size, random)]
    walls[stack[0]] = False
    while stack:
        row, column = stack[-1]
        ways = [
            (down, right)
            for down, right in MOVES.values()
            if 0 < row + 2 * down < size and 0 < column + 2 * right < size and walls[row + 2 * down, column + 2 * right]
        ]
        if ways:
            down, right = ways[random.integers(len(ways))]
            walls[row + down, column + right] = False
            stack.append((row + 2 * down, column + 2 * right))
            walls[stack[-1]] = False
        else:
            stack.pop()
    return walls


def _random_room(size: int, random: np.random.Generator) -> tuple[int, int]:
    row, column = 1 + 2 * random.integers((size - 1) // 2, size=2)
    return int(row), int(column)


class DiscoMazeEnv(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """A fresh maze each episode; the colours of its walls change at every step; a step into a wall ends it.

    Observation: [S, S, 3] uint8. Actions: 0 left, 1 right, 2 up, 3 down. Reward: always 0. Info: `coverage`, the share
    of the open cells that the episode has visited.

    Args:
        size: S, cells on a side, walls included; odd, 5 or more.
        step_cap: steps after which an episode is truncated; 0 for never.
        render_mode: `rgb_array` for a picture with 16 pixels a cell, `ansi` for text, None for neither.

    `reset(options={"walls": walls, "position": (row, column)})` plays a given maze ([S, S] bool, True for walls) from a
    given cell; either may be left out.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 8}  # noqa: RUF012
    pixels_per_cell = 16
    measurements = ("coverage",)

    def __init__(self, size: int = 21, step_cap: int = 500, render_mode: str | None = None) -> None:
        check_size(size)
        if step_cap < 0:
            raise UserError(f"the step cap is {step_cap}; set it to 0 (no cap) or more.")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            modes = " or ".join(self.metadata["render_modes"])
            raise UserError(f"the render mode {render_mode!r} does not exist; choose {modes}, or None.")
        self.size = size
        self.step_cap = step_cap
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(ACTIONS))
        self._ended = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        options = options or {}
        self.walls = (
            self._checked_walls(options["walls"]) if "walls" in options else draw_maze(self.size, self.np_random)
        )
        row, column = options["position"] if "position" in options else _random_room(self.size, self.np_random)
        self.position = (int(row), int(column))
        inside = all(0 <= coordinate < self.size for coordinate in self.position)
        if not inside or self.walls[self.position]:
            raise UserError(f"the position {self.position} is no open cell of the maze; choose one that is.")
        self.visited = {self.position}
        self.episode_step = 0
        self._ended = False
        self._picture = self._draw()
        return self._picture.copy(), {"coverage": self.coverage}

    def step(self, action: np.int64 | int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        if self._ended:
            raise gymnasium.error.ResetNeeded("The episode has ended; call reset() to begin the next.")
        down, right = MOVES[ACTIONS[action]]
        self.position = (self.position[0] + down, self.position[1] + right)
        self.episode_step += 1
        terminated = bool(self.walls[self.position])
        truncated = self.episode_step == self.step_cap and not terminated
        if not terminated:
            self.visited.add(self.position)
        self._ended = terminated or truncated
        self._picture = self._draw()
        return self._picture.copy(), 0.0, terminated, truncated, {"coverage": self.coverage}

    @property
    def coverage(self) -> float:
        """Share of the open cells that the episode has visited."""
        return len(self.visited) / int((~self.walls).sum())

    def render(self) -> NDArray[np.uint8] | str | None:
        """What the player last saw, as a larger picture or as text."""
        if self.render_mode == "rgb_array":
            return self._picture.repeat(self.pixels_per_cell, axis=0).repeat(self.pixels_per_cell, axis=1)
        if self.render_mode == "ansi":
            return self._text()
        return None

    def _draw_colours(self) -> NDArray[np.int64]:
        """[S, S] in 0..4: the colour that each cell has if it is a wall."""
        return self.np_random.integers(WALL_COLOURS, size=(self.size, self.size))

    def _draw(self) -> NDArray[np.uint8]:
        shades = np.where(self.walls, self._draw_colours(), PATH)
        shades[self.position] = PLAYER
        return np.array(PALETTE, dtype=np.uint8)[shades]

    def _text(self) -> str:
        """Walls `##`, the player `@`, visited cells `.`; two characters a cell, so that cells look square."""

        def symbol(cell: tuple[int, int]) -> str:
            if cell == self.position:
                return "@ "
            if self.walls[cell]:
                return "##"
            return ". " if cell in self.visited else "  "

        rows = ["".join(symbol((row, column)) for column in range(self.size)) for row in range(self.size)]
        return "\n".join([*rows, f"step {self.episode_step}, coverage {self.coverage:.0%}", ""])

    def _checked_walls(self, given: Any) -> NDArray[np.bool_]:
        walls: NDArray[np.bool_] = np.array(given, dtype=np.bool_)
        if walls.shape != (self.size, self.size):
            raise UserError(f"the walls have shape {walls.shape}; give an array of {(self.size, self.size)}.")
        if not (walls[[0, -1]].all() and walls[:, [0, -1]].all()):
            raise UserError("the maze is open at its border; make every cell of the border a wall.")
        return walls

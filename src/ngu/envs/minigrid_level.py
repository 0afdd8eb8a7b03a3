"""MiniGrid's hard-exploration levels for the agent: DoorKey, KeyCorridor and MultiRoom (extra `minigrid`).

The levels are those of the package `minigrid` (Chevalier-Boisvert et al. 2023, "Minigrid & Miniworld"), with their
rules, step limits and rewards: 1 - 0.9 t / limit for success at step t, else 0. What is changed for the agent:

- The observation is the symbolic view of the 7 x 7 cells ahead, one-hot: [24, 7, 7] uint8, a plane for each kind of
  object (11), colour (6) and state of a door (3), and a plane for each direction that the agent may face (4). The kinds
  are numbers without an order, so a network should not see them as one. The mission is left out: these levels have one.
- Actions without any use in a family of levels are left out, see `ACTIONS`.

`gymnasium.wrappers` are enough for other levels; see the docs on environments of your own.
"""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ngu.errors import UserError, needs_extra, unknown_name

ACTIONS = {
    "DoorKey": ("left", "right", "forward", "pickup", "toggle"),
    "KeyCorridor": ("left", "right", "forward", "pickup", "drop", "toggle"),
    "MultiRoom": ("left", "right", "forward", "toggle"),
}
"""Family of levels -> the actions that serve a purpose there."""
_UNSEEN, _EMPTY = (0, 0, 0), (1, 0, 0)
"""MiniGrid's symbols for a cell that is hidden, and for one without an object."""
PLANES = (11, 6, 3, 4)
"""One-hot planes for the kind of object, its colour, the state of a door, and the agent's direction."""


def level_names() -> list[str]:
    """The levels of the three families that the installed package has."""
    try:
        import minigrid  # noqa: F401, importing it registers the levels
    except ImportError:
        raise UserError(needs_extra("MiniGrid's levels need its package", "minigrid")) from None
    families = "|".join(ACTIONS)
    return sorted(name for name in gymnasium.registry if re.match(rf"MiniGrid-({families})", name))


def check_level(name: str) -> str:
    """The id of a level, of its newest version unless one is named: `DoorKey-8x8` -> `MiniGrid-DoorKey-8x8-v0`."""
    known = level_names()
    full = name if name.startswith("MiniGrid-") else f"MiniGrid-{name}"
    if full in known:
        return full
    versions = [level for level in known if re.fullmatch(rf"{re.escape(full)}-v\d+", level)]
    if not versions:
        raise UserError(unknown_name(f"the MiniGrid level '{name}'", full, known))
    return versions[-1]


class MiniGridLevel(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """One level; see the module. Info: `solved`, 1 at the step that reaches the goal.

    Args:
        level: a level's name, such as `DoorKey-8x8`.
        render_mode: `rgb_array` for MiniGrid's own picture, or None.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    measurements = ("solved",)
    channels_first = True

    def __init__(self, level: str = "DoorKey-8x8", render_mode: str | None = None) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"the render mode {render_mode!r} does not exist; choose rgb_array, or None.")
        self.level = check_level(level)
        self.render_mode = render_mode
        # MiniGrid counts steps itself, and its levels differ in how many they grant.
        made: Any = gymnasium.make(self.level, render_mode=render_mode, disable_env_checker=True)
        self._game = made.unwrapped
        self._game.gen_obs = AgentView(self._game)  # the package's own takes most of a step's time
        self.max_episode_steps = int(self._game.max_steps)
        family = next(family for family in ACTIONS if self.level.startswith(f"MiniGrid-{family}"))
        self.actions = ACTIONS[family]
        """What the actions 0, 1, ... do."""
        self._numbers = [int(self._game.actions[name]) for name in self.actions]
        size = self._game.agent_view_size
        self.observation_space = gymnasium.spaces.Box(0, 255, (sum(PLANES), size, size), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(self.actions))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        observation, _ = self._game.reset(seed=seed)
        return one_hot(observation["image"], observation["direction"]), {"solved": 0.0}

    def step(self, action: np.int64 | int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = self._game.step(self._numbers[action])
        solved = {"solved": float(reward > 0)}
        picture = one_hot(observation["image"], observation["direction"])
        return picture, float(reward), bool(terminated), bool(truncated and not terminated), solved

    def render(self) -> NDArray[np.uint8] | None:
        """The whole level from above, with what the agent sees lit up."""
        return None if self.render_mode is None else np.asarray(self._game.render(), dtype=np.uint8)

    def close(self) -> None:
        self._game.close()


class AgentView:
    """What `gen_obs` of a game of MiniGrid returns, in a third of the time: the cells ahead without copies of the grid.

    A cell is seen from its neighbours: from the agent's on, row by row away from it, each seen cell that lets light
    through shows those to its left and right and the three of the next row, as in MiniGrid's `Grid.process_vis`.
    """

    def __init__(self, game: Any) -> None:
        from minigrid.core.world_object import Wall

        self._game = game
        self._outside = Wall()
        self._size = size = int(game.agent_view_size)
        self._own = (size - 1) * size + size // 2
        """The agent's own cell: in the middle of the last row."""
        self._offsets = [
            [
                (forward_x * (size - 1 - row) - forward_y * (column - size // 2),
                 forward_y * (size - 1 - row) + forward_x * (column - size // 2))
                for row in range(size)
                for column in range(size)
            ]
            for forward_x, forward_y in ((1, 0), (0, 1), (-1, 0), (0, -1))
        ]  # fmt: skip
        """For each direction that the agent may face, where the cells of its view lie from it; row by row."""

    def __call__(self) -> dict[str, Any]:
        game, size = self._game, self._size
        grid, width, height = game.grid.grid, game.grid.width, game.grid.height
        own_x, own_y = map(int, game.agent_pos)
        cells = [
            grid[y * width + x] if 0 <= (x := own_x + right) < width and 0 <= (y := own_y + down) < height
            else self._outside
            for right, down in self._offsets[game.agent_dir]
        ]  # fmt: skip
        seen = self._seen(cells)
        cells[self._own] = game.carrying
        codes = [
            _UNSEEN if not lit else _EMPTY if cell is None else cell.encode()
            for cell, lit in zip(cells, seen, strict=True)
        ]
        image = np.array(codes, dtype=np.uint8).reshape(size, size, 3).transpose(1, 0, 2)
        return {"image": image, "direction": game.agent_dir, "mission": game.mission}

    def _seen(self, cells: list[Any]) -> list[bool]:
        size = self._size
        if self._game.see_through_walls:
            return [True] * len(cells)
        seen = [False] * len(cells)
        seen[self._own] = True
        for row in range(len(cells) - size, -1, -size):
            for way, columns in ((1, range(size - 1)), (-1, range(size - 1, 0, -1))):
                for place in (row + column for column in columns):
                    if seen[place] and (cells[place] is None or cells[place].see_behind()):
                        seen[place + way] = True
                        if row:
                            seen[place - size] = seen[place + way - size] = True
        return seen


def one_hot(view: NDArray[np.uint8], direction: int) -> NDArray[np.uint8]:
    """[24, W, H] uint8 of 0 and 255, from MiniGrid's view [W, H, 3] of kinds, colours and states."""
    codes = [view[..., 0], view[..., 1], view[..., 2], np.full(view.shape[:2], direction)]
    planes = [code == np.arange(count)[:, None, None] for code, count in zip(codes, PLANES, strict=True)]
    return np.concatenate(planes).astype(np.uint8) * np.uint8(255)

"""The Random Disco Maze (paper, Section 4.1), a batch of E of them on any torch device.

Every episode is a fresh perfect maze. The player, pure green, sees all of it and walks left, right, up or down along
black paths; a step into a wall ends the episode. Each wall cell takes one of five colours anew at every step, so that
hardly any two observations are ever the same. There is no reward: the measure is `coverage`, the share of the open
cells that the episode has visited.

The whole step is `advance`, a pure function of tensors and of the colours drawn for it. `disco_maze_gym.py` has the
same game for one player in plain NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ngu.envs.maze_generator import STEPS_WITHOUT_MAINTENANCE, MazePool, check_size
from ngu.envs.protocol import EnvironmentSpec, Step
from ngu.errors import UserError

PALETTE = (
    (255, 0, 0),  # walls: red,
    (0, 0, 255),  # blue,
    (255, 255, 0),  # yellow,
    (255, 0, 255),  # magenta,
    (255, 255, 255),  # white
    (0, 0, 0),  # path
    (0, 255, 0),  # player
)
"""RGB of everything on the screen."""
WALL_COLOURS = 5
"""Walls take the first five colours of the palette."""
PATH = 5
"""The paths' place in the palette."""
PLAYER = 6
"""The player's place in the palette."""

ACTIONS = ("left", "right", "up", "down")
"""What the actions 0 to 3 do."""


_POSITION = ("column", "row")
"""What is measured of the player's place, where that is asked for."""


class MazeState(NamedTuple):
    """Everything that a step reads and changes; C = S * S cells, counted row by row."""

    walls: Tensor
    """[E, C] bool: True for walls."""
    position: Tensor
    """[E] int64: the player's cell; a wall's after the step into it."""
    visited: Tensor
    """[E, C] bool: the open cells that the running episode has visited."""
    episode_step: Tensor
    """[E] int64: transitions of the running episode."""
    terminated: Tensor
    """[E] bool: the player has stepped into a wall."""
    truncated: Tensor
    """[E] bool: the step cap has been reached."""
    first: Tensor
    """[E] bool: the episode has just begun."""
    coverage: Tensor
    """[E] float32: share of the open cells visited."""
    observation: Tensor
    """[E, 3, C] uint8: the picture."""
    taken: Tensor
    """[1] int64: how many mazes of the pool have been used."""


def advance(
    state: MazeState,
    action: Tensor,
    colours: Tensor,
    pool_walls: Tensor,
    pool_start: Tensor,
    moves: Tensor,
    cells: Tensor,
    palette: Tensor,
    open_cells: int,
    step_cap: int,
) -> MazeState:
    """One step of all E environments; those whose episode has ended begin a new one instead.

    Args:
        state: where the environments stand.
        action: [E] int64 in 0..3, ignored where a new episode begins.
        colours: [E, C] int64 in 0..4, the colour that each cell has if it is a wall.
        pool_walls: [P, C] bool, the mazes made ahead.
        pool_start: [P] int64, the cell where each of them begins.
        moves: [4] int64, what each action adds to the position.
        cells: [C] int64, 0 to C - 1.
        palette: [1, 3, 7] uint8.
        open_cells: how many cells of a maze are open.
        step_cap: steps after which an episode is truncated; 0 for never.
    """
    reset = state.terminated | state.truncated
    # The i-th environment to reset takes the i-th unused maze.
    rank = reset.cumsum(0)
    slot = (state.taken + rank - 1) % pool_walls.shape[0]

    walls = torch.where(reset[:, None], pool_walls.index_select(0, slot), state.walls)
    position = torch.where(reset, pool_start.index_select(0, slot), state.position + moves[action])
    episode_step = (state.episode_step + 1).masked_fill(reset, 0)

    terminated = walls.gather(1, position[:, None]).squeeze(1)
    truncated = ~terminated & (episode_step >= step_cap) if step_cap else torch.zeros_like(terminated)

    here = cells == position[:, None]
    visited = state.visited & ~reset[:, None] | here & ~walls
    coverage = visited.sum(1) / open_cells

    shade = colours.masked_fill(~walls, PATH).masked_fill(here, PLAYER)
    num_envs, num_cells = shade.shape
    observation = palette.expand(num_envs, -1, -1).gather(2, shade[:, None].expand(num_envs, 3, num_cells))
    return MazeState(
        walls=walls,
        position=position,
        visited=visited,
        episode_step=episode_step,
        terminated=terminated,
        truncated=truncated,
        first=reset,
        coverage=coverage,
        observation=observation,
        taken=state.taken + rank[-1:],
    )


def advance_in_place(state: MazeState, *arguments: Any) -> None:
    """`advance`, written over the tensors of `state`, which never move."""
    for tensor, value in zip(state, advance(state, *arguments), strict=True):
        tensor.copy_(value)


class DiscoMaze:
    """E Random Disco Mazes that step together; see `EnvironmentBatch`.

    Observations are [E, 3, S, S] uint8. Call `maintain` after every step: it replaces the mazes that were used. The
    same seed gives the same episodes for the same actions.

    Args:
        num_envs: E.
        size: S, odd, 5 or more.
        step_cap: steps after which an episode is truncated; 0 for never.
        pool: how many mazes are made at a time; at least one for each environment is.
        device: where everything lives.
        compile_kernels: fuse the small kernels of the step and of the maze search with `torch.compile`.
        tell_position: also measure the player's `column` and `row`, for probes.
    """

    graph_safe = True
    restores = True

    def __init__(
        self,
        num_envs: int,
        size: int,
        step_cap: int,
        pool: int,
        device: torch.device | str,
        compile_kernels: bool = False,
        tell_position: bool = False,
    ) -> None:
        check_size(size)
        if num_envs < 1:
            raise UserError(f"the number of environments is {num_envs}; set it to 1 or more.")
        if step_cap < 0:
            raise UserError(f"the step cap is {step_cap}; set it to 0 (no cap) or more.")
        self.num_envs = num_envs
        self.size = size
        self.device = torch.device(device)
        self.spec = EnvironmentSpec(
            observation_shape=(3, size, size),
            observation_dtype=torch.uint8,
            num_actions=len(ACTIONS),
            max_episode_steps=step_cap or None,
            measurements=("coverage", *(_POSITION if tell_position else ())),
            probed_position=_POSITION if tell_position else (),
        )
        self._pool = MazePool(num_envs, size, pool, self.device, compile_kernels)
        self._generator = torch.Generator(self.device)
        self._steps_since_maintenance = 0

        num_cells = size * size
        self.colours = torch.zeros((num_envs, num_cells), dtype=torch.int64, device=self.device)
        """[E, S * S] int64 in 0..4: the colour that each cell last had if it is a wall."""

        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        self._state = MazeState(
            walls=zeros(num_envs, num_cells, dtype=torch.bool),
            position=zeros(num_envs, dtype=torch.int64),
            visited=zeros(num_envs, num_cells, dtype=torch.bool),
            episode_step=zeros(num_envs, dtype=torch.int64),
            terminated=zeros(num_envs, dtype=torch.bool),
            truncated=zeros(num_envs, dtype=torch.bool),
            first=zeros(num_envs, dtype=torch.bool),
            coverage=zeros(num_envs, dtype=torch.float32),
            observation=zeros(num_envs, 3, num_cells, dtype=torch.uint8),
            taken=self._pool.taken,
        )
        self._step = Step(
            observation=self._state.observation.view(num_envs, 3, size, size),
            reward=zeros(num_envs, dtype=torch.float32),
            terminated=self._state.terminated,
            truncated=self._state.truncated,
            first=self._state.first,
            info={"coverage": self._state.coverage}
            | {name: zeros(num_envs, dtype=torch.float32) for name in self.spec.probed_position},
        )
        self._constants = (
            self._pool.walls,
            self._pool.start,
            torch.tensor([-1, 1, -size, size], device=self.device),
            torch.arange(num_cells, device=self.device),
            torch.tensor(PALETTE, dtype=torch.uint8, device=self.device).T.contiguous()[None],
            (size - 1) ** 2 // 2 - 1,
            step_cap,
        )
        self._advance: Callable[..., None] = (
            torch.compile(advance_in_place, fullgraph=True, dynamic=False) if compile_kernels else advance_in_place
        )

    @property
    def walls(self) -> Tensor:
        """[E, S, S] bool: the running mazes, True for walls."""
        return self._state.walls.view(self.num_envs, self.size, self.size)

    @property
    def position(self) -> Tensor:
        """[E] int64: row * S + column of the player."""
        return self._state.position

    @property
    def visited(self) -> Tensor:
        """[E, S * S] bool: the open cells that the running episodes have visited."""
        return self._state.visited

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """The generator of the wall colours; mazes are drawn from another one, in `maintain` alone."""
        return (self._generator,)

    def reset(self, seed: int) -> Step:
        maze_seed, colour_seed = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        self._pool.reset(int(maze_seed))
        self._generator.manual_seed(int(colour_seed))
        self._steps_since_maintenance = 0
        self._state.terminated.fill_(True)  # an ended episode gives way to a new one at the next step
        self._run_step(torch.zeros(self.num_envs, dtype=torch.int64, device=self.device))
        return self.recv()

    def send(self, action: Tensor) -> None:
        # Counts steps that run from Python; replays of a graph are checked by the pool.
        self._steps_since_maintenance += 1
        if self._steps_since_maintenance > STEPS_WITHOUT_MAINTENANCE:
            raise RuntimeError("the mazes would run out; call maintain() after every step of the environments.")
        self._run_step(action)

    def _run_step(self, action: Tensor) -> None:
        self.colours.random_(0, WALL_COLOURS, generator=self._generator)
        self._advance(self._state, action, self.colours, *self._constants)
        self._measure_position()

    def _measure_position(self) -> None:
        if self.spec.probed_position:
            self._step.info["column"].copy_(self._state.position % self.size)
            self._step.info["row"].copy_(self._state.position // self.size)

    def recv(self) -> Step:
        return self._step

    def maintain(self) -> None:
        self._steps_since_maintenance = 0
        self._pool.maintain()

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of all state; the observation is part of it, so that a restored batch can go on from `recv`."""
        own = {name: tensor.clone() for name, tensor in self._state._asdict().items() if name != "taken"}
        return own | self._pool.state_dict() | {"colour_generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, present in self.state_dict().items():
            if name not in state or state[name].shape != present.shape:
                raise UserError(
                    f"the saved environments do not fit: '{name}' has another shape; use the same env.num_envs, "
                    "env.maze_size, env.maze_pool and run.device as the saved run."
                )
        for name, tensor in self._state._asdict().items():
            if name != "taken":
                tensor.copy_(state[name])
        self._pool.load_state_dict(state)
        self._measure_position()
        self._generator.set_state(state["colour_generator"].cpu())
        self._steps_since_maintenance = 0

    def close(self) -> None:
        """Nothing to end."""

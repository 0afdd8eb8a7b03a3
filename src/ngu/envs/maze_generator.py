"""Perfect mazes, many at a time, by depth-first search on any torch device.

A maze of odd size S has n x n rooms, n = (S - 1) / 2, at the odd (row, column) cells of an S x S grid of walls. The
search starts in a random room and walks to a uniformly random unvisited neighbour, opening the wall between; where
there is none it steps back to the room it came from. What it opens is a spanning tree of the rooms: 2 n^2 - 1 open
cells, exactly one way between any two of them.

All mazes of a batch take their steps together: a step of the search is a dozen operations on tensors, however many
mazes there are. On a GPU the whole search is one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ngu.errors import UserError

DRAWS = 12
"""A draw is uniform over this many values: a multiple of 1, 2, 3 and 4, so that it picks evenly among so many ways."""

UNVISITED = 0
"""Marks a room that the search has not reached; a visited room holds the place of its parent, which is never 0."""
OUTSIDE = -1
"""Marks the border around the rooms, where the search cannot go."""


STEPS_WITHOUT_MAINTENANCE = 16
"""So many steps in a row are safe without a call of `maintain`, to leave room for warming up before a graph capture."""
LOOK_PERIOD = 8
"""On a GPU, every so many calls of `maintain` the count of used mazes is looked at, as it was so many calls before."""


def check_size(size: int) -> None:
    """Raises a `UserError` unless mazes of this size exist."""
    if size < 5 or size % 2 == 0:
        raise UserError(f"the maze size is {size}; a maze needs an odd size of 5 or more, such as 9 or 21.")


@dataclass(frozen=True)
class SearchTables:
    """What every step of the search looks up; W = n + 2 is the width of the grid of rooms with its border."""

    looks: Tensor
    """[5] int64: offsets of the rooms to the left, to the right, above and below, and of the room itself."""
    weights: Tensor
    """[4] int64: 12, 24, 48, 96; the weights of the unvisited neighbours sum to 12 times their bit pattern."""
    moves: Tensor
    """[16 * 12] int64: at 12 * pattern + draw, the offset of the neighbour to walk to; 0 for a step back."""

    @classmethod
    def make(cls, rooms_per_side: int, device: torch.device) -> SearchTables:
        width = rooms_per_side + 2
        offsets = [-1, 1, -width, width]
        moves = []
        for pattern in range(16):
            ways = [offset for bit, offset in enumerate(offsets) if pattern >> bit & 1]
            moves += [ways[draw * len(ways) // DRAWS] if ways else 0 for draw in range(DRAWS)]
        return cls(
            looks=torch.tensor([*offsets, 0], device=device),
            weights=torch.tensor([DRAWS << bit for bit in range(4)], device=device),
            moves=torch.tensor(moves, device=device),
        )


class SearchStep(NamedTuple):
    """What one step of the search decides for each maze; every entry is [N, 1] int64."""

    entered: Tensor
    """The room whose parent is written: the new room, or the one that is left."""
    parent: Tensor
    """The parent of `entered`; a search that steps back writes what stands there already."""
    current: Tensor
    """The room where the search stands after the step."""


def search_step(
    parent: Tensor, current: Tensor, draw: Tensor, looks: Tensor, weights: Tensor, moves: Tensor
) -> SearchStep:
    """One step of the search in N mazes: on to a random unvisited neighbour, or back to the parent.

    Args:
        parent: [N, W * W] int64, for each room `UNVISITED` or the place of its parent; the root is its own parent.
        current: [N, 1] int64, the room where each search stands.
        draw: [N, 1] integers, uniform in 0..11.
        looks, weights, moves: see `SearchTables`.
    """
    seen = parent.gather(1, current + looks)
    back = seen[:, 4:]
    pattern = ((seen[:, :4] == UNVISITED) * weights).sum(1, keepdim=True)
    move = moves[pattern + draw]
    onward = current + move
    stuck = move == 0
    return SearchStep(onward, torch.where(stuck, back, current), torch.where(stuck, back, onward))


class MazeGenerator:
    """Makes `batch` mazes of `size` x `size` cells at a time, on `device`.

    The n-th call with a generator in a given state always makes the same mazes, whatever happens in between.
    """

    def __init__(self, batch: int, size: int, device: torch.device | str, compile_kernels: bool = False) -> None:
        check_size(size)
        self.batch = batch
        self.size = size
        self.device = torch.device(device)
        self.rooms_per_side = (size - 1) // 2
        self.num_rooms = self.rooms_per_side**2

        odd = 1 + 2 * torch.arange(self.rooms_per_side, device=self.device)
        self.room_cells = (odd[:, None] * size + odd).flatten()
        """[n * n] int64: the place of each room among the S * S cells of the maze."""

        width = self.rooms_per_side + 2
        inner = 1 + torch.arange(self.rooms_per_side, device=self.device)
        self._room_places = (inner[:, None] * width + inner).flatten()
        # From a place in the grid of rooms to its cell; the border's entries are never read.
        self._cell_of_place = torch.zeros(width * width, dtype=torch.int64, device=self.device)
        self._cell_of_place.index_copy_(0, self._room_places, self.room_cells)
        self._fresh = torch.full((width * width,), OUTSIDE, device=self.device)
        self._fresh.index_fill_(0, self._room_places, UNVISITED)
        self._tables = SearchTables.make(self.rooms_per_side, self.device)

        # Every room but the root is walked into once, and every room but the root and the last one is left at most
        # once before all are visited.
        self._num_steps = 2 * self.num_rooms - 3
        self._parent = torch.empty((batch, width * width), dtype=torch.int64, device=self.device)
        self._root = torch.empty(batch, dtype=torch.int64, device=self.device)
        self._draws = torch.empty((self._num_steps, batch, 1), dtype=torch.uint8, device=self.device)
        self._walls = torch.empty((batch, size * size), dtype=torch.bool, device=self.device)
        self._search_step: Callable[..., SearchStep] = (
            torch.compile(search_step, fullgraph=True, dynamic=False) if compile_kernels else search_step
        )
        self._graph: torch.cuda.CUDAGraph | None = None

    def generate(self, generator: torch.Generator) -> Tensor:
        """[batch, S * S] bool, True for walls; the same tensor each time, overwritten."""
        # The random numbers are drawn outside of the CUDA graph, which so needs to know no generator.
        self._draws.random_(0, DRAWS, generator=generator)
        self._root.random_(0, self.num_rooms, generator=generator)
        if self.device.type != "cuda":
            self._search()
        else:
            if self._graph is None:
                self._graph = self._capture()
            self._graph.replay()
        return self._walls

    def _search(self) -> None:
        """The whole search, from `_draws` and `_root` to `_walls`."""
        self._parent.copy_(self._fresh)
        current = self._room_places[self._root][:, None]
        self._parent.scatter_(1, current, current)
        tables = self._tables
        for draw in self._draws.unbind():
            step = self._search_step(self._parent, current, draw, tables.looks, tables.weights, tables.moves)
            # Written here, not in the step: the compiler would copy all of `_parent` to change one entry of a maze.
            self._parent.scatter_(1, step.entered, step.parent)
            current = step.current
        # The open cell between a room and its parent lies halfway; that of the root is the root itself.
        parent_cells = self._cell_of_place[self._parent[:, self._room_places]]
        self._walls.fill_(True)
        self._walls.index_fill_(1, self.room_cells, False)
        self._walls.scatter_(1, (self.room_cells + parent_cells) // 2, False)

    def _capture(self) -> torch.cuda.CUDAGraph:
        """The search as one CUDA graph: a few thousand tiny kernels, launched at once."""
        with torch.cuda.device(self.device):
            side_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side_stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side_stream):
                self._search()  # compiles and warms up outside of the capture
            torch.cuda.current_stream().wait_stream(side_stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._search()
        return graph


class MazePool:
    """Mazes made ahead for E environments on `device`, each to be used for one episode.

    Mazes are numbered as they are made; maze k lies in slot k modulo the capacity until all of its batch is used and
    made anew. So the k-th maze is the same for the same seed, no matter when `maintain` was called.

    An environment resets at most every second step. The reserve behind the last look at the count covers all steps
    until the next look has taken effect: on the CPU `STEPS_WITHOUT_MAINTENANCE`; on a GPU, where the look is late on
    purpose so as not to wait for the device, two `LOOK_PERIOD` more.
    """

    def __init__(
        self, num_envs: int, size: int, batch: int, device: torch.device, compile_kernels: bool = False
    ) -> None:
        # At least a maze for every environment, so that refills are few; multiples of 16 keep rows of draws aligned.
        batch = -(-max(batch, num_envs) // 16) * 16
        self._on_gpu = device.type == "cuda"
        steps_ahead = STEPS_WITHOUT_MAINTENANCE + (2 * LOOK_PERIOD if self._on_gpu else 0)
        reserve = num_envs * (steps_ahead // 2 + 1)
        self.capacity = batch * (1 + -(-reserve // batch))
        self._maker = MazeGenerator(batch, size, device, compile_kernels)
        self._generator = torch.Generator(device)
        self._made = 0

        self.walls = torch.ones((self.capacity, size * size), dtype=torch.bool, device=device)
        """[capacity, S * S] bool, True for walls."""
        self.start = torch.zeros(self.capacity, dtype=torch.int64, device=device)
        """[capacity] int64: the cell of a uniformly random room of each maze, where its player begins."""
        self.taken = torch.zeros(1, dtype=torch.int64, device=device)
        """[1] int64: how many mazes have been used, so the number of the next one; environments count it up."""
        if self._on_gpu:
            self._taken_seen = torch.zeros(1, dtype=torch.int64, pin_memory=True)
            self._seen = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._calls = 0

    def reset(self, seed: int) -> None:
        """Makes all mazes anew."""
        self._generator.manual_seed(seed)
        self.taken.zero_()
        self._made = 0
        while self._made < self.capacity:
            self._make_batch()
        self._begin_look()

    def maintain(self) -> None:
        """Replaces used mazes; to be called between steps, on the stream that the steps run on.

        On a GPU this may also be called after every second step.
        """
        if not self._on_gpu:
            self._replace_used(int(self.taken))
            return
        self._calls += 1
        if self._calls >= LOOK_PERIOD:
            self._seen.synchronize()  # recorded LOOK_PERIOD calls ago: long done
            self._replace_used(int(self._taken_seen))
            self._begin_look()

    def _begin_look(self) -> None:
        """Starts to copy the count to the host, without waiting for it."""
        if self._on_gpu:
            self._taken_seen.copy_(self.taken, non_blocking=True)
            self._seen.record(torch.cuda.current_stream(self.taken.device))
            self._calls = 0

    def _replace_used(self, taken: int) -> None:
        if taken > self._made:
            raise RuntimeError("the mazes have run out; call maintain() after every step of the environments.")
        while self._made - self.capacity + self._maker.batch <= taken:
            self._make_batch()

    def _make_batch(self) -> None:
        batch = self._maker.batch
        first = self._made % self.capacity
        self.walls[first : first + batch].copy_(self._maker.generate(self._generator))
        room = torch.randint(self._maker.num_rooms, (batch,), generator=self._generator, device=self.start.device)
        self.start[first : first + batch].copy_(self._maker.room_cells[room])
        self._made += batch

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "pool_walls": self.walls.clone(),
            "pool_start": self.start.clone(),
            "pool_taken": self.taken.clone(),
            "pool_made": torch.tensor(self._made),
            "pool_generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.walls.copy_(state["pool_walls"])
        self.start.copy_(state["pool_start"])
        self.taken.copy_(state["pool_taken"])
        self._made = int(state["pool_made"])
        self._generator.set_state(state["pool_generator"].cpu())
        self._begin_look()

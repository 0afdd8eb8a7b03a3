"""What would perfect explorers earn? Walks scripted tours through mazes and pays them with a trained agent's novelty.

    python examples/what_tours_earn.py RUN

RUN is a folder that `ngu train disco-maze-small` has left, or `ngu train disco-maze`. Each tour knows its maze and
goes through it depth first:

- all of it: every branch, where it is met;
- without twigs: branches of one or two cells are left out;
- twigs on the way back: they are passed by at first, and taken when the tour comes back.

The table says how much of the maze each has seen, and the discounted return that it gets from the start on. What
separates two tours there is all that tells the agent to prefer one to the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from torch import Tensor

from ngu.agent import load_policy
from ngu.checkpoint import load_newest
from ngu.config import Config
from ngu.envs.disco_maze import DiscoMaze
from ngu.envs.make import make_environment
from ngu.learner import Learner
from ngu.novelty.reward import IntrinsicReward
from ngu.run_folder import RunFolder

TWIG = 2
"""The most cells of a twig: the way to one room, and the room."""
TOURS = {"all of it": (True, False), "without twigs": (False, False), "twigs on the way back": (False, True)}
"""Whether twigs are taken on the way forth, and on the way back."""


@dataclass(frozen=True)
class Settings:
    """Prints what three tours earn under a trained agent's novelty."""

    run: tyro.conf.Positional[Path]
    """A run folder."""
    mazes: int = 256
    """How many are walked through."""


@dataclass(frozen=True)
class Earned:
    """What a tour came to, as means over mazes."""

    coverage: float
    returned: float


def tour(walls: list[bool], size: int, start: int, forth: bool, back: bool) -> list[int]:
    """The cells of a depth-first walk through a maze without loops, from `start` back to it."""

    def ways(cell: int, from_: int) -> list[int]:
        return [cell + move for move in (-1, 1, -size, size) if cell + move != from_ and not walls[cell + move]]

    def cells_behind(cell: int, from_: int) -> int:
        return 1 + sum(cells_behind(way, cell) for way in ways(cell, from_))

    def walk(cell: int, from_: int) -> Iterator[int]:
        yield cell
        branches = ways(cell, from_)
        # A path that ends in a dead end is no twig of itself.
        twigs = [way for way in branches if len(branches) > 1 and cells_behind(way, cell) <= TWIG]
        rest = [way for way in branches if way not in twigs]
        for way in (*(twigs if forth else ()), *rest, *(twigs if back else ())):
            yield from walk(way, cell)
            yield cell

    return list(walk(start, start))


@torch.no_grad()
def earn(config: Config, learner: Learner, statistics: IntrinsicReward, mazes: int, forth: bool, back: bool) -> Earned:
    """Walks a tour for as many steps as an evaluation has; one that ends sooner begins again."""
    device, steps = learner.device, config.evaluation.max_steps
    config = dataclasses.replace(config, env=dataclasses.replace(config.env, maze_step_cap=steps + 1))
    env = make_environment(config, mazes, device)
    assert isinstance(env, DiscoMaze)
    novelty = IntrinsicReward(env.spec, mazes, config.novelty, device, model=learner.novelty)
    novelty.restart(learner.novelty, statistics)
    step = env.reset(config.evaluation.seed)
    novelty(step.observation, step.first)
    size, walls = config.env.maze_size, env.walls.flatten(1).bool().tolist()
    tours = [tour(walls[maze], size, int(env.position[maze]), forth, back) for maze in range(mazes)]
    moves = {-1: 0, 1: 1, -size: 2, size: 3}
    returned, weight = torch.zeros(mazes), config.mixture.beta
    for time in range(steps):
        env.maintain()
        env.send(Tensor([moves[_next(path, time) - path[time % (len(path) - 1)]] for path in tours]).to(torch.int64))
        step = env.recv()
        returned += weight * novelty(step.observation, step.first)
        weight *= config.mixture.discount_max
    return Earned(float(step.info["coverage"].mean()), float(returned.mean()))


def _next(path: list[int], time: int) -> int:
    """A tour ends where it began, so it can be walked again and again."""
    return path[time % (len(path) - 1) + 1]


def main(settings: Settings) -> dict[str, Earned]:
    """Prints the table, and returns it."""
    folder, device = RunFolder.open(settings.run), torch.device("cpu")
    config = folder.config
    state = load_newest(folder.checkpoints, without=("replay",)).state
    learner, statistics = load_policy(config, make_environment(config, 1, device), state, device)
    print(f"tour                    coverage after {config.evaluation.max_steps} steps   return")
    earned = {}
    for name, (forth, back) in TOURS.items():
        earned[name] = earn(config, learner, statistics, settings.mazes, forth, back)
        print(f"{name:22} {earned[name].coverage:24.1%} {earned[name].returned:8.2f}")
    return earned


if __name__ == "__main__":
    main(tyro.cli(Settings))

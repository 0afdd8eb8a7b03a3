"""Looks into a trained maze agent: what a cell pays when it is seen again, what Q promises, and where steps are lost.

    python examples/look_into_a_maze_agent.py RUN

RUN is a folder that `ngu train disco-maze-small` has left, or `ngu train disco-maze`. The agent plays as in its
evaluations, in mazes that it has never seen, but for three times as long, so that what Q promises can be compared with
what came. Four tables:

- r_i by how often the cell had been visited in the episode: what makes it worth going somewhere new.
- Q of the chosen action against the discounted return that followed. Q expects a random step now and then, which may
  end the episode, and none is taken here: a good Q is somewhat below the return. One above it cannot be true.
- How many cells were seen, and how many steps turned back without being in a dead end.
- How often an unvisited way was taken where there was one beside others: at forks that are met for the first time, at
  forks that the agent comes back to, and in corridors, where the other way is to turn back.
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
from ngu.evaluator import Evaluator
from ngu.run_folder import RunFolder

_PARTS = 10
"""Rows of the second and third table, each for as many steps."""
_MOST_VISITS = 6
"""From so many visits on, cells are counted together."""


@dataclass(frozen=True)
class Settings:
    """Prints four tables about a trained maze agent."""

    run: tyro.conf.Positional[Path]
    """A run folder."""
    mazes: int = 256
    """How many are played."""
    newest: bool = False
    """Play with the newest weights, although the run keeps averaged ones for playing."""


@dataclass(frozen=True)
class Played:
    """Episodes of the same length, one in each of E mazes; time first."""

    position: Tensor
    """[T + 1, E] the cell before each step, and after the last."""
    walls: Tensor
    """[E, cells]"""
    reward: Tensor
    """[T, E] r_i of each step, 0 after a wall has ended the episode."""
    value: Tensor
    """[T, E] the largest Q before each step."""
    alive: Tensor
    """[T, E] whether the episode still runs after each step."""


@torch.no_grad()
def play(folder: RunFolder, mazes: int, newest: bool = False) -> tuple[Config, Played]:
    """Lets a run's agent play three times as long as in its evaluations."""
    config, device = folder.config, torch.device("cpu")
    state = load_newest(folder.checkpoints, without=("replay",)).state
    learner, statistics = load_policy(config, make_environment(config, 1, device), state, device)
    steps = 3 * config.evaluation.max_steps
    longer = dataclasses.replace(
        config,
        env=dataclasses.replace(config.env, maze_step_cap=steps + 1),
        evaluation=dataclasses.replace(config.evaluation, max_steps=steps + 1, num_envs=mazes, marks=()),
    )
    actor = Evaluator(longer, learner, device).actor
    env = actor.env
    assert isinstance(env, DiscoMaze)
    actor.generator.manual_seed(config.evaluation.seed)
    actor.network.load_state_dict((learner.network if newest else learner.playing).state_dict())
    actor.novelty.restart(learner.novelty, statistics)
    actor.reset(config.evaluation.seed)
    walls, positions = env.walls.clone(), [env.position.clone()]
    rewards, values, alive = [], [], [torch.ones(mazes, dtype=torch.bool)]
    for _ in range(steps):
        step = actor.step()
        alive.append(alive[-1] & ~step.ended)
        # After the end the environment shows the next maze.
        positions.append(torch.where(alive[-1], env.position, positions[-1]))
        rewards.append(torch.where(alive[-1], actor.intrinsic, 0.0))
        values.append(actor.q.max(-1).values.clone())
    return config, Played(
        torch.stack(positions), walls.flatten(1), torch.stack(rewards), torch.stack(values), torch.stack(alive[1:])
    )


def visits_before(played: Played) -> Tensor:
    """[T, E]: how often the cell that each step led to had been visited before in the episode."""
    count = torch.zeros_like(played.walls, dtype=torch.int64)
    before = []
    for position in played.position.unsqueeze(-1):
        before.append(count.gather(1, position)[:, 0])
        count.scatter_add_(1, position, torch.ones_like(position))
    return torch.stack(before[1:])


def returns(reward: Tensor, discount: float) -> Tensor:
    """[T, E]: the discounted sum of what followed, as far as it was played."""
    total, sums = torch.zeros_like(reward[0]), []
    for now in reward.flip(0):
        total = now + discount * total
        sums.append(total)
    return torch.stack(sums).flip(0)


def turns_back(played: Played, size: int) -> Tensor:
    """[T - 1, E]: steps that lead back to where the last one came from, though there was another way."""
    ways = torch.zeros_like(played.walls, dtype=torch.int64)
    for move in (-1, 1, -size, size):
        ways += (~played.walls.bool()).roll(-move, 1)  # the border is wall, so nothing comes around
    elsewhere = ways.gather(1, played.position[1:-1].T).T > 1
    return (played.position[2:] == played.position[:-2]) & elsewhere & played.alive[1:]


@dataclass(frozen=True)
class Choices:
    """Of the steps from one kind of cell: how many there were, and how many took an unvisited way."""

    steps: int
    took: int


def choices(played: Played, size: int, steps: int) -> dict[str, Choices]:
    """Where an unvisited way was open beside others: at forks, met for the first time or again, and in corridors."""
    took: dict[str, list[bool]] = {"fork, first time": [], "fork, again": [], "corridor": []}
    for maze in range(len(played.walls)):
        walls, path = played.walls[maze].tolist(), played.position[:, maze].tolist()
        visits = [0] * len(walls)
        for time in range(int(played.alive[:steps, maze].sum())):
            here = path[time]
            visits[here] += 1
            ways = [here + move for move in (-1, 1, -size, size) if not walls[here + move]]
            unvisited = [way for way in ways if not visits[way]]
            # At the very start all ways are unvisited.
            if len(ways) > 1 and 0 < len(unvisited) < len(ways):
                kind = "corridor" if len(ways) == 2 else "fork, first time" if visits[here] == 1 else "fork, again"
                took[kind].append(path[time + 1] in unvisited)
    return {kind: Choices(len(which), sum(which)) for kind, which in took.items()}


def tables(config: Config, played: Played) -> Iterator[str]:
    """The lines to print."""
    steps, size = config.evaluation.max_steps, config.env.maze_size
    before = visits_before(played)[:steps].clamp_max(_MOST_VISITS)
    alive, reward = played.alive[:steps], played.reward[:steps]
    late = torch.arange(steps).unsqueeze(1) >= steps // 4
    yield f"visits before   mean r_i after step {steps // 4}   steps"
    for visits in range(_MOST_VISITS + 1):
        chosen = alive & late & (before == visits)
        if chosen.any():
            more = "+" if visits == _MOST_VISITS else " "
            yield f"{visits:12}{more} {float(reward[chosen].mean()):28.2f} {int(chosen.sum()):7}"

    beta, discount = config.mixture.beta, config.mixture.discount_max
    came = beta * returns(played.reward, discount)
    back, new = turns_back(played, size), before == 0
    cells = (~played.walls.bool()).sum(1)
    yield ""
    yield "    steps   mean Q   return   turned back   coverage"
    seen = torch.ones_like(cells)
    for part in range(_PARTS):
        begin, end = part * steps // _PARTS, (part + 1) * steps // _PARTS
        seen = seen + (new & alive)[begin:end].sum(0)
        yield (
            f"{begin:4}-{end:4} {float(played.value[begin:end].mean()):8.1f} {float(came[begin:end].mean()):8.1f} "
            f"{float(back[begin:end].float().mean()):13.1%} {float((seen / cells).mean()):10.1%}"
        )

    yield ""
    yield "an unvisited way is open       steps   taken"
    for kind, chosen in choices(played, size, steps).items():
        yield f"{kind:28} {chosen.steps:7} {chosen.took / max(chosen.steps, 1):7.1%}"


def main(settings: Settings) -> Played:
    """Prints the tables, and returns what they were made from."""
    config, played = play(RunFolder.open(settings.run), settings.mazes, settings.newest)
    for line in tables(config, played):
        print(line)
    return played


if __name__ == "__main__":
    main(tyro.cli(Settings))

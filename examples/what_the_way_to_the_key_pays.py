"""Does novelty lead to the key? Pays one way through the first room of Montezuma's Revenge, by place and by learned f.

    python examples/what_the_way_to_the_key_pays.py RUN [RUN ...]

RUN is a folder that `ngu train atari-node` has left on Montezuma's Revenge, or another Atari preset, with learned
controllable states. The way is found by going back to saved states of the emulator and trying on from there, those
first that were tried least (Ecoffet et al., 2019); no agent may do that, but it takes seconds, and leads where agents
without a reward have not been. Its steps are paid by Algorithm 1: by the player's place, x and y from the console's
memory, and by the newest f of each RUN with its own d_m^2 and some cluster distances; RND's alpha stands beside them.

An f that has not seen a part of the room may show the player there as standing still. Then novelty is next to nothing
where all is new, and whoever learns from it stays away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import tyro
from torch import Tensor

from ngu.config import NoveltyConfig
from ngu.envs.atari_game import FRAME_SKIP, HAND_CRAFTED_GAME, NUM_ACTIONS, AtariGame
from ngu.envs.make import make_environment
from ngu.novelty.episodic import Kernel, episodic_reward
from ngu.novelty.lifelong import clipped_modulator, modulator
from ngu.report.playing import Player

_CELL = 5
"""Pixels; places that near are tried on from as one."""
_TRIED = 40
"""Steps that are tried from a saved state."""
_OTHER = 0.15
"""Probability of another action in each of them."""
_PARTS = ("upper half", "right ladder", "floor", "left ladder, key")
_UPPER, _LEFT, _RIGHT = 192, 30, 128
"""y and x of the parts' borders."""
_PAPER = 0.008
"""Cluster distance."""


@dataclass(frozen=True)
class Settings:
    """Pays the way to the first key of Montezuma's Revenge by place and by learned states."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders."""
    cluster_distances: tuple[float, ...] = (0.008, 0.05, 0.2)
    """Of novelty by f; by place it is the paper's, 0.008."""
    place_scale: float = 30.0
    """d_m^2 of places, in squared pixels."""
    patience: int = 1_000_000
    """Steps of the search before it gives up."""
    seed: int = 0


def way_to_the_key(settings: Settings) -> list[int]:
    """Actions that lead from the game's start to its first reward."""
    game = AtariGame(HAND_CRAFTED_GAME)
    game.reset(seed=settings.seed, options={"noops": 0})
    ale, random = game._emulator, np.random.default_rng(settings.seed)

    def cell() -> tuple[int, ...]:
        x, y, room, _ = game.hand_crafted_state().astype(int).tolist()
        return x // _CELL, y // _CELL, room

    lives, played = ale.lives(), 0
    saved = {cell(): (ale.cloneState(), list[int]())}
    tries = dict.fromkeys(saved, 0)
    while played < settings.patience:
        weight = 1 / np.sqrt(np.array(list(tries.values())) + 1)
        origin = list(tries)[random.choice(len(tries), p=weight / weight.sum())]
        tries[origin] += 1
        state, way = saved[origin]
        ale.restoreState(state)
        action, way = int(random.integers(NUM_ACTIONS)), list(way)
        for _ in range(_TRIED):
            if random.random() < _OTHER:
                action = int(random.integers(NUM_ACTIONS))
            reward = sum(ale.act(action) for _ in range(FRAME_SKIP))
            way.append(action)
            played += 1
            if reward > 0:
                return way
            if ale.lives() < lives:
                break
            here = cell()
            if here not in saved or len(way) < len(saved[here][1]):
                saved[here] = ale.cloneState(), list(way)
                tries.setdefault(here, 0)
    raise SystemExit(f"no way to the key was found in {played:,} steps; give the search more --patience.")


def walked(way: list[int], settings: Settings) -> tuple[Tensor, Tensor]:
    """Pictures [T, 1, 84, 84] and places [T, 2] along the way."""
    game = AtariGame(HAND_CRAFTED_GAME, tell_position=True)
    picture, info = game.reset(seed=settings.seed, options={"noops": 0})
    pictures, places = [picture.copy()], [(info["player_x"], info["player_y"])]
    for action in way:
        picture, _, _, _, info = game.step(action)
        pictures.append(picture.copy())
        places.append((info["player_x"], info["player_y"]))
    return torch.from_numpy(np.stack(pictures)), torch.tensor(places)


def part_of(x: float, y: float) -> str:
    if x < _LEFT:
        return _PARTS[3]
    if y >= _UPPER:
        return _PARTS[0]
    return _PARTS[1] if x >= _RIGHT else _PARTS[2]


def novelty(states: Tensor, scale: Tensor, config: NoveltyConfig) -> Tensor:
    """Algorithm 1 along one episode of states [T, D], with d_m^2 as it is: [T], 0 at its start."""
    kernel = Kernel.create(config)
    paid = [torch.zeros(())]
    for t in range(1, len(states)):
        distance = (states[:t] - states[t]).square().sum(1)
        nearest = distance.topk(min(t, kernel.neighbours), largest=False).values
        paid.append(episodic_reward(nearest.unsqueeze(0), scale, kernel).squeeze(0))
    return torch.stack(paid)


@torch.no_grad()
def measured(run: Path, pictures: Tensor, settings: Settings) -> dict[str, Tensor]:
    """What a run's f, and its RND if there is one, say of the pictures: columns [T]."""
    player = Player.load(run, "explore")
    if player.config.env.name != "atari" or player.config.env.game != HAND_CRAFTED_GAME:
        raise SystemExit(f"{run} was not trained on {HAND_CRAFTED_GAME}; only there is the way known.")
    env = make_environment(player.config, 1, torch.device("cpu"))
    reward = player.actor(env, settings.seed).novelty
    env.close()
    if reward.snapshots is None:
        raise SystemExit(f"the controllable states of {run} are not learned; name one that has an f.")
    f = reward.snapshots.embedding(int(reward.snapshots.newest))
    states = torch.cat([f(some) for some in pictures.split(64)])
    scale = reward.scale.total / reward.scale.weight
    columns = {
        f"f, xi {xi:g}": novelty(states, scale, replace(player.config.novelty, cluster_distance=xi))
        for xi in settings.cluster_distances
    }
    if reward.rnd is not None:
        error = torch.cat([reward.rnd.error(some) for some in pictures.split(64)])
        alpha = modulator(error, reward.moments.mean, reward.moments.deviation)
        columns["alpha"] = clipped_modulator(alpha, player.config.novelty.max_modulation)
    return columns


def main(settings: Settings) -> dict[str, dict[str, float]]:
    torch.set_num_threads(1)
    way = way_to_the_key(settings)
    pictures, places = walked(way, settings)
    exact = NoveltyConfig(kernel_epsilon=1e-4, cluster_distance=_PAPER)
    columns = {"place": novelty(places, torch.tensor(settings.place_scale), exact)}
    for run in settings.runs:
        names = measured(run, pictures, settings)
        columns |= {(f"{run}: {name}" if len(settings.runs) > 1 else name): values for name, values in names.items()}
    parts = [part_of(x, y) for x, y in places.tolist()]
    told: dict[str, dict[str, float]] = {}
    print(f"the key is {len(way)} steps away; mean novelty of a step")
    width = max(map(len, columns)) + 2
    print(" " * width + "".join(f"{part:>18}" for part in _PARTS))
    for name, values in columns.items():
        told[name] = {part: values[[each == part for each in parts]].mean().item() for part in _PARTS}
        print(f"{name:{width}}" + "".join(f"{told[name][part]:18.1f}" for part in _PARTS))
    return told


if __name__ == "__main__":
    main(tyro.cli(Settings))

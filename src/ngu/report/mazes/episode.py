"""Plays episodes in mazes with a run's newest checkpoint and keeps what the pictures show; see `playing.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ngu.actor import Actor
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.envs import DiscoMaze
from ngu.envs.make import make_environment
from ngu.report.playing import Player, episodic_part
from ngu.report.results import Floats
from ngu.run_folder import RunFolder

_MOST_MAZES_MADE_AHEAD = 4096
_CELLS_TO_PLAY = 5_000_000
"""So many cells of mazes are looked at, at most, in the episodes of `play_evaluation`."""
_CPU = torch.device("cpu")


@dataclass
class Episode:
    """One episode of T transitions; entry t of an array belongs to observation x_t, t = 0 to T."""

    walls: NDArray[np.bool_]
    """[S, S], True for walls."""
    observation: NDArray[np.uint8]
    """[T+1, 3, S, S], what the agent saw."""
    position: NDArray[np.int64]
    """[T+1], row * S + column of the player."""
    coverage: Floats
    """[T+1], share of the open cells visited so far."""
    reward: Floats
    """[T+1], the intrinsic reward r_i of x_t; 0 at x_0 and at a terminal observation."""
    episodic: Floats
    """[T+1], the episodic part of r_i."""
    alpha: Floats
    """[T+1], the life-long modulator before its clip."""
    hit_wall: bool
    """The episode ended in a wall, not at the step cap."""

    @property
    def length(self) -> int:
        """T."""
        return len(self.position) - 1

    @property
    def size(self) -> int:
        """S."""
        return len(self.walls)

    @property
    def first_visit(self) -> NDArray[np.int64]:
        """[S, S]: the step at which each open cell was first visited, -1 if never."""
        visit = np.full(self.size**2, -1, dtype=np.int64)
        for step in range(self.length, -1, -1):
            visit[self.position[step]] = step
        visit[self.walls.ravel()] = -1
        return visit.reshape(self.size, self.size)

    @property
    def visit_share(self) -> Floats:
        """[S, S]: the place of each cell in the order of first visits, from 0 to 1; nan where never visited."""
        visit = self.first_visit
        times = np.unique(visit[visit >= 0])
        share = np.searchsorted(times, visit) / max(len(times) - 1, 1)
        return np.where(visit >= 0, share, np.nan)

    @property
    def new_cell(self) -> NDArray[np.bool_]:
        """[T+1]: whether x_t is the first visit to an open cell."""
        return np.equal(self.first_visit.ravel()[self.position], np.arange(self.length + 1))


@dataclass
class Played:
    """Several episodes, one in each of so many mazes."""

    episodes: list[Episode]
    max_steps: int
    """No episode was played for longer."""
    checkpoint_step: int
    notes: tuple[str, ...] = ()
    """Sentences about newer checkpoints that were damaged."""

    def mean_coverage(self) -> Floats:
        """[max_steps + 1]: mean coverage after 0, 1, ... steps; an episode that has ended keeps its coverage."""
        padded = [
            np.pad(episode.coverage, (0, self.max_steps - episode.length), mode="edge") for episode in self.episodes
        ]
        return np.asarray(np.stack(padded).mean(0), dtype=np.float64)

    @property
    def typical(self) -> Episode:
        """The episode with the median coverage."""
        ranked = sorted(range(len(self.episodes)), key=lambda index: (self.episodes[index].coverage[-1], index))
        return self.episodes[ranked[(len(ranked) - 1) // 2]]


@dataclass
class _Tracks:
    """What is kept of every step of E environments; each entry [E, ...] is a copy."""

    values: dict[str, list[Tensor]] = field(default_factory=dict)

    def add(self, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            self.values.setdefault(name, []).append(tensor.clone())

    def of(self, env: int, length: int) -> dict[str, NDArray[Any]]:
        """[length + 1, ...] of one environment, by name."""
        kept = {
            name: torch.stack([tensor[env] for tensor in tensors[: length + 1]]).numpy()
            for name, tensors in self.values.items()
        }
        return {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in kept.items()}


def play_evaluation(run: Path) -> Played:
    """Plays the held-out mazes of the run's evaluations with its exploratory policy, or as many as take seconds."""
    config = RunFolder.open(run).config
    affordable = _CELLS_TO_PLAY // (config.env.maze_size**2 * config.evaluation.max_steps)
    count = max(1, min(config.evaluation.num_envs, affordable))
    return play(run, episodes=count, seed=config.evaluation.seed)


def play(run: Path, *, episodes: int, seed: int, policy: str = "explore", steps: int | None = None) -> Played:
    """Plays one episode in each of `episodes` mazes; the same seed gives the same mazes.

    `policy` is "explore" (beta_{N-1}) or "exploit" (beta_0); they are the same when N = 1. No episode is played for
    longer than in the run's evaluations, nor for more than `steps` steps if they are given.
    """
    player = Player.load(run, policy)
    config = player.config
    ahead = min(config.env.maze_pool, _MOST_MAZES_MADE_AHEAD)
    env = make_environment(with_overrides(config, {"env.maze_pool": ahead}), episodes, _CPU)
    assert isinstance(env, DiscoMaze)
    longest = min(config.env.maze_step_cap or config.evaluation.max_steps, config.evaluation.max_steps)
    longest = longest if steps is None else min(longest, steps)
    played = _collect(config, env, player.actor(env, seed), seed, longest)
    return Played(played, longest, player.checkpoint.step, player.checkpoint.passed_over)


@torch.no_grad()
def _collect(config: Config, env: DiscoMaze, actor: Actor, seed: int, longest: int) -> list[Episode]:
    """Steps all environments until the first episode of each has ended, and takes these apart."""
    step = actor.reset(seed)
    walls = env.walls.clone()
    length = torch.full((env.num_envs,), longest)
    hit_wall = torch.zeros_like(step.terminated)
    running = torch.ones_like(step.first)
    tracks = _Tracks()
    for time in range(longest + 1):
        if time:
            step = actor.step()
        tracks.add(
            observation=step.observation,
            position=env.position,
            coverage=step.info["coverage"],
            reward=actor.intrinsic,
            alpha=actor.alpha,
            episodic=episodic_part(config, actor),
        )
        ended = running & step.ended
        length[ended] = time
        hit_wall |= ended & step.terminated
        running &= ~ended
        if not running.any():
            break
    return [
        Episode(walls=walls[index].numpy(), hit_wall=bool(hit_wall[index]), **tracks.of(index, int(length[index])))
        for index in range(env.num_envs)
    ]

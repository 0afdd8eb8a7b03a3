"""Plays an episode of a game with a run's newest checkpoint and keeps what the pictures show; see `playing.py`."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ngu.envs.protocol import Step
from ngu.report.games.stage import Stage
from ngu.report.playing import Player, episodic_part
from ngu.report.results import Floats
from ngu.report.worlds import World

RGB = NDArray[np.uint8]
"""[H, W, 3]"""


@dataclass
class Episode:
    """An episode of T transitions, or the first T of a longer one; entry t belongs to observation x_t, t = 0 to T."""

    score: Floats
    """[T+1], sum of the game's own rewards so far."""
    reward: Floats
    """[T+1], the intrinsic reward r_i of x_t; 0 at x_0 and at a terminal observation."""
    episodic: Floats
    """[T+1], the episodic part of r_i."""
    alpha: Floats
    """[T+1], the life-long modulator before its clip."""
    room: NDArray[np.int64] | None
    """[T+1], a number for the room that the player is in; None where rooms are not known."""
    vectors: NDArray[np.float32] | None
    """[T+1, D], observations that no picture can be made of."""
    ended: bool
    """The last observation ends the episode."""
    screens: list[bytes] = field(default_factory=list)
    """[T+1] packed pictures; see `screen`."""
    screen_shape: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """T."""
        return len(self.score) - 1

    @property
    def rooms(self) -> Floats | None:
        """[T+1], how many different rooms were visited so far."""
        if self.room is None:
            return None
        firsts = np.zeros(len(self.room))
        firsts[np.unique(self.room, return_index=True)[1]] = 1
        return np.asarray(np.cumsum(firsts), dtype=np.float64)

    def screen(self, step: int) -> RGB:
        """What was on the screen, or the agent saw, at a step; an observation that is no picture is drawn as bars."""
        if self.vectors is not None:
            return bars(self.vectors[step], np.abs(self.vectors).max(0))
        pixels = zlib.decompress(self.screens[step])
        return np.frombuffer(pixels, dtype=np.uint8).reshape(self.screen_shape)


@dataclass
class Played:
    """An episode and who played it."""

    episode: Episode
    world: World
    policy: str
    epsilon: float
    seed: int
    checkpoint_step: int
    max_modulation: float
    """L of the run: alpha is clipped to [1, L]."""
    no_screen: str
    """Why the environment's own picture is not shown; empty where it is."""
    notes: tuple[str, ...] = ()
    """Sentences about newer checkpoints that were damaged."""


def play(run: Path, *, steps: int, seed: int, policy: str = "explore") -> Played:
    """Plays one episode, or its first `steps` steps; the same seed gives the same episode.

    `policy` is "explore" (beta_{N-1}) or "exploit" (beta_0); they are the same when N = 1.
    """
    player = Player.load(run, policy)
    config = player.config
    stage = Stage(config)
    try:
        episode = _collect(player, stage, steps, seed)
    finally:
        stage.close()
    return Played(
        episode=episode,
        world=World.of(config.env),
        policy=policy,
        epsilon=config.evaluation.epsilon,
        seed=seed,
        checkpoint_step=player.checkpoint.step,
        max_modulation=config.novelty.max_modulation,
        no_screen=stage.no_screen,
        notes=player.checkpoint.passed_over,
    )


@torch.no_grad()
def _collect(player: Player, stage: Stage, steps: int, seed: int) -> Episode:
    actor = player.actor(stage, seed)
    step = actor.reset(seed)
    values: dict[str, list[float]] = {name: [] for name in ("score", "reward", "episodic", "alpha")}
    rooms: list[int] = []
    vectors: list[NDArray[np.float32]] = []
    screens: list[bytes] = []
    shape: tuple[int, ...] = ()
    for time in range(steps + 1):
        if time:
            step = actor.step()
        newest = (
            step.info["score"].item(),
            actor.intrinsic.item(),
            episodic_part(player.config, actor).item(),
            actor.alpha.item(),
        )
        for kept, value in zip(values.values(), newest, strict=True):
            kept.append(value)
        rooms.append(stage.room)
        picture = _picture(stage, step)
        if picture is None:
            vectors.append(np.nan_to_num(step.observation[0].numpy()))
        else:
            # A screen of 100 kB becomes one of some 3 kB.
            screens.append(zlib.compress(picture.tobytes(), 1))
            shape = picture.shape
        if bool(step.ended):
            break
    return Episode(
        **{name: np.array(kept, dtype=np.float64) for name, kept in values.items()},
        room=np.array(rooms, dtype=np.int64) if min(rooms) >= 0 else None,
        vectors=np.stack(vectors) if vectors else None,
        ended=bool(step.ended),
        screens=screens,
        screen_shape=shape,
    )


def _picture(stage: Stage, step: Step) -> RGB | None:
    """The environment's own picture, else the agent's observation if it is one."""
    screen = stage.screen()
    if screen is not None:
        return screen
    observation = step.observation[0].numpy()
    if observation.ndim != 3:
        return None
    # Of pictures that are stacked over time, the last is the newest.
    channels = observation if len(observation) == 3 else observation[-1:].repeat(3, 0)
    return np.ascontiguousarray(np.moveaxis(channels, 0, -1))


def bars(vector: NDArray[np.float32], largest: NDArray[np.float32]) -> RGB:
    """[210, W, 3]: a bar for each number, up or down from the middle, by its share of the `largest`."""
    height, width = 210, 280
    column = max(width // len(vector), 1)
    picture = np.full((height, column * len(vector), 3), 245, dtype=np.uint8)
    middle = height // 2
    picture[middle] = 160
    share = np.divide(vector, largest, out=np.zeros_like(vector), where=largest > 0)
    for place, end in enumerate(np.round(share * (middle - 4)).astype(int)):
        left, right = place * column, (place + 1) * column
        gap = column // 6
        top, bottom = (middle - end, middle) if end >= 0 else (middle + 1, middle + 1 - end)
        picture[top:bottom, left + gap : max(right - gap, left + 1)] = (0, 114, 178) if end >= 0 else (213, 94, 0)
    return picture

"""Which world each setting of `env` belongs to: one that a run's world does not use is refused, not passed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ngu.config import Config
from ngu.errors import UserError

_IN_WORKERS = ("workers", "worker_timeout", "max_restarts")


@dataclass(frozen=True)
class WorldSettings:
    """A kind of environment, `env.name`."""

    title: str
    preset: str
    """The preset to begin with."""
    settings: tuple[str, ...]
    """The fields of `EnvConfig` that it uses, besides those that all do."""


WORLDS: Mapping[str, WorldSettings] = {
    "disco-maze": WorldSettings("the Disco Maze", "disco-maze-small", ("maze_size", "maze_step_cap", "maze_pool")),
    "deep-sea": WorldSettings("Deep Sea", "deep-sea", ("sea_size", "sea_seed")),
    "random-coin": WorldSettings("the random-coin grid", "random-coin", ("coin_size", "coin_step_cap")),
    "minigrid": WorldSettings("a MiniGrid level", "minigrid", ("level", *_IN_WORKERS)),
    "atari": WorldSettings(
        "an Atari game", "atari-cpu", ("game", "backend", "noops", "max_frames", "threads", *_IN_WORKERS)
    ),
    "gym": WorldSettings("a Gymnasium environment", "gym", ("id", "kwargs", *_IN_WORKERS)),
}


def foreign_settings(name: str) -> set[str]:
    """The fields of `EnvConfig` that only other worlds than the one of this name use."""
    return {field for world in WORLDS.values() for field in world.settings} - set(WORLDS[name].settings)


def check_world(config: Config, given: Mapping[str, str], remedy: str = "take the preset {preset}") -> None:
    """Refuses fields of `env` that only other worlds than the config's use.

    `given` has what the user called each field, by its name; `remedy` says how another world's preset is chosen.
    """
    here, foreign = WORLDS[config.env.name], foreign_settings(config.env.name)
    for field, told in given.items():
        if field in foreign:
            users = [world for world in WORLDS.values() if field in world.settings]
            raise UserError(
                f"{told} is for {' or '.join(world.title for world in users)}, but this run plays {here.title} (preset "
                f"{config.preset}); leave it out, or {remedy.format(preset=users[-1].preset, told=told)}."
            )

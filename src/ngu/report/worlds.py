"""What a run plays in: a maze, an Atari game, or another environment, which is known by its name alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ngu.config import EnvConfig
from ngu.envs.atari_game import FRAME_SKIP
from ngu.envs.atari_games import ATARI_GAMES, check_game
from ngu.presets import PRESETS, preset

Kind = Literal["disco-maze", "atari", "gym"]

_TIMES = "\N{NO-BREAK SPACE}x\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class World:
    """The kind of environment, and which one of that kind."""

    kind: Kind
    name: str = ""
    """The emulator's name of a game, an environment's id and arguments, or what people call a task; empty for mazes."""
    maze: tuple[int, int] | None = None
    """Size and step cap of a maze, where known."""

    @classmethod
    def of(cls, env: EnvConfig) -> World:
        """The world of a run's settings."""
        if env.name == "disco-maze":
            return cls(env.name, maze=(env.maze_size, env.maze_step_cap))
        if env.name == "atari":
            return cls(env.name, check_game(env.game))
        tasks = {
            "deep-sea": f"Deep Sea of size {env.sea_size}",
            "random-coin": f"Random Coin of size {env.coin_size}",
            "minigrid": f"MiniGrid {env.level}",
        }
        own = env.id if env.kwargs == "{}" else f"{env.id} {env.kwargs}"
        return cls("gym", tasks.get(env.name, own))

    @classmethod
    def from_header(cls, header: Mapping[str, str]) -> World:
        """The world that the header of a results file names; older files leave a maze to their preset.

        A `KeyError` names the line that is missing, a `ValueError` says that a number is none.
        """
        if "game" in header:
            return cls("atari", check_game(header["game"]))
        if "environment" in header:
            return cls("gym", header["environment"])
        if "maze_size" in header and "maze_step_cap" in header:
            return cls("disco-maze", maze=(int(header["maze_size"]), int(header["maze_step_cap"])))
        if header["preset"] not in PRESETS:
            return cls("disco-maze")
        world = cls.of(preset(header["preset"]).env)
        if world.kind != "disco-maze":
            raise KeyError("game" if world.kind == "atari" else "environment")
        return world

    @property
    def header(self) -> dict[str, str | int]:
        """The lines of a results file that `from_header` reads."""
        if self.kind == "atari":
            return {"game": self.name}
        if self.kind == "gym":
            return {"environment": self.name}
        return {"maze_size": self.maze[0], "maze_step_cap": self.maze[1]} if self.maze else {}

    @property
    def title(self) -> str:
        """What people call it."""
        if self.kind == "atari":
            return ATARI_GAMES[self.name].title
        if self.kind == "gym":
            return self.name or "a Gymnasium environment"
        size = f"{self.maze[0]}{_TIMES}{self.maze[0]} " if self.maze else ""
        return f"the {size}Random Disco Maze"

    @property
    def frames_per_step(self) -> int | None:
        """How many of the console's frames an agent step takes; None where there are none."""
        return FRAME_SKIP if self.kind == "atari" else None

"""`ngu record`: an episode as an animation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ngu.commands.arguments import parse, take_apart
from ngu.commands.report import require_place
from ngu.config_reading import with_overrides
from ngu.errors import UserError
from ngu.run_folder import RunFolder

_PROG = "ngu record"


@dataclass(frozen=True)
class Record:
    """Plays one episode with the newest checkpoint and draws it.

    Mazes with the visited cells, games with screen, score and rooms; all with the novelty reward and its modulator.
    """

    path: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Where to write it, a .gif or (with ffmpeg) an .mp4; episode.gif in the run's folder if not given."""
    seed: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Seed of the episode; that of the evaluation, so a held-out environment, if not given."""
    policy: Literal["explore", "exploit"] = "explore"
    """Act with beta_{N-1} (explore) or beta_0 (exploit); the same when N = 1."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Stop after so many steps; a whole episode of a maze, and 1000 steps of a game, if not given."""


def main(argv: list[str]) -> int:
    command = parse(_PROG, Record, take_apart(_PROG, Record, argv))
    folder = RunFolder.open(command.path)
    config = folder.config if command.seed is None else with_overrides(folder.config, {"evaluation.seed": command.seed})
    out = command.out or folder.path / "episode.gif"
    require_place(out)
    if command.steps is not None and command.steps < 1:
        raise UserError(f"--steps is {command.steps}; set it to 1 or more.")
    from ngu.machine import use_threads
    from ngu.report import record_episode

    use_threads(1)
    print(record_episode(folder.path, out, config.evaluation.seed, command.policy, command.steps))
    return 0

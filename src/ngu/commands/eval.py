"""`ngu eval`: the newest checkpoint on held-out environments, with others who have played there beside it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ngu.commands.arguments import parse, take_apart
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.errors import UserError
from ngu.run_folder import RunFolder

if TYPE_CHECKING:
    from ngu.checkpoint import Checkpoint

_PROG = "ngu eval"
_HEADS = {"human_normalised": "human-normalised"}


@dataclass(frozen=True)
class Evaluate:
    """Plays the newest checkpoint on held-out environments and prints the means.

    Games are played to the end of each episode, with the rooms visited where the game has rooms.

    Nothing is written, and a run can be evaluated while it trains.
    """

    path: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder."""
    episodes: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Episodes of each policy; the run's evaluation.num_envs if not given."""
    seed: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Seed of the environments; the run's evaluation.seed if not given."""
    epsilon: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")] = None
    """Share of random actions; the run's evaluation.epsilon if not given."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Cut episodes after so many steps; games are played to their end, mazes as in the run, if not given."""
    device: Annotated[str | None, tyro.conf.arg(metavar="DEVICE", help_behavior_hint="")] = None
    """cpu, cuda or auto; the run's own if not given."""
    json: bool = False
    """Print JSON instead of a table."""


def main(argv: list[str]) -> int:
    command = parse(_PROG, Evaluate, take_apart(_PROG, Evaluate, argv))
    for option, value in (("--episodes", command.episodes), ("--steps", command.steps)):
        if value is not None and value < 1:
            raise UserError(f"{option} is {value}; give 1 or more.")
    folder = RunFolder.open(command.path)
    overrides = {
        "evaluation.num_envs": command.episodes,
        "evaluation.seed": command.seed,
        "evaluation.epsilon": command.epsilon,
        "run.device": command.device,
    }
    config = with_overrides(folder.config, {name: value for name, value in overrides.items() if value is not None})
    if command.steps is not None:
        config = _cut_after(config, command.steps)
    from ngu.checkpoint import load_newest
    from ngu.commands.session import memory_in_words
    from ngu.envs.atari_game import FRAME_SKIP

    is_maze = config.env.name == "disco-maze"
    checkpoint = load_newest(folder.checkpoints, without=("replay",))
    with memory_in_words():
        learned = evaluate(config, checkpoint, to_the_end=not is_maze and command.steps is None)
        others = scripted(config) if is_maze else published(config)
    settings = config.evaluation
    if command.json:
        head = {"run": str(folder.path), "step": checkpoint.step, "notes": list(checkpoint.passed_over)}
        asked = {"episodes": settings.num_envs, "seed": settings.seed, "epsilon": settings.epsilon}
        found = {"policies": learned, "scripted" if is_maze else "published": others}
        print(json.dumps({**head, **asked, **found}, indent=2))
    else:
        for note in checkpoint.passed_over:
            print(note)
        trained = f"{checkpoint.step:,} steps"
        if config.env.name == "atari":
            trained = f"{checkpoint.step:,} agent steps ({FRAME_SKIP * checkpoint.step:,} frames)"
        print(f"{folder.path} at {trained}, {settings.num_envs} episodes, epsilon {settings.epsilon:g}")
        beside = {f"scripted {name}" if is_maze else name: row for name, row in others.items()}
        print(table({**learned, **beside}))
    return 0


def _cut_after(config: Config, steps: int) -> Config:
    marks = [mark for mark in config.evaluation.marks if mark <= steps]
    if config.env.name == "disco-maze":
        marks = sorted({*marks, steps})  # where scripted players are measured, too
    return with_overrides(config, {"evaluation.max_steps": steps, "evaluation.marks": marks})


def evaluate(config: Config, checkpoint: Checkpoint, *, to_the_end: bool = False) -> dict[str, dict[str, float]]:
    """Policy -> measurement -> mean. Only what is needed is built: no replay, no actors.

    `to_the_end`: no episode is cut but by the environment, if it has a limit of its own.
    """
    from ngu.agent import load_policy
    from ngu.envs.make import make_environment
    from ngu.evaluator import Evaluator
    from ngu.machine import resolve_device, use_threads
    from ngu.metrics import by_policy

    use_threads(config.run.threads)
    device = resolve_device(config.run.device)
    sample = make_environment(config, 1, device)
    try:
        learner, statistics = load_policy(config, sample, checkpoint.state, device)
    finally:
        sample.close()
    if to_the_end and sample.spec.max_episode_steps:
        config = _cut_after(config, sample.spec.max_episode_steps)
        longest = f"{config.evaluation.max_steps:,} steps"
        print(f"episodes of up to {longest} are played to their end; --steps cuts them", file=sys.stderr)
    evaluator = Evaluator(config, learner, device)
    try:
        return by_policy(evaluator.evaluate(learner, statistics))
    finally:
        evaluator.env.close()


def scripted(config: Config) -> dict[str, dict[str, float]]:
    """Scripted policy -> measurement -> mean, on as many mazes of the same size."""
    from ngu.envs import SCRIPTED_POLICIES, run_scripted

    env, settings = config.env, config.evaluation
    return {
        name: {
            f"coverage@{mark}": value
            for mark, value in run_scripted(
                name, env.maze_size, env.maze_step_cap, settings.num_envs, settings.seed, settings.marks
            ).items()
        }
        for name in SCRIPTED_POLICIES
    }


def published(config: Config) -> dict[str, dict[str, float]]:
    """The random and the human player that human-normalised scores are measured by; none outside Atari."""
    from ngu.envs.atari_games import ATARI_GAMES, check_game

    if config.env.name != "atari":
        return {}
    facts = ATARI_GAMES[check_game(config.env.game)]
    return {
        "random player": {"score": facts.random, "human_normalised": 0.0},
        "human tester": {"score": facts.human, "human_normalised": 100.0},
    }


def table(results: dict[str, dict[str, float]]) -> str:
    """Policies down, measurements across; shares as percentages. A return that is the score is left out."""
    rows = {policy: [name for name in row if name != "return" or row.get("score") != row["return"]]
            for policy, row in results.items()}  # fmt: skip
    columns = sorted(dict.fromkeys(name for names in rows.values() for name in names), key=_place)
    cells = [["", *(_HEADS.get(name, name) for name in columns)]]
    cells += [[policy, *(_cell(name, row.get(name)) for name in columns)] for policy, row in results.items()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in cells
    )


def _place(name: str) -> int:
    """What a game is about comes first; the rest stays as it is."""
    first = ("solved", "score", "human_normalised", "rooms")
    return first.index(name) if name in first else len(first)


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name.startswith(("coverage", "solved")):
        return f"{value:.1%}"
    if name == "human_normalised":
        return f"{value:.1f}%"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"

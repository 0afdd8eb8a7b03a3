"""`ngu eval`: the newest checkpoint on held-out environments, with scripted policies beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ngu.commands.arguments import parse, take_apart
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.run_folder import RunFolder

if TYPE_CHECKING:
    from ngu.checkpoint import Checkpoint

_PROG = "ngu eval"


@dataclass(frozen=True)
class Evaluate:
    """Plays the newest checkpoint on held-out environments and prints the means.

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
    device: Annotated[str | None, tyro.conf.arg(metavar="DEVICE", help_behavior_hint="")] = None
    """cpu, cuda or auto; the run's own if not given."""
    json: bool = False
    """Print JSON instead of a table."""


def main(argv: list[str]) -> int:
    command = parse(_PROG, Evaluate, take_apart(_PROG, Evaluate, argv))
    folder = RunFolder.open(command.path)
    overrides = {
        "evaluation.num_envs": command.episodes,
        "evaluation.seed": command.seed,
        "evaluation.epsilon": command.epsilon,
        "run.device": command.device,
    }
    config = with_overrides(folder.config, {name: value for name, value in overrides.items() if value is not None})
    from ngu.checkpoint import load_newest
    from ngu.commands.session import memory_in_words

    checkpoint = load_newest(folder.checkpoints, without=("replay",))
    with memory_in_words():
        learned, by_rule = evaluate(config, checkpoint), scripted(config)
    settings = config.evaluation
    if command.json:
        head = {"run": str(folder.path), "step": checkpoint.step, "notes": list(checkpoint.passed_over)}
        asked = {"episodes": settings.num_envs, "seed": settings.seed, "epsilon": settings.epsilon}
        print(json.dumps({**head, **asked, "policies": learned, "scripted": by_rule}, indent=2))
    else:
        for note in checkpoint.passed_over:
            print(note)
        print(f"{folder.path} at {checkpoint.step:,} steps, {settings.num_envs} episodes, epsilon {settings.epsilon:g}")
        print(table({**learned, **{f"scripted {name}": row for name, row in by_rule.items()}}))
    return 0


def evaluate(config: Config, checkpoint: Checkpoint) -> dict[str, dict[str, float]]:
    """Policy -> measurement -> mean. Only what is needed is built: no replay, no actors."""
    from ngu.agent import load_policy
    from ngu.envs.make import make_environment
    from ngu.evaluator import Evaluator
    from ngu.machine import resolve_device

    device = resolve_device(config.run.device)
    learner, statistics = load_policy(config, make_environment(config, 1, device), checkpoint.state, device)
    results: dict[str, dict[str, float]] = {}
    for name, value in Evaluator(config, learner, device).evaluate(learner, statistics).items():
        _, policy, measurement = name.split("/")
        results.setdefault(policy, {})[measurement] = value
    return results


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


def table(results: dict[str, dict[str, float]]) -> str:
    """Policies down, measurements across; shares as percentages."""
    columns = list(dict.fromkeys(name for row in results.values() for name in row))
    width = max(len(name) for name in results)
    lines = ["  ".join([" " * width, *columns])]
    for policy, row in results.items():
        cells = (_cell(name, row.get(name)).rjust(len(name)) for name in columns)
        lines.append("  ".join([policy.ljust(width), *cells]))
    return "\n".join(lines)


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1%}" if name.startswith("coverage") else f"{value:.3g}"

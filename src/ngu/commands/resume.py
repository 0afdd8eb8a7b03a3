"""`ngu resume`: goes on with a run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ngu.commands.arguments import parse, take_apart
from ngu.commands.train import GROUPS
from ngu.config import Config, RunConfig
from ngu.config_reading import to_dict, with_overrides
from ngu.errors import UserError, unknown_name
from ngu.metrics import last_evaluation
from ngu.run_folder import RunFolder

if TYPE_CHECKING:
    from ngu.training import Training

_PROG = "ngu resume"
_FIXED = ("seed", "folder", "name", "runner")
"""Settings that only the start of a run can choose."""


@dataclass(frozen=True)
class Evaluation:
    """How often held-out episodes are played."""

    period: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Agent steps between two evaluations from now on; 0 for none but the last."""


@dataclass(frozen=True)
class Run(RunConfig):
    """How long, where, and what is written down."""

    # Neither in the help nor read, since they cannot change; known all the same, so that a sentence can say why.
    runner: tyro.conf.Suppress[Literal["local", "ray"]] = RunConfig.runner
    seed: tyro.conf.Suppress[int] = RunConfig.seed
    folder: tyro.conf.Suppress[str] = RunConfig.folder
    name: tyro.conf.Suppress[str] = RunConfig.name


@dataclass(frozen=True)
class Resume:
    """Goes on with a run from its newest checkpoint, as if it had not been stopped.

    The run's own settings hold. Those of the group `run` can be changed, except seed, folder, name and runner; so can
    how often it is evaluated.

    The defaults below are those of the run on this command line.
    """

    path: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Agent steps in all, those before the stop included; short for --run.steps."""
    evaluation: Evaluation = dataclasses.field(default_factory=Evaluation)
    run: Run = dataclasses.field(default_factory=Run)


def main(argv: list[str]) -> int:
    path, overrides = _read(argv)
    from ngu.commands.session import memory_in_words, train_and_report

    with memory_in_words():
        return train_and_report(_restored(path, overrides))


def go_on(argv: list[str]) -> Training:
    """The run of a command line, ready to train on."""
    return _restored(*_read(argv))


def _read(argv: list[str]) -> tuple[Path, dict[str, Any]]:
    """The run's folder and the settings that change."""
    for token in argv:
        option = token.partition("=")[0]
        group, _, name = option.removeprefix("--").partition(".")
        if option.startswith("--") and name and group in GROUPS and group not in ("run", "evaluation"):
            known = [field.name.replace("_", "-") for field in dataclasses.fields(getattr(Config(), group))]
            if name.removeprefix("no-") not in known:
                raise UserError(unknown_name(f"the setting {group}.{name}", name, known))
            raise UserError(f"{option} is chosen when a run starts and cannot change; start another with `ngu train`.")
    line = take_apart(_PROG, Resume, argv)
    fixed = {name: line.options.pop(f"run.{name}") for name in _FIXED if f"run.{name}" in line.options}
    if not line.positionals:  # only `--help` needs no folder
        parse(_PROG, Resume, line)
    path = Path(line.positionals[0])
    before = RunFolder.open(path).config.run
    command = parse(_PROG, Resume, line, Resume(path, run=Run(**to_dict(before))))
    wanted = to_dict(command.run)
    if command.steps is not None:
        wanted["steps"] = command.steps
    changed = {name: value for name, value in wanted.items() if value != getattr(before, name)}
    for name, values in fixed.items():
        if values != [str(getattr(before, name))]:
            raise UserError(
                f"run.{name} is chosen when a run starts and cannot change; start another with `ngu train`."
            )
    overrides = {f"run.{name}": value for name, value in changed.items()}
    if command.evaluation.period is not None:
        overrides["evaluation.period"] = command.evaluation.period
    return path, overrides


def _restored(path: Path, overrides: dict[str, Any]) -> Training:
    """The run at its newest checkpoint, or at its beginning if it was stopped before it wrote one."""
    from ngu.checkpoint import newest_checkpoint
    from ngu.training import Training

    newest = newest_checkpoint(RunFolder.open(path).checkpoints)
    if newest is None:
        folder = RunFolder.open(path, lock=True)
        training = Training(with_overrides(folder.config, overrides), folder)
        training.require_room()
        folder.replace_config(training.config)
        training.notes.append("this run was stopped before its first checkpoint; it begins anew.")
        return training
    folder = RunFolder.open(path)
    done = int(newest.name.rpartition("_")[2])
    steps = overrides.get("run.steps", folder.config.run.steps)
    # The last acting step of a run, or with Ray the last chunk of an actor, may lead beyond its steps.
    env, at_once = folder.config.env, folder.config.ray.chunk_steps if folder.config.run.runner == "ray" else 1
    if steps <= done - max(env.num_envs, at_once * env.num_envs // env.groups) or _is_finished(folder, steps):
        raise UserError(
            f"the run has {done:,} steps already and --steps counts all of them; give more than that to go on."
        )
    return Training.resume(path, overrides)


def _is_finished(folder: RunFolder, steps: int) -> bool:
    """Whether the run has had its steps and the evaluation behind them, and still has the checkpoint."""
    from ngu.checkpoint import load_newest

    if last_evaluation(folder.metrics_path) < steps:
        return False
    return load_newest(folder.checkpoints, without=("replay",)).step >= steps

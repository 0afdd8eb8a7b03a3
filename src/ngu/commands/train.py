"""`ngu train`: a new run."""

from __future__ import annotations

import dataclasses
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from ngu.commands.arguments import CommandLine, parse, take_apart
from ngu.config import (
    ActorConfig,
    Config,
    EnvConfig,
    EvaluationConfig,
    LearnerConfig,
    MixtureConfig,
    NetworkConfig,
    NoveltyConfig,
    ProbeConfig,
    RayConfig,
    ReplayConfig,
    RunConfig,
)
from ngu.config_reading import from_dict, read_config_file, to_dict
from ngu.errors import UserError, needs_extra
from ngu.presets import PRESETS, preset
from ngu.variants import VARIANTS
from ngu.worlds import check_world

_PROG = "ngu train"
_DEFAULT_PRESET = next(iter(PRESETS))
_SHORT = {"env": "env.id", "game": "env.game"}
"""Short forms that are no fields of `Train`: `env` is the name of a group there."""


@dataclass(frozen=True)
class Train:
    """Trains an agent: a new folder with metrics, checkpoints and, at the end, a report.

    Settings come from the preset, the variant, the file and the command line; the later counts.

    The defaults below are those of the preset, variant and file on this command line.

    --env ID is short for --env.id, of a Gymnasium environment; --game NAME for --env.game, of an Atari game.

    Ctrl-C stops with a checkpoint, and `ngu resume` goes on from there.
    """

    preset: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="[PRESET]", help=f"What is trained on what: {', '.join(PRESETS)}."),
    ] = _DEFAULT_PRESET
    variant: Annotated[
        str, tyro.conf.arg(metavar="NAME", help=f"Changes a few of the preset's settings: {', '.join(VARIANTS)}.")
    ] = "ngu"
    config: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """A TOML or JSON file of settings, nested by group: `[env]`, then `maze_size = 9`; or a run's folder."""
    device: Annotated[str | None, tyro.conf.arg(metavar="DEVICE", help_behavior_hint="")] = None
    """Short for --run.device."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Short for --run.steps."""
    seed: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Short for --run.seed."""
    runner: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """Short for --run.runner: local, or ray for actors on a Ray cluster."""
    address: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS", help_behavior_hint="")] = None
    """Short for --ray.address."""
    actors: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Actors of the runner ray: sets --env.groups, and with it --env.num-envs."""
    envs_per_actor: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Environments of each actor: sets --env.num-envs."""
    run: RunConfig = dataclasses.field(default_factory=RunConfig)
    env: EnvConfig = dataclasses.field(default_factory=EnvConfig)
    mixture: MixtureConfig = dataclasses.field(default_factory=MixtureConfig)
    novelty: NoveltyConfig = dataclasses.field(default_factory=NoveltyConfig)
    probe: ProbeConfig = dataclasses.field(default_factory=ProbeConfig)
    network: NetworkConfig = dataclasses.field(default_factory=NetworkConfig)
    replay: ReplayConfig = dataclasses.field(default_factory=ReplayConfig)
    learner: LearnerConfig = dataclasses.field(default_factory=LearnerConfig)
    actor: ActorConfig = dataclasses.field(default_factory=ActorConfig)
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)
    ray: RayConfig = dataclasses.field(default_factory=RayConfig)


Command = TypeVar("Command", bound=Train)

GROUPS = tuple(entry.name for entry in dataclasses.fields(Config) if entry.name not in ("preset", "variant"))
"""The groups of settings."""


def main(argv: list[str]) -> int:
    config = read_config(argv)
    if config.run.wandb and importlib.util.find_spec("wandb") is None:  # found out before a folder is made
        raise UserError(needs_extra("run.wandb needs Weights & Biases", "wandb"))
    from ngu.commands.session import memory_in_words, train_and_report
    from ngu.training import Training

    with memory_in_words():
        training = Training.start(config)
        return train_and_report(training)


def read_config(argv: list[str]) -> Config:
    """The config of a command line: preset, variant, file and options, checked once all have been taken in."""
    return read_command(_PROG, Train, argv)[1]


def read_command(prog: str, kind: type[Command], argv: list[str]) -> tuple[Command, Config]:
    """The options of a command that takes all settings, and the config that they make."""
    line = take_apart(prog, kind, [_spelt_out(token) for token in argv], positional="PRESET")
    base = _base(line)
    command = parse(prog, kind, line, kind(**{group: getattr(base, group) for group in GROUPS}))
    settings = {group: to_dict(getattr(command, group)) for group in GROUPS}
    shortcuts = {"device": command.device, "steps": command.steps, "seed": command.seed, "runner": command.runner}
    settings["run"] |= {name: value for name, value in shortcuts.items() if value is not None}
    _apply_ray_options(command, settings)
    config = from_dict(settings, base)
    check_world(config, _given(line), f"write `{prog} {{preset}} {{told}} ...`")
    return command, config


def _apply_ray_options(command: Train, settings: dict[str, Any]) -> None:
    """Puts --address, --actors and --envs-per-actor into the settings that they are short for."""
    options = {
        "--address": command.address, "--actors": command.actors, "--envs-per-actor": command.envs_per_actor,
    }  # fmt: skip
    for option, value in options.items():
        if value is not None and settings["run"]["runner"] != "ray":
            raise UserError(f"{option} is for actors on a Ray cluster; give --runner ray with it, or leave it out.")
        if isinstance(value, int) and value < 1:
            raise UserError(f"{option} is {value}; give 1 or more.")
    if command.address is not None:
        settings["ray"]["address"] = command.address
    if command.actors is not None or command.envs_per_actor is not None:
        env = settings["env"]
        actors = command.actors or env["groups"]
        env |= {"groups": actors, "num_envs": actors * (command.envs_per_actor or max(env["num_envs"] // actors, 1))}


def _spelt_out(token: str) -> str:
    """`--env ID` and `--game NAME` as the settings that they are short for."""
    option, equals, value = token.partition("=")
    name = option.removeprefix("--")
    return f"--{_SHORT[name]}{equals}{value}" if option.startswith("--") and name in _SHORT else token


def _given(line: CommandLine) -> dict[str, str]:
    """The settings of `env` on the command line, and their options in the shortest form."""
    short = {option: name for name, option in _SHORT.items()}
    options = [option for option in line.options if option.startswith("env.")]
    return {option.removeprefix("env.").replace("-", "_"): f"--{short.get(option, option)}" for option in options}


def _base(line: CommandLine) -> Config:
    """Preset, variant and file."""
    name = line.positionals[0] if line.positionals else _DEFAULT_PRESET
    # What some variants need on some presets has to be there when the two are put together.
    needed = {"env.num_envs": "env.num-envs", "mixture.num_mixtures": "mixture.num-mixtures"}
    given = {field: int(line.value(option, "0")) for field, option in needed.items() if option in line.options}
    variant = line.value("variant", "ngu")
    try:
        base = preset(name, variant, {field: value for field, value in given.items() if value > 0})
    except UserError as error:
        try:  # further options may make them fit, and all are checked together later
            base = preset(name, variant)
        except UserError:
            raise error from None
    if "config" not in line.options:
        return base
    path = Path(line.value("config", "")).expanduser()
    config = read_config_file(path, base)
    for label, named in (("preset", bool(line.positionals)), ("variant", "variant" in line.options)):
        said, asked = getattr(config, label), getattr(base, label)
        if named and said != asked:
            raise UserError(
                f"the {label} of the run {path} is {said}, not {asked}; leave the {label} out to train with that run's "
                f"settings, or leave --config out to train {asked}."
            )
    return config

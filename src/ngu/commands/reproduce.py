"""`ngu reproduce`: a figure or table of the paper by its name."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from ngu.commands.arguments import parse, take_apart
from ngu.config import Config
from ngu.errors import UserError
from ngu.experiments.catalogue import EXPERIMENTS, experiment
from ngu.experiments.definition import Experiment
from ngu.experiments.listing import frames_in_words, hours_in_words, in_lines, sources
from ngu.experiments.plan import Cell, Plan, cost, for_a_cpu, smoke_part
from ngu.experiments.scales import SCALES, scale

_PROG = "ngu reproduce"
_INTERRUPTED = 130
_FEW_HOURS = 0.01
_USUAL_SCALE = "paper"
_HAVE_OPTIONS = {
    "run.seed": "--seeds", "run.steps": "--budget", "run.folder": "--folder", "run.name": "--folder",
    "run.device": "--device", "run.runner": "--runner",
}  # fmt: skip
"""Settings that the plan gives to each run, and the option that it follows."""


@dataclass(frozen=True)
class Reproduce:
    """Runs an experiment of the paper, and writes its figure or table with the paper's numbers beside ours.

    Runs are kept, shared between experiments, resumed where they were stopped, and taken further by a larger budget.
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[NAME]")] = ""
    """The label of a figure or table, such as fig_disco_maze; see --list."""
    list: bool = False
    """Show every experiment and what it costs; with a name, its runs and their commands."""
    scale: Annotated[
        str | None,
        tyro.conf.arg(
            metavar="NAME",
            help=" ".join(f"{name}: {entry.sentence}." for name, entry in SCALES.items())
            + f" {_USUAL_SCALE} if not given.",
            help_behavior_hint="",
        ),
    ] = None
    budget: Annotated[int | None, tyro.conf.arg(metavar="STEPS", help_behavior_hint="")] = None
    """Agent steps of each run (on Atari 4 frames each); those of the scale's preset if not given."""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Seeds of each task and variant; the paper's number if not given, one at the scale smoke."""
    tasks: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]", help_behavior_hint="")] = ()
    """Only these tasks, such as montezuma_revenge."""
    variants: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]", help_behavior_hint="")] = ()
    """Only these agents, such as ngu r2d2-retrace."""
    processes: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Runs side by side, 1 if not given; they share the cores. 0: in this process, one after the other."""
    device: Annotated[tuple[str, ...], tyro.conf.arg(metavar="DEVICE [DEVICE ...]", help_behavior_hint="")] = ()
    """Where runs are trained, in turn if there are several: cuda:0 cuda:1; the preset's choice if not given."""
    folder: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Parent of all runs and results; runs/reproduce-SCALE if not given."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SETTING=VALUE [...]", help_behavior_hint="")] = ()
    """Settings of every run, such as learner.replay_ratio=4 or novelty.hidden=64,64; use another --folder for them."""
    cluster: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS", help_behavior_hint="")] = None
    """Train whole runs on the machines of the Ray cluster at this address; auto: the one this machine is part of."""
    cpus_per_run: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Cores that each run asks that cluster for, 1 if not given; it uses no more threads than that."""
    gpus_per_run: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")] = None
    """Share of a GPU that each run on cuda asks that cluster for, 1 if not given: with 0.5, two share one."""
    runner: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """local, or ray: each run is trained here and has its actors on a Ray cluster."""
    address: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS", help_behavior_hint="")] = None
    """The address of the cluster of these actors, beside --runner ray."""
    run: bool = True
    """--no-run trains nothing: it collects and draws what there is."""


def main(argv: list[str]) -> int:
    command = parse(_PROG, Reproduce, take_apart(_PROG, Reproduce, argv, positional="NAME"))
    _check(command)
    if not command.name:
        if not command.list:
            raise UserError("`ngu reproduce` needs a NAME; `ngu reproduce --list` shows them all.")
        _print_list([_plan(command, entry) for entry in EXPERIMENTS.values()])
        return 0
    plan = _plan(command, experiment(command.name))
    cells = plan.cells()
    for cell in cells:
        cell.config()  # refuses settings that are not there, or do not fit
    if command.list:
        _print_list([plan])
        for cell in cells:
            print(cell.command())
        return 0
    if command.run:
        _check_machine(command, plan, cells)
    failed = _run(command, plan, cells) if command.run and cells else {}
    if failed is None:
        print("stopped; the same command goes on from here", flush=True)
        return _INTERRUPTED
    _write(plan, shlex.join(["ngu", "reproduce", *argv]))
    if failed:
        name, why = next(iter(failed.items()))
        raise UserError(
            f"{len(failed)} of {len(cells)} runs failed, the first is {name}: {why.rstrip('.')}; put that right and "
            "give the same command again."
        )
    return 0


def _check(command: Reproduce) -> None:
    for name, least in (("budget", 1), ("seeds", 1), ("processes", 0), ("cpus_per_run", 1)):
        value = getattr(command, name)
        if value is not None and value < least:
            raise UserError(f"--{name.replace('_', '-')} is {value}; give {least} or more.")
    if command.gpus_per_run is not None and not 0 < command.gpus_per_run <= 1:
        raise UserError(f"--gpus-per-run is {command.gpus_per_run:g}; give more than 0, and 1 at most.")
    if command.runner not in (None, "local", "ray"):
        raise UserError(f"--runner is {command.runner}; give local or ray.")
    if command.cluster is not None:
        _check_cluster(command)
        return
    if command.address is not None and command.runner != "ray":
        raise UserError(
            "--address is where the actors of --runner ray are; give that, too, or --cluster ADDRESS for whole runs."
        )
    for device in command.device:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
            raise UserError(f"--device {device} is not a device; give cpu, cuda, cuda:1 or auto.")
    for name in ("cpus_per_run", "gpus_per_run"):
        if getattr(command, name) is not None:
            raise UserError(f"--{name.replace('_', '-')} is for runs on a Ray cluster; give its address by --cluster.")
    if command.runner == "ray" and command.processes == 0:
        raise UserError("--processes 0 trains in this process; a Ray run needs one of its own, so give 1 or more.")


def _check_cluster(command: Reproduce) -> None:
    """Refuses what means nothing beside --cluster."""
    if not command.cluster:
        raise UserError("--cluster needs an address, such as 10.0.0.1:6379, or auto; leave it out to train here.")
    if command.runner is not None or command.address is not None:
        raise UserError(
            "--cluster trains whole runs on a Ray cluster, --runner and --address only their actors; give one of them."
        )
    if command.processes is not None:
        raise UserError(
            "--processes is for runs on this machine; with --cluster as many run as the cluster has room for, so leave "
            "it out or change --cpus-per-run."
        )
    if len(command.device) > 1 or any(device not in ("auto", "cpu", "cuda") for device in command.device):
        raise UserError(
            f"--device is {' '.join(command.device)}, but with --cluster Ray chooses the GPU of each run; give cuda or "
            "cpu."
        )


def _check_machine(command: Reproduce, plan: Plan, cells: list[Cell]) -> None:
    """Refuses to begin the paper's budget on a CPU unasked: it would take years.

    A scale or budget that is given is an answer, a cluster may have GPUs, and presets for a CPU say that they are.
    """
    asked = command.scale is not None or command.budget is not None or command.cluster is not None
    if asked or all(for_a_cpu(cell.preset) for cell in cells):
        return
    from ngu.machine import resolve_device

    if resolve_device("auto").type != "cpu":
        return
    hours = cost(cells).gpu_hours
    takes = "" if hours is None else f" takes about {hours_in_words(hours)} GPU-hours on an H200 and"
    on_cpu = " or ".join(
        f"--scale {name}" for name, size in SCALES.items() if all(map(for_a_cpu, size.presets.values()))
    )
    raise UserError(
        f"this machine has no GPU, and {plan.experiment.name} at the paper's scale{takes} is not for a CPU; choose "
        f"{on_cpu}, or say --scale {_USUAL_SCALE} to do it here anyway."
    )


def _plan(command: Reproduce, chosen: Experiment) -> Plan:
    chosen_scale = _USUAL_SCALE if command.scale is None else command.scale
    size = scale(chosen_scale)
    if command.tasks or command.variants:
        chosen = chosen.only(command.tasks, command.variants)
    elif size.smoke:
        chosen = smoke_part(chosen)
    folder = _reachable((command.folder or Path("runs") / f"reproduce-{chosen_scale}").expanduser())
    return Plan(chosen, size, folder, command.budget, command.seeds, _settings(command.settings))


def _reachable(folder: Path) -> Path:
    """Refuses a folder that cannot even be looked for: its name is too long, or a parent is closed to this user."""
    try:
        folder.exists()
    except OSError as error:
        raise UserError(f"cannot use the folder {folder}: {error.strerror}; choose another --folder.") from None
    return folder


def _settings(texts: tuple[str, ...]) -> dict[str, Any]:
    """`learner.replay_ratio=4` -> by name; commas separate the entries of a list, none makes it empty."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.replace("-", "_")
        group, _, leaf = name.partition(".")
        if not equals or not leaf:
            raise UserError(f"--settings takes group.setting=value, such as learner.replay_ratio=4, not {text!r}.")
        if name in _HAVE_OPTIONS:
            raise UserError(
                f"--settings cannot set {name}, which every run gets from the experiment; use {_HAVE_OPTIONS[name]}."
            )
        is_list = isinstance(getattr(getattr(Config(), group, None), leaf, None), tuple)
        found[name] = tuple(_value(part) for part in value.split(",") if part) if is_list else _value(value)
    return found


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _run(command: Reproduce, plan: Plan, cells: list[Cell]) -> dict[str, str] | None:
    """What failed; None if it was interrupted."""
    from ngu.experiments.running import ClusterShare, run_cells

    spent = cost(cells)
    hours = ""
    if spent.gpu_hours is not None and spent.gpu_hours >= _FEW_HOURS:
        hours = f", about {hours_in_words(spent.gpu_hours)} GPU-hours on an H200"
    print(
        f"{plan.experiment.name}: {len(cells)} runs, {frames_in_words(spent.frames)} frames or steps in all{hours}; "
        f"folder {plan.folder}",
        flush=True,
    )
    runner = [f"--runner={command.runner}"] if command.runner else []
    runner += [f"--address={command.address}"] if command.address else []
    share = None
    if command.cluster is not None:
        share = ClusterShare(command.cluster, command.cpus_per_run or 1, command.gpus_per_run or 1.0)
    processes = 1 if command.processes is None else command.processes
    outcome = run_cells(cells, processes=processes, devices=command.device, runner=runner, cluster=share)
    return None if outcome.interrupted else outcome.failed


def _write(plan: Plan, command: str) -> None:
    from ngu.experiments.collecting import collect
    from ngu.experiments.tables import terminal
    from ngu.experiments.writing import write

    written = write(plan, collect(plan), command)
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(terminal(written.found, f"{plan.experiment.name}: {plan.experiment.title}"))
    console.print(written.caption, markup=False, highlight=False)
    for path in written.files:
        print(path)


def _print_list(plans: list[Plan]) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 200
    print(in_lines(plans, width))
    print(textwrap.fill(sources(), width, break_on_hyphens=False))

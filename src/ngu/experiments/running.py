"""Runs the cells of a plan, each by the real `ngu train` in a process of its own, several side by side.

The processes are here, or on the machines of a Ray cluster (`ngu.experiments.on_cluster`).

A finished cell is skipped, one that was stopped is resumed, one that fails is told and the others go on. Ctrl-C and
SIGTERM stop them all, each with its checkpoint; the same command then goes on.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from ngu.config_reading import to_dict
from ngu.envs.make import cores
from ngu.errors import UserError
from ngu.experiments.plan import Cell, options
from ngu.experiments.watching import Watch
from ngu.metrics import last_evaluation
from ngu.run_folder import RunFolder
from ngu.worlds import foreign_settings

_POLL = 0.1
"""Seconds between looks at the processes."""
_MAY_DIFFER = {
    "run": None,
    "ray": None,
    "env": {"threads", "workers"},
    "evaluation": {"period"},
}
"""Settings in which a run may differ from its plan and still be the same experiment; None for a whole group."""

_EMULATORS = ("env.threads", "env.workers")
"""Settings that share out the cores among emulators."""


@dataclass
class Outcome:
    """How the cells of a plan ended."""

    done: list[Cell] = field(default_factory=list)
    skipped: list[Cell] = field(default_factory=list)
    """They were done before."""
    failed: dict[str, str] = field(default_factory=dict)
    """Name of a cell -> why."""
    interrupted: bool = False


@dataclass(frozen=True)
class ClusterShare:
    """A Ray cluster to run cells on, and what each of them asks it for."""

    address: str
    cpus: int = 1
    """Cores; a run uses as many threads, or fewer where its preset says so."""
    gpus: float = 1.0
    """Share of a GPU, for runs that are trained on one."""


def is_finished(cell: Cell) -> bool:
    """Whether the run has had its steps and the evaluation behind them."""
    return (cell.path / "config.json").is_file() and last_evaluation(cell.path / "metrics.jsonl") >= cell.steps


def other_settings(cell: Cell) -> list[str]:
    """In what the run in the cell's folder differs from the plan: it would be taken for what it is not."""
    if not (cell.path / "config.json").is_file():
        return []
    wanted, found = to_dict(cell.config()), to_dict(RunFolder.open(cell.path).config)
    return [
        f"{group}.{name}"
        for group, values in wanted.items()
        if isinstance(values, dict) and _MAY_DIFFER.get(group, set()) is not None
        for name, value in values.items()
        if found[group][name] != value and name not in (_MAY_DIFFER.get(group) or set())
    ]


def command_of(
    cell: Cell, device: str | None, threads: int, runner: Sequence[str] = (), place: Path | None = None
) -> list[str]:
    """The command behind `ngu` that brings a cell to its steps: a start, or a resume where it was begun.

    `place` is the run's folder for whoever gives the command, where that is not the cell's.
    """
    # Networks get as many threads as were asked for, or a preset's fewer than there are cores; emulators get them all.
    asked = cell.settings.get("run.threads")
    for_networks = asked or min(cell.config().run.threads or threads, threads)
    changes: dict[str, object] = {"run.threads": for_networks, **({"run.device": device} if device else {})}
    if (cell.path / "config.json").is_file():
        wanted, found = cell.config(), RunFolder.open(cell.path).config
        # A run that is taken further is looked at as seldom as one of that length from the start.
        if wanted.evaluation.period != found.evaluation.period:
            changes["evaluation.period"] = wanted.evaluation.period
        changes |= {"run.log_period": wanted.run.log_period, "run.steps": cell.steps}
        return ["resume", str(place or cell.path), *options(changes)]
    settled = {*cell.settings, *(f"env.{name}" for name in foreign_settings(cell.task.world))}
    emulators = {name: threads for name in _EMULATORS if name not in settled}
    if place is not None:
        changes["run.folder"] = str(place.parent)
    return [*cell.train, *options({**changes, **emulators}), *runner]


def run_cells(
    cells: Sequence[Cell],
    *,
    processes: int = 1,
    devices: Sequence[str] = (),
    runner: Sequence[str] = (),
    cluster: ClusterShare | None = None,
) -> Outcome:
    """Brings every cell to its steps. No more than `processes` run at a time, and they share the cores.

    With 0 processes the cells are trained in this process, one after the other: that saves their start-up time, and
    writes no reports about single runs. With a cluster they are trained there, as many as it has room for.
    """
    outcome = Outcome()
    waiting: list[Cell] = []
    damaged: list[tuple[Cell, str]] = []
    for cell in cells:
        try:
            different, finished = other_settings(cell), is_finished(cell)
        except UserError as error:
            damaged.append((cell, str(error)))
            continue
        if different:
            raise UserError(
                f"{cell.path} was run with other settings ({', '.join(different[:3])}); choose another --folder."
            )
        (outcome.skipped if finished else waiting).append(cell)
    threads = max(cores() // max(processes, 1), 1)
    with ExitStack() as stack:
        if cluster is not None:
            from ngu.experiments.on_cluster import ClusterGrid, check_runner, cluster_of

            check_runner(waiting)
            stack.enter_context(cluster_of(cluster))
        asked = stack.enter_context(_signals())
        watch = stack.enter_context(Watch(len(cells), len(outcome.skipped)))
        for cell, why in damaged:
            _fail(cell, why, outcome, watch)
        if cluster is not None:
            ClusterGrid(cluster, devices, outcome, watch, asked).run(waiting)
        elif processes == 0:
            _run_here(waiting, devices, threads, runner, outcome, watch, asked)
        else:
            _run_beside(waiting, processes, devices, threads, runner, outcome, watch, asked)
    outcome.interrupted = asked.is_set()
    return outcome


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Inside, Ctrl-C and SIGTERM set the event; a second Ctrl-C interrupts at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread may set handlers
        return

    def ask(number: int, _frame: FrameType | None) -> None:
        if asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.set()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


# ------------------------------------------------------------------------------------------- in processes of their own


@dataclass
class _Running:
    cell: Cell
    process: subprocess.Popen[bytes]
    slot: int


def _run_beside(
    waiting: list[Cell],
    processes: int,
    devices: Sequence[str],
    threads: int,
    runner: Sequence[str],
    outcome: Outcome,
    watch: Watch,
    asked: threading.Event,
) -> None:
    running: list[_Running] = []
    free = list(range(processes))
    told = False
    try:
        while (waiting and not asked.is_set()) or running:
            while waiting and free and not asked.is_set():
                slot = free.pop(0)
                cell = waiting.pop(0)
                device = devices[slot % len(devices)] if devices else None
                try:
                    process = _start(cell, command_of(cell, device, threads, runner), threads)
                except UserError as error:
                    free.append(slot)
                    _fail(cell, str(error), outcome, watch)
                    continue
                running.append(_Running(cell, process, slot))
                watch.begin(cell)
            if asked.is_set() and not told:
                told = True  # once: a second signal could end a run that is about to say where it stopped
                for entry in running:
                    entry.process.terminate()
            for entry in [entry for entry in running if entry.process.poll() is not None]:
                running.remove(entry)
                free.append(entry.slot)
                _settle(entry.cell, entry.process.returncode, outcome, watch, stopped=asked.is_set())
            watch.show()
            time.sleep(_POLL)
    finally:  # only an exception, such as a second Ctrl-C, leaves any
        for entry in running:
            entry.process.kill()
            entry.process.wait()


def _start(cell: Cell, command: list[str], threads: int) -> subprocess.Popen[bytes]:
    """A process in a group of its own, so that a terminal's Ctrl-C reaches it through this process alone."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    try:
        cell.log.parent.mkdir(parents=True, exist_ok=True)
        with cell.log.open("ab") as log:
            log.write(f"$ {shlex.join(['ngu', *command])}\n".encode())
            log.flush()
            return subprocess.Popen(
                [sys.executable, "-m", "ngu", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
    except OSError as error:
        raise UserError(f"cannot write {cell.log}: {error.strerror}.") from None


def _settle(cell: Cell, code: int, outcome: Outcome, watch: Watch, *, stopped: bool) -> None:
    if code == 0 and is_finished(cell):
        outcome.done.append(cell)
        watch.end(cell, "done")
    elif stopped:
        watch.end(cell, "stopped")
    else:
        why = last_line(cell.log) or f"it ended with code {code}"
        _fail(cell, why, outcome, watch, more=f" (more in {cell.log})")


def _fail(cell: Cell, why: str, outcome: Outcome, watch: Watch, *, more: str = "") -> None:
    outcome.failed[cell.name] = why
    watch.end(cell, f"failed: {why}{more}")


def last_line(path: Path) -> str:
    """The last line of a log that says something; empty if there is none."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip() and not line.startswith("$ ")), "")


# ------------------------------------------------------------------------------------------------- in this process


def _run_here(
    waiting: list[Cell],
    devices: Sequence[str],
    threads: int,
    runner: Sequence[str],
    outcome: Outcome,
    watch: Watch,
    asked: threading.Event,
) -> None:
    from ngu.commands.session import memory_in_words

    for cell in waiting:
        if asked.is_set():
            return
        watch.begin(cell)
        try:
            command = command_of(cell, devices[0] if devices else None, threads, runner)
            with memory_in_words():
                _train_here(command, asked)
        except UserError as error:
            _fail(cell, str(error), outcome, watch)
            continue
        if asked.is_set():
            watch.end(cell, "stopped")
        else:
            outcome.done.append(cell)
            watch.end(cell, "done")


def _train_here(command: list[str], asked: threading.Event) -> None:
    """What the command does, without its progress line and report."""
    from ngu.commands import resume, train
    from ngu.training import Training

    if command[0] == "resume":
        training = resume.go_on(command[1:])
    else:
        training = Training.start(train.read_config(command[1:]), command=shlex.join(["ngu", *command]))
    try:
        if training.run(show_progress=False, handle_signals=True).interrupted:
            asked.set()
    finally:
        training.close()

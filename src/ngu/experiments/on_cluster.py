"""Runs the cells of a plan on the machines of a Ray cluster, as many side by side as there is room for.

Each cell is a process of the cluster (`CellHost`) that starts the real command on its machine. This process asks how
it goes and mirrors the run's folder here, checkpoints included, so no disk has to be shared. A cell whose process or
machine is lost begins again from its newest checkpoint here, on whatever machine has room.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngu.checkpoint import newest_checkpoint, prune, put_in_place
from ngu.errors import UserError
from ngu.experiments.carrying import PIECE, Part, Staged, parts_to_go_on, write_part
from ngu.experiments.cell_host import CellHost, News
from ngu.experiments.plan import Cell
from ngu.experiments.running import ClusterShare, Outcome, command_of, is_finished, last_line
from ngu.experiments.watching import Watch
from ngu.run_folder import RunFolder, replace_file, reserve_folder, sync_folder
from ngu.runners.cluster import Head, end_processes, join, load_ray
from ngu.runners.fleet import MACHINE_LOST, reason_of

_POLL = 0.1
"""Seconds to wait for an answer of any cell before looking around."""
_LOOK = 1.0
"""Seconds between two looks at a cell."""
_MOST_FAILURES = 5
"""How often in a row a cell may fail without a new checkpoint."""
_PAUSE = 1.0
"""Seconds before a failed cell begins again, twice as many after each further failure: for a while after a machine is
lost, Ray may still place processes there."""
_INTERRUPTED = 130
_USERS_MISTAKE = 2
"""Exit code of a command that the user has to put right: to begin again would not help."""


@contextmanager
def cluster_of(share: ClusterShare) -> Iterator[None]:
    """Inside, this process is part of the cluster; one that it had joined before stays joined."""
    ray = load_ray()
    joined = not ray.is_initialized()
    if joined:
        join(share.address, "--cluster", "--cluster", "ngu")
    try:
        yield
    finally:
        if joined:
            ray.shutdown()


@dataclass
class _Run:
    """A cell that is not done."""

    cell: Cell
    host: Any = None
    """Ray's handle of its process."""
    talk: Generator[Any, Any, int] | None = None
    """What is asked of the process, one call after the other; it ends with the exit code."""
    call: Any = None
    """Ray's reference of the answer that is waited for."""
    begun: bool = False
    """The cluster had room: it is at work."""
    failures: int = 0
    not_before: float = 0.0
    lock: int | None = None


class ClusterGrid:
    """Brings cells to their steps on a cluster that `cluster_of` has entered."""

    def __init__(
        self,
        share: ClusterShare,
        devices: Sequence[str],
        outcome: Outcome,
        watch: Watch,
        asked: threading.Event,
    ) -> None:
        self._ray = load_ray()
        self._share = share
        self._devices = devices
        self._outcome, self._watch, self._asked = outcome, watch, asked
        self._head = Head("when there is a cluster again, the same command goes on")
        self._has_gpus = self._ray.cluster_resources().get("GPU", 0) > 0
        # Made once: what Ray has not seen before it hands to the head, and waits for as long as it is not there.
        self._host = self._ray.remote(CellHost)
        self._runs: list[_Run] = []

    def run(self, waiting: Sequence[Cell]) -> None:
        """Returns when all are done, have failed, or were stopped."""
        self._runs = [_Run(cell) for cell in waiting]
        self._say_if_there_is_no_room()
        told = False
        try:
            while self._runs:
                self._head.require()
                if self._asked.is_set() and not told:
                    told = True
                    self._stop()
                for run in self._runs:
                    if run.host is None and time.monotonic() >= run.not_before:
                        self._start(run)
                for run in self._answered():
                    self._go_on(run)
                self._watch.show()
        finally:  # only an exception, such as a second Ctrl-C, leaves any
            self._release(*self._runs)

    def _say_if_there_is_no_room(self) -> None:
        wanted = [self._wants(run.cell) for run in self._runs]
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        for cpus, gpus in sorted(set(wanted)):
            if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
                what = f"{cpus} core{'s' * (cpus > 1)}" + (f" and {gpus:g} GPU" if gpus else "")
                self._watch.note(f"no machine of the cluster has {what} for a run; runs wait until one joins it")

    def _device(self, cell: Cell) -> str:
        """What the user said, or the preset; `auto` is a GPU where the cluster has any."""
        device: str = self._devices[0] if self._devices else cell.config().run.device
        if device == "auto":
            return "cuda" if self._has_gpus else "cpu"
        return device.partition(":")[0]  # which of a machine's GPUs is Ray's choice

    def _wants(self, cell: Cell) -> tuple[int, float]:
        """Cores and GPUs that a cell asks the cluster for."""
        return self._share.cpus, self._share.gpus if self._device(cell) == "cuda" else 0.0

    # ------------------------------------------------------------------------------------------------- one cell

    def _start(self, run: _Run) -> None:
        """Asks the cluster for a process; it waits there until there is room."""
        cpus, gpus = self._wants(run.cell)
        host = self._host.options(num_cpus=cpus, num_gpus=gpus, max_restarts=0, scheduling_strategy="SPREAD")
        run.host = host.remote(run.cell.name)
        run.talk = self._talk(run)
        run.call = next(run.talk)

    def _talk(self, run: _Run) -> Generator[Any, Any, int]:
        """From the process's first answer to the command's exit code. Yields Ray's references, is sent the answers."""
        cell, host = run.cell, run.host
        place = yield host.place.remote()
        if run.lock is None:
            run.lock = reserve_folder(cell.path)
        run.begun = True
        self._watch.begin(cell, place["machine"])
        mirror = _Mirror(cell, self._command(cell, None))
        for part in parts_to_go_on(cell.path, newest_checkpoint(cell.path / "checkpoints")):
            yield host.receive.remote(part)
            if self._asked.is_set():
                return _INTERRUPTED
        yield host.start.remote(self._command(cell, Path(cell.name)), self._share.cpus)
        while True:
            news: News = yield host.look.remote(_LOOK)
            mirror.take(news.parts)
            if news.checkpoint is not None:
                for name, size in news.checkpoint.sizes.items():
                    for offset in range(0, max(size, 1), PIECE):
                        mirror.take_piece(name, offset, (yield host.read.remote(name, offset)))
                mirror.take_checkpoint(news.checkpoint)
                run.failures = 0
            if news.code is not None:
                return news.code

    def _command(self, cell: Cell, place: Path | None) -> list[str]:
        return command_of(cell, self._device(cell), self._share.cpus, place=place)

    def _answered(self) -> list[_Run]:
        """The runs whose processes have answered, after a short wait for the first of them."""
        calls = {run.call: run for run in self._runs if run.call is not None}
        if not calls:
            time.sleep(_POLL)
            return []
        if not self._ray.wait(list(calls), num_returns=1, timeout=_POLL)[0]:
            return []
        done, _ = self._ray.wait(list(calls), num_returns=len(calls), timeout=0)
        return [calls[call] for call in done]

    def _go_on(self, run: _Run) -> None:
        assert run.talk is not None
        try:
            try:
                run.call = run.talk.send(self._ray.get(run.call))
            except StopIteration as end:
                self._settle(run, end.value)
        except self._ray.exceptions.RayError as error:
            reason = reason_of(error)
            if reason == MACHINE_LOST and not run.begun:  # it had been about to go there, and says nothing about it
                self._wait_again(run, _PAUSE)
            else:
                self._try_again(run, reason)
        except UserError as error:
            self._fail(run, str(error))
        except OSError as error:
            self._fail(run, f"cannot write {error.filename or run.cell.path}: {error.strerror}")

    def _settle(self, run: _Run, code: int) -> None:
        if code == 0 and is_finished(run.cell):
            self._outcome.done.append(run.cell)
            self._end(run, "done")
        elif self._asked.is_set():
            self._end(run, "stopped")
        else:
            why = f"it was ended by {signal.Signals(-code).name}" if code < 0 else last_line(run.cell.log)
            (self._fail if code == _USERS_MISTAKE else self._try_again)(run, why or f"it ended with code {code}")

    def _try_again(self, run: _Run, why: str) -> None:
        run.failures += 1
        if self._asked.is_set():
            self._end(run, f"stopped, but {why}")
        elif run.failures >= _MOST_FAILURES:
            self._fail(run, f"{why} ({run.failures} failures in a row)")
        else:
            self._watch.pause(run.cell, f"{why}; it begins again where there is room")
            self._wait_again(run, _PAUSE * 2 ** (run.failures - 1))

    def _wait_again(self, run: _Run, seconds: float) -> None:
        self._release(run)
        run.not_before = time.monotonic() + seconds

    def _fail(self, run: _Run, why: str) -> None:
        self._outcome.failed[run.cell.name] = why
        more = f" (more in {run.cell.log})" if run.cell.log.is_file() else ""
        self._end(run, f"failed: {why}{more}")

    def _end(self, run: _Run, how: str) -> None:
        self._watch.end(run.cell, how)
        self._runs.remove(run)
        self._release(run)

    def _release(self, *runs: _Run) -> None:
        """Gives back the runs' places in the cluster and the locks of their folders."""
        end_processes([run.host for run in runs if run.host is not None])
        for run in runs:
            if run.lock is not None:
                os.close(run.lock)
            run.host = run.talk = run.call = run.lock = None
            run.begun = False

    def _stop(self) -> None:
        """Those at work stop with a checkpoint, and are heard until it is here; the others have nothing to lose."""
        for run in list(self._runs):
            if run.begun:
                run.host.stop.remote()
            else:
                self._runs.remove(run)
                self._release(run)


class _Mirror:
    """The folder of a run that trains elsewhere, as it would be if it trained here."""

    def __init__(self, cell: Cell, command: Sequence[str]) -> None:
        """`command` is what would be called here."""
        self._cell = cell
        self._keep = cell.config().run.keep_checkpoints
        self._command = shlex.join(["ngu", *command])
        self._is_new = command[0] == "train"
        cell.log.parent.mkdir(parents=True, exist_ok=True)
        with cell.log.open("ab") as log:
            log.write(f"$ {self._command}\n".encode())
            self._log_begins = log.tell()
        self._checkpoints = cell.path / "checkpoints"
        self._arriving = self._checkpoints / ".writing-arriving"  # the next save of a run that goes on here removes it
        shutil.rmtree(self._arriving, ignore_errors=True)

    def take(self, parts: Sequence[Part]) -> None:
        for part in parts:
            path = self._cell.path.parent / part.name
            if path == self._cell.log:
                write_part(path, Part(part.name, self._log_begins + part.offset, part.content))
            elif part.offset:
                write_part(path, part)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                is_config = path == self._cell.path / "config.json"
                replace_file(path, self._as_here(part.content) if is_config else part.content)

    def _as_here(self, config: bytes) -> bytes:
        """The config with the folder and the command of this machine instead of temporary ones."""
        content = json.loads(config)
        content["config"]["run"]["folder"] = str(self._cell.path.parent)
        if self._is_new:
            content["command"] = self._command
        return (json.dumps(content, indent=2) + "\n").encode()

    def take_piece(self, name: str, offset: int, content: bytes) -> None:
        path = self._arriving / name
        write_part(path, Part(name, offset, content))

    def take_checkpoint(self, staged: Staged) -> None:
        """All pieces are here: from now on the run can go on from them."""
        for name in staged.sizes:
            with (self._arriving / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(self._arriving)
        put_in_place(self._arriving, self._checkpoints / staged.name)
        prune(self._checkpoints, self._keep)


def check_runner(cells: Sequence[Cell]) -> None:
    """Refuses runs that have their actors on a cluster: they need their learner here."""
    for cell in cells:
        if (cell.path / "config.json").is_file() and RunFolder.open(cell.path).config.run.runner != "local":
            raise UserError(
                f"{cell.path} was begun with --runner ray; go on with that, or choose another --folder for --cluster."
            )

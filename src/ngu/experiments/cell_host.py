"""What runs on a machine of a cluster for one cell: a process that starts the real command and tells how it goes.

The command trains in a process of its own, in a temporary folder of that machine, as a local cell does in its run
folder. Whoever asks (`ngu.experiments.on_cluster`) gets what is new in that folder and, at the end, the exit code.
Nothing here knows of Ray, or waits for PyTorch.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngu.experiments.carrying import Outbox, Part, Stage, Staged, write_part


@dataclass(frozen=True)
class News:
    """What has happened to a run since the last look."""

    parts: list[Part]
    checkpoint: Staged | None
    """One that can be fetched; the parts hold all metrics that were written before it."""
    code: int | None
    """The exit code, when the command has ended and all is told."""


class CellHost:
    """Runs one command for the run `where`, a path such as disco-maze/ngu/seed-0 below a temporary folder."""

    def __init__(self, where: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ngu-run-"))
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _KEEPER, str(self._folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # what ends this process is not meant for it
        )
        self._keeper.wait()  # it goes on in a process that is no child of this one
        self._root = (self._folder / where).parent
        self._log = self._folder / f"{where}.log"
        self._outbox = Outbox(self._root)
        self._stage = Stage(self._folder / where, self._folder / "staged")
        self._process: subprocess.Popen[bytes] | None = None

    def place(self) -> dict[str, Any]:
        """Where this process is."""
        return {"process": os.getpid(), "machine": os.uname().nodename}

    def receive(self, part: Part) -> None:
        """Takes in what the run needs to go on."""
        write_part(self._root / part.name, part)

    def start(self, command: Sequence[str], threads: int) -> None:
        """Begins `ngu COMMAND`, which names the run by its path below the temporary folder."""
        self._root.mkdir(parents=True, exist_ok=True)
        self._stage.skip()
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": os.pathsep.join(str(Path(path).absolute()) for path in paths if path),
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ngu", *command],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{self._process.pid}\n".encode())
        self._keeper.stdin.flush()

    def look(self, patience: float) -> News:
        """What is new after `patience` seconds, or at the end if that comes sooner."""
        assert self._process is not None
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(patience)
        # The checkpoint first: what is read afterwards holds all that was written before it.
        checkpoint = self._stage.newest()
        return News(self._outbox.changes(), checkpoint, code)

    def read(self, name: str, offset: int) -> bytes:
        """A piece of the checkpoint that was told last."""
        return self._stage.read(name, offset)

    def stop(self) -> None:
        """Asks the command to stop with a checkpoint; looks go on until it has."""
        if self._process is not None:
            self._process.terminate()


_KEEPER = """
import os, select, shutil, signal, sys
if os.fork():
    os._exit(0)
handles = []
for line in sys.stdin:
    try:
        handles.append(os.pidfd_open(int(line)))
    except (AttributeError, OSError):
        pass
for handle in handles:
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], 10.0)
    except OSError:
        pass
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""
"""A process that waits for the end of the one that started it, however that comes; it then ends what that had started,
and removes the temporary folder. A run that nobody looks at would keep its core, or its GPU. It is no child of the
other, since Ray kills the children of a process that it ends."""

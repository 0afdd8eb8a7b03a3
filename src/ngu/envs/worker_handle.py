"""The parent's end of one worker process: starting it, ordering a step, reading its answer, noticing its death.

What the process does is in `worker_process.py`; what becomes of a batch when one fails, in `workers.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from ngu.envs.gym import Interface
from ngu.envs.worker_process import ANSWER, PROGRESS, Orders
from ngu.errors import UserError

_BOOT = (
    "import json, sys; orders, sys.path[:] = json.loads(sys.argv[1]); "
    "from ngu.envs.worker_process import Orders, main; main(Orders(**orders))"
)
_SURROUNDINGS = {
    # The processes are the parallelism; threads inside them would only fight for the same cores.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "OPENCV_FOR_THREADS_NUM": "1",
    # An environment may iterate over a set of names: the order must not change from process to process.
    "PYTHONHASHSEED": "0",
}
_WAIT = 1.0
"""Seconds of one wait. Waits are counted, not the clock, so that a parent that was stopped blames no worker for it."""
_START = 60.0
"""Seconds that the interpreter and its imports may take, on a busy machine, however short the time limit is."""
_QUIETLY = getattr(socket, "MSG_NOSIGNAL", 0)
"""A dead worker's channel gives an error and no SIGPIPE, whatever the program does with that signal."""


class WorkerError(Exception):
    """A worker is of no use any more; the message says why, without a full stop.

    `raised` tells that code of an environment raised an exception, or that the environments do not fit.
    """

    def __init__(self, reason: str, raised: bool = False) -> None:
        super().__init__(reason)
        self.raised = raised


class Patience:
    """How long an answer has been waited for, and how long at most it is."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.waited = 0.0


class WorkerHandle:
    """One worker, which makes and steps the environments `start` to `stop` - 1 of a batch of `num_envs`.

    Args:
        start, stop, num_envs: see above.
        memory: the file of the shared memory.
        factory: the file that holds the pickled factory.
        timeout: seconds; the waits for an answer are no longer.
    """

    def __init__(self, start: int, stop: int, num_envs: int, memory: int, factory: int, timeout: float) -> None:
        self.envs = slice(start, stop)
        self.awaited = False
        """An order was sent and not yet answered."""
        self._name = f"the worker of environment{f's {start} to {stop - 1}' if stop - start > 1 else f' {start}'}"
        self._received = b""
        self._alive = False
        """It has said something."""
        self._wait = min(timeout, _WAIT)
        self._channel, channel = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        orders = Orders(channel.fileno(), lifeline, memory, factory, start, stop, num_envs)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps([asdict(orders), list(map(str, sys.path))])],
                pass_fds=(orders.channel, orders.lifeline, orders.memory, orders.factory),
                stdin=subprocess.DEVNULL,
                env={**os.environ, **_SURROUNDINGS},
                # A group of its own: Ctrl-C does not reach it, and what an environment starts is killed with it.
                process_group=0,
            )
        except OSError as error:
            self._channel.close()
            os.close(self._lifeline)
            raise UserError(f"a worker process cannot be started ({error.strerror}); use fewer workers.") from None
        finally:
            channel.close()
            os.close(lifeline)
        limit = struct.pack("ll", int(self._wait), int(self._wait % 1 * 1e6))
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, buffer: int) -> None:
        """Lets the environments do their tasks and write the outcome to this buffer; returns at once."""
        with contextlib.suppress(OSError):  # its death is noticed when the answer is read
            self._channel.send(bytes([buffer]), _QUIETLY)
        self.awaited = True

    def answer(self, patience: Patience, interface: Interface) -> None:
        """Waits until the order is carried out, and before that, in a new worker, until its environments are made."""
        while not self._received.startswith(ANSWER):
            if self._received and self.ready(patience) != interface:
                raise WorkerError(f"{self._name} made them with other spaces than before", raised=True)
            if not self._received:
                self._receive(patience)
        self._received = self._received[1:]
        self.awaited = False

    def ready(self, patience: Patience) -> Interface:
        """Waits until all environments are made; the time limit holds for each of them."""
        while b"\n" not in self._received:
            if self._received.startswith(PROGRESS):
                self._received = self._received.lstrip(PROGRESS)
                patience.waited = 0.0
            self._receive(patience)
        line, _, self._received = self._received.partition(b"\n")
        report: dict[str, Any] = json.loads(line.lstrip(PROGRESS))
        if "fault" in report:
            raise WorkerError(report["fault"].removesuffix("."), raised=True)
        return Interface.from_plain(report["ready"])

    def _receive(self, patience: Patience) -> None:
        """Waits for more bytes from the worker."""
        while True:
            try:
                received = self._channel.recv(4096)
                break
            except BlockingIOError:
                patience.waited += self._wait
                limit = patience.timeout if self._alive else max(patience.timeout, _START)
                if patience.waited >= limit:
                    raise WorkerError(f"{self._name} gave no answer for {limit:g} seconds") from None
            except ConnectionError:
                received = b""
                break
        if not received:
            raise WorkerError(f"{self._name} {self._manner_of_death()}")
        self._received += received
        self._alive = True

    def _manner_of_death(self) -> str:
        try:
            code = self._process.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            return "closed its channel"
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def dismiss(self) -> None:
        """Lets the process close its environments and end."""
        self._channel.close()

    def kill(self, grace: float = 0.0) -> None:
        """Ends the process and those it has started, after `grace` seconds at most; a second call changes nothing."""
        if self._lifeline < 0:
            return  # its number may belong to another process by now
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=max(grace, 0.0))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._channel.close()
        os.close(self._lifeline)
        self._lifeline = -1

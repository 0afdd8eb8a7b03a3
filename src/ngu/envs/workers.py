"""A batch of Gymnasium environments in worker processes with shared memory.

Each worker steps its share of the environments one after the other and writes their outcome where the parent reads it
(`worker_process.py`). A worker that dies, hangs or fails is replaced, its running episodes are cut, the run goes on.

Workers are fresh interpreters, never forks of this one: a fork would share PyTorch's threads and CUDA's state. They do
not run the parent's main script again, so a script needs no `if __name__ == "__main__"`; a factory that is defined in
it is sent by value. The shared memory has no name: nothing is left of it when the last process ends, however it ends.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import torch
from torch import Tensor

from ngu.envs.answers import Env
from ngu.envs.gym import Interface
from ngu.envs.protocol import Step
from ngu.envs.worker_handle import Patience, WorkerError, WorkerHandle
from ngu.envs.worker_process import RESET, SEEDED_RESET, SKIP, STEP, StepArrays, shared_arrays
from ngu.errors import UserError

_FAREWELL = 5.0
"""Seconds that workers have to close their environments before they are killed."""


class WorkerEnvironments:
    """E Gymnasium environments in worker processes; see `EnvironmentBatch`.

    The tensors of a `Step` are the shared memory itself and stay valid until the next `recv` (or `reset`).

    The same seed and actions give the same episodes, however many workers there are. Environment e is seeded from
    (seed, e), and its later episodes come from its own generator; after the n-th restart of its worker it is seeded
    from (seed, e, n).

    Where a worker is restarted, running episodes are cut: the step shows the last observation once more, reward 0 and
    `truncated`, and the next step is `first`. Where the step was an automatic reset, no episode was running: the new
    worker makes the reset, and the step shows it.

    Args:
        make_env: makes one environment; it is given the environment's index, 0 to E - 1.
        num_envs: E.
        workers: processes; 0 for one on each core.
        timeout: a worker that does not answer for so many seconds is replaced.
        max_restarts: more restarts than this end the run with a `UserError`.
    """

    graph_safe = False
    restores = False
    device = torch.device("cpu")
    generators: tuple[torch.Generator, ...] = ()

    def __init__(
        self,
        make_env: Callable[[int], Env],
        num_envs: int,
        *,
        workers: int = 0,
        timeout: float = 60.0,
        max_restarts: int = 100,
    ) -> None:
        _check_settings(num_envs, workers, timeout, max_restarts)
        self.num_envs = num_envs
        self.timeout = timeout
        self.max_restarts = max_restarts
        self.restarts = 0
        """How many workers have been replaced."""
        self.restart_reason = ""
        """Why the last of them was, as a sentence."""
        self._factory = _pickled(make_env)
        self._memory = _anonymous_file()
        self._workers: list[WorkerHandle] = []
        self._closing = weakref.finalize(self, _end, self._workers, (self._factory, self._memory), os.getpid())
        workers = min(workers or _cores(), num_envs)
        try:
            for start, stop in pairwise(worker * num_envs // workers for worker in range(workers + 1)):
                self._workers.append(self._start(start, stop))
            self._interface = self._read_interface()
        except BaseException:
            self.close()
            raise
        self.spec = self._interface.spec()
        self._shared = shared_arrays(self._interface, num_envs, self._sized_memory)
        self._action = torch.from_numpy(self._shared.action)
        self._steps = [self._as_step(arrays) for arrays in self._shared.buffers]
        self._buffer = 0
        self._seed: int | None = None
        self._proven = False
        """Environments have been reset and stepped once: what fails later is no fault of all of their kind."""
        self._incarnation = np.zeros(num_envs, dtype=np.int64)
        """[E]: how often the environment has been made anew since `reset`."""
        self._unseeded = np.zeros(num_envs, dtype=np.bool_)
        """[E]: the environment has been made anew and not been seeded since."""

    def reset(self, seed: int) -> Step:
        self._check_open()
        if self._seed is not None:
            self.recv()  # a step may be under way
        self._seed = seed
        self._incarnation[:] = 0
        self._unseeded[:] = False
        self._shared.task[:] = SEEDED_RESET
        self._write_seeds(slice(0, self.num_envs))
        self._order()
        return self.recv()

    def send(self, action: Tensor) -> None:
        self._check_open()
        if self._seed is None or any(worker.awaited for worker in self._workers):
            raise RuntimeError("send() comes once after each reset() or recv().")
        last = self._shared.buffers[self._buffer]
        self._action.copy_(action)
        if not 0 <= self._shared.action.min() <= self._shared.action.max() < self.spec.num_actions:
            # An environment would raise an exception, and a worker be replaced for the caller's mistake.
            raise ValueError(f"actions must be numbers from 0 to {self.spec.num_actions - 1}, not {action}.")
        self._shared.task[:] = np.where(last.terminated | last.truncated, RESET, STEP)
        if self._unseeded.any():
            self._shared.task[self._unseeded] = SEEDED_RESET
            self._unseeded[:] = False
        self._order()

    def _order(self) -> None:
        self._buffer = 1 - self._buffer
        for worker in self._workers:
            worker.order(self._buffer)

    def recv(self) -> Step:
        self._check_open()
        if self._seed is None:
            raise RuntimeError("recv() comes after reset().")
        patience = Patience(self.timeout)
        for place, worker in enumerate(self._workers):
            if worker.awaited:
                try:
                    worker.answer(patience, self._interface)
                except WorkerError as error:
                    self._replace(place, error)
        if not self._proven:
            self._proven = bool((self._shared.task == STEP).any())  # those of a worker that failed are SKIP by now
        return self._steps[self._buffer]

    def _replace(self, place: int, error: WorkerError) -> None:
        """Starts a worker anew, cuts the running episodes of its environments, and makes the resets that were due."""
        worker = self._workers[place]
        envs = worker.envs
        worker.kill()  # before its part of the outcome is written, so that it cannot write any more
        self._cut(envs)
        task = self._shared.task[envs]
        task[:] = np.where(task == STEP, SKIP, SEEDED_RESET)
        while True:
            self._count(error)
            self._incarnation[envs] += 1
            self._unseeded[envs] = task == SKIP
            self._write_seeds(envs)
            worker = self._workers[place] = self._start(envs.start, envs.stop)
            if not (task == SEEDED_RESET).any():
                break  # it gets ready while others work; its next answer is waited for
            worker.order(self._buffer)
            try:
                worker.answer(Patience(self.timeout), self._interface)
                break
            except WorkerError as next_error:
                error = next_error
                worker.kill()

    def _cut(self, envs: slice) -> None:
        """Writes the outcome of a step that did not take place, for those environments that had an episode running."""
        outcome, last = self._shared.buffers[self._buffer], self._shared.buffers[1 - self._buffer]
        running = envs.start + np.flatnonzero(self._shared.task[envs] == STEP)
        outcome.observation[running] = last.observation[running]
        outcome.info[:, running] = last.info[:, running]
        outcome.reward[running] = 0.0
        outcome.terminated[running] = False
        outcome.truncated[running] = True
        outcome.first[running] = False

    def _count(self, error: WorkerError) -> None:
        """Counts a restart, unless there may be no more, or an environment cannot even be reset and stepped once."""
        if error.raised and not self._proven:
            self.close()
            raise UserError(f"{error}.")
        if self.restarts >= self.max_restarts:
            self.close()
            raise UserError(
                f"workers of the environments failed more than the {self.max_restarts} times that are allowed, at last "
                f"because {error}; mend the environment or allow more restarts."
            )
        self.restarts += 1
        self.restart_reason = f"{error}."

    def _write_seeds(self, envs: slice) -> None:
        """A seed of 31 bits, which every environment can take, from (seed, e, incarnation)."""
        for e in range(envs.start, envs.stop):
            sequence = np.random.SeedSequence(self._seed, spawn_key=(e, int(self._incarnation[e])))
            self._shared.seed[e] = sequence.generate_state(1, np.uint32)[0] >> 1

    def _start(self, start: int, stop: int) -> WorkerHandle:
        return WorkerHandle(start, stop, self.num_envs, self._memory, self._factory, self.timeout)

    def _read_interface(self) -> Interface:
        """Waits for the new workers' environments, which must be of one kind."""
        interfaces = []
        for worker in self._workers:
            try:
                interfaces.append(worker.ready(Patience(self.timeout)))
            except WorkerError as error:
                worker.kill()
                advice = "" if error.raised else ", before its environments were made; make one by hand to see why"
                raise UserError(f"{error}{advice}.") from None
            if interfaces[-1] != interfaces[0]:
                raise UserError(
                    f"environments 0 and {worker.envs.start} have different spaces or measurements; make them alike."
                )
        return interfaces[0]

    def _sized_memory(self, size: int) -> mmap.mmap:
        os.ftruncate(self._memory, size)
        return mmap.mmap(self._memory, size)

    def _as_step(self, arrays: StepArrays) -> Step:
        return Step(
            observation=torch.from_numpy(arrays.observation),
            reward=torch.from_numpy(arrays.reward),
            terminated=torch.from_numpy(arrays.terminated),
            truncated=torch.from_numpy(arrays.truncated),
            first=torch.from_numpy(arrays.first),
            info=dict(zip(self.spec.measurements, torch.from_numpy(arrays.info), strict=True)),
        )

    @property
    def pids(self) -> list[int]:
        """The worker processes as they are now."""
        return [worker.pid for worker in self._workers]

    def maintain(self) -> None:
        """Nothing to do between steps."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing: running episodes cannot be saved, so a resumed run begins new ones."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to take over."""

    def close(self) -> None:
        """Ends the workers; a second call changes nothing."""
        self._closing()

    def _check_open(self) -> None:
        if not self._closing.alive:
            raise RuntimeError("the environments are closed.")


def _check_settings(num_envs: int, workers: int, timeout: float, max_restarts: int) -> None:
    if num_envs < 1:
        raise UserError(f"the number of environments is {num_envs}; set it to 1 or more.")
    if workers < 0:
        raise UserError(f"the number of workers is {workers}; set it to 0 (one on each core) or more.")
    if not timeout > 0:
        raise UserError(f"the workers' time limit is {timeout} seconds; set it above 0.")
    if max_restarts < 0:
        raise UserError(f"the number of restarts that are allowed is {max_restarts}; set it to 0 or more.")


def _cores() -> int:
    """How many cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    else:  # noqa: RET505, so that types are checked on each platform
        return os.cpu_count() or 1


def _anonymous_file() -> int:
    """A file that has no name, in memory where the system can do that."""
    if sys.platform == "linux":
        return os.memfd_create("ngu-environments")
    else:  # noqa: RET505
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


def _pickled(make_env: Callable[[int], Env]) -> int:
    """A file with the factory, from which every worker reads it."""
    try:
        data = cloudpickle.dumps(make_env)
    except Exception as error:
        raise UserError(
            f"the environments' factory cannot be sent to a worker process ({error}); let it make what it needs when "
            "it is called."
        ) from None
    descriptor = _anonymous_file()
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    return descriptor


def _end(workers: list[WorkerHandle], files: tuple[int, ...], owner: int) -> None:
    """Ends all workers, together, and closes the files; a fork of the process that owns them leaves them alone."""
    if os.getpid() != owner:
        return
    for worker in workers:
        worker.dismiss()
    deadline = time.monotonic() + _FAREWELL
    for worker in workers:
        worker.kill(deadline - time.monotonic())
    for file in files:
        os.close(file)

"""The process that steps some of a batch's environments, one after the other; `worker_handle.py` is the other side.

Both sides map the same memory. The parent writes what each environment has to do and sends one byte, the number of the
buffer to write to; the process does it, writes the outcome there and answers one byte. Whatever else the process has to
say is a line of JSON on the same channel: that its environments are made, or, as its last words, why it failed.

This module is imported by every worker: nothing in it may need PyTorch.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import pickle
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ngu.envs.answers import Env, WrongAnswerError, describe, reset_once, step_once
from ngu.envs.gym import Interface, read_interface
from ngu.envs.priority import step_back
from ngu.errors import UserError

STEP, RESET, SEEDED_RESET, SKIP = range(4)
"""What an environment has to do: take the action; begin an episode; the same with its seed; nothing."""

_LARGEST = float(np.finfo(np.float32).max)
"""Rewards are shared as float32."""

ANSWER = b"."
"""The outcome is in the shared memory."""
PROGRESS = b"+"
"""The worker has begun its work, or has made another environment."""


@dataclass(frozen=True)
class Orders:
    """What a worker is started with; the numbers of files that it inherits, and its share of the environments."""

    channel: int
    """A socket to the parent."""
    lifeline: int
    """The reading end of a pipe that nobody writes to; it ends when the parent does."""
    memory: int
    """The shared memory."""
    factory: int
    """A file with the pickled factory of environments."""
    start: int
    """The index of the first environment here."""
    stop: int
    """One more than the last."""
    num_envs: int
    """E, of the whole batch."""


@dataclass(frozen=True)
class StepArrays:
    """The outcome of one step of all environments."""

    observation: NDArray[Any]
    """[E, *observation_shape]"""
    reward: NDArray[np.float32]
    """[E]"""
    terminated: NDArray[np.bool_]
    """[E]"""
    truncated: NDArray[np.bool_]
    """[E]"""
    first: NDArray[np.bool_]
    """[E]"""
    info: NDArray[np.float32]
    """[M, E], the measurements."""


@dataclass(frozen=True)
class SharedArrays:
    """Everything that both sides see. The buffers take turns, so that one can be read while the other is written."""

    task: NDArray[np.uint8]
    """[E], what each environment has to do."""
    action: NDArray[np.int64]
    """[E], counted from 0."""
    seed: NDArray[np.int64]
    """[E], for those that are reset with a seed."""
    buffers: tuple[StepArrays, StepArrays]


_Field = tuple[tuple[int, ...], DTypeLike]
"""Shape and dtype of an array."""


def shared_arrays(interface: Interface, num_envs: int, memory: Callable[[int], mmap.mmap]) -> SharedArrays:
    """The arrays in the memory that `memory(size)` gives."""
    orders: list[_Field] = [((num_envs,), np.uint8), ((num_envs,), np.int64), ((num_envs,), np.int64)]
    outcome: list[_Field] = [
        ((num_envs, *interface.observation_shape), interface.observation_dtype),
        ((num_envs,), np.float32),
        *[((num_envs,), np.bool_)] * 3,
        ((len(interface.all_measurements), num_envs), np.float32),
    ]
    fields = [(shape, np.dtype(dtype)) for shape, dtype in [*orders, *outcome, *outcome]]
    # Each array starts on a cache line of its own.
    places = np.cumsum([0] + [-(-int(np.prod(shape)) * dtype.itemsize // 64) * 64 for shape, dtype in fields]).tolist()
    whole = memory(places[-1])
    arrays: Iterator[Any] = (
        np.frombuffer(whole, dtype, int(np.prod(shape)), place).reshape(shape)
        for (shape, dtype), place in zip(fields, places[:-1], strict=True)
    )
    task, action, seed, *rest = arrays
    half = len(outcome)
    return SharedArrays(task, action, seed, (StepArrays(*rest[:half]), StepArrays(*rest[half:])))


class EnvironmentRaisedError(Exception):
    """Code of an environment raised an exception, or answered a `call` wrongly; the message says which and how."""

    def __init__(self, index: int, error: BaseException, call: str = "") -> None:
        super().__init__(str(error) if isinstance(error, UserError) else f"environment {index} {describe(error, call)}")


class Worker:
    """A worker's share of the environments."""

    def __init__(self, orders: Orders, channel: socket.socket) -> None:
        self._orders = orders
        self._channel = channel
        self._envs: dict[int, Env] = {}
        self._score: dict[int, float] = {}
        self._interface: Interface
        self._shared: SharedArrays | None = None

    def make(self) -> Interface:
        """Makes the environments, which must be of one kind."""
        size = os.fstat(self._orders.factory).st_size
        try:
            factory = pickle.loads(os.pread(self._orders.factory, size, 0))
        except Exception as error:
            raise UserError(
                f"the environments' factory {describe(error)} when a worker process loaded it; define it in a module "
                "that can be imported."
            ) from None
        for index in range(self._orders.start, self._orders.stop):
            try:
                self._envs[index] = factory(index)
                interface = read_interface(self._envs[index])
            except BaseException as error:
                raise EnvironmentRaisedError(index, error) from None
            if index == self._orders.start:
                self._interface = interface
            elif interface != self._interface:
                raise UserError(
                    f"environments {self._orders.start} and {index} have different spaces or measurements; make them "
                    "alike."
                )
            self._channel.sendall(PROGRESS)
        return self._interface

    def serve(self) -> None:
        """Steps the environments at each order, until the parent closes the channel."""
        while order := self._channel.recv(1):
            if self._shared is None:  # the parent has given the memory its size by now
                self._shared = shared_arrays(
                    self._interface, self._orders.num_envs, lambda size: mmap.mmap(self._orders.memory, size)
                )
            self._play(self._shared, self._shared.buffers[order[0]])
            self._channel.sendall(ANSWER)

    def _play(self, shared: SharedArrays, outcome: StepArrays) -> None:
        for index, env in self._envs.items():
            task = shared.task[index]
            if task == SKIP:
                continue
            try:
                if task == STEP:
                    action = shared.action[index] + self._interface.first_action
                    observation, reward, terminated, truncated, info = step_once(env, action)
                    if not abs(reward) <= _LARGEST:  # nor is nan
                        raise WrongAnswerError(f"its reward is {reward}")
                    self._score[index] += reward
                else:
                    seed = int(shared.seed[index]) if task == SEEDED_RESET else None
                    observation, info = reset_once(env, seed)
                    reward, terminated, truncated = 0.0, False, False
                    self._score[index] = 0.0
                outcome.observation[index] = self._interface.convert(observation)
                outcome.reward[index] = reward
                outcome.terminated[index] = terminated
                outcome.truncated[index] = truncated
                outcome.first[index] = task != STEP
                outcome.info[:, index] = self._interface.measure(self._score[index], info)
            except BaseException as error:
                raise EnvironmentRaisedError(index, error, "step" if task == STEP else "reset") from None

    def close(self) -> None:
        for env in self._envs.values():
            with contextlib.suppress(Exception):
                env.close()


def die_with_parent(lifeline: int) -> None:
    """Arranges that this process and those it starts are killed when the parent ends, however it ends.

    On Linux the kernel does it, so it works while an environment hangs in code that holds the interpreter's lock.
    Unlike PR_SET_PDEATHSIG it does not depend on the thread that started the process. Elsewhere a thread watches.
    """
    try:
        if sys.platform != "linux":
            raise OSError
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([lifeline], [], [], 0)[0]:  # it ended before the kernel was told
            os.killpg(0, signal.SIGKILL)
    except OSError:
        threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


def main(orders: Orders) -> None:
    """The whole life of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    die_with_parent(orders.lifeline)
    step_back()
    for file in (orders.channel, orders.lifeline, orders.memory, orders.factory):
        os.set_inheritable(file, False)  # a program that an environment starts must not keep the channel open
    channel = socket.socket(fileno=orders.channel)
    worker = Worker(orders, channel)
    try:
        channel.sendall(PROGRESS)
        say(channel, {"ready": asdict(worker.make())})
        worker.serve()
        worker.close()
    except (UserError, EnvironmentRaisedError) as error:
        with contextlib.suppress(OSError):
            say(channel, {"fault": str(error)})
    except (BrokenPipeError, ConnectionResetError):
        worker.close()  # the parent has closed the channel


def say(channel: socket.socket, report: dict[str, Any]) -> None:
    """Sends a line of JSON."""
    channel.sendall(json.dumps(report).encode() + b"\n")

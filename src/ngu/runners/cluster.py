"""The Ray cluster of a run: one that is joined, or one that is started for it and ends with it."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ngu.config import Config
from ngu.errors import UserError, needs_extra

_PATIENCE = 10.0
"""Seconds in which the machine of a cluster's address has to answer."""
_HEAD_LOOK = 2.0
"""Seconds between two looks at a cluster's head, and the most that one takes."""
_HEAD_PATIENCE = 30.0
"""Seconds without an answer of the head after which a run stops: half of what Ray waits before it ends this process."""
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
"""What Ray has to say of itself goes to its own logs."""


def load_ray() -> Any:
    """The module `ray`, an optional part of the installation."""
    try:
        import ray
    except ImportError:
        raise UserError(needs_extra("a Ray cluster needs the package Ray", "ray")) from None
    return ray


class OwnCluster:
    """A cluster of this machine that was started for a run."""

    def __init__(self, processes: list[int]) -> None:
        self._ray = load_ray()
        self._watch = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCH, *map(str, processes)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal is not meant for it
        )

    def close(self) -> None:
        """Ends all of its processes."""
        self._ray.shutdown()
        assert self._watch.stdin is not None
        self._watch.stdin.close()
        self._watch.wait()


_WATCH = """
import os, signal, sys
handles = []
for process in sys.argv[1:]:
    try:
        handles.append(os.pidfd_open(int(process)))
    except (AttributeError, OSError):
        pass
sys.stdin.buffer.read()
for handle in handles:
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        pass
"""
"""A process that waits for the end of the one that started it, however that comes, and then ends others.

Where a run is killed, Ray's own processes end with it on Linux, but two helpers stay for a minute and more.
"""


def connect(config: Config) -> OwnCluster | None:
    """Joins the cluster that the config names, or starts one for this run, and returns that.

    One that is started here listens on this machine's loopback alone, has no dashboard, and counts as many cores as the
    actors ask for: on a laptop they share what there is.
    """
    ray = load_ray()
    if ray.is_initialized():
        return None
    if config.ray.address:
        join(config.ray.address)
        return None
    wanted = (config.env.groups + 1) * config.ray.cpus_per_actor
    # It warns that it asks for a token, which is as it should be.
    logging.getLogger("ray._private.authentication.authentication_token_setup").setLevel(logging.ERROR)
    before = set(_descendants())
    with _on_loopback(), _own_signals(), _apart_from_the_run():
        # "local": without it Ray would join a cluster that it finds on this machine.
        ray.init("local", num_cpus=max(os.cpu_count() or 1, int(wanted) + 1), include_dashboard=False, **_QUIET)
    return OwnCluster([process for process in _descendants() if process not in before])


def join(address: str, setting: str = "ray.address", option: str = "--address", who: str = "the learner") -> None:
    """Joins the cluster at an address; `who` is to run here, and `setting` and `option` are what the user calls it."""
    if "://" in address:
        raise UserError(
            f"{setting} is {address}, but {who} must run on a machine of the cluster; start ngu there with {option} "
            "auto."
        )
    listens = False
    try:
        # Where nothing listens Ray itself would try for minutes, and then end this process.
        listens = _knock(address, _PATIENCE)
        with _own_signals():
            load_ray().init(address=address, **_QUIET)
    except (OSError, OverflowError, ValueError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if listens:
            raise UserError(
                f"something listens at {address}, but Ray could not join a cluster there ({first}); if the cluster "
                "asks for a token, set RAY_AUTH_MODE=token here, too; its port and Ray's version must be the cluster's."
            ) from None
        raise UserError(
            f"no Ray cluster answers at {address} ({first}); start one with `ray start --head`, or leave {setting} "
            f"{'out' if setting == option else 'empty'}."
        ) from None


def _knock(address: str, seconds: float) -> bool:
    """Whether the address has a port; raises if it has, and nothing listens there."""
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdigit()):
        return False
    socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    return True


class Head:
    """The process that a joined cluster cannot do without, watched while there is time to save what was learned.

    Args:
        then: what the user can do when it is lost, as the end of a sentence.
        address: where it listens; that of the cluster if it is not given.
    """

    def __init__(self, then: str, address: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._then = then
        self._address = address or str(load_ray().get_runtime_context().gcs_address)
        self._clock = clock
        self._looked = self._answered = clock()
        self._failed = False

    def require(self) -> None:
        """Raises if it has been silent for too long; looks every few seconds, however often it is called.

        Who was busy for long, with a checkpoint perhaps, and then finds it silent looks once more.
        """
        if self._clock() - self._looked < _HEAD_LOOK:
            return
        try:
            _knock(self._address, _HEAD_LOOK)
            self._answered, self._failed = self._clock(), False
        except OSError as error:
            silent, failed_before, self._failed = self._clock() - self._answered, self._failed, True
            if failed_before and silent >= _HEAD_PATIENCE:
                raise UserError(
                    f"the head of the Ray cluster at {self._address} has not answered for {silent:.0f} s "
                    f"({error.strerror or error}); {self._then}."
                ) from None
        self._looked = self._clock()


def end_processes(handles: Sequence[Any]) -> None:
    """Ends processes of the cluster that was joined.

    Where its head is lost they are left: Ray would wait for it, and they end with their machines' part of the cluster.
    """
    if not handles:
        return
    ray = load_ray()
    try:
        _knock(str(ray.get_runtime_context().gcs_address), _HEAD_LOOK)
    except OSError:
        return
    for handle in handles:
        ray.kill(handle, no_restart=True)


def _descendants() -> list[int]:
    """The processes that this one has started, and theirs; none where the system does not tell."""
    found = [os.getpid()]
    for process in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{process}/task").iterdir():
                with contextlib.suppress(OSError):  # a thread that has just ended
                    found += [int(child) for child in (task / "children").read_text().split()]
    return found[1:]


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Puts back how this process answers SIGTERM: Ray's own answer would end it without a checkpoint."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _apart_from_the_run() -> Iterator[None]:
    """A cluster that is started inside has process groups of its own.

    A signal to the run's group, from a terminal or from whoever supervises the run, is then for the run alone: where
    SIGTERM ended Ray's processes too, Ray would end the run before it had written its checkpoint.
    """
    from ray._private import services

    name = "ConsolePopen"  # what Ray starts its processes with
    before = getattr(services, name)
    setattr(services, name, functools.partial(before, process_group=0))
    try:
        yield
    finally:
        setattr(services, name, before)


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """A cluster that is started inside has the address 127.0.0.1, and its processes listen there alone.

    Ray does this by itself on macOS and Windows. On Linux it replaces a loopback address that it is given by the
    machine's, and listens everywhere; what its other systems do is behind a setting, read when Ray is imported.
    """
    from ray._private import ray_constants

    name = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    before, variable = ray_constants.ENABLE_RAY_CLUSTER, os.environ.get(name)
    ray_constants.ENABLE_RAY_CLUSTER, os.environ[name] = False, "0"
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        if variable is None:
            del os.environ[name]
        else:
            os.environ[name] = variable

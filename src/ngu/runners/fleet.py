"""Actors and evaluator as processes of a Ray cluster: kept busy, watched, and replaced when they fail.

Every process has calls under way, oldest first, and never more than a set number: an actor whose chunks are not taken
waits, so a slow learner slows the actors and fills no memory. A process that dies, hangs or raises is replaced by one
with the same slot; where the cluster has no room, the new one waits until there is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ngu.config import Config
from ngu.errors import UserError

Clock = Callable[[], float]

_PLACE, _BUILD = "place", "build"
"""What every member is asked first."""


def load_ray() -> Any:
    """The module `ray`, an optional part of the installation."""
    try:
        import ray
    except ImportError:
        raise UserError("the runner ray needs the package Ray; install it with: pip install 'ngu[ray]'.") from None
    return ray


def connect(config: Config) -> bool:
    """Joins the cluster that the config names, or starts one for this run; returns whether it was started here.

    One that is started here listens on this machine's loopback alone, has no dashboard, and counts as many cores as the
    actors ask for: on a laptop they share what there is.
    """
    ray = load_ray()
    if ray.is_initialized():
        return False
    quiet = {"log_to_driver": False, "logging_level": "warning"}
    if config.ray.address:
        try:
            ray.init(address=config.ray.address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise UserError(
                f"no Ray cluster answers at {config.ray.address} ({first}); start one with `ray start --head`, or "
                "leave ray.address empty."
            ) from None
        return False
    wanted = (config.env.groups + 1) * config.ray.cpus_per_actor
    # It warns that it asks for a token, which is as it should be.
    logging.getLogger("ray._private.authentication.authentication_token_setup").setLevel(logging.ERROR)
    with _on_loopback():
        # "local": without it Ray would join a cluster that it finds on this machine.
        ray.init("local", num_cpus=max(os.cpu_count() or 1, int(wanted) + 1), include_dashboard=False, **quiet)
    return True


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


@dataclass
class Member:
    """One process of the cluster, and what is known of it."""

    slot: int
    handle: Any = None
    calls: deque[tuple[str, Any]] = field(default_factory=deque)
    """What was asked of it and is not yet answered: a name and Ray's reference, oldest first."""
    running: bool = False
    """The cluster had room: its process is there."""
    ready: bool = False
    """What works in it has been built."""
    since: float = 0.0
    """When it last gave a sign of life."""
    failures: int = 0
    """In a row, without an answer in between."""
    restarts: int = 0
    reason: str = ""
    """Why it was last replaced."""
    place: dict[str, Any] = field(default_factory=dict)


class Fleet:
    """Members of one kind, each in its slot.

    Args:
        what: what a member is called in sentences.
        slots: how many.
        make: starts the process of a slot, a `Host`, and returns Ray's handle of it.
        config: the run's.
        lost: is told the slot of a member that is replaced.
    """

    def __init__(
        self,
        what: str,
        slots: int,
        make: Callable[[int], Any],
        config: Config,
        lost: Callable[[int], None] = lambda _slot: None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._ray = load_ray()
        self._what = what
        self._make = make
        self._settings = config.ray
        self._lost = lost
        self._clock = clock
        self.members = [Member(slot) for slot in range(slots)]
        self._turn = deque(self.members)
        for member in self.members:
            self._start(member)

    @property
    def alive(self) -> int:
        """Members that have been built and have not failed since."""
        return sum(member.ready for member in self.members)

    @property
    def restarts(self) -> int:
        return sum(member.restarts for member in self.members)

    @property
    def queued(self) -> int:
        """Calls under way."""
        return sum(len(member.calls) for member in self.members)

    def ask(self, member: Member, name: str, *arguments: Any) -> None:
        """Calls a method of what works in a member; `next_answer` will bring what it returns."""
        self._note(member, name, member.handle.call.remote(name, *arguments))

    def _note(self, member: Member, name: str, reference: Any) -> None:
        if not member.calls:
            member.since = self._clock()
        member.calls.append((name, reference))

    def next_answer(self, seconds: float) -> tuple[Member, Any] | None:
        """The next answer of any member in turn, or None if none came in time or one had to be replaced.

        Whoever takes the answer says whether it was good: `member.failures` becomes 0, or the member is replaced.
        """
        heads = {member.calls[0][1]: member for member in self._turn if member.calls}
        if not heads:
            return None
        done, _ = self._ray.wait(list(heads), num_returns=1, timeout=seconds)
        self._replace_silent_ones()
        if not done:
            return None
        member = heads[done[0]]
        # Those that answered go to the back of the queue: a slow learner must hear all of them, not the fastest.
        self._turn.remove(member)
        self._turn.append(member)
        name, reference = member.calls.popleft()
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self.replace(member, _reason(error))
            return None
        member.since = self._clock()
        if name == _PLACE:
            member.running, member.place = True, answer
        elif name == _BUILD:
            member.ready = True
        else:
            return member, answer
        return None

    def _replace_silent_ones(self) -> None:
        """A member that waits for room in the cluster is not silent, nor is one whose answer waits to be taken."""
        now = self._clock()
        for member in self.members:
            if member.running and member.calls and now - member.since > self._settings.timeout:
                answered, _ = self._ray.wait([member.calls[0][1]], timeout=0, fetch_local=False)
                if not answered:
                    self.replace(member, f"it sent nothing for {self._settings.timeout:g} s")

    def replace(self, member: Member, reason: str) -> None:
        """Ends a member's process and starts another in its slot; raises if it has failed too often in a row."""
        member.failures += 1
        member.restarts += 1
        member.reason = reason
        self._end(member)
        self._lost(member.slot)
        if member.failures >= self._settings.max_failures:
            raise UserError(
                f"{self._what} {member.slot} failed {member.failures} times in a row, last because {reason}; mend the "
                "cause, then go on with `ngu resume`."
            )
        self._start(member)

    def _start(self, member: Member) -> None:
        member.handle = self._make(member.slot)
        self._note(member, _PLACE, member.handle.place.remote())
        self._note(member, _BUILD, member.handle.build.remote())

    def _end(self, member: Member) -> None:
        member.calls.clear()
        member.running = member.ready = False
        member.place = {}
        if member.handle is not None:
            self._ray.kill(member.handle, no_restart=True)
            member.handle = None

    def reasons(self) -> Iterable[str]:
        """Why members were last replaced."""
        return [f"{self._what} {member.slot}: {member.reason}." for member in self.members if member.reason]

    def close(self) -> None:
        for member in self.members:
            self._end(member)


def _reason(error: BaseException) -> str:
    """One line about what Ray raised."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        text = str(cause).strip().splitlines()
        return f"{type(cause).__name__}: {text[0]}" if text else type(cause).__name__
    return {
        "ActorDiedError": "its process died",
        "ActorUnavailableError": "its process could not be reached",
        "ActorUnschedulableError": "the cluster cannot hold it",
        "NodeDiedError": "its machine was lost",
        "ObjectLostError": "what it sent was lost with its machine",
        "OutOfMemoryError": "its machine was out of memory",
    }.get(type(error).__name__, type(error).__name__)

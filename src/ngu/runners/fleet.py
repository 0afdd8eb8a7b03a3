"""Actors and evaluator as processes of a Ray cluster: kept busy, watched, and replaced when they fail.

Every process has calls under way, oldest first, and never more than a set number: an actor whose chunks are not taken
waits, so a slow learner slows the actors and fills no memory. A process that dies, hangs or raises is replaced by one
with the same slot; where the cluster has no room, the new one waits until there is.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ngu.config import Config
from ngu.errors import UserError

Clock = Callable[[], float]


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
    ray.init(
        num_cpus=max(os.cpu_count() or 1, int(wanted) + 1),
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        **quiet,
    )
    return True


@dataclass
class Member:
    """One process of the cluster, and what is known of it."""

    slot: int
    handle: Any = None
    calls: deque[tuple[str, Any]] = field(default_factory=deque)
    """What was asked of it and is not yet answered: a name and Ray's reference, oldest first."""
    ready: bool = False
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
        make: starts the process of a slot, and returns Ray's handle of it.
        config: the run's.
    """

    def __init__(
        self, what: str, slots: int, make: Callable[[int], Any], config: Config, clock: Clock = time.monotonic
    ) -> None:
        self._ray = load_ray()
        self._what = what
        self._make = make
        self._settings = config.ray
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

    def ask(self, member: Member, name: str, reference: Any) -> None:
        """Notes a call that was made to a member."""
        if not member.calls:
            member.since = self._clock()
        member.calls.append((name, reference))

    def next_answer(self, seconds: float) -> tuple[Member, str, Any] | None:
        """The next answer of any member in turn, or None if none came in time or one had to be replaced."""
        heads = {member.calls[0][1]: member for member in self._turn if member.calls}
        if not heads:
            return None
        done, _ = self._ray.wait(list(heads), num_returns=1, timeout=seconds)
        if not done:
            self._replace_silent_ones(heads)
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
        if name == "ready":
            member.ready, member.place = True, answer
        else:
            member.failures = 0
        return member, name, answer

    def _replace_silent_ones(self, members: dict[Any, Member]) -> None:
        """A member that waits for room in the cluster is not silent: it has not been built yet."""
        now = self._clock()
        for member in members.values():
            if member.ready and now - member.since > self._settings.timeout:
                self.replace(member, f"it sent nothing for {self._settings.timeout:g} s")

    def replace(self, member: Member, reason: str) -> None:
        """Ends a member's process and starts another in its slot; raises if it has failed too often in a row."""
        member.failures += 1
        member.restarts += 1
        member.reason = reason
        self._end(member)
        if member.failures >= self._settings.max_failures:
            raise UserError(
                f"{self._what} {member.slot} failed {member.failures} times in a row, last because {reason}; mend the "
                "cause, then go on with `ngu resume`."
            )
        self._start(member)

    def _start(self, member: Member) -> None:
        member.handle = self._make(member.slot)
        member.ready = False
        member.place = {}
        self.ask(member, "ready", member.handle.ready.remote())

    def _end(self, member: Member) -> None:
        member.calls.clear()
        member.ready = False
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

"""Actors and evaluator as processes of a Ray cluster: kept busy, watched, and replaced when they fail.

Every process has calls under way, oldest first, and never more than a set number: an actor whose chunks are not taken
waits, so a slow learner slows the actors and fills no memory. A process that dies, hangs or raises is replaced by one
with the same slot; where the cluster has no room, the new one waits until there is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ngu.config import Config
from ngu.errors import UserError
from ngu.runners.cluster import end_processes, load_ray

Clock = Callable[[], float]

_PLACE, _BUILD = "place", "build"
"""What every member is asked first."""
MACHINE_LOST = "its machine was lost"
"""A reason that is nobody's fault."""


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
        timeout: seconds after which a member that runs and sends nothing is replaced; ray.timeout if it is not given.
    """

    def __init__(
        self,
        what: str,
        slots: int,
        make: Callable[[int], Any],
        config: Config,
        lost: Callable[[int], None] = lambda _slot: None,
        timeout: float | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._ray = load_ray()
        self._what = what
        self._make = make
        self._settings = config.ray
        self._lost = lost
        self._timeout = config.ray.timeout if timeout is None else timeout
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

    def count_waiting(self) -> int:
        """Answers that are there and have not been taken."""
        calls = [
            reference for member in self.members for name, reference in member.calls if name not in (_PLACE, _BUILD)
        ]
        if not calls:
            return 0
        return len(self._ray.wait(calls, num_returns=len(calls), timeout=0, fetch_local=False)[0])

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
            reason = reason_of(error)
            # For a while after a machine is lost, Ray may still place processes there: that says nothing about them.
            self.replace(member, reason, blame=reason != MACHINE_LOST)
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
            if member.running and member.calls and now - member.since > self._timeout:
                # If it was this process that stood still, answers may be on their way to it.
                answered, _ = self._ray.wait([member.calls[0][1]], timeout=1.0, fetch_local=False)
                if not answered:
                    self.replace(member, f"it sent nothing for {self._timeout:g} s")

    def replace(self, member: Member, reason: str, *, blame: bool = True) -> None:
        """Ends a member's process and starts another in its slot; raises if it has failed too often in a row."""
        member.failures += blame
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

    def _end(self, *members: Member) -> None:
        end_processes([member.handle for member in members if member.handle is not None])
        for member in members:
            member.calls.clear()
            member.running = member.ready = False
            member.place = {}
            member.handle = None

    def reasons(self) -> Iterable[str]:
        """Why members were last replaced."""
        return [f"{self._what} {member.slot}: {member.reason}." for member in self.members if member.reason]

    def close(self) -> None:
        self._end(*self.members)


def reason_of(error: BaseException) -> str:
    """One line about what Ray raised."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        text = str(cause).strip().splitlines()
        return f"{type(cause).__name__}: {text[0]}" if text else type(cause).__name__
    if "creation task" in str(error):  # it could not even begin, for want of a module on its machine perhaps
        return f"its process could not start: {str(error).strip().splitlines()[-1].strip()}"
    if "node has died" in str(error):
        return MACHINE_LOST
    return {
        "ActorDiedError": "its process died",
        "ActorUnavailableError": "its process could not be reached",
        "ActorUnschedulableError": "the cluster cannot hold it",
        "NodeDiedError": MACHINE_LOST,
        "ObjectLostError": "what it sent was lost with its machine",
        "OutOfMemoryError": "its machine was out of memory",
    }.get(type(error).__name__, type(error).__name__)

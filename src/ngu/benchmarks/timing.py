"""Clocks: the time of a call alone, how many kernels it launches, and where the time of a loop of calls goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ngu.errors import UserError
from ngu.graphs import Graphed
from ngu.runners.local import LocalRunner
from ngu.training import Training

_MISSING = object()


def local_runner(training: Training) -> LocalRunner:
    """The runner that a benchmark of one process measures."""
    if not isinstance(training.runner, LocalRunner):
        raise UserError("`ngu bench` measures the agent in one process; leave out --runner ray.")
    return training.runner


def wait(device: torch.device) -> None:
    """Until a GPU has done all that was launched; on the CPU nothing is left to wait for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def milliseconds(
    call: Callable[[], object],
    device: torch.device,
    least_seconds: float = 0.5,
    *,
    before: Callable[[], object] | None = None,
) -> float:
    """Mean time of a call over at least `least_seconds` and three calls, after a warm-up.

    On a GPU the warm-up includes the recording of graphs, and ten calls are launched before they are waited for.
    `before` runs ahead of the warm-up and of each such round of calls, and its time does not count.
    """
    on_gpu = device.type == "cuda"
    together = 10 if on_gpu else 1
    prepare = before or (lambda: None)
    prepare()
    for _ in range(Graphed.warmup_calls + 2 if on_gpu else 1):
        call()
    calls, passed = 0, 0.0
    while passed < least_seconds or calls < 3:
        prepare()
        wait(device)
        start = time.perf_counter()
        for _ in range(together):
            call()
        wait(device)
        passed += time.perf_counter() - start
        calls += together
    return passed / calls * 1e3


def kernels(call: Callable[[], object], device: torch.device, calls: int = 4) -> float | None:
    """How many kernels and copies a call launches on a GPU, those of recorded graphs included; None on the CPU."""
    if device.type != "cuda":
        return None
    from torch.profiler import ProfilerActivity, profile

    call()
    wait(device)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(calls):
            call()
        wait(device)
    on_device = [event for event in profiler.events() or () if event.device_type.name == "CUDA"]
    return len(on_device) / calls


class CallTimes:
    """Where the time of a loop goes: seconds inside of named calls, each without the named calls inside of it.

    The calls are wrapped from outside, for as long as `watching` lasts; a wrapped call costs about a microsecond more.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner: list[float] = []
        """For each call under way, seconds spent in the named calls inside of it."""

    @contextmanager
    def watching(self, calls: Sequence[tuple[str, object, str]]) -> Iterator[None]:
        """Times calls given as (name, object, attribute); several may share a name."""
        wrapped = []
        try:
            for name, owner, attribute in calls:
                wrapped.append((owner, attribute, vars(owner).get(attribute, _MISSING)))
                setattr(owner, attribute, self._timed(name, getattr(owner, attribute)))
            yield
        finally:
            for owner, attribute, own in reversed(wrapped):
                if own is _MISSING:
                    delattr(owner, attribute)  # the method of its class shows again
                else:
                    setattr(owner, attribute, own)

    def _timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        self.seconds.setdefault(name, 0.0)

        def timed(*arguments: Any) -> Any:
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                passed = time.perf_counter() - start
                self.seconds[name] += passed - self._inner.pop()
                if self._inner:
                    self._inner[-1] += passed

        return timed

"""Fewer and larger kernels on a GPU: fuse small ones, and record a function's kernels to replay with one launch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, cast

import torch

Result = TypeVar("Result")


Function = TypeVar("Function", bound=Callable[..., Any])

_fusion_enabled = False


def enable_fusion(enabled: bool) -> None:
    """Whether functions marked `fusable` are compiled when they are called with tensors on a GPU; off at first."""
    global _fusion_enabled
    _fusion_enabled = enabled


def fusable(function: Function) -> Function:
    """Marks a pure function of tensors whose many small kernels torch.compile may fuse into a few.

    On the CPU, and unless `enable_fusion` was called, it runs as it is. Shapes are fixed: each new one compiles anew.
    """
    compiled: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal compiled
        if not (_fusion_enabled and any(isinstance(value, torch.Tensor) and value.is_cuda for value in arguments)):
            return function(*arguments)
        if compiled is None:
            # Training, evaluation and every batch size that a user predicts with are shapes of their own.
            torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 256)
            compiled = torch.compile(function, fullgraph=True, dynamic=False)
        return compiled(*arguments)

    return cast(Function, call)


class Branch:
    """Work beside that of the current stream on a GPU, so that small kernels that do not need each other overlap.

    What is called `with branch.fork()` may use all that came before it, and others may use its results after
    `join()`. Tensors that go in or come out must be kept until then: memory that is given back on one stream is used
    again there, whatever another stream still does with it. On the CPU everything runs in the order of its calls.
    """

    def __init__(self, device: torch.device, *, urgent: bool = False) -> None:
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device, priority=-1 if urgent else 0)  # type: ignore[no-untyped-call]

    @contextmanager
    def fork(self) -> Iterator[None]:
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)


class Graphed(Generic[Result]):
    """Calls `function` as it is on the CPU; on a GPU records it after a few calls and replays the recording.

    The function must keep all its state in tensors that it overwrites in place, and take its arguments, if any, from
    the same tensors at each call. Its results then lie in the same tensors, too. The first calls are ordinary ones:
    they are real work, and they let libraries choose kernels and allocate what they need. `generators` are the random
    generators that the function draws from. The kernels of an `urgent` function go before those of others where both
    wait for room on the GPU. Each recording is made on a stream of its own, since libraries keep work
    space per stream: two recordings made on one could not be replayed side by side.
    """

    warmup_calls = 4

    def __init__(
        self,
        function: Callable[..., Result],
        device: torch.device,
        generators: tuple[torch.Generator, ...] = (),
        *,
        enabled: bool = True,
        urgent: bool = False,
    ) -> None:
        self._function = function
        self._urgent = urgent
        self._generators = generators
        self._enabled = enabled and device.type == "cuda"
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._arguments: tuple[Any, ...] = ()
        self._result: Result | None = None

    def __call__(self, *arguments: Any) -> Result:
        if not self._enabled:
            return self._function(*arguments)
        if self._graph is None:
            self._calls += 1
            if self._calls <= self.warmup_calls:
                return self._function(*arguments)
            self._record(arguments)
        assert self._graph is not None
        assert all(mine is theirs for mine, theirs in zip(self._arguments, arguments, strict=True))
        self._graph.replay()
        return self._result  # type: ignore[return-value]

    def _record(self, arguments: tuple[Any, ...]) -> None:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream(priority=-1 if self._urgent else 0)  # type: ignore[no-untyped-call]
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            self._result = self._function(*arguments)
        self._graph, self._arguments = graph, arguments

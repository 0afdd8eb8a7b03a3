"""A replay in the host's memory beside an agent on a GPU: rows travel to it, batches and priorities back.

The actor's graph can only write to its own device. So it leaves each row in buffers there, and the row is carried over
when the host waits for the actor's actions anyway. A batch is drawn on the host and copied into buffers on the device
that the learner's graph reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ngu.networks import RecurrentState
from ngu.replay import SequenceReplay
from ngu.sequences import Batch, Row, RowSink

Record = TypeVar("Record")


class RowCarrier:
    """Carries the rows of one actor to a replay on the host."""

    def __init__(self, replay: RowSink, streams: slice) -> None:
        self._replay = replay
        self._streams = streams
        self._held: tuple[Row, RecurrentState] | None = None
        self._carried: tuple[Row, RecurrentState] | None = None
        self._waiting = False

    def hold(self, row: Row, state: RecurrentState) -> None:
        """Leaves a row in buffers on the device; part of the actor's graph."""
        if self._held is None:
            self._held = _each(torch.clone, row), _each(torch.clone, state)
            self._carried = _each(_pinned_twin, row), _each(_pinned_twin, state)
        _copy_each(row, self._held[0])
        _copy_each(state, self._held[1])

    def begin(self) -> None:
        """Begins to copy the row to the host, after the actor's graph."""
        assert self._held is not None
        assert self._carried is not None
        _copy_each(self._held[0], self._carried[0])
        _copy_each(self._held[1], self._carried[1])
        self._waiting = True

    def finish(self) -> None:
        """Hands the row to replay; the host must have waited for the copies."""
        if self._waiting and self._carried is not None:
            self._replay.add(*self._carried, self._streams)
            self._waiting = False


class BatchCarrier:
    """Draws batches on the host and brings them to the device, always into the same tensors."""

    def __init__(self, replay: SequenceReplay, batch_size: int, device: torch.device) -> None:
        self._replay = replay
        self._batch_size = batch_size
        self._device = device
        self._drawn: Batch | None = None
        self._batch: Batch | None = None

    def __call__(self) -> Batch:
        self._drawn = self._replay.sample(self._batch_size)
        if self._batch is None:
            self._batch = _each(lambda tensor: tensor.to(self._device), self._drawn)
        _copy_each(self._drawn, self._batch)
        return self._batch

    def update_priorities(self, priority: Tensor) -> None:
        """Sets the priorities of the batch drawn last; waits for the learner."""
        assert self._drawn is not None
        self._replay.update_priorities(self._drawn, priority.to(self._replay.device))


def _each(function: Callable[[Tensor], Tensor], record: Record) -> Record:
    """A dataclass of tensors, nested ones included, with a function applied to each."""
    changed: dict[str, Any] = {}
    for entry in dataclasses.fields(record):  # type: ignore[arg-type]
        value = getattr(record, entry.name)
        if isinstance(value, Tensor):
            value = function(value)
        elif value is not None:
            value = _each(function, value)
        changed[entry.name] = value
    return type(record)(**changed)


def _copy_each(source: Record, target: Record) -> None:
    for entry in dataclasses.fields(source):  # type: ignore[arg-type]
        value, place = getattr(source, entry.name), getattr(target, entry.name)
        if isinstance(value, Tensor):
            place.copy_(value, non_blocking=True)
        elif value is not None:
            _copy_each(value, place)


def _pinned_twin(tensor: Tensor) -> Tensor:
    twin = torch.empty_like(tensor, device="cpu")
    return twin.pin_memory() if tensor.is_cuda else twin

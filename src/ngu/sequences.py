"""What goes into a replay and what comes out: rows, batches of sequences, and where in a stream a sequence begins.

Sequences start at every `period`-th row of an episode and are `trace` transitions long, that is `trace + 1` rows. They
never cross an episode; its short remainder is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ngu.graphs import fusable
from ngu.networks import AgentInput, RecurrentState

ALL_STREAMS = slice(None)


@dataclass
class Row:
    """One observation per stream and the step that led to it, [S] or [S, ...] each."""

    observation: Tensor
    """x_t"""
    action: Tensor
    """a_{t-1} int64; -1 at an episode's first observation."""
    behaviour: Tensor
    """mu(a_{t-1} | x_{t-1})"""
    extrinsic: Tensor
    """r_e of the step"""
    intrinsic: Tensor
    """r_i(x_t)"""
    td_error: Tensor
    """The actor's own TD error of the step: what a new sequence's priority is made of."""
    terminated: Tensor
    """bool"""
    truncated: Tensor
    """bool"""
    first: Tensor
    """bool"""


class RowSink(Protocol):
    """Where an actor's rows go: a replay, or what carries them to one."""

    device: torch.device

    def add(self, row: Row, state: RecurrentState, group: slice = ALL_STREAMS) -> None: ...


@dataclass
class BurnIn:
    """What came before B sequences in their episodes, to renew their recurrent states with."""

    inputs: AgentInput
    """[P, B, ...]: what the policy saw at the P observations before the first of the sequence."""
    state: RecurrentState
    """[B, H]: the actor's recurrent state before these."""
    exists: Tensor
    """[B] bool: False where the sequence begins its episode, or the rows before it are overwritten."""


@dataclass
class Batch:
    """B sequences, padded to T transitions, and the L transitions after them that their targets may look at.

    Rows past what is there repeat the last one.
    """

    inputs: AgentInput
    """[T+L+1, B, ...]: what the policy saw at each observation."""
    state: RecurrentState
    """[B, H]: the actor's recurrent state before the first observation."""
    action: Tensor
    """[T+L, B] int64"""
    behaviour: Tensor
    """[T+L, B]"""
    extrinsic: Tensor
    """[T+L, B]: what each step brought"""
    intrinsic: Tensor
    """[T+L, B]"""
    terminated: Tensor
    """[T+L, B] bool: the step's next observation is terminal"""
    valid: Tensor
    """[T+L, B] bool: False on padding"""
    trained: Tensor
    """[T, B] bool: the valid steps of the sequences themselves, without those too near to where an episode was cut"""
    length: Tensor
    """[B] int64: how many valid steps they have"""
    weight: Tensor
    """[B] importance weights, at most 1"""
    place: Tensor
    """[B] int64: where the sequences' priorities are kept"""
    birth: Tensor
    """[B] int64: the streams' row counts when the first rows were written, to know a sequence again"""
    burn_in: BurnIn | None = None
    """If the config asks for it."""


def sequence_priority(td_error: Tensor, valid: Tensor, max_share: float) -> Tensor:
    """[T, B] TD errors to [B]: max_share of the largest |TD error| and the rest of the mean, over valid steps."""
    size = torch.where(valid, td_error.abs(), 0.0)
    mean = size.sum(0) / valid.sum(0).clamp_min(1)
    return max_share * size.max(0).values + (1 - max_share) * mean


class StreamProgress(NamedTuple):
    """Where the streams stand after a row, [S] each."""

    episode_start: Tensor
    episode_offset: Tensor
    """int32: number of the row in its episode; -1 outside of episodes whose start was seen."""
    sequence_start: Tensor
    """First row of the sequence that this row belongs to."""
    next_sequence_start: Tensor
    length: Tensor
    """int32: transitions of that sequence so far."""
    complete: Tensor
    """bool: the sequence has its full length, or its episode has ended."""
    needs_state: Tensor
    """bool: a later sequence may begin with this row, inside an episode."""
    recording: Tensor
    """bool: the stream is inside an episode whose start it has seen."""


@fusable
def advance_streams(
    now: Tensor,
    first: Tensor,
    ended: Tensor,
    episode_start: Tensor,
    sequence_start: Tensor,
    recording: Tensor,
    trace: int,
    period: int,
) -> StreamProgress:
    """What a new row, number `now` [S] of each stream, means for the streams' episodes and sequences."""
    episode_start = torch.where(first, now, episode_start)
    sequence_start = torch.where(first, now, sequence_start)
    recording = recording | first
    offset = now - episode_start
    length = now - sequence_start
    full = length == trace
    return StreamProgress(
        episode_start=episode_start,
        episode_offset=torch.where(recording, offset, -1).to(torch.int32),
        sequence_start=sequence_start,
        next_sequence_start=torch.where(full, sequence_start + period, sequence_start),
        length=length.to(torch.int32),
        complete=recording & (full | ended) & (length >= 1),
        needs_state=recording & (offset > 0) & (offset % period == 0),
        recording=recording & ~ended,
    )


def advance_many(
    now: Tensor, first: Tensor, ended: Tensor, episode_start: Tensor, recording: Tensor, trace: int, period: int
) -> StreamProgress:
    """`advance_streams` for T rows at once: `now`, `first` and `ended` are [T, S], the rest is where they begin.

    After `offset` rows of an episode as many sequences are complete as have their last row at or before it, so where
    the present one starts follows from the offset alone.
    """
    time = torch.arange(len(now), device=now.device).unsqueeze(1).expand_as(now)
    last_first = torch.where(first, time, -1).cummax(0).values
    last_end = torch.where(ended, time, -1).cummax(0).values
    last_end = torch.cat([torch.full_like(last_end[:1], -1), last_end[:-1]])
    untouched = (last_first < 0) & (last_end < 0)
    recording = (last_first > last_end) | (untouched & recording)
    episode_start = torch.where(last_first >= 0, now[:1] + last_first, episode_start)
    offset = now - episode_start

    def complete_by(offset: Tensor) -> Tensor:
        return torch.where(offset >= trace, (offset - trace).div(period, rounding_mode="floor") + 1, 0)

    sequence_start = episode_start + complete_by(offset - 1) * period
    length = now - sequence_start
    return StreamProgress(
        episode_start=episode_start,
        episode_offset=torch.where(recording, offset, -1).to(torch.int32),
        sequence_start=sequence_start,
        next_sequence_start=episode_start + complete_by(offset) * period,
        length=length.to(torch.int32),
        complete=recording & ((length == trace) | ended) & (length >= 1),
        needs_state=recording & (offset > 0) & (offset % period == 0),
        recording=recording & ~ended,
    )

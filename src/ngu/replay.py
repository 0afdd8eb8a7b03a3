"""Prioritized sequence replay: streams of observations in, batches of sequences out (paper, App. A; R2D2).

There is one stream per environment. A row holds an observation and the step that led to it: action, its probability,
both rewards, and whether the episode ended. Rows are kept in a ring, each once, however many sequences cover it.

A sequence is (stream, first row, length); `ngu.sequences` says where they begin and end. It lives in the row it begins
with: `priority` and `length` have one entry per row, 0 where no sequence begins. So a sequence dies when its first row
is overwritten, without any further bookkeeping, and drawing one is a prefix sum and a search.

All state is in tensors on one device, and `add` and `sample` read none on the host, so CUDA graphs can hold both.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ngu.config import ReplayConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError
from ngu.graphs import fusable
from ngu.machine import free_memory, human_bytes
from ngu.networks import AgentInput, RecurrentState
from ngu.policy_statistics import LEAST_ERROR
from ngu.sequences import ALL_STREAMS, Batch, BurnIn, Row, advance_many, advance_streams, sequence_priority

# Below this a priority would make a sequence unreachable, or look like no sequence at all.
_MIN_PRIORITY = 1e-6


def ring_place(row: Tensor, stream: Tensor, slots: int, streams: int) -> Tensor:
    """Absolute row numbers of streams to indices into flat buffers of `slots` rows for each stream."""
    return (row % slots) * streams + stream


def exponentiated(priority: Tensor, exponent: float) -> Tensor:
    return priority.clamp_min(_MIN_PRIORITY) ** exponent


def first_priority(
    start: Tensor,
    length: Tensor,
    stream: Tensor,
    td_error: Tensor,
    slots: int,
    streams: int,
    trace: int,
    max_share: float,
    exponent: float,
) -> Tensor:
    """[S] priorities of sequences that have just been completed, from the actor's TD errors [rows] (R2D2, Ape-X).

    They begin with the rows `start` and have `length` transitions. Every new sequence at the largest priority would be
    simpler. But where episodes are short most newcomers are short, too, and would crowd out the long ones.
    """
    step = torch.arange(trace, device=start.device).unsqueeze(1)
    error = td_error[ring_place(start + 1 + step, stream, slots, streams)]
    return exponentiated(sequence_priority(error, step < length, max_share), exponent)


# For the rows of a step, whose number never changes: each other shape would be compiled anew.
_place_step, _first_priority_step = fusable(ring_place), fusable(first_priority)


class SequenceReplay:
    """The ring of rows, the sequences that begin in them, and their priorities."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        mixture: Tensor,
        lstm_size: int,
        config: ReplayConfig,
        device: torch.device,
        generator: torch.Generator,
        *,
        balanced: bool = False,
    ) -> None:
        """`mixture` [S] int64 says which policy acts in each stream.

        `balanced`: priorities compare sequences of one policy only; between policies all sequences are equal.
        """
        streams = len(mixture)
        self.config = config
        self.spec = spec
        self.device = device
        self.generator = generator
        self.mixture = mixture
        self._policies = int(mixture.max()) + 1 if balanced else 1
        self.streams = streams
        self.slots = config.capacity // streams
        # A start inside an episode needs the actor's state; between two such starts lie `period` rows.
        self.state_slots = self.slots // config.period + 2
        self._check_memory(lstm_size)

        rows = self.slots * streams
        self.observation = torch.zeros(rows, *spec.observation_shape, dtype=spec.observation_dtype, device=device)
        self.action = torch.zeros(rows, dtype=torch.int16, device=device)
        self.behaviour = torch.ones(rows, device=device)
        self.extrinsic = torch.zeros(rows, device=device)
        self.intrinsic = torch.zeros(rows, device=device)
        self.td_error = torch.zeros(rows, device=device)
        self.terminated = torch.zeros(rows, dtype=torch.bool, device=device)
        self.episode_offset = torch.full((rows,), -1, dtype=torch.int32, device=device)
        self.state_slot = torch.full((rows,), -1, dtype=torch.int32, device=device)
        self.length = torch.zeros(rows, dtype=torch.int32, device=device)
        self.priority = torch.zeros(rows, device=device)
        self.hidden = torch.zeros(self.state_slots * streams, lstm_size, device=device)
        self.cell = torch.zeros(self.state_slots * streams, lstm_size, device=device)

        self.rows_written = torch.zeros(streams, dtype=torch.int64, device=device)
        self.states_written = torch.zeros(streams, dtype=torch.int64, device=device)
        self.episode_start = torch.zeros(streams, dtype=torch.int64, device=device)
        self.sequence_start = torch.zeros(streams, dtype=torch.int64, device=device)
        self.recording = torch.zeros(streams, dtype=torch.bool, device=device)

        self._stream = torch.arange(streams, device=device)

    # ---------------------------------------------------------------------------------------------- writing

    def add(self, row: Row, state: RecurrentState, group: slice = ALL_STREAMS) -> None:
        """Appends one row to each stream of a group; `state` is the actor's before it saw the row's observation."""
        stream = self._stream[group]
        now = self.rows_written[group]
        place = _place_step(now, stream, self.slots, self.streams)
        self.observation.index_copy_(0, place, row.observation)
        self.action.index_copy_(0, place, row.action.to(torch.int16))
        self.behaviour.index_copy_(0, place, row.behaviour)
        self.extrinsic.index_copy_(0, place, row.extrinsic)
        self.intrinsic.index_copy_(0, place, row.intrinsic)
        # What is not finite is refused by the learner when it comes to it; here it must not become a priority.
        self.td_error.index_copy_(0, place, torch.nan_to_num(row.td_error, 0.0, 0.0, 0.0))
        self.terminated.index_copy_(0, place, row.terminated)
        self.priority.index_fill_(0, place, 0.0)

        progress = advance_streams(
            now, row.first, row.terminated | row.truncated, self.episode_start[group], self.sequence_start[group],
            self.recording[group], self.config.trace_length, self.config.period,
        )  # fmt: skip
        self.episode_offset.index_copy_(0, place, progress.episode_offset)
        self._keep_state(place, progress.needs_state, state, group)
        start = _place_step(progress.sequence_start, stream, self.slots, self.streams)
        complete = progress.complete
        newcomer = _first_priority_step(progress.sequence_start, progress.length, stream, *self._newcomers)
        self.priority.index_copy_(0, start, torch.where(complete, newcomer, self.priority[start]))
        self.length.index_copy_(0, start, torch.where(complete, progress.length, self.length[start]))
        self.episode_start[group].copy_(progress.episode_start)
        self.sequence_start[group].copy_(progress.next_sequence_start)
        self.recording[group].copy_(progress.recording)
        now.add_(1)

    def add_many(self, rows: Row, state: RecurrentState, state_index: Tensor, group: slice = ALL_STREAMS) -> bool:
        """Appends T rows to each stream of a group: the same as `add` for each in turn, in a few operations.

        Args:
            rows: [T, S] or [T, S, ...] each
            state: [K, H] recurrent states
            state_index: [T, S] int64: which of them was the actor's before it saw a row, or -1 where it is not given.
            group: the streams.

        Returns:
            False, and nothing is changed, if a state is missing where a sequence may begin.
        """
        stream = self._stream[group]
        written = self.rows_written[group].clone()
        now = written + torch.arange(len(rows.first), device=self.device).unsqueeze(1)
        ended = rows.terminated | rows.truncated
        progress = advance_many(
            now, rows.first, ended, self.episode_start[group], self.recording[group], self.config.trace_length,
            self.config.period,
        )  # fmt: skip
        time, column = progress.needs_state.nonzero(as_tuple=True)
        chosen = state_index[time, column]
        if bool((chosen < 0).any()):
            return False
        place = self._place(now, stream)
        flat = place.flatten()
        self.observation.index_copy_(0, flat, rows.observation.flatten(0, 1))
        self.action.index_copy_(0, flat, rows.action.flatten().to(torch.int16))
        self.terminated.index_copy_(0, flat, rows.terminated.flatten())
        for name in ("behaviour", "extrinsic", "intrinsic"):
            getattr(self, name).index_copy_(0, flat, getattr(rows, name).flatten())
        self.td_error.index_copy_(0, flat, torch.nan_to_num(rows.td_error, 0.0, 0.0, 0.0).flatten())
        self.priority.index_fill_(0, flat, 0.0)
        self.episode_offset.index_copy_(0, flat, progress.episode_offset.flatten())

        needed = progress.needs_state.to(torch.int64)
        entry = (self.states_written[group] + needed.cumsum(0) - needed) % self.state_slots
        self.state_slot.index_copy_(0, flat, torch.where(needed > 0, entry, -1).flatten().to(torch.int32))
        slot = entry[time, column] * self.streams + stream[column]
        self.hidden.index_copy_(0, slot, state.hidden[chosen])
        self.cell.index_copy_(0, slot, state.cell[chosen])
        self.states_written[group].add_(needed.sum(0))

        time, column = progress.complete.nonzero(as_tuple=True)
        begin, length = progress.sequence_start[time, column], progress.length[time, column]
        start = self._place(begin, stream[column])
        self.priority.index_copy_(0, start, first_priority(begin, length, stream[column], *self._newcomers))
        self.length.index_copy_(0, start, length)
        self.episode_start[group].copy_(progress.episode_start[-1])
        self.sequence_start[group].copy_(progress.next_sequence_start[-1])
        self.recording[group].copy_(progress.recording[-1])
        self.rows_written[group].add_(len(rows.first))
        return True

    def interrupt(self, group: slice = ALL_STREAMS) -> None:
        """Drops what is not yet a sequence: the streams go on when their next episodes begin."""
        self.recording[group] = False

    def empty(self) -> None:
        """Drops all sequences, and what is not yet one: the streams go on when their next episodes begin."""
        self.priority.zero_()
        self.interrupt()

    def _place(self, row: Tensor, stream: Tensor) -> Tensor:
        """[..., S] absolute row numbers of streams to indices into the flat buffers."""
        return ring_place(row, stream, self.slots, self.streams)

    @property
    def _newcomers(self) -> tuple[Tensor, int, int, int, float, float]:
        """What the first priorities of sequences depend on beside the sequences."""
        config = self.config
        shape = self.slots, self.streams, config.trace_length
        return self.td_error, *shape, config.priority_max_share, config.priority_exponent

    def _exponentiated(self, priority: Tensor) -> Tensor:
        return exponentiated(priority, self.config.priority_exponent)

    def _keep_state(self, place: Tensor, needed: Tensor, state: RecurrentState, group: slice) -> None:
        """Stores the recurrent state where a sequence may begin inside an episode; at its start the state is zero."""
        entry = self.states_written[group] % self.state_slots
        flat = entry * self.streams + self._stream[group]
        keep = needed.unsqueeze(1)
        self.hidden.index_copy_(0, flat, torch.where(keep, state.hidden, self.hidden[flat]))
        self.cell.index_copy_(0, flat, torch.where(keep, state.cell, self.cell[flat]))
        self.state_slot.index_copy_(0, place, torch.where(needed, entry, -1).to(torch.int32))
        self.states_written[group].add_(needed.to(torch.int64))

    # ---------------------------------------------------------------------------------------------- reading

    def count(self) -> Tensor:
        """How many sequences there are; a scalar on the device."""
        return (self.priority > 0).sum()

    def statistics(self) -> dict[str, float]:
        """Metrics of what is held now; one transfer from the device."""
        held = self.count()
        mean = self.priority.sum() / held.clamp_min(1)
        count, average, largest = torch.stack([held.to(mean.dtype), mean, self.priority.max()]).tolist()
        return {"replay/sequences": count, "replay/priority_mean": average, "replay/priority_max": largest}

    def sample(self, batch_size: int) -> Batch:
        """Draws sequences with probability proportional to their (already exponentiated) priority.

        Undefined while there are none: the caller waits for `min_sequences`.
        """
        priority = self.priority if self._policies == 1 else self._balanced_priority()
        cumulative = priority.to(torch.float64).cumsum(0)
        total = cumulative[-1]
        strata = torch.arange(batch_size, device=self.device, dtype=torch.float64)
        draw = torch.rand(batch_size, device=self.device, dtype=torch.float64, generator=self.generator)
        target = ((strata + draw) / batch_size * total).clamp(max=total * (1 - 1e-12))
        # `right` finds the first sum above the target, so rows of priority 0 are never found.
        place = torch.searchsorted(cumulative, target, right=True)

        probability = priority[place].to(torch.float64) / total
        weight = (self.count() * probability) ** -self.config.importance_exponent
        return self._gather(place, (weight / weight.max()).float())

    def _balanced_priority(self) -> Tensor:
        """Priorities [rows] in units of the mean of their policy."""
        table = self.priority.view(self.slots, self.streams)
        member = self.mixture == torch.arange(self._policies, device=self.device).unsqueeze(1)  # [N, S]
        total = torch.where(member, table.sum(0), 0.0).sum(1)
        count = torch.where(member, (table > 0).sum(0), 0).sum(1)
        mean = (total / count.clamp_min(1)).clamp_min(LEAST_ERROR**self.config.priority_exponent)
        return (table / mean[self.mixture]).flatten()

    def _gather(self, place: Tensor, weight: Tensor) -> Batch:
        trace = self.config.trace_length
        stream, slot = place % self.streams, place // self.streams
        length = self.length[place].to(torch.int64)
        newest = self.rows_written[stream] - 1
        birth = newest - (newest - slot) % self.slots

        offset = torch.arange(trace + self.config.lookahead + 1, device=self.device).unsqueeze(1)
        further = max(self.config.lookahead, self.config.cut_margin)
        reach = self._reach(birth, newest, length, stream, further) if further else length
        known = torch.minimum(reach, length + self.config.lookahead)
        trained = offset[:trace] < length
        if self.config.cut_margin:
            trained &= self._far_from_cuts(offset[:trace], birth, newest, reach, stream)
        rows = self._place(slot + torch.minimum(offset, known), stream)
        inputs = self._inputs(rows, stream)
        return Batch(
            inputs=inputs,
            state=self._state_before(place, stream),
            action=inputs.previous_action[1:].clamp_min(0),
            behaviour=self.behaviour[rows[1:]],
            extrinsic=inputs.extrinsic[1:],
            intrinsic=inputs.intrinsic[1:],
            terminated=self.terminated[rows[1:]],
            valid=offset[:-1] < known,
            trained=trained,
            length=length,
            weight=weight,
            place=place,
            birth=birth,
            burn_in=self._burn_in(place, stream, birth) if self.config.burn_in else None,
        )

    def _reach(self, birth: Tensor, newest: Tensor, length: Tensor, stream: Tensor, further: int) -> Tensor:
        """[B]: transitions from the first row of sequences to the last that is there of their episodes.

        Past the sequences' ends at most `further` are counted.
        """
        ahead = length + 1 + torch.arange(further, device=self.device).unsqueeze(1)
        first, there = (self.episode_offset[self._place(row, stream)] for row in (birth, birth + ahead))
        # Later episodes, and rows outside of any, have smaller numbers than this one would have there.
        return length + ((there == first + ahead) & (birth + ahead <= newest)).sum(0)

    def _far_from_cuts(self, offset: Tensor, birth: Tensor, newest: Tensor, reach: Tensor, stream: Tensor) -> Tensor:
        """[T, B] bool: False on the last steps of episodes that were cut.

        What would have followed is only guessed there, by the value of a state that itself is never trained.
        """
        ends = self.terminated[self._place(birth + reach, stream)]
        over = birth + reach < newest  # the next row is another episode's, or farther away than the margin
        return ends | ~over | (reach - offset > self.config.cut_margin)

    def _inputs(self, rows: Tensor, stream: Tensor) -> AgentInput:
        """What the policies of streams [B] saw at rows [..., B]."""
        return AgentInput(
            observation=self.observation[rows],
            previous_action=self.action[rows].to(torch.int64),
            extrinsic=self.extrinsic[rows],
            intrinsic=self.intrinsic[rows],
            mixture=self.mixture[stream],
        )

    def _state_before(self, place: Tensor, stream: Tensor) -> RecurrentState:
        """[B, H]: the actor's state before it saw the rows at `place`, each an episode's first or one that has it."""
        entry = self.state_slot[place].to(torch.int64)
        inside = (entry >= 0).unsqueeze(1)
        flat = entry.clamp_min(0) * self.streams + stream
        return RecurrentState(torch.where(inside, self.hidden[flat], 0.0), torch.where(inside, self.cell[flat], 0.0))

    def _burn_in(self, place: Tensor, stream: Tensor, birth: Tensor) -> BurnIn:
        """The period before sequences that begin at `place`; where there is none, their first row again and again."""
        begin = birth - self.config.burn_in
        held = begin >= (self.rows_written[stream] - self.slots).clamp_min(0)
        exists = held & (self.state_slot[place] >= 0)  # only inside an episode is there a state, and a period before
        step = torch.arange(self.config.burn_in, device=self.device).unsqueeze(1)
        rows = torch.where(exists, self._place(begin + step, stream), place)
        return BurnIn(self._inputs(rows, stream), self._state_before(rows[0], stream), exists)

    def update_priorities(self, batch: Batch, priority: Tensor) -> None:
        """Sets the priorities of a batch, [B] not yet exponentiated.

        Sequences that died since they were drawn, and priorities that are not finite, are left alone.
        """
        alive = batch.birth >= self.rows_written[batch.place % self.streams] - self.slots
        wanted = self._exponentiated(priority)
        change = alive & torch.isfinite(priority)
        self.priority.index_copy_(0, batch.place, torch.where(change, wanted, self.priority[batch.place]))

    # ---------------------------------------------------------------------------------------------- the rest

    def _row_bytes(self) -> int:
        """What a row takes up without recurrent states: its tensors, and what drawing needs beside them."""
        pixel = torch.empty((), dtype=self.spec.observation_dtype).element_size()
        action, terminated, numbers, places, prefix_sum = 2, 1, 5 * 4, 3 * 4, 2 * 8
        balanced = 4 if self._policies > 1 else 0
        row = action + terminated + numbers + places + prefix_sum + balanced
        return pixel * math.prod(self.spec.observation_shape) + row

    def _check_memory(self, lstm_size: int) -> None:
        """Refuses a capacity that does not fit, before anything is allocated."""
        per_row, per_state = self._row_bytes(), 2 * 4 * lstm_size / self.config.period
        needed = int(self.slots * self.streams * (per_row + per_state))
        usable = int(free_memory(self.device) * self.config.max_memory_share)
        if needed > usable:
            fits = int(usable / (per_row + per_state))
            raise UserError(
                f"a replay of capacity {self.config.capacity:,} needs {human_bytes(needed)}, but only "
                f"{human_bytes(usable)} may be used on {self.device}; set --replay.capacity to {fits:,} or less."
            )

    _TENSORS = (
        "observation", "action", "behaviour", "extrinsic", "intrinsic", "td_error", "terminated", "episode_offset",
        "state_slot", "length", "priority", "hidden", "cell", "rows_written", "states_written", "episode_start",
        "sequence_start", "recording",
    )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._TENSORS}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self._TENSORS:
            getattr(self, name).copy_(state[name])

"""Chunks of steps: recorded, sent, checked and taken in as if their rows had come one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import difference

from ngu.chunk import Chunk, ChunkRecorder, DamagedChunkError, add_chunk, unpack
from ngu.config import ReplayConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.networks import RecurrentState
from ngu.replay import SequenceReplay
from ngu.sequences import Row

CPU = torch.device("cpu")
SPEC = EnvironmentSpec((2, 3), torch.uint8, 4)
SIZE = 5


def random_rows(seed: int, steps: int, envs: int) -> list[tuple[Row, RecurrentState]]:
    """Episodes of all lengths; after an end the next row is the first of another."""
    random = np.random.default_rng(seed)
    ended = np.ones(envs, dtype=bool)
    rows = []
    for _ in range(steps):
        first = ended
        over = random.random(envs) < random.choice([0.02, 0.3])
        ended = over & ~first
        terminated = ended & (random.random(envs) < 0.5)
        row = Row(
            observation=torch.from_numpy(random.integers(0, 256, (envs, 2, 3), dtype=np.uint8)),
            action=torch.from_numpy(np.where(first, -1, random.integers(0, 4, envs))),
            behaviour=torch.from_numpy(random.uniform(0.1, 1.0, envs).astype(np.float32)),
            extrinsic=torch.from_numpy(random.normal(size=envs).astype(np.float32)),
            intrinsic=torch.from_numpy(random.normal(size=envs).astype(np.float32)),
            td_error=torch.from_numpy(random.normal(size=envs).astype(np.float32)),
            terminated=torch.from_numpy(terminated),
            truncated=torch.from_numpy(ended & ~terminated),
            first=torch.from_numpy(first),
        )
        state = torch.from_numpy(random.normal(size=(2, envs, SIZE)).astype(np.float32))
        rows.append((row, RecurrentState(state[0], state[1])))
    return rows


def make_replay(streams: int, slots: int, trace: int, period: int) -> SequenceReplay:
    config = ReplayConfig(capacity=slots * streams, trace_length=trace, period=period, min_sequences=1)
    return SequenceReplay(SPEC, torch.zeros(streams, dtype=torch.int64), SIZE, config, CPU, torch.Generator())


def record(rows: list[tuple[Row, RecurrentState]], steps: int, period: int) -> list[Chunk]:
    recorder = ChunkRecorder(SPEC, steps, len(rows[0][0].first), SIZE, period)
    chunks = []
    for row, state in rows:
        recorder.add(row, state)
        if recorder.full:
            chunks.append(recorder.take())
    return chunks


def sent(chunk: Chunk, steps: int, envs: int, *, compress: bool = False) -> Chunk:
    return unpack(chunk.pack(compress), SPEC, steps, envs, SIZE)


@given(
    seed=st.integers(0, 2**31),
    steps=st.integers(1, 9),
    envs=st.integers(1, 4),
    trace=st.integers(1, 6),
    period=st.integers(1, 6),
    compress=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_replay_of_chunks_is_a_replay_of_their_rows(
    seed: int, steps: int, envs: int, trace: int, period: int, compress: bool
) -> None:
    """Over several turns of the ring, in streams that lie among those of other actors, which must not change."""
    period = min(period, trace)
    one, other = (make_replay(envs + 3, 40, trace, period) for _ in range(2))
    group = slice(2, 2 + envs)
    rows = random_rows(seed, 12 * steps, envs)
    for row, state in rows:
        one.add(row, state, group)
    for chunk in record(rows, steps, period):
        add_chunk(other, sent(chunk, steps, envs, compress=compress), group)
    # Powers of a long vector and of a short one differ in the last bit.
    torch.testing.assert_close(one.priority, other.priority, rtol=1e-6, atol=0)
    other.priority.copy_(one.priority)
    assert not difference(one.state_dict(), other.state_dict())


@given(seed=st.integers(0, 2**31), steps=st.integers(2, 9), lost=st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_after_an_interruption_nothing_spans_the_gap(seed: int, steps: int, lost: int) -> None:
    """What was under way is dropped, what was whole stays, and no sequence holds rows of both sides."""
    envs, trace, period = 2, 4, 2
    replay = make_replay(envs, 200, trace, period)
    rows = random_rows(seed, 6 * steps, envs)
    chunks = record(rows, steps, period)
    for chunk in chunks[:2]:
        add_chunk(replay, chunk, slice(None))
    whole = replay.priority.clone()
    replay.interrupt(slice(None))
    for chunk in chunks[2 + lost :]:
        add_chunk(replay, chunk, slice(None))
    assert torch.equal(replay.priority[: 2 * steps * envs], whole[: 2 * steps * envs])
    place = (replay.priority > 0).nonzero().squeeze(1)
    place = place[place >= 2 * steps * envs]
    kept = [row for row, _ in rows[: 2 * steps]] + [row for row, _ in rows[(2 + lost) * steps :]]
    for index in place.tolist():
        time, env = index // envs, index % envs
        begin = next(t for t in range(time, -1, -1) if bool(kept[t].first[env]))
        assert begin >= 2 * steps, "its episode began after the gap"


def test_states_travel_only_where_a_sequence_may_begin() -> None:
    rows = random_rows(3, 40, 3)
    chunk = record(rows, 40, 10)[0]
    offset = np.zeros(3, dtype=int)
    expected = []
    for time, (row, _) in enumerate(rows):
        offset = np.where(row.first.numpy(), 0, offset + 1)
        expected += [(time, env) for env in range(3) if offset[env] > 0 and offset[env] % 10 == 0]
    assert list(zip(chunk.time.tolist(), chunk.env.tolist(), strict=True)) == expected
    assert len(expected) < 12
    for index, (time, env) in enumerate(expected):
        assert torch.equal(chunk.state.hidden[index], rows[time][1].hidden[env])


def test_a_chunk_is_not_changed_by_the_rows_that_follow() -> None:
    rows = random_rows(1, 8, 2)
    recorder = ChunkRecorder(SPEC, 4, 2, SIZE, 2)
    for row, state in rows[:4]:
        recorder.add(row, state)
    chunk = recorder.take()
    before = chunk.rows.observation.clone()
    for row, state in rows[4:]:
        recorder.add(row, state)
    assert torch.equal(chunk.rows.observation, before)


def _nan(name: str) -> Callable[[dict[str, Any]], None]:
    def damage(arrays: dict[str, Any]) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name].flat[0] = np.nan

    return damage


def _set(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def damage(arrays: dict[str, Any]) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name].flat[0] = value

    return damage


DAMAGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "missing": (lambda arrays: arrays.pop("action"), "action is missing"),
    "no array": (lambda arrays: arrays.update(first=[1, 2]), "first is missing"),
    "another length": (lambda arrays: arrays.update(first=arrays["first"][:-1]), "first is"),
    "another type": (lambda arrays: arrays.update(extrinsic=arrays["extrinsic"].astype(np.float64)), "extrinsic is"),
    "extrinsic": (_nan("extrinsic"), "extrinsic is not finite"),
    "intrinsic": (_nan("intrinsic"), "intrinsic is not finite"),
    "td_error": (_nan("td_error"), "td_error is not finite"),
    "hidden": (_nan("hidden"), "hidden is not finite"),
    "action": (_set("action", 4), "action is outside"),
    "probability": (_set("behaviour", 0.0), "no probability"),
    "env": (_set("env", 7), "env is outside"),
    "packed": (lambda arrays: arrays.update(packed=np.arange(9, dtype=np.uint8)), "cannot be decompressed"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_chunk_is_refused(what: str) -> None:
    chunk = record(random_rows(0, 12, 3), 12, 2)[0]
    arrays = chunk.pack(compress=False)
    damage, reason = DAMAGES[what]
    damage(arrays)
    with pytest.raises(DamagedChunkError, match=reason):
        unpack(arrays, SPEC, 12, 3, SIZE)


def test_what_is_no_chunk_at_all_is_refused() -> None:
    with pytest.raises(DamagedChunkError, match="it is a list"):
        unpack([1, 2], SPEC, 12, 3, SIZE)


def test_frames_that_unpack_to_too_much_are_refused_before_they_do() -> None:
    chunk = record(random_rows(0, 12, 3), 12, 2)[0]
    longer = dataclasses.replace(chunk.rows, observation=torch.zeros(5000, 3, 2, 3, dtype=torch.uint8))
    arrays = Chunk(longer, chunk.time, chunk.env, chunk.state).pack(compress=True)
    with pytest.raises(DamagedChunkError, match="217 bytes or more and should have 216"):
        unpack(arrays, SPEC, 12, 3, SIZE)


def test_a_chunk_without_a_state_that_is_needed_changes_nothing() -> None:
    replay = make_replay(3, 50, 4, 2)
    chunk = record(random_rows(0, 12, 3), 12, 2)[0]
    before = {name: value.clone() for name, value in replay.state_dict().items()}
    short = Chunk(
        chunk.rows, chunk.time[1:], chunk.env[1:], RecurrentState(chunk.state.hidden[1:], chunk.state.cell[1:])
    )
    with pytest.raises(DamagedChunkError, match="a recurrent state is missing"):
        add_chunk(replay, short, slice(None))
    assert not difference(before, replay.state_dict())

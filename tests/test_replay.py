"""Prioritized sequence replay against a dictionary that stores every sequence whole (paper, App. A)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import DictionaryReplay, clone, difference

from ngu.config import ReplayConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError
from ngu.machine import free_memory
from ngu.networks import RecurrentState
from ngu.replay import SequenceReplay
from ngu.sequences import Batch, Row, sequence_priority

SPEC = EnvironmentSpec((2,), torch.float32, 5)
CPU = torch.device("cpu")
UNITS = 3


def make_replay(streams: int, slots: int, trace: int, period: int, **changes: Any) -> SequenceReplay:
    config = ReplayConfig(capacity=streams * slots, trace_length=trace, period=period, **changes)
    mixture = torch.arange(streams) % 2
    return SequenceReplay(SPEC, mixture, UNITS, config, CPU, torch.Generator().manual_seed(0))


def add_rows(replay: SequenceReplay, rows: list[dict[str, Any]]) -> None:
    """One row for each stream, from plain numbers."""
    tensors = {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
    state = RecurrentState(tensors.pop("hidden"), tensors.pop("cell"))
    replay.add(Row(**tensors), state)


class Writer:
    """Writes episodes of given lengths and ends into a replay and its twin, every number in them one of a kind."""

    def __init__(
        self, replay: SequenceReplay, script: list[list[tuple[int, bool]]], *, joined_late: bool = False
    ) -> None:
        """`script`: for each stream, over and over, the transitions of an episode and whether its end is terminal."""
        self.replay = replay
        self.script = script
        self.td_error: Callable[[int, int], float] = lambda _stream, _row: 1.0
        config = replay.config
        self.twin = DictionaryReplay(len(script), replay.slots, config.trace_length, config.period)
        self.episode = [0] * len(script)
        # Joined late: the first rows are the middle of episodes whose beginning nobody saw.
        self.time = [1 if joined_late and script[s][0][0] > 1 else 0 for s in range(len(script))]
        self.written = 0

    def row(self, stream: int) -> dict[str, Any]:
        length, terminal = self.script[stream][self.episode[stream] % len(self.script[stream])]
        time = self.time[stream]
        name = 1000.0 * stream + self.written
        return {
            "observation": [name, float(self.episode[stream])],
            "action": -1 if time == 0 else self.written % 5,
            "behaviour": 1.0 if time == 0 else 0.1 + 0.001 * self.written,
            "extrinsic": 0.0 if time == 0 else name + 0.25,
            "intrinsic": 0.0 if time == 0 else name + 0.5,
            "td_error": 0.0 if time == 0 else self.td_error(stream, self.written),
            "terminated": time == length and terminal,
            "truncated": time == length and not terminal,
            "first": time == 0,
            "hidden": [name + 0.1] * UNITS if time else [0.0] * UNITS,
            "cell": [-name - 0.1] * UNITS if time else [0.0] * UNITS,
        }

    def write(self, steps: int = 1) -> None:
        for _ in range(steps):
            rows = [self.row(stream) for stream in range(len(self.script))]
            add_rows(self.replay, rows)
            for stream, row in enumerate(rows):
                self.twin.add(stream, row)
                over = row["terminated"] or row["truncated"]
                self.episode[stream] += over
                self.time[stream] = 0 if over else self.time[stream] + 1
            self.written += 1


def sequences_in(batch: Batch, streams: int) -> list[tuple[int, int]]:
    """The twin's keys of a batch: stream and number of the first row."""
    return list(zip((batch.place % streams).tolist(), batch.birth.tolist(), strict=True))


def check_contents(batch: Batch, writer: Writer) -> None:
    """Every sequence of the batch is what the dictionary holds, and what follows in its episode; then comes padding."""
    replay = writer.replay
    trace, lookahead, margin = replay.config.trace_length, replay.config.lookahead, replay.config.cut_margin
    for column, key in enumerate(sequences_in(batch, replay.streams)):
        length = len(writer.twin.sequences[key]) - 1
        rows = writer.twin.sequences[key] + writer.twin.following(key, lookahead)
        known = len(rows) - 1
        padded = rows + rows[-1:] * (trace + lookahead - known)
        assert batch.length[column].item() == length
        left = writer.twin.left_before_a_cut(key)
        assert batch.trained[:, column].tolist() == [t < length and left - t > margin for t in range(trace)]
        assert batch.valid[:, column].tolist() == [t < known for t in range(trace + lookahead)]

        def seen(name: str, rows: list[dict[str, Any]] = padded) -> Any:
            return np.float32([row[name] for row in rows]).tolist()

        inputs = batch.inputs
        assert inputs.observation[:, column].tolist() == seen("observation")
        assert inputs.previous_action[:, column].tolist() == seen("action")
        assert inputs.extrinsic[:, column].tolist() == seen("extrinsic")
        assert inputs.intrinsic[:, column].tolist() == seen("intrinsic")
        assert inputs.mixture[column].item() == key[0] % 2
        assert batch.action[:, column].tolist() == seen("action")[1:]
        assert batch.behaviour[:, column].tolist() == seen("behaviour")[1:]
        assert batch.extrinsic[:, column].tolist() == seen("extrinsic")[1:]
        assert batch.intrinsic[:, column].tolist() == seen("intrinsic")[1:]
        assert batch.terminated[:known, column].tolist() == [row["terminated"] for row in rows[1:]]
        assert batch.state.hidden[column].tolist() == seen("hidden")[0]
        assert batch.state.cell[column].tolist() == seen("cell")[0]
        if replay.config.burn_in:
            check_burn_in(batch, column, key, writer)


def check_burn_in(batch: Batch, column: int, key: tuple[int, int], writer: Writer) -> None:
    """What came before a sequence of the batch in its episode, if it is still there."""
    replay, burn_in = writer.replay, batch.burn_in
    assert burn_in is not None
    (stream, first), steps = key, replay.config.burn_in
    rows = writer.twin.rows[stream]
    exists = not rows[first]["first"] and first - steps >= len(rows) - replay.slots
    assert burn_in.exists[column].item() == exists
    assert burn_in.inputs.mixture[column].item() == stream % 2
    if exists:
        before = rows[first - steps : first]
        for name, values in (
            ("observation", burn_in.inputs.observation),
            ("action", burn_in.inputs.previous_action),
            ("extrinsic", burn_in.inputs.extrinsic),
            ("intrinsic", burn_in.inputs.intrinsic),
        ):
            assert values[:, column].tolist() == np.float32([row[name] for row in before]).tolist()
        assert burn_in.state.hidden[column].tolist() == np.float32(before[0]["hidden"]).tolist()
        assert burn_in.state.cell[column].tolist() == np.float32(before[0]["cell"]).tolist()


episodes = st.lists(st.tuples(st.integers(1, 14), st.booleans()), min_size=1, max_size=5)


@st.composite
def worlds(draw: st.DrawFn) -> Writer:
    trace = draw(st.integers(1, 5))
    period = draw(st.integers(1, trace))
    slots = draw(st.integers(2 * (trace + 1), 2 * (trace + 1) + 8))
    script = draw(st.lists(episodes, min_size=1, max_size=3))
    further = st.sampled_from([0, 1, 3, 7])
    around = {"burn_in": draw(st.sampled_from([0, period])), "lookahead": draw(further), "cut_margin": draw(further)}
    replay = make_replay(len(script), slots, trace, period, **around)
    return Writer(replay, script, joined_late=draw(st.booleans()))


@given(worlds(), st.lists(st.integers(1, 9), min_size=1, max_size=8))
@settings(max_examples=60)
def test_it_holds_exactly_what_the_dictionary_holds(writer: Writer, pieces: list[int]) -> None:
    """While all priorities are equal, as many draws as there are sequences bring each of them once."""
    for steps in pieces:
        writer.write(steps)
        count = int(writer.replay.count())
        assert count == len(writer.twin.sequences)
        if count:
            batch = writer.replay.sample(count)
            assert sorted(sequences_in(batch, writer.replay.streams)) == sorted(writer.twin.sequences)
            check_contents(batch, writer)


def held(replay: SequenceReplay) -> dict[tuple[int, int], int]:
    """Lengths of all sequences of a replay with equal priorities."""
    batch = replay.sample(int(replay.count()))
    return dict(zip(sequences_in(batch, replay.streams), batch.length.tolist(), strict=True))


def test_sequences_of_the_papers_shape() -> None:
    """Length 80 with starts 40 apart, in an episode of 170 steps: the last one is the remainder."""
    writer = Writer(make_replay(1, 400, 80, 40), [[(170, True)]])
    writer.write(171)
    assert held(writer.replay) == {(0, 0): 80, (0, 40): 80, (0, 80): 80, (0, 120): 50}


def test_sequences_burn_in_with_the_period_before_them() -> None:
    """Starts at 0, 40, 80 and 120: all but the first have something before them, until it is overwritten."""
    writer = Writer(make_replay(1, 200, 80, 40, burn_in=40), [[(170, True), (100, True)]])
    writer.write(171)
    batch = writer.replay.sample(4)
    assert batch.burn_in is not None
    burnt_in = dict(zip(sequences_in(batch, 1), batch.burn_in.exists.tolist(), strict=True))
    assert burnt_in == {(0, 0): False, (0, 40): True, (0, 80): True, (0, 120): True}
    check_contents(batch, writer)
    writer.write(60)  # rows 0 to 30 are gone
    batch = writer.replay.sample(3)
    assert batch.burn_in is not None
    burnt_in = dict(zip(sequences_in(batch, 1), batch.burn_in.exists.tolist(), strict=True))
    assert burnt_in == {(0, 40): False, (0, 80): True, (0, 120): True}
    check_contents(batch, writer)


def test_sequences_look_ahead_as_far_as_their_episode_goes() -> None:
    """Sequences of 20 that start at 0, 20 and 40 of an episode of 55 steps, and look 30 further; one under way."""
    writer = Writer(make_replay(1, 200, 20, 20, lookahead=30), [[(55, True), (99, True)]])
    writer.write(56)
    batch = writer.replay.sample(3)
    assert dict(zip(sequences_in(batch, 1), batch.valid.sum(0).tolist(), strict=True)) == {
        (0, 0): 50,
        (0, 20): 35,
        (0, 40): 15,
    }
    assert batch.trained.sum(0).tolist() == batch.length.tolist()
    check_contents(batch, writer)
    writer.write(28)  # 27 transitions of the next episode
    batch = writer.replay.sample(4)
    assert dict(zip(sequences_in(batch, 1), batch.valid.sum(0).tolist(), strict=True))[0, 56] == 27
    check_contents(batch, writer)


def test_the_last_steps_before_a_cut_are_not_trained() -> None:
    """Episodes of 55 steps, the first cut, the second ended; sequences of 20 at 0, 20 and 40 of each."""
    writer = Writer(make_replay(1, 200, 20, 20, cut_margin=25), [[(55, False), (55, True)]])
    writer.write(56)

    def trained() -> dict[tuple[int, int], int]:
        batch = writer.replay.sample(int(writer.replay.count()))
        check_contents(batch, writer)
        return dict(zip(sequences_in(batch, 1), batch.trained.sum(0).tolist(), strict=True))

    assert trained() == {(0, 0): 20, (0, 20): 20, (0, 40): 15}, "whether it goes on is not known before the next row"
    writer.write(1)
    assert trained() == {(0, 0): 20, (0, 20): 10, (0, 40): 0}
    writer.write(70)
    assert trained() == {(0, 0): 20, (0, 20): 10, (0, 40): 0, (0, 56): 20, (0, 76): 20, (0, 96): 15}


def test_a_sequence_that_is_not_trained_is_not_drawn_again() -> None:
    """Its place in a batch would be wasted for ever."""
    writer = Writer(make_replay(1, 200, 20, 20, cut_margin=25), [[(55, False)]])
    writer.write(57)
    batch = writer.replay.sample(3)
    error = torch.ones(20, 3)
    writer.replay.update_priorities(batch, sequence_priority(error * batch.trained, batch.trained, 0.9))
    drawn = sequences_in(writer.replay.sample(64), 1)
    assert set(drawn) == {(0, 0), (0, 20)}


def test_nothing_is_looked_at_across_a_gap() -> None:
    """A stream that was interrupted goes on in the middle of an episode: what comes then belongs to no sequence."""
    writer = Writer(make_replay(1, 200, 5, 5, lookahead=9), [[(50, True), (5, True)]])
    writer.write(8)
    writer.replay.interrupt()
    writer.write(45)
    batch = writer.replay.sample(1)
    assert (sequences_in(batch, 1), batch.valid.sum().item()) == ([(0, 0)], 7)
    assert batch.inputs.observation[-1, 0].tolist() == [7.0, 0.0]


def test_episodes_of_one_step_are_kept() -> None:
    writer = Writer(make_replay(1, 20, 5, 5), [[(1, True), (1, False)]])
    writer.write(8)
    assert held(writer.replay) == {(0, 0): 1, (0, 2): 1, (0, 4): 1, (0, 6): 1}


@given(worlds())
@settings(max_examples=20)
def test_no_sequence_crosses_an_episode(writer: Writer) -> None:
    writer.write(40)
    if not int(writer.replay.count()):
        return
    batch = writer.replay.sample(50)
    episode = batch.inputs.observation[..., 1]
    assert (episode == episode[0]).all()


@given(worlds())
@settings(max_examples=20)
def test_mistake_the_automatic_reset_step_is_no_experience(writer: Writer) -> None:
    """The first observation of an episode (no action led to it) is only ever a sequence's first row."""
    writer.write(40)
    if not int(writer.replay.count()):
        return
    batch = writer.replay.sample(50)
    assert (batch.inputs.previous_action[1:] >= 0).all()


def test_what_began_before_the_replay_did_is_left_out() -> None:
    """Without the start of an episode its recurrent state is unknown."""
    writer = Writer(make_replay(1, 30, 4, 2), [[(9, True)]], joined_late=True)
    writer.write(9)
    assert int(writer.replay.count()) == 0
    writer.write(6)
    assert min(start for _, start in held(writer.replay)) == 9


def test_mistake_overlapping_sequences_share_their_frames() -> None:
    """Rows are stored once: the bytes of a replay do not depend on how many sequences cover a row."""

    def row_bytes(replay: SequenceReplay) -> int:
        state = replay.state_dict()
        return sum(value.nbytes for name, value in state.items() if name not in ("hidden", "cell"))

    apart, overlapping = make_replay(2, 100, 20, 20), make_replay(2, 100, 20, 1)
    assert row_bytes(apart) == row_bytes(overlapping)
    writer = Writer(overlapping, [[(60, True)], [(60, True)]])
    writer.write(61)
    assert int(overlapping.count()) == 2 * 41
    # Every row that was written lies in exactly one place.
    names = overlapping.observation[:, 0]
    written = {1000.0 * stream + step for stream in range(2) for step in range(1, 61)}
    assert all((names == name).sum().item() == 1 for name in written)


# ------------------------------------------------------------------------------------------- priorities


def one_of_each(replay: SequenceReplay) -> Batch:
    """All sequences, while their priorities are equal."""
    return replay.sample(int(replay.count()))


@pytest.mark.parametrize("exponent", [0.0, 0.9, 1.0])
def test_draws_follow_the_priorities(exponent: float) -> None:
    writer = Writer(make_replay(2, 60, 4, 4, priority_exponent=exponent), [[(5, True)], [(7, False)]])
    writer.write(24)
    replay = writer.replay
    batch = one_of_each(replay)
    size = len(batch.place)
    priority = torch.arange(1, size + 1).float() ** 2
    replay.update_priorities(batch, priority)
    expected = (priority.double() ** exponent) / (priority.double() ** exponent).sum()
    index = {place: i for i, place in enumerate(batch.place.tolist())}
    many = [index[place] for place in replay.sample(20_000).place.tolist()]
    assert np.bincount(many, minlength=size) / 20_000 == pytest.approx(expected.numpy(), abs=2e-3)
    # Draws of one have no strata that could even them out.
    single = [index[replay.sample(1).place.item()] for _ in range(2000)]
    assert np.bincount(single, minlength=size) / 2000 == pytest.approx(expected.numpy(), abs=4e-2)


def test_balanced_draws_follow_the_priorities_of_one_policy_alone() -> None:
    """Errors of one policy are 500 times the other's: half of the draws go to each, and inside by priority."""
    config = ReplayConfig(capacity=4 * 40, trace_length=4, period=4, priority_exponent=1.0, importance_exponent=1.0)
    mixture = torch.arange(4) % 2
    replay = SequenceReplay(SPEC, mixture, UNITS, config, CPU, torch.Generator().manual_seed(0), balanced=True)
    writer = Writer(replay, [[(8, True)]] * 4)
    writer.td_error = lambda stream, row: (1.0 + row % 3) * (500.0 if stream % 2 else 1.0)
    writer.write(40)
    priority = replay.priority.view(replay.slots, 4)
    expected = priority / torch.stack([priority[:, policy::2].sum() for policy in (0, 1, 0, 1)]) / 2
    draws = 40_000
    batches = [replay.sample(64) for _ in range(draws // 64)]
    drawn = torch.cat([batch.place for batch in batches]).bincount(minlength=priority.numel())
    share = drawn / drawn.sum()
    assert share.view_as(priority)[:, 0::2].sum().item() == pytest.approx(0.5, abs=0.01)
    assert torch.allclose(share, expected.flatten(), atol=0.004)
    for batch in batches[:20]:  # weights undo the draws' own shares
        weight = 1 / expected.flatten()[batch.place]
        assert torch.allclose(batch.weight, weight / weight.max(), rtol=1e-4)


def test_balanced_a_policy_without_errors_is_not_drawn_for_its_noise() -> None:
    replay = make_replay(2, 40, 4, 4, priority_exponent=1.0)
    noise = SequenceReplay(
        SPEC, replay.mixture, UNITS, replay.config, CPU, torch.Generator().manual_seed(0), balanced=True
    )
    writer = Writer(noise, [[(8, True)]] * 2)
    writer.td_error = lambda stream, _row: 1.0 if stream else 1e-4
    writer.write(40)
    drawn = torch.cat([noise.sample(64).inputs.mixture for _ in range(40)])
    assert drawn.float().mean().item() == pytest.approx(1 / 1.01, abs=0.01)


def test_importance_weights_undo_the_priorities() -> None:
    writer = Writer(make_replay(1, 60, 4, 4, importance_exponent=0.6), [[(5, True)]])
    writer.write(30)
    replay = writer.replay
    everything = one_of_each(replay)
    priority = torch.linspace(0.1, 9.0, len(everything.place))
    replay.update_priorities(everything, priority)
    exponentiated = dict(zip(everything.place.tolist(), (priority.double() ** 0.9).tolist(), strict=True))
    total, count = sum(exponentiated.values()), len(exponentiated)
    batch = replay.sample(12)
    raw = np.array([(count * exponentiated[place] / total) ** -0.6 for place in batch.place.tolist()])
    assert batch.weight.numpy() == pytest.approx(raw / raw.max(), rel=1e-4)
    assert batch.weight.max().item() == 1.0


def test_importance_weights_can_be_turned_off() -> None:
    writer = Writer(make_replay(1, 60, 4, 4, importance_exponent=0.0), [[(5, True)]])
    writer.write(30)
    everything = one_of_each(writer.replay)
    writer.replay.update_priorities(everything, torch.linspace(0.1, 9.0, len(everything.place)))
    assert writer.replay.sample(12).weight.tolist() == [1.0] * 12


@given(worlds(), st.integers(0, 60), st.sampled_from([0.0, 0.9, 1.0]))
@settings(max_examples=25)
def test_new_sequences_get_their_priority_from_the_actors_errors(writer: Writer, steps: int, share: float) -> None:
    """0.9 of the largest and 0.1 of the mean error of the sequence's own steps, to the power 0.9."""
    old = writer.replay
    shape = old.streams, old.slots, old.config.trace_length, old.config.period
    writer.replay = make_replay(*shape, priority_max_share=share)
    writer.td_error = lambda stream, row: (-1.0) ** row * (1 + (37 * row + 11 * stream) % 101)
    writer.write(steps)
    held = writer.replay.priority.nonzero().flatten().tolist()
    places = {
        (start % old.slots) * old.streams + stream: key for key in writer.twin.sequences for stream, start in [key]
    }
    assert set(held) == set(places)
    for place, key in places.items():
        errors = np.abs([row["td_error"] for row in writer.twin.sequences[key][1:]])
        expected = (share * errors.max() + (1 - share) * errors.mean()) ** 0.9
        assert writer.replay.priority[place].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_error_that_is_not_finite_becomes_no_priority(bad: float) -> None:
    writer = Writer(make_replay(1, 60, 3, 3, priority_exponent=1.0, priority_max_share=1.0), [[(3, True)]])
    writer.td_error = lambda _, row: bad if row == 2 else 4.0
    writer.write(8)
    assert writer.replay.priority[writer.replay.priority > 0].tolist() == [4.0, 4.0]


def test_a_sequence_without_error_stays_reachable() -> None:
    writer = Writer(make_replay(1, 60, 3, 3), [[(3, True)]])
    writer.write(8)
    writer.replay.update_priorities(one_of_each(writer.replay), torch.zeros(2))
    assert int(writer.replay.count()) == 2
    assert len(set(writer.replay.sample(20).place.tolist())) == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_priorities_are_left_alone(bad: float) -> None:
    writer = Writer(make_replay(1, 60, 3, 3, priority_exponent=1.0), [[(3, True)]])
    writer.write(12)
    batch = one_of_each(writer.replay)
    writer.replay.update_priorities(batch, torch.tensor([2.0, 3.0, 4.0]))
    writer.replay.update_priorities(batch, torch.tensor([bad, 5.0, bad]))
    assert writer.replay.priority[batch.place].tolist() == [2.0, 5.0, 4.0]


@given(st.integers(0, 30))
@settings(max_examples=31)
def test_priorities_of_dead_sequences_are_ignored(steps: int) -> None:
    """A place may hold another sequence, or none, by the time that its old one's priority arrives."""
    writer = Writer(make_replay(2, 12, 3, 2, priority_exponent=1.0), [[(4, True), (1, True)], [(7, False)]])
    writer.write(14)
    replay = writer.replay
    batch = one_of_each(replay)
    keys = sequences_in(batch, 2)
    writer.write(steps)
    replay.update_priorities(batch, torch.full((len(keys),), 50.0))
    alive = {key for key in keys if key in writer.twin.sequences}
    places = {((start % 12) * 2 + stream) for stream, start in alive}
    assert set((replay.priority == 50.0).nonzero().flatten().tolist()) == places
    assert int(replay.count()) == len(writer.twin.sequences)


# ------------------------------------------------------------------------------------------- memory and state


def test_a_replay_that_does_not_fit_is_refused_with_a_number_that_does() -> None:
    with pytest.raises(UserError, match=r"set --replay\.capacity to [\d,]+ or less") as refusal:
        make_replay(4, 10**13, 50, 50, max_memory_share=1e-4)
    assert len(str(refusal.value).splitlines()) == 1
    fits = int(re.findall(r"capacity to ([\d,]+)", str(refusal.value))[0].replace(",", ""))
    assert fits > 0
    # Half of it: other programs take and free memory in the meantime.
    assert make_replay(4, fits // 8, 50, 50, max_memory_share=1e-4).slots == fits // 8
    with pytest.raises(UserError):
        make_replay(4, fits, 50, 50, max_memory_share=1e-4)


def test_the_refusal_counts_what_would_be_allocated() -> None:
    replay = make_replay(4, 20_000, 50, 50)
    allocated = sum(value.nbytes for value in replay.state_dict().values())
    rows = [value for value in replay.state_dict().values() if len(value) == 4 * 20_000]
    assert replay._row_bytes() * 4 * 20_000 == sum(value.nbytes for value in rows) + 2 * 8 * 4 * 20_000
    with pytest.raises(UserError):
        make_replay(4, 20_000, 50, 50, max_memory_share=0.7 * allocated / free_memory(CPU))
    make_replay(4, 20_000, 50, 50, max_memory_share=2.5 * allocated / free_memory(CPU))


@given(worlds(), st.integers(0, 30))
@settings(max_examples=15)
def test_a_saved_replay_goes_on_exactly(writer: Writer, steps: int) -> None:
    writer.write(steps)
    original = writer.replay
    copy = make_replay(original.streams, original.slots, original.config.trace_length, original.config.period)
    copy.load_state_dict(clone(original.state_dict()))
    writer.write(5)
    for offset in range(5):
        add_rows(copy, [writer.twin.rows[stream][steps + offset] for stream in range(original.streams)])
    assert not difference(original.state_dict(), copy.state_dict())

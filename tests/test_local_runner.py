"""The local runner: the order of acting and learning, the same bytes for the same seed, exact resumption."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from conftest import make_tiny_config
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import clone, difference

from ngu.runners.local import LocalRunner

CPU = torch.device("cpu")


def make_runner(**changes: Any) -> LocalRunner:
    return LocalRunner(make_tiny_config(**changes), CPU)


def advance(runner: LocalRunner, steps: int) -> LocalRunner:
    for _ in range(steps):
        runner.advance()
    return runner


def resumed(state: dict[str, Any], **changes: Any) -> LocalRunner:
    runner = make_runner(**changes)
    runner.load_state_dict(state)
    return runner


# ------------------------------------------------------------------------------------------- same seed, same bytes


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mixtures": {"mixture__num_mixtures": 4, "mixture__discount_min": 0.9, "mixture__cross_mixture_ratio": 0.5},
    "meta-episodes": {"novelty__memory_episodes": 3},
    "rnd-only": {"novelty__episodic": False},
    "no-rnd": {"novelty__lifelong": False},
    "no-extrinsic": {"env__name": "deep-sea", "env__sea_size": 6, "mixture__extrinsic": False},
    "random-coin": {"env__name": "random-coin", "env__coin_size": 5, "env__coin_step_cap": 12},
    "random-projection": {"novelty__controllable_states": "random"},
    "burn-in": {"replay__period": 4, "replay__burn_in": 4},
    "lookahead": {"replay__lookahead": 5},
    "cut margin": {"replay__cut_margin": 5},
    "average": {"learner__average_share": 0.3},
    "random start": {"actor__random_steps": 200},
    "keypoints": {"novelty__embedding_keypoints": True},
    "warm-up and average": {
        "novelty__warm_up_steps": 280,
        "novelty__warm_up_updates": 9,
        "learner__replay_ratio": 5.0,
        "learner__average_share": 0.3,
        "network__whiten": True,
    },
    "warm-up": {"novelty__warm_up_steps": 280, "novelty__warm_up_updates": 9, "learner__replay_ratio": 5.0},
    "warm-up in groups": {
        "novelty__warm_up_steps": 200,
        "novelty__warm_up_updates": 4,
        "env__groups": 2,
        "learner__replay_ratio": 5.0,
    },
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_seed_gives_the_same_bytes(name: str) -> None:
    one = advance(make_runner(**VARIANTS[name]), 60)
    torch.manual_seed(12345)  # PyTorch's own random state has no say in it
    other = advance(make_runner(**VARIANTS[name]), 60)
    assert one.agent.learner.updates > 3
    assert not difference(one.state_dict(), other.state_dict())
    assert one.pop_statistics() == other.pop_statistics()


def test_an_average_changes_nothing_else() -> None:
    """Actors collect with the newest weights, and learning does not see the average."""
    plain, averaged = (advance(make_runner(learner__average_share=share), 70).state_dict() for share in (0.0, 0.3))
    average = averaged["learner"].pop("average")
    assert difference(average, averaged["learner"]["network"])
    assert not difference(plain, averaged)


def test_another_seed_gives_another_run() -> None:
    one, other = (advance(make_runner(run__seed=seed), 30) for seed in (0, 1))
    for part in ("network", "novelty"):
        assert difference(one.state_dict()["learner"][part], other.state_dict()["learner"][part])
    assert difference(one.state_dict()["replay"], other.state_dict()["replay"])


@pytest.mark.parametrize("name", VARIANTS)
def test_a_resumed_run_equals_an_uninterrupted_one_byte_for_byte(name: str) -> None:
    whole = advance(make_runner(**VARIANTS[name]), 70)
    first = advance(make_runner(**VARIANTS[name]), 33)
    second = advance(resumed(clone(first.state_dict()), **VARIANTS[name]), 37)
    assert second.steps == whole.steps
    assert not difference(whole.state_dict(), second.state_dict())
    assert whole.pop_statistics() == second.pop_statistics()


@given(st.lists(st.integers(1, 25), min_size=1, max_size=3))
@settings(max_examples=5)
def test_it_may_be_interrupted_at_any_moment_and_more_than_once(pieces: list[int]) -> None:
    runner = make_runner()
    for steps in pieces:
        advance(runner, steps)
        runner = resumed(clone(runner.state_dict()))
    assert not difference(advance(make_runner(), sum(pieces)).state_dict(), runner.state_dict())


def test_a_run_saved_before_it_began_begins_as_usual() -> None:
    runner = resumed(clone(make_runner().state_dict()))
    assert not difference(advance(make_runner(), 20).state_dict(), advance(runner, 20).state_dict())


def test_saving_changes_nothing() -> None:
    saved, unsaved = make_runner(), make_runner()
    for _ in range(40):
        saved.advance()
        unsaved.advance()
        clone(saved.state_dict())
    assert not difference(unsaved.state_dict(), saved.state_dict())


# ------------------------------------------------------------------------------------------- acting and learning


@pytest.mark.parametrize("steps", [1, 17, 40])
def test_a_random_start_lasts_for_as_many_steps_as_are_asked_for(steps: int) -> None:
    """And learning goes on beside it."""
    runner = make_runner(actor__random_steps=8 * steps - 3)  # of 8 environments; rounded up
    (actor,) = runner.agent.actors
    at_random = []
    for _ in range(60):
        advance(runner, 1)
        at_random.append(bool((actor.behaviour == 1 / 4).all()))
    # The first action is chosen at the reset, each following one at the end of a step.
    assert at_random == [action < steps for action in range(1, 61)]
    assert torch.equal(actor.epsilon, actor._own_epsilon)
    assert runner.agent.learner.updates > 3


@pytest.mark.parametrize("change", [{}, {"env__groups": 2}, {"novelty__lifelong": False}, {"network__whiten": True}])
def test_a_warm_up_trains_f_and_rnd_alone_and_leaves_nothing_else(change: dict[str, Any]) -> None:
    warm_up = {"novelty__warm_up_steps": 25 * 8, "novelty__warm_up_updates": 12}
    runner = make_runner(**warm_up, actor__random_steps=10 * 8, **change)
    learner, replay = runner.agent.learner, runner.agent.replay
    network, novelty = (clone(dict(part.named_parameters())) for part in (learner.network, learner.novelty))
    done = []
    while runner.warming_up:
        advance(runner, 1)
        done.append(learner.novelty_updates)
        assert int(replay.count()) >= 20 or learner.novelty_updates in (0, 12)
    assert runner.steps == 25 * 8
    assert max(after - before for before, after in pairwise(done)) <= 2  # spread evenly
    told = runner.pop_statistics()
    assert told["learner/novelty_updates"] == 12
    assert told["loss/inverse"] > 0
    assert "loss/retrace" not in told
    assert not difference(network, dict(learner.network.named_parameters()))
    assert difference(novelty, dict(learner.novelty.named_parameters()))
    assert int(replay.count()) == learner.updates == 0
    for actor in runner.agent.actors:
        statistics = actor.novelty
        assert int(statistics.episodes.sum()) == 0
        assert statistics.scale.weight == 0
        assert statistics.rnd is None or float(statistics.moments.weight) == 0
        assert not difference(dict(learner.network.state_dict()), dict(actor.network.state_dict()))
    begun = replay.rows_written.clone()

    while learner.updates < 3:
        assert int(replay.count()) >= 20 or learner.updates == 0
        advance(runner, 1)
    batch = replay.sample(64)
    assert (batch.birth >= begun[batch.place % replay.streams]).all()
    assert "loss/retrace" in runner.pop_statistics()
    assert difference(network, dict(learner.network.named_parameters()))
    at_random = all(bool((actor.epsilon == 1).all()) for actor in runner.agent.actors)
    assert at_random == (runner.acting_steps < 35)
    advance(runner, max(36 - runner.acting_steps, 0))
    assert all(torch.equal(actor.epsilon, actor._own_epsilon) for actor in runner.agent.actors)


WARM_UP = {"novelty__warm_up_steps": 400, "novelty__warm_up_updates": 20}


def test_a_warm_up_goes_on_evenly_where_replay_was_not_saved() -> None:
    runner = advance(make_runner(**WARM_UP), 30)
    done = runner.agent.learner.novelty_updates
    assert 0 < done < 20
    state = clone(runner.state_dict())
    del state["replay"]
    other = resumed(state, **WARM_UP)
    counts = [done]
    while other.warming_up:
        advance(other, 1)
        counts.append(other.agent.learner.novelty_updates)
    assert counts[-1] == 20
    assert other.steps >= 400
    assert max(after - before for before, after in pairwise(counts)) <= 3
    assert int(other.agent.replay.count()) == 0


def test_acting_is_random_until_a_warm_up_is_over_however_long_replay_takes() -> None:
    runner = make_runner(**{**WARM_UP, "novelty__warm_up_steps": 200})
    (actor,) = runner.agent.actors
    runner.replay.interrupt()
    runner.replay.count = lambda: torch.tensor(0)  # type: ignore[method-assign]
    advance(runner, 40)
    assert (actor.epsilon == 1).all()
    del runner.replay.count  # type: ignore[attr-defined]
    while runner.warming_up:
        advance(runner, 1)
    assert runner.steps > 40 * 8
    advance(runner, 1)
    assert torch.equal(actor.epsilon, actor._own_epsilon)


@pytest.mark.parametrize("updates", [20, 40, 0, 5])
def test_a_resumed_warm_up_goes_by_changed_settings(updates: int) -> None:
    """It ends all the same, and what the untrained f has paid is forgotten; a run that is past it has no other one."""
    runner = make_runner(**WARM_UP)
    while runner.agent.learner.novelty_updates < 15:
        advance(runner, 1)
    state = clone(runner.state_dict())
    changed = {"novelty__warm_up_steps": 400 if updates else 0, "novelty__warm_up_updates": updates}
    other = resumed(state, **changed)
    while other.warming_up:
        advance(other, 1)
        assert other.steps < 1000
    assert other.agent.learner.novelty_updates == max(updates, 15)
    assert int(other.agent.replay.count()) == 0
    while other.agent.learner.updates < 2:
        advance(other, 1)
    again = advance(resumed(clone(other.state_dict()), **WARM_UP | {"novelty__warm_up_updates": 90}), 20)
    assert not again.warming_up
    assert again.agent.learner.novelty_updates == max(updates, 15)
    assert int(again.agent.replay.count()) > 20


def test_an_average_has_the_whitening_of_a_warm_up() -> None:
    runner = advance(make_runner(**WARM_UP, network__whiten=True, learner__average_share=0.3), 35)
    learner = runner.agent.learner
    assert runner.warming_up
    assert learner.novelty_updates > 0
    assert learner.average is not None
    assert not difference(dict(learner.network.named_buffers()), dict(learner.average.named_buffers()))


def test_a_warm_up_for_nothing_is_none() -> None:
    runner = make_runner(
        novelty__warm_up_steps=400, novelty__warm_up_updates=5, novelty__lifelong=False, novelty__episodic=False
    )
    assert not runner.warming_up
    assert runner.config.random_acting_steps == 0
    assert advance(runner, 40).agent.learner.updates > 0


@pytest.mark.parametrize("ratio", [0.25, 1.5, 20.0])
def test_trained_steps_keep_their_ratio_to_collected_steps(ratio: float) -> None:
    runner = make_runner(learner__replay_ratio=ratio)
    started = None
    for _ in range(60):
        runner.advance()
        if started is None and int(runner.agent.replay.count()) >= 20:
            started = runner.steps
        updates = runner.agent.learner.updates
        if started is None:
            assert updates == 0
        else:
            trained, collected = updates * 8 * 8, runner.steps - started
            assert trained <= ratio * collected < trained + 8 * 8
    assert started is not None
    assert runner.agent.learner.updates > 0


def test_learning_waits_for_the_minimum_of_sequences() -> None:
    runner = make_runner(replay__min_sequences=150)
    while int(runner.agent.replay.count()) < 150:
        assert runner.agent.learner.updates == 0
        runner.advance()
    advance(runner, 20)
    assert runner.agent.learner.updates > 0


def test_the_actor_gets_new_weights_every_period_and_not_in_between() -> None:
    runner = make_runner(actor__update_period=6, replay__min_sequences=1, learner__replay_ratio=20.0)
    last = clone(dict(runner.agent.actors[0].network.state_dict()))
    for step in range(1, 31):
        runner.advance()
        now = dict(runner.agent.actors[0].network.state_dict())
        if step % 6:
            assert not difference(last, now)
        else:
            assert not difference(dict(runner.agent.learner.network.state_dict()), now)
            assert step == 6 or difference(last, now)
        last = clone(now)


def test_no_copy_of_f_is_spent_before_anything_is_learned() -> None:
    """Long episodes would keep the untrained ones, and leave none for the first that is trained."""
    runner = advance(make_runner(replay__min_sequences=190), 30)
    snapshots = runner.novelty.snapshots
    assert snapshots is not None
    assert runner.agent.learner.updates == 0
    assert (int(snapshots.newest), runner.pop_statistics()["novelty/embedding_age"]) == (0, 0.0)
    while runner.agent.learner.updates == 0:
        runner.advance()
    advance(runner, 2 * runner.config.actor.update_period)
    assert snapshots.age.max() > 0


def test_new_priorities_arrive_in_replay() -> None:
    runner = make_runner()
    while runner.agent.learner.updates == 0:
        runner.advance()
    priority = runner.agent.replay.priority
    assert len(set(priority[priority > 0].tolist())) > 1


def test_steps_count_every_step_of_every_environment() -> None:
    assert advance(make_runner(), 7).steps == 7 * 8


def test_actors_share_out_policies_and_epsilons() -> None:
    runner = make_runner(mixture__num_mixtures=3, mixture__discount_min=0.9)
    actor = runner.agent.actors[0]
    assert actor.mixture.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert actor.epsilon.tolist() == pytest.approx([0.4 ** (1 + 8 * j / 7) for j in range(8)])
    assert torch.equal(runner.agent.replay.mixture, actor.mixture)


# ------------------------------------------------------------------------------------------- without the replay


def test_without_a_saved_replay_it_fills_up_again_before_it_learns() -> None:
    runner = advance(make_runner(), 40)
    state = clone(runner.state_dict())
    del state["replay"]
    other = resumed(state)
    updates = other.agent.learner.updates
    assert updates == runner.agent.learner.updates > 0
    assert int(other.agent.replay.count()) == 0
    while int(other.agent.replay.count()) < 20:
        assert other.agent.learner.updates == updates
        other.advance()
    started = other.steps
    advance(other, 30)
    trained = (other.agent.learner.updates - updates) * 64
    assert trained <= 1.25 * (other.steps - started) < trained + 64
    assert trained > 0


def test_without_a_saved_replay_no_sequence_begins_in_the_middle_of_an_episode() -> None:
    """The first rows after resuming belong to episodes whose recurrent state at the start is not there."""
    state = clone(advance(make_runner(), 40).state_dict())
    del state["replay"]
    runner = advance(resumed(state), 30)
    replay = runner.agent.replay
    batch = replay.sample(int(replay.count()))
    zero_state = ~batch.state.hidden.any(1)
    assert (batch.inputs.previous_action[0, zero_state] == -1).all()


def test_a_state_from_another_kind_of_device_brings_what_was_learned_and_begins_episodes_anew() -> None:
    runner = advance(make_runner(), 40)
    state = clone(runner.state_dict())
    state["runner"]["device"] = "cuda"
    state["learner"]["generator"] = torch.zeros(16, dtype=torch.uint8)
    del state["actors"]["0"]["env"], state["actors"]["0"]["generator"], state["replay"]["generator"]
    other = resumed(state)
    assert other.steps == runner.steps
    assert not difference(
        dict(runner.agent.learner.network.state_dict()), dict(other.agent.learner.network.state_dict())
    )
    assert not difference(runner.agent.learner.optimiser.state_dict(), other.agent.learner.optimiser.state_dict())
    assert not difference(runner.agent.actors[0].novelty.state_dict(), other.agent.actors[0].novelty.state_dict())
    assert int(other.agent.replay.count()) == 0
    other.advance()
    # The row before the first step is the start of an episode everywhere.
    assert (other.agent.replay.action[: other.agent.replay.streams] == -1).all()


# ------------------------------------------------------------------------------------------- what is not finite


def test_a_poisoned_replay_stops_no_run_and_reaches_nothing() -> None:
    """Every sampled sequence holds NaN for a while: updates are skipped and counted, weights and priorities stay."""
    runner = advance(make_runner(), 40)
    replay, learner = runner.agent.replay, runner.agent.learner
    network, priority = clone(dict(learner.network.state_dict())), replay.priority.clone()
    healthy = replay.extrinsic.clone()
    replay.extrinsic.fill_(float("nan"))
    updates = learner.updates
    while learner.updates < updates + 2:
        runner.advance()
    assert not difference(network, dict(learner.network.state_dict()))
    assert torch.isfinite(replay.priority).all()
    old = (priority > 0) & (replay.priority > 0)
    assert torch.equal(replay.priority[old], priority[old])
    metrics = runner.pop_statistics()
    assert metrics["learner/skipped_updates"] == metrics["learner/skipped_in_a_row"] == 2
    replay.extrinsic.copy_(healthy)
    replay.extrinsic.nan_to_num_(0.0)
    advance(runner, 20)
    assert runner.pop_statistics()["learner/skipped_in_a_row"] == 0
    assert difference(network, dict(learner.network.state_dict()))

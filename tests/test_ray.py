"""The Ray runner on a real cluster of one machine: the same agent as the local runner's, with its actors elsewhere."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracles import difference
from ray_checks import AlwaysDamaging, OnceDamaging, advance_until, descendants, ray_config, sequences
from worker_checks import gone

from ngu.agent import make_actor, make_learner, make_replay, slots_of, weights_of
from ngu.chunk import add_chunk, unpack
from ngu.config import Config
from ngu.config_reading import to_dict, with_overrides
from ngu.envs.make import make_environment
from ngu.errors import UserError
from ngu.evaluator import Evaluator
from ngu.randomness import make_generator, seed_of
from ngu.runners.actor_process import ActorProcess, EvaluatorProcess, running_of
from ngu.runners.cluster import connect, load_ray
from ngu.runners.local import LocalRunner
from ngu.runners.ray import RayRunner
from ngu.training import Training

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One cluster for all tests of this file; afterwards none of its processes may be left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # where its processes find what these tests define
        own = connect(ray_config(3))
    assert own is not None
    assert connect(ray_config(3)) is None
    yield
    processes = descendants(os.getpid())
    assert len(processes) > 3
    own.close()
    assert gone(processes)


def close(runner: RayRunner) -> None:
    """Closes a runner, whose processes must end."""
    processes = [actor["process"] for actor in runner.status()["actors"] if actor["alive"]]
    runner.close()
    assert gone(processes)


def test_a_run_whose_counters_add_up() -> None:
    config = ray_config(3, evaluation__period=400, run__log_period=200, novelty__memory_episodes=2)
    training = Training(config)
    runner = training.runner
    assert isinstance(runner, RayRunner)
    outcome = training.run(3000, show_progress=False)  # long enough for the last actor to start
    try:
        steps, size = runner.steps, config.env.num_envs // config.env.groups
        assert outcome.steps == steps >= 3000
        assert steps == runner.chunks * config.ray.chunk_steps * size == int(runner.replay.rows_written.sum())
        acted = torch.tensor([slot.acted for slot in runner.slots]).repeat_interleave(size)
        assert torch.equal(runner.replay.rows_written, acted)
        assert all(slot.chunks > 0 for slot in runner.slots)
        assert sum(slot.chunks for slot in runner.slots) == runner.chunks

        # As many updates as the local runner would do with these steps.
        assert runner.learning_since is not None
        since, before = runner.learning_since
        assert before == 0
        assert runner.learner.updates == int((steps - since) / config.steps_per_update) > 0

        # Every episode that began and is not under way has been counted.
        begun = int((runner.replay.action[: int(acted.max()) * len(acted)].view(-1, len(acted)) == -1).sum())
        ended = begun - int(runner.replay.recording.sum())
        assert sum(line.get("env/episodes", 0) for line in training.history) == ended > 0
        by_place = [sum(line.get(f"env/episodes/episode_{n}", 0) for line in training.history) for n in (1, 2)]
        assert sum(by_place) == ended
        assert min(by_place) > 0
        assert all(
            "eval/explore/length/episode_2" in line for line in training.history if "eval/explore/length" in line
        )

        evaluated = [line["step"] for line in training.history if "eval/explore/return" in line]
        assert len(evaluated) == len(set(evaluated))
        assert {0, steps} <= set(evaluated)
        # Evaluations come in when they are done, so how many lines follow the last of these is the machine's matter.
        last = [line for line in training.history if "ray/actors" in line][-1]
        assert (last["ray/actors"], last["ray/actor_restarts"], last["ray/refused_chunks"]) == (3, 0, 0)
        trained = runner.learner.updates * config.learner.batch_size * config.replay.trace_length
        assert last["ray/samples_per_insert"] == trained / steps
    finally:
        close(runner)


def test_the_last_evaluation_is_asked_for_once() -> None:
    """Training is over before an evaluator's process has even begun."""
    config = ray_config(3)
    steps = config.ray.chunk_steps * config.env.num_envs
    training = Training(with_overrides(config, {"evaluation.period": steps}))
    runner = training.runner
    assert isinstance(runner, RayRunner)
    training.run(steps, show_progress=False)
    try:
        assert [line["step"] for line in training.history if "eval/explore/return" in line] == [0, runner.steps]
    finally:
        close(runner)


def rows_of_an_actor(config: Config, slot: int, chunks: int) -> Any:
    """What the actor of a slot records with a learner's first weights: the local parts, put together by hand."""
    size = config.env.num_envs // config.env.groups
    group = slice(slot * size, (slot + 1) * size)
    mixture, epsilon = slots_of(config, CPU)
    env = make_environment(config, size, CPU)
    learner = make_learner(config, env.spec, CPU)
    replay = make_replay(config, env.spec, mixture, CPU)
    generator = make_generator(config.run.seed, "acting", CPU, slot, 0)
    actor = make_actor(config, env, learner, mixture[group], epsilon[group], generator, replay, group)
    actor.fetch(learner.network, learner.novelty)
    actor.reset(seed_of(config.run.seed, "environments", slot, 0))
    for _ in range(chunks * config.ray.chunk_steps - 1):
        actor.step()
    return replay


def test_actors_collect_what_the_local_actor_does_and_wait_for_a_slow_learner() -> None:
    """Without updates: every row that comes through the cluster is that of the slot's own policy, epsilon and seeds."""
    config = ray_config(3, env__num_envs=48, ray__chunk_steps=50, replay__min_sequences=40_000)
    runner = RayRunner(config, CPU)
    try:
        advance_until(runner, lambda: min(slot.chunks for slot in runner.slots) >= 1)
        processes = [actor["process"] for actor in runner.status()["actors"]]
        counts = [slot.chunks for slot in runner.slots]
        time.sleep(6.0)  # a learner that takes nothing meanwhile
        before = [cpu_ticks(process) for process in processes]
        in_store = stored()
        time.sleep(2.0)
        worked = [cpu_ticks(process) - ticks for process, ticks in zip(processes, before, strict=True)]
        assert max(worked) < 20, worked  # of 200: they wait
        # Two chunks of each actor, but one of the actor that was heard last; and the weights.
        assert stored() == in_store == 3 * config.ray.queued_chunks - 1 + 1
        assert runner.cluster_metrics()["ray/waiting_chunks"] == 5

        # It then hears all of them in turn.
        for _ in range(5):
            runner.advance()
        assert sorted(slot.chunks - count for slot, count in zip(runner.slots, counts, strict=True)) == [1, 2, 2]

        for index, slot in enumerate(runner.slots):
            expected = rows_of_an_actor(config, index, slot.chunks)
            streams = slice(16 * index, 16 * index + 16)
            for name in ("observation", "action", "behaviour", "extrinsic", "intrinsic", "td_error", "length"):
                mine, theirs = (
                    getattr(replay, name)[: slot.acted * 48].unflatten(0, (-1, 48))[:, streams]
                    for replay in (runner.replay, expected)
                )
                torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
            assert torch.equal(expected.rows_written[streams], runner.replay.rows_written[streams])
    finally:
        close(runner)


def cpu_ticks(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def stored() -> int:
    """Objects in the cluster's store."""
    from ray._private.internal_api import memory_summary

    text = memory_summary(load_ray().get_runtime_context().gcs_address, stats_only=True)
    line = next(line for line in text.splitlines() if line.startswith("Plasma memory usage"))
    return int(line.split(",")[1].split()[0])


def test_an_actor_process_is_the_local_actor() -> None:
    """Called directly, with weights that change on the way: the same rows, and new weights once in a period."""
    random_steps = 25  # of each environment: ends inside a chunk
    config = ray_config(3, actor__update_period=20, actor__random_steps=6 * random_steps)
    size, slot, steps = 2, 1, config.ray.chunk_steps
    mixture, epsilon = slots_of(config, CPU)
    env = make_environment(config, size, CPU)
    learner = make_learner(config, env.spec, CPU)
    one, other = (make_replay(config, env.spec, mixture, CPU) for _ in range(2))
    group = slice(slot * size, (slot + 1) * size)
    generator = make_generator(config.run.seed, "acting", CPU, slot, 0)
    actor = make_actor(config, env, learner, mixture[group], epsilon[group], generator, one, group)
    process = ActorProcess(to_dict(config), slot, 0, None)
    versions = []
    for chunk in range(6):
        with torch.no_grad():
            for parameter in [*learner.network.parameters(), *learner.novelty.parameters()]:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(chunk)))
        if chunk % 2 == 0:
            actor.fetch(learner.network, learner.novelty)
        if chunk == 0:
            actor.reset(seed_of(config.run.seed, "environments", slot, 0))
        for row in range(chunk * steps + (chunk == 0), (chunk + 1) * steps):
            if row == random_steps:
                actor.follow_policies()
            actor.step()
        answer = process.collect(7 * chunk, weights_of(learner), compress=chunk % 3 == 0)
        versions.append(answer["version"])
        add_chunk(other, unpack(answer["arrays"], env.spec, steps, size, config.network.lstm_size), group)
    assert versions == [0, 0, 14, 14, 28, 28]
    torch.testing.assert_close(one.priority, other.priority, rtol=1e-6, atol=0)
    other.priority.copy_(one.priority)
    assert not difference(one.state_dict(), other.state_dict())
    assert not difference(running_of(actor.novelty), answer["running"])
    assert one.count() > 10


def test_the_next_actor_of_a_slot_is_the_same_with_other_episodes() -> None:
    config = ray_config(3)
    weights = weights_of(make_learner(config, make_environment(config, 2, CPU).spec, CPU))
    first = ActorProcess(to_dict(config), 2, 0, None)
    answers = [first.collect(0, weights, compress=False) for _ in range(3)]
    acted = 3 * config.ray.chunk_steps
    second, again = (ActorProcess(to_dict(config), 2, acted, answers[-1]["running"]) for _ in range(2))
    assert torch.equal(first.actor.mixture, second.actor.mixture)
    assert torch.equal(first.actor.epsilon, second.actor.epsilon)
    assert not difference(running_of(first.actor.novelty), running_of(second.actor.novelty))
    assert second.actor.novelty.memory is not None
    assert int(second.actor.novelty.memory.written.sum()) == 0
    mine, twins = (process.collect(0, weights, compress=False)["arrays"] for process in (second, again))
    assert all(np.array_equal(mine[name], twins[name]) for name in mine)
    assert mine["first"][0].all()
    assert not np.array_equal(mine["observation"], answers[0]["arrays"]["observation"])


def test_the_next_actor_of_a_slot_acts_at_random_only_as_long_as_the_last_one_would_have() -> None:
    steps = ray_config(3).ray.chunk_steps
    config = ray_config(3, actor__random_steps=6 * (steps + 3))
    weights = weights_of(make_learner(config, make_environment(config, 2, CPU).spec, CPU))
    for acted in (0, steps, 2 * steps):
        process = ActorProcess(to_dict(config), 2, acted, None)
        arrays = process.collect(0, weights, compress=False)["arrays"]
        rows = unpack(arrays, process.env.spec, steps, 2, config.network.lstm_size).rows
        # A row holds the probability of the action before it.
        actions = process.env.spec.num_actions
        chosen = torch.arange(acted, acted + steps - 1).unsqueeze(1).expand(-1, 2)
        at_random = chosen < steps + 3
        told = ~rows.first[1:]
        assert torch.equal((rows.behaviour[1:] == 1 / actions)[told], at_random[told])


def test_after_a_warm_up_actors_begin_anew_with_what_was_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ray_config(2, novelty__warm_up_steps=800, novelty__warm_up_updates=6, actor__update_period=5)
    runner = RayRunner(config, CPU)
    try:
        before = []
        while runner.warming_up:
            before = [actor["process"] for actor in runner.status()["actors"] if actor["alive"]]
            runner.advance()
        assert runner.steps >= 800
        assert (runner.learner.novelty_updates, runner.learner.updates, int(runner.replay.count())) == (6, 0, 0)
        assert before
        assert gone(before)
        begun, acted = runner.replay.rows_written.clone(), [slot.acted for slot in runner.slots]
        weights, steps = copy.deepcopy(weights_of(runner.learner)), config.ray.chunk_steps
        assert runner.novelty.scale.weight == 0
        with monkeypatch.context() as patch:  # however late the last actor starts, the weights are the same for all
            patch.setattr(runner, "_update_is_due", lambda _: False)
            advance_until(runner, lambda: all(slot.running for slot in runner.slots))
        advance_until(runner, lambda: runner.learner.updates >= 3)
        assert runner.restarts == 0
        batch = runner.replay.sample(64)
        assert (batch.birth >= begun[batch.place % runner.replay.streams]).all()
        for index, count in enumerate(acted):
            arrays = ActorProcess(to_dict(config), index, count, None).collect(0, weights, False)["arrays"]
            streams = slice(2 * index, 2 * index + 2)
            paid = runner.replay.intrinsic.unflatten(0, (-1, 4))[count : count + steps, streams]
            torch.testing.assert_close(paid, torch.from_numpy(arrays["intrinsic"]), rtol=1e-5, atol=1e-6)
    finally:
        close(runner)


@pytest.mark.parametrize("average_share", [0.0, 0.5])
def test_an_evaluator_process_is_the_local_evaluator(average_share: float) -> None:
    config = ray_config(2, learner__replay_ratio=4.0, learner__average_share=average_share)
    runner = LocalRunner(with_overrides(config, {"run.runner": "local", "env.groups": 1}), CPU)
    try:
        while runner.learner.updates < 10:
            runner.advance()
        for actor in runner.agent.actors:
            actor.fetch(runner.learner.network, runner.learner.novelty)
        expected = Evaluator(config, runner.learner, CPU).evaluate(runner.learner, runner.novelty)
        process = EvaluatorProcess(to_dict(config))
        # What it did before does not matter.
        process.evaluate(weights_of(make_learner(config, runner.spec, CPU)), {"distance": (3.0, 2.0)})
        weights = weights_of(runner.learner, playing=True)
        assert process.evaluate(weights, running_of(runner.novelty)) == expected
    finally:
        runner.close()


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "not finite": lambda answer: answer["arrays"]["intrinsic"].fill(np.nan),
    "a shape": lambda answer: answer["arrays"].update(hidden=answer["arrays"]["hidden"][:, :-1]),
    "nothing": lambda answer: answer.update(arrays=None),
    "statistics": lambda answer: answer["running"].update(distance=(float("nan"), 1.0)),
    "moments": lambda answer: answer["running"]["moments"]["mean"].fill_(float("inf")),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_answer_leaves_no_trace(what: str) -> None:
    config = ray_config(2)
    runner = RayRunner(config, CPU)
    actor = ActorProcess(to_dict(config), 1, 0, None)
    weights = weights_of(runner.learner)
    assert runner._take_in(1, actor.collect(0, weights, compress=False))
    before = copy.deepcopy((runner.replay.state_dict(), runner.slots, runner.steps, runner.novelty.state_dict()))
    bad = actor.collect(0, weights, compress=False)
    DAMAGES[what](bad)
    assert not runner._take_in(1, bad)
    assert (runner.refused, runner.chunks) == (1, 1)
    assert runner.last_refusal.startswith("a chunk of actor 1 was refused: i") or what == "a shape"
    after = (runner.replay.state_dict(), runner.slots, runner.steps, runner.novelty.state_dict())
    before[0]["recording"][2:] = False  # the stream is interrupted
    assert not difference(before[0], after[0])
    assert not difference(before[3], after[3])
    assert before[1:3] == after[1:3]
    # What the same actor sends next is no continuation: it counts from the next episodes on.
    begun = runner.replay.rows_written[2:].clone()
    assert runner._take_in(1, actor.collect(0, weights, compress=False))
    held = sequences(runner.replay)
    for stream in (2, 3):
        after_it = [start for of, start in held if of == stream and start >= int(begun[stream - 2])]
        assert held[stream, min(after_it)][1][0] == -1
    runner.close()


def test_a_damaged_chunk_costs_its_actor_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ngu.runners.ray.ActorProcess", OnceDamaging)
    runner = RayRunner(ray_config(2), CPU)
    try:
        advance_until(runner, lambda: runner.refused > 0)
        assert runner.slots[0].chunks == 2
        advance_until(runner, lambda: runner.slots[0].chunks >= 4 and runner.learner.updates > 0)
        assert (runner.refused, runner.restarts) == (1, 1)
        assert "actor 0: a chunk of actor 0 was refused: extrinsic is not finite" in runner.restart_note
        assert runner.steps == int(runner.replay.rows_written.sum()) == runner.chunks * 20
        for column in (runner.replay.extrinsic, runner.replay.intrinsic, runner.replay.priority):
            assert bool(torch.isfinite(column).all())
    finally:
        close(runner)


def test_an_actor_that_sends_nothing_good_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ngu.runners.ray.ActorProcess", AlwaysDamaging)
    runner = RayRunner(ray_config(2, ray__max_failures=2), CPU)
    try:
        with pytest.raises(UserError, match=r"^actor 1 failed 2 times in a row, .*refused: action is \[9, 2\].*\.$"):
            advance_until(runner, lambda: False)
        assert runner.refused == 2
        assert int(runner.replay.rows_written[2:].sum()) == 0
    finally:
        close(runner)


def test_a_runner_closes_when_its_cluster_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = RayRunner(ray_config(1), CPU)
    runner._fleet()
    monkeypatch.setattr(load_ray(), "is_initialized", lambda: False)
    runner.close()
    monkeypatch.undo()
    runner.close()


def test_a_chunk_that_is_longer_than_replay_is_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match=r"ray.chunk_steps \(40\) is too long .* 26 steps .* set it to 17 or less"):
        ray_config(2, replay__capacity=104, ray__chunk_steps=40)

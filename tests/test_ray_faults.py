"""Actors, the evaluator and whole nodes that fail, on a real cluster of three nodes: what is lost, and what is not."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ray.cluster_utils import Cluster
from ray_checks import (
    OnceHanging,
    OnceHangingWhenBuilt,
    add_node,
    advance_until,
    descendants,
    make_cluster,
    parent_of,
    ray_config,
    raylet_of,
    sequences,
)
from worker_checks import gone

from ngu.config_reading import with_overrides
from ngu.errors import UserError
from ngu.evaluator import Evaluator
from ngu.runners.cluster import connect, load_ray
from ngu.runners.ray import RayRunner
from ngu.training import Training

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """A head without room for actors, and two nodes with two cores each; afterwards no process may be left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # where its processes find what these tests define
        cluster = make_cluster(num_cpus=0)
        for _ in range(2):
            add_node(cluster, num_cpus=2)
        assert connect(with_overrides(ray_config(2), {"ray.address": cluster.address})) is None
        yield cluster
        processes = descendants(os.getpid())
        load_ray().shutdown()
        cluster.shutdown()
    assert gone(processes)


@pytest.fixture
def make(nodes: Cluster) -> Iterator[Callable[..., RayRunner]]:  # noqa: ARG001
    """Makes runners whose processes must end when they are closed."""
    runners: list[RayRunner] = []

    def make_runner(actors: int, **settings: Any) -> RayRunner:
        runners.append(RayRunner(ray_config(actors, **settings), CPU))
        return runners[-1]

    yield make_runner
    for runner in runners:
        processes = processes_of(runner)
        runner.close()
        assert gone(processes)


def processes_of(runner: RayRunner) -> list[int]:
    return [actor["process"] for actor in runner.status()["actors"] if actor["alive"]]


ATARI = {
    "env__name": "atari",
    "env__game": "pong",
    "mixture__num_mixtures": 2,
    "novelty__kernels": (8, 4),
    "novelty__strides": (4, 2),
    "network__kernels": (8, 4),
    "network__strides": (4, 2),
    "replay__capacity": 30_000,
}


@pytest.mark.parametrize(("settings", "kills"), [({}, 6), (ATARI, 3)], ids=["maze", "atari"])
def test_killed_actors_are_replaced_and_nothing_in_replay_is_lost(
    settings: dict[str, Any], kills: int, make: Callable[..., RayRunner]
) -> None:
    runner = make(3, **settings)
    advance_until(runner, lambda: len(processes_of(runner)) == 3)
    gaps: list[tuple[int, int]] = []
    killed = 0
    kept: dict[tuple[int, int], list[torch.Tensor]] = {}
    while killed < kills:
        until = runner.chunks + 8
        advance_until(runner, lambda until=until: runner.chunks >= until)
        member = runner._fleet().members[killed % 3]
        advance_until(runner, lambda member=member: member.ready)
        kept |= sequences(runner.replay)
        before = member.restarts
        os.kill(member.place["process"], signal.SIGKILL)
        killed += 1
        advance_until(runner, lambda member=member, before=before: member.restarts > before)
        assert (member.restarts, member.reason) == (before + 1, "its process died")
        streams = (2 * member.slot, 2 * member.slot + 1)
        gaps += [(stream, int(runner.replay.rows_written[stream])) for stream in streams]
        assert not bool(runner.replay.recording[list(streams)].any())
    chunks = [slot.chunks for slot in runner.slots]
    advance_until(runner, lambda: all(slot.chunks >= was + 3 for slot, was in zip(runner.slots, chunks, strict=True)))

    assert runner.restarts == killed
    assert [actor["restarts"] for actor in runner.status()["actors"]] == [kills // 3] * 3
    assert runner.steps == 20 * runner.chunks == int(runner.replay.rows_written.sum())
    assert runner.learner.updates > 0
    assert runner.learning_since is not None
    since = runner.learning_since[0]
    assert runner.learner.updates == int((runner.steps - since) / runner.config.steps_per_update)
    held = sequences(runner.replay)
    assert len(kept) > 20
    for place, rows in kept.items():
        assert all(torch.equal(one, other) for one, other in zip(rows, held[place], strict=True))
    for stream, gap in gaps:
        for (of, start), rows in held.items():
            if of == stream:
                assert start >= gap or start + len(rows[0]) <= gap, "a sequence spans the gap"
        # The next actor of the slot begins an episode.
        assert runner.replay.action[gap * runner.replay.streams + stream] == -1


def test_a_killed_evaluator_is_replaced_and_the_evaluation_comes(make: Callable[..., RayRunner]) -> None:
    runner = make(1, evaluation__num_envs=64, evaluation__max_steps=200, env__maze_step_cap=400, evaluation__marks=())
    for _ in range(7):  # more than the evaluator can keep pace with: some are left out
        runner.begin_evaluation()
    assert runner._evaluators is not None
    evaluator = runner._evaluators.members[0]
    advance_until(runner, lambda: evaluator.ready)
    runner.advance()
    os.kill(evaluator.place["process"], signal.SIGKILL)
    finished = runner.finished_evaluations(wait=True)
    assert [steps for steps, _ in finished] == [0, 0, 0, 0]
    assert finished[0][1]["eval/explore/length"] > 0
    assert all(values == finished[0][1] for _, values in finished), "the same weights play the same"
    assert runner.cluster_metrics()["ray/evaluator_restarts"] == 1
    assert runner.cluster_metrics()["ray/skipped_evaluations"] == 3
    assert runner.restarts == 0
    assert runner.finished_evaluations(wait=True) == []


def test_the_evaluator_is_given_the_averaged_weights(make: Callable[..., RayRunner]) -> None:
    """The newest network always goes one way, the average another."""
    runner = make(1, evaluation__num_envs=64, learner__average_share=0.5)
    assert runner.learner.average is not None
    with torch.no_grad():
        for network, action in ((runner.learner.network, 0), (runner.learner.average, 3)):
            network.advantage[2].bias.copy_(100.0 * (torch.arange(4) == action))
    local = Evaluator(runner.config, runner.learner, torch.device("cpu"))
    expected = local.evaluate(runner.learner, runner.novelty)
    runner.learner.average.load_state_dict(runner.learner.network.state_dict())
    assert local.evaluate(runner.learner, runner.novelty) != expected
    with torch.no_grad():
        runner.learner.average.advantage[2].bias.copy_(100.0 * (torch.arange(4) == 3))
    runner.begin_evaluation()
    ((_, values),) = runner.finished_evaluations(wait=True)
    assert values == expected


def test_an_evaluator_without_room_takes_that_of_the_actors_in_the_end(make: Callable[..., RayRunner]) -> None:
    runner = make(4)
    advance_until(runner, lambda: len(processes_of(runner)) == 4)
    runner.begin_evaluation()
    for _ in range(8):
        runner.advance()
    assert runner.finished_evaluations() == []
    actors, steps = processes_of(runner), runner.steps
    finished = runner.finished_evaluations(wait=True)
    assert [set(values) >= {"eval/explore/length"} for _, values in finished] == [True]
    assert gone(actors)
    assert not bool(runner.replay.recording.any())
    # Training can go on, now beside the evaluator; that actors were sent away is no fault of theirs.
    advance_until(runner, lambda: runner.steps >= steps + 100)
    assert runner.restarts == 0
    assert runner.steps == 20 * runner.chunks == int(runner.replay.rows_written.sum())


def test_an_evaluation_that_never_finds_room_is_given_up(make: Callable[..., RayRunner]) -> None:
    runner = make(1, ray__cpus_per_actor=3.0, ray__timeout=2.0)  # no node has three cores
    runner.begin_evaluation()
    assert runner.finished_evaluations(wait=True) == []
    assert runner.cluster_metrics()["ray/skipped_evaluations"] == 1
    assert runner.finished_evaluations(wait=True) == []


@pytest.mark.parametrize("kind", [OnceHanging, OnceHangingWhenBuilt])
def test_an_actor_that_hangs_beside_one_that_works_is_found(
    kind: type, make: Callable[..., RayRunner], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ngu.runners.ray.ActorProcess", kind)
    runner = make(2, ray__timeout=30.0, run__folder=str(tmp_path))
    hanging = runner._fleet().members[0]
    advance_until(runner, lambda: hanging.restarts > 0)
    assert hanging.reason == "it sent nothing for 30 s"
    chunks = runner.slots[1].chunks
    assert chunks > 0
    advance_until(runner, lambda: runner.slots[0].chunks >= 4)
    assert hanging.restarts == 1
    assert runner.slots[1].chunks > chunks


def test_an_environment_that_always_raises_stops_the_run_with_a_checkpoint(nodes: Cluster, tmp_path: Path) -> None:
    config = with_overrides(
        ray_config(1),
        {
            "env.name": "gym",
            "env.id": "ray_checks:test/Broken-v0",
            "env.max_restarts": 0,
            "ray.max_failures": 2,
            "run.folder": str(tmp_path),
            "run.name": "run",
            "run.tensorboard": False,
        },
    )
    assert nodes.address
    training = Training.start(config)
    try:
        with pytest.raises(UserError) as caught:
            training.run(show_progress=False)
    finally:
        training.close()
        assert training.folder is not None
        training.folder.close()
    assert str(caught.value).startswith("actor 0 failed 2 times in a row, last because UserError: ")
    assert "the moon is in the wrong house" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(list((tmp_path / "run" / "checkpoints").glob("step_*"))) == 1


def test_a_lost_node_costs_its_actors_and_they_come_back_where_there_is_room(
    nodes: Cluster, make: Callable[..., RayRunner]
) -> None:
    """The cluster has room for four actors, then for two of three, then for all."""
    runner = make(3)
    advance_until(runner, lambda: len(processes_of(runner)) == 3)
    before = processes_of(runner)
    kept = sequences(runner.replay)
    lost = nodes.list_all_nodes()[-1]
    there = [process for process in before if parent_of(process) == raylet_of(lost)]
    died = len(there)
    assert 1 <= died <= 2
    nodes.remove_node(lost, allow_graceful=False)
    assert gone(there)
    advance_until(runner, lambda: runner.restarts >= died and len(processes_of(runner)) == 2)

    # Two go on alone while the third waits; waiting is no failure.
    waiting = next(member for member in runner._fleet().members if not member.ready)
    chunks = runner.chunks
    advance_until(runner, lambda: runner.chunks > chunks + 20)
    assert not waiting.running
    assert runner.cluster_metrics()["ray/actors"] == 2

    add_node(nodes, num_cpus=2)
    advance_until(runner, lambda: waiting.ready)
    chunks = runner.slots[waiting.slot].chunks
    advance_until(runner, lambda: runner.slots[waiting.slot].chunks > chunks)
    # Ray may have placed the one that had to wait on the lost node before it knew.
    assert died <= runner.restarts <= died + 2
    assert max(member.failures for member in runner._fleet().members) == 0
    assert runner.steps == 20 * runner.chunks == int(runner.replay.rows_written.sum())
    held = sequences(runner.replay)
    for place, rows in kept.items():
        assert all(torch.equal(one, other) for one, other in zip(rows, held[place], strict=True))

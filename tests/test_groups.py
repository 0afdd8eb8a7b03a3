"""Groups of environments, and environments that live on the host, through the whole agent."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
from conftest import make_tiny_config
from hypothesis import given
from hypothesis import strategies as st
from oracles import clone, difference

from ngu.agent import make_actor, make_learner
from ngu.envs.disco_maze import DiscoMaze
from ngu.envs.workers import WorkerEnvironments
from ngu.mixture import actor_epsilons, actor_mixtures, grouped_actors
from ngu.runners.local import LocalRunner
from ngu.training import Training

CPU = torch.device("cpu")


@pytest.fixture
def runners() -> Any:
    """Makes runners, and ends their environments' processes afterwards."""
    made: list[LocalRunner] = []

    def make(**settings: Any) -> LocalRunner:
        made.append(LocalRunner(make_tiny_config(**settings), CPU))
        return made[-1]

    yield make
    for runner in made:
        runner.close()


CARTPOLE = {
    "env__name": "gym",
    "env__id": "CartPole-v1",
    "env__workers": 2,
    "evaluation__marks": (),
    "evaluation__max_steps": 30,
    "mixture__num_mixtures": 2,
}


def advance(runner: LocalRunner, steps: int) -> LocalRunner:
    for _ in range(steps):
        runner.advance()
    return runner


# ------------------------------------------------------------------------------------------- who is in which group


@given(st.integers(1, 8), st.integers(1, 6), st.integers(1, 4))
def test_every_group_has_every_policy_and_all_sizes_of_epsilon(mixtures: int, groups: int, rounds: int) -> None:
    actors = mixtures * groups * rounds
    order = grouped_actors(actors, mixtures, groups)
    assert sorted(order) == list(range(actors))
    size = actors // groups
    policy, epsilon = actor_mixtures(actors, mixtures), actor_epsilons(actors, 0.4, 8.0)
    means = []
    for group in range(groups):
        members = order[group * size : (group + 1) * size]
        assert sorted(policy[j] for j in members) == sorted(list(range(mixtures)) * rounds)
        means.append(sum(epsilon[j] for j in members) / size)
    assert means == sorted(means, reverse=True), "the dealing begins with the first group"


def test_an_actor_keeps_its_policy_and_epsilon_whatever_the_groups(runners: Any) -> None:
    settings = {"mixture__num_mixtures": 2, "mixture__discount_min": 0.9}
    one, two = runners(**settings), runners(env__groups=2, **settings)

    def pairs(runner: LocalRunner) -> list[tuple[int, float]]:
        return sorted(
            (policy, epsilon)
            for actor in runner.agent.actors
            for policy, epsilon in zip(actor.mixture.tolist(), actor.epsilon.tolist(), strict=True)
        )

    assert pairs(one) == pairs(two)
    joined = torch.cat([actor.mixture for actor in two.agent.actors])
    assert torch.equal(joined, two.agent.replay.mixture), "replay knows which policy acts in each stream"


# ------------------------------------------------------------------------------------------- what groups collect


def test_groups_write_their_own_streams(runners: Any) -> None:
    """Each stream holds what its own environment showed, and no other."""
    runner = runners(env__groups=4, env__num_envs=8, replay__min_sequences=190)
    seen: list[list[torch.Tensor]] = [[] for _ in range(8)]
    runner._start()
    for group, actor in enumerate(runner.agent.actors):
        for e in range(2):
            seen[2 * group + e].append(actor.observation[e].clone())
    for _ in range(30):
        runner.advance()
        for group, actor in enumerate(runner.agent.actors):
            for e in range(2):
                seen[2 * group + e].append(actor.observation[e].clone())
    replay = runner.agent.replay
    assert replay.rows_written.tolist() == [31] * 8
    for stream, observations in enumerate(seen):
        rows = torch.arange(31) * replay.streams + stream
        assert torch.equal(replay.observation[rows], torch.stack(observations))
    assert runner.steps == 30 * 8


def test_groups_play_different_mazes(runners: Any) -> None:
    first, second = advance(runners(env__groups=2), 1).agent.actors
    assert not torch.equal(first.env.state_dict()["walls"], second.env.state_dict()["walls"])


def test_trained_steps_keep_their_ratio_with_groups(runners: Any) -> None:
    runner = advance(runners(env__groups=4), 80)
    begin, _ = runner.learning_since
    trained = runner.agent.learner.updates * 64
    assert trained <= 1.25 * (runner.steps - begin) < trained + 64
    assert trained > 0


def test_a_run_with_groups_resumes_byte_for_byte(runners: Any) -> None:
    settings = {"env__groups": 2, "mixture__num_mixtures": 3, "mixture__discount_min": 0.9}
    whole = advance(runners(**settings), 40)
    state = clone(whole.state_dict())
    resumed = runners(**settings)
    resumed.load_state_dict(state)
    advance(whole, 25)
    advance(resumed, 25)
    assert whole.agent.learner.updates > 5
    assert not difference(whole.state_dict(), resumed.state_dict())


# ------------------------------------------------------------------------------------------- environments on the host


class HostedMaze(DiscoMaze):
    """The maze as if it lived on the host: the actor copies what it brings."""

    graph_safe = False


def test_an_actor_treats_environments_on_the_host_like_others() -> None:
    config = make_tiny_config()
    actors = []
    for kind in (DiscoMaze, HostedMaze):
        env = kind(8, 7, 12, 64, CPU)
        learner = make_learner(config, env.spec, CPU)
        mixture = torch.zeros(8, dtype=torch.int64)
        actors.append(
            make_actor(config, env, learner, mixture, torch.full((8,), 0.5), torch.Generator().manual_seed(4))
        )
    for actor in actors:
        actor.reset(3)
    for _ in range(40):
        steps = [actor.step() for actor in actors]
        for name in ("observation", "reward", "terminated", "truncated", "first"):
            assert torch.equal(getattr(steps[0], name), getattr(steps[1], name))
        assert torch.equal(steps[0].info["coverage"], steps[1].info["coverage"])
    assert not difference(actors[0].state_dict(), actors[1].state_dict())


def test_a_resumed_run_of_emulators_begins_new_episodes_and_keeps_the_rest(runners: Any) -> None:
    runner = advance(runners(**CARTPOLE), 60)
    state = clone(runner.state_dict())
    other = runners(**CARTPOLE)
    other.load_state_dict(state)
    assert other.steps == runner.steps
    assert int(other.agent.replay.count()) == int(runner.agent.replay.count()) > 0
    assert other.agent.learner.updates == runner.agent.learner.updates > 0
    rows = other.agent.replay.rows_written.clone()
    other.advance()
    replay = other.agent.replay
    written = replay.rows_written - rows
    assert written.tolist() == [2] * 8, "the start of an episode and a step"
    places = (rows % replay.slots) * replay.streams + torch.arange(8)
    assert (replay.action[places] == -1).all()
    advance(other, 20)
    assert other.agent.learner.updates > runner.agent.learner.updates


def test_a_worker_that_dies_costs_its_episodes_alone(runners: Any) -> None:
    runner = advance(runners(env__groups=2, **CARTPOLE), 30)
    env = runner.agent.actors[1].env
    assert isinstance(env, WorkerEnvironments)
    before = runner.pop_statistics()
    os.kill(env.pids[0], signal.SIGKILL)
    advance(runner, 40)
    after = runner.pop_statistics()
    assert (before["env/restarts"], after["env/restarts"]) == (0, 1)
    assert after["env/episodes"] > 0
    assert after["learner/updates"] > before["learner/updates"]


def test_the_first_restart_is_told_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are told with the metrics."""
    training = Training(make_tiny_config(**CARTPOLE, evaluation__period=0))
    monkeypatch.setattr(training, "_log", lambda *_: None)
    try:
        for steps in (80, 160, 240):
            training.run(steps)
            env = training.runner.agent.actors[0].env
            assert isinstance(env, WorkerEnvironments)
            os.kill(env.pids[0], signal.SIGKILL)
        assert env.restarts == 2
    finally:
        training.close()
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("worker processes restarted so far: 1; the worker of environments 0 to 3 was ended by") == 1
    assert "restarted so far: 2" not in told

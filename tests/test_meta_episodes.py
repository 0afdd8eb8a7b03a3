"""Meta-episodes: what is reported by an episode's place in one, in training and evaluation (paper, App. I.2)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_tiny_config
from test_actor import SCRIPT, Stage
from test_evaluator import evaluate, sensitive, trained
from toy_environments import reward_at

from ngu.actor import episode_names
from ngu.envs import DiscoMaze
from ngu.evaluator import Evaluator
from ngu.metrics import by_policy, explain
from ngu.networks import AgentInput
from ngu.novelty.reward import IntrinsicReward
from ngu.runners.local import LocalRunner

CPU = torch.device("cpu")


def episodes_of(script: list[tuple[int, str]], steps: int) -> list[tuple[int, int]]:
    """(number, length) of the scripted episodes that end within so many steps; a reset takes one."""
    found, clock = [], 0
    while clock + script[len(found) % len(script)][0] <= steps:
        found.append((len(found), script[len(found) % len(script)][0]))
        clock += found[-1][1] + 1
    return found


@pytest.mark.parametrize("mixtures", [1, 3])
def test_training_is_reported_by_the_place_in_the_meta_episode(mixtures: int) -> None:
    stage = Stage(
        novelty__memory_episodes=3, mixture__num_mixtures=mixtures, mixture__discount_min=0.9 if mixtures > 1 else 0.99
    ).play(70)
    metrics = stage.actor.pop_statistics()
    ended = [(number, length) for script in SCRIPT for number, length in episodes_of(script, 70)]
    for place in range(3):
        mine = [(number, length) for number, length in ended if number % 3 == place]
        assert metrics[f"env/episodes/episode_{place + 1}"] == len(mine) > 0
        assert metrics[f"env/episode_length/episode_{place + 1}"] == pytest.approx(np.mean([n for _, n in mine]))
        assert metrics[f"env/progress/episode_{place + 1}"] == pytest.approx(np.mean([n for _, n in mine]))
        returns = [sum(reward_at(number, t) for t in range(1, length + 1)) for number, length in mine]
        assert metrics[f"env/return/episode_{place + 1}"] == pytest.approx(np.mean(returns), rel=1e-5)
    assert metrics["env/episodes"] == len(ended)
    assert ("env/return/exploit" in metrics) == (mixtures > 1)
    assert "env/episodes/episode_4" not in metrics
    assert all(explain(name) for name in metrics)


def test_the_reward_by_place_is_the_mean_over_its_steps() -> None:
    stage = Stage(script=[[(4, "terminated")], [(7, "truncated"), (2, "terminated")]], novelty__memory_episodes=2)
    begun = [1, 1]
    paid: list[list[float]] = [[], []]
    for _ in range(40):
        step = stage.actor.step()
        for e in range(2):
            begun[e] += int(step.first[e])
            if not step.first[e]:
                paid[(begun[e] - 1) % 2].append(stage.actor.intrinsic[e].item())
    metrics = stage.actor.pop_statistics()
    for place, rewards in enumerate(paid, start=1):
        assert metrics[f"novelty/reward/episode_{place}"] == pytest.approx(np.mean(rewards), rel=1e-5)


def test_a_reset_of_all_environments_begins_new_meta_episodes() -> None:
    """As a resumed run does whose emulators were not saved: the episodes that were cut short are forgotten."""
    stage = Stage(script=[[(4, "terminated")], [(7, "truncated")]], novelty__memory_episodes=3).play(7)
    novelty = stage.actor.novelty
    assert novelty.memory is not None
    assert novelty.place.tolist() == [1, 0]
    assert novelty.memory.filled.tolist() == [8, 8]
    stage.actor.reset(1)
    assert novelty.place.tolist() == [0, 0]
    assert novelty.memory.filled.tolist() == [1, 1]


def test_the_episodes_of_very_long_meta_episodes_are_told_together() -> None:
    """A memory that is practically never wiped costs no sums for each of its episodes."""
    assert episode_names(10)[-1] == "/episode_10"
    stage = Stage(novelty__memory_episodes=10**6).play(20)
    assert len(stage.actor.sums) == 3
    assert not [name for name in stage.actor.pop_statistics() if re.search(r"/episode_\d+$", name)]


@pytest.mark.parametrize("episodic", [True, False])
def test_places_are_counted_with_and_without_a_memory(episodic: bool) -> None:
    stage = Stage(novelty__memory_episodes=2, novelty__episodic=episodic)
    places = [stage.play(1).actor.novelty.place[2].item() for _ in range(6)]
    assert places == [0, 1, 1, 0, 0, 1], "episodes of one step, and one for each reset"


# ------------------------------------------------------------------------------------------- evaluation


@torch.no_grad()
def by_hand(runner: LocalRunner, episodes: int) -> list[list[list[float]]]:
    """[environment][episode]: the coverage after each of its steps; all environments are played on until the end."""
    config, learner = runner.config, runner.agent.learner
    settings = config.evaluation
    env = DiscoMaze(settings.num_envs, config.env.maze_size, settings.max_steps, config.env.maze_pool, CPU)
    novelty = IntrinsicReward(env.spec, settings.num_envs, config.novelty, model=learner.novelty)
    novelty.restart(learner.novelty, runner.agent.actors[0].novelty)
    step = env.reset(settings.seed)
    state = learner.network.initial_state(settings.num_envs)
    previous = torch.full((settings.num_envs,), -1)
    played: list[list[list[float]]] = [[] for _ in range(settings.num_envs)]
    for _ in range(episodes * (settings.max_steps + 1)):
        intrinsic = torch.where(step.terminated, 0.0, novelty(step.observation, step.first))
        for e in range(settings.num_envs):
            if step.first[e]:
                played[e].append([])
                state.hidden[e], state.cell[e], previous[e] = 0.0, 0.0, -1
            played[e][-1].append(step.info["coverage"][e].item())
        inputs = AgentInput(
            step.observation.clone(), previous, step.reward.clone(), intrinsic, torch.zeros_like(previous)
        )
        q, state = learner.network.step(inputs, state)
        previous = q.argmax(-1)
        env.maintain()
        env.send(previous)
        step = env.recv()
    return [environment[:episodes] for environment in played]


def test_an_evaluation_plays_whole_meta_episodes() -> None:
    runner = sensitive(
        trained(
            80, novelty__memory_episodes=3, evaluation__num_envs=16, evaluation__marks=(1, 3), env__maze_step_cap=50
        )
    )
    results = evaluate(runner)
    played = by_hand(runner, 3)
    assert {len(environment) for environment in played} == {3}
    expected: dict[str, float] = {}
    for ends, chosen in {"": played, **{f"/episode_{n + 1}": [[e[n]] for e in played] for n in range(3)}}.items():
        coverages = [episode for environment in chosen for episode in environment]
        for mark, name in ((1, "coverage@1"), (3, "coverage@3"), (12, "coverage")):
            expected[f"eval/explore/{name}{ends}"] = np.mean([c[: mark + 1][-1] for c in coverages])
        expected[f"eval/explore/length{ends}"] = np.mean([len(c) - 1 for c in coverages])
        expected[f"eval/explore/return{ends}"] = 0.0
    assert results == pytest.approx(expected, rel=1e-5)
    assert len({results[f"eval/explore/length/episode_{n}"] for n in (1, 2, 3)}) > 1
    assert all(explain(name) for name in results)
    assert evaluate(runner) == results
    assert by_policy(results)["explore, episode 2"]["length"] == results["eval/explore/length/episode_2"]


def test_episodes_that_could_not_begin_are_left_out() -> None:
    """CartPole knows no cap of 8 steps: a second episode begins where the first falls within twice that."""
    config = make_tiny_config(
        env__name="gym", env__id="CartPole-v1", env__workers=1, novelty__memory_episodes=2, evaluation__num_envs=16,
        evaluation__max_steps=8, evaluation__marks=(), evaluation__epsilon=1.0,
    )  # fmt: skip
    runner = LocalRunner(config, CPU)
    evaluator = Evaluator(config, runner.agent.learner, CPU)
    try:
        metrics = evaluate(runner, evaluator)
        begun = evaluator.actor.novelty.episodes
        assert sorted(set(begun.tolist())) == [1, 2]
        assert metrics["eval/explore/score/episode_1"] == metrics["eval/explore/length/episode_1"] == 8.0
        second = metrics["eval/explore/length/episode_2"]
        assert 0 <= second < 8
        count = int((begun == 2).sum())
        assert metrics["eval/explore/length"] == pytest.approx((16 * 8 + count * second) / (16 + count))
    finally:
        evaluator.env.close()
        runner.close()


def test_evaluating_meta_episodes_changes_nothing() -> None:
    changes: dict[str, Any] = {"novelty__memory_episodes": 2}
    runner, undisturbed = trained(30, **changes), trained(30, **changes)
    evaluate(runner)
    runner.advance()
    undisturbed.advance()
    assert runner.pop_statistics() == undisturbed.pop_statistics()

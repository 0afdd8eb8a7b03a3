"""Evaluation on held-out environments: a plain loop as the twin, and that it changes nothing (paper, App. A)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import make_tiny_config
from oracles import clone, difference

from ngu.config import Config
from ngu.envs import DiscoMaze
from ngu.evaluator import Evaluator
from ngu.networks import AgentInput
from ngu.novelty.reward import IntrinsicReward
from ngu.policy import Policy
from ngu.runners.local import LocalRunner

CPU = torch.device("cpu")


def trained(steps: int = 40, **changes: Any) -> LocalRunner:
    runner = LocalRunner(make_tiny_config(**changes), CPU)
    for _ in range(steps):
        runner.advance()
    return runner


def sensitive(runner: LocalRunner) -> LocalRunner:
    """Makes the policy depend visibly on everything it is told, above all on r_i."""
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        network = runner.agent.learner.network
        network.lstm.weight_ih_l0.add_(torch.randn(network.lstm.weight_ih_l0.shape, generator=random))
        network.advantage[2].weight.add_(torch.randn(network.advantage[2].weight.shape, generator=random))
    return runner


def evaluate(runner: LocalRunner, evaluator: Evaluator | None = None) -> dict[str, float]:
    evaluator = evaluator or Evaluator(runner.config, runner.agent.learner, CPU)
    return evaluator.evaluate(runner.agent.learner, runner.agent.actors[0].novelty)


@torch.no_grad()
def by_hand(runner: LocalRunner, policy: int, count: int) -> dict[str, float]:
    """Greedy episodes, one environment after the other, written down as lists."""
    config, learner = runner.config, runner.agent.learner
    settings = config.evaluation
    policies = [0, 1] if config.mixture.num_mixtures == 2 else [0]
    envs = settings.num_envs * len(policies)
    env = DiscoMaze(envs, config.env.maze_size, config.env.maze_step_cap, config.env.maze_pool, CPU)
    novelty = IntrinsicReward(env.spec, envs, config.novelty, model=learner.novelty)
    novelty.restart(learner.novelty, runner.agent.actors[0].novelty)
    mixture = torch.tensor([p for p in policies for _ in range(settings.num_envs)])
    step = env.reset(settings.seed)
    intrinsic = novelty(step.observation, step.first)
    state = learner.network.initial_state(envs)
    previous = torch.full((envs,), -1)
    coverage: list[list[float]] = [[step.info["coverage"][e].item()] for e in range(envs)]
    ended = [False] * envs
    for _ in range(settings.max_steps):
        inputs = AgentInput(step.observation.clone(), previous, step.reward.clone(), intrinsic, mixture)
        q, state = learner.network.step(inputs, state)
        previous = q.argmax(-1)
        env.maintain()
        env.send(previous)
        step = env.recv()
        intrinsic = torch.where(step.terminated, 0.0, novelty(step.observation, step.first))
        state.hidden[step.first] = 0.0
        state.cell[step.first] = 0.0
        previous = torch.where(step.first, -1, previous)
        for e in range(envs):
            if not ended[e]:
                coverage[e].append(step.info["coverage"][e].item())
            ended[e] = ended[e] or bool(step.ended[e])
    mine = range(policy * count, (policy + 1) * count)
    result = {f"coverage@{mark}": sum(coverage[e][: mark + 1][-1] for e in mine) / count for mark in settings.marks}
    return result | {"length": sum(len(coverage[e]) - 1 for e in mine) / count, "return": 0.0}


@pytest.mark.parametrize("mixtures", [1, 2])
def test_it_equals_a_plain_loop(mixtures: int) -> None:
    runner = sensitive(
        trained(80, mixture__num_mixtures=mixtures, evaluation__num_envs=16, evaluation__marks=(1, 3, 12))
    )
    results = evaluate(runner)
    names = {1: ["explore"], 2: ["exploit", "explore"]}[mixtures]
    expected = {
        f"eval/{name}/{key}": value
        for policy, name in enumerate(names)
        for key, value in by_hand(runner, policy, 16).items()
    }
    assert results.keys() == expected.keys()
    assert results == pytest.approx(expected, rel=1e-5)
    assert results["eval/explore/coverage@12"] > 0


def test_evaluating_twice_gives_the_same() -> None:
    runner = sensitive(trained(evaluation__num_envs=64))
    evaluator = Evaluator(runner.config, runner.agent.learner, CPU)
    first = evaluate(runner, evaluator)
    assert evaluate(runner, evaluator) == first
    assert evaluate(runner) == first, "nor does it depend on what the evaluator did before"


def test_evaluating_with_an_epsilon_is_repeatable_too() -> None:
    runner = trained(evaluation__epsilon=0.5)
    evaluator = Evaluator(runner.config, runner.agent.learner, CPU)
    assert evaluate(runner, evaluator) == evaluate(runner, evaluator)


def test_epsilon_one_is_random_and_the_seed_says_which_mazes() -> None:
    runner = trained(evaluation__epsilon=1.0, evaluation__num_envs=64)
    other = trained(evaluation__epsilon=1.0, evaluation__num_envs=64, evaluation__seed=5)
    assert evaluate(runner) != evaluate(other)
    # Half of the neighbours of a maze's cell are walls, or more: a random walk ends soon.
    assert 1.0 <= evaluate(runner)["eval/explore/length"] < 4.0


def test_evaluating_changes_neither_actor_nor_learner() -> None:
    """Training with evaluations in between is the same training, to the last bit."""
    runner, undisturbed = trained(), trained()
    evaluator = Evaluator(runner.config, runner.agent.learner, CPU)
    before = clone(runner.state_dict())
    evaluate(runner, evaluator)
    assert not difference(before, runner.state_dict())
    for _ in range(20):
        runner.advance()
        undisturbed.advance()
        evaluate(runner, evaluator)
    assert not difference(undisturbed.state_dict(), runner.state_dict())


def test_it_plays_with_the_weights_it_is_given() -> None:
    """Networks that always go one way: an evaluator made long before reports what a new one reports."""
    runner = LocalRunner(make_tiny_config(evaluation__num_envs=32), CPU)
    early = Evaluator(runner.config, runner.agent.learner, CPU)
    lengths = []
    for action in range(4):
        with torch.no_grad():
            runner.agent.learner.network.advantage[2].bias.copy_(100.0 * (torch.arange(4) == action))
        results = evaluate(runner, early)
        assert results == evaluate(runner)
        lengths.append(results["eval/explore/length"])
    assert len(set(lengths)) > 1


def test_it_plays_with_the_averaged_weights_where_there_are_any() -> None:
    """The newest network and the average always go different ways; the façade's policy follows the average, too."""
    runner = LocalRunner(make_tiny_config(evaluation__num_envs=32, learner__average_share=0.5), CPU)
    plain = LocalRunner(make_tiny_config(evaluation__num_envs=32), CPU)
    learner = runner.agent.learner
    assert learner.average is not None
    early = Evaluator(runner.config, learner, CPU)
    with torch.no_grad():
        for network, action in ((learner.network, 0), (learner.average, 3), (plain.agent.learner.network, 3)):
            network.advantage[2].bias.copy_(100.0 * (torch.arange(4) == action))
    results = evaluate(runner, early)
    assert results == evaluate(runner) == evaluate(plain)
    fresh = Evaluator(runner.config, learner, CPU).actor.network
    assert torch.equal(fresh.advantage[2].bias, learner.average.advantage[2].bias)
    policy = Policy(runner.config, runner.agent.actors[0].env.spec, learner, runner.agent.actors[0].novelty)
    observation = runner.agent.actors[0].observation
    actions = policy.act(observation, policy.begin(len(observation)), torch.zeros(len(observation)), 0, 0.0)
    assert actions.tolist() == [3] * len(observation)
    with torch.no_grad():
        learner.average.load_state_dict(learner.network.state_dict())
    assert evaluate(runner, early) != results


def test_held_out_mazes_are_not_those_of_training() -> None:
    config: Config = make_tiny_config(env__num_envs=16, evaluation__num_envs=16)
    runner = LocalRunner(config, CPU)
    runner.advance()
    evaluator = Evaluator(config, runner.agent.learner, CPU)
    evaluate(runner, evaluator)
    held_out, training = evaluator.env, runner.agent.actors[0].env
    assert isinstance(held_out, DiscoMaze)
    assert isinstance(training, DiscoMaze)
    assert not torch.equal(held_out.walls, training.walls)


def test_episodes_on_the_host_end_an_evaluation_early_and_keep_their_marks() -> None:
    """CartPole falls within some 20 steps here; what it measured then holds for later marks."""
    config = make_tiny_config(
        env__name="gym", env__id="CartPole-v1", env__workers=1, evaluation__max_steps=400, evaluation__marks=(5, 400)
    )
    runner = LocalRunner(config, CPU)
    evaluator = Evaluator(config, runner.agent.learner, CPU)
    try:
        metrics = evaluate(runner, evaluator)
        assert evaluator.env.num_envs == 4
        assert metrics["eval/explore/score@5"] == 5.0
        assert 5 < metrics["eval/explore/score@400"] == metrics["eval/explore/return"] == metrics["eval/explore/length"]
        assert metrics["eval/explore/score"] == metrics["eval/explore/score@400"], (
            "a mark at the end takes no name away"
        )
        assert evaluate(runner, evaluator) == metrics, "held out: the same again"
    finally:
        evaluator.env.close()
        runner.close()

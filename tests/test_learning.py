"""That it learns: known values in a small chain, and which action was taken in the maze."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import make_tiny_config
from toy_environments import Chain

from ngu.agent import make_actor, make_learner
from ngu.envs import DiscoMaze
from ngu.randomness import make_generator
from ngu.replay import SequenceReplay
from ngu.runners.local import LocalRunner

CPU = torch.device("cpu")
DISCOUNT = 0.8


def values_in_chain(chain: Chain, updates: int, **changes: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Trains with the real actor, replay and learner, extrinsic reward alone; learned and true values of all actions.

    Both [M, 2], over the observations of sampled sequences, terminal ones left out.
    """
    config = make_tiny_config(
        **{
            "env__num_envs": chain.num_envs, "mixture__beta": 0.0, "mixture__discount_max": DISCOUNT,
            "mixture__discount_min": DISCOUNT, "network__lstm_size": 32, "network__torso_size": 32,
            "network__dueling_size": 32, "network__hidden": (32,), "novelty__lifelong": False,
            "novelty__controllable_states": "random", "replay__capacity": 20_000, "learner__batch_size": 16,
            "learner__learning_rate": 3e-3, "learner__rate_steps": (0, updates), "learner__rate_factors": (1.0, 0.1),
            "learner__target_period": 25, "learner__target_epsilon": 0.0,
            "learner__retrace_lambda": 0.95,
            **changes,
        }
    )  # fmt: skip
    learner = make_learner(config, chain.spec, CPU)
    mixture = torch.zeros(chain.num_envs, dtype=torch.int64)
    replay = SequenceReplay(
        chain.spec, mixture, config.network.lstm_size, config.replay, CPU, make_generator(0, "replay", CPU)
    )
    epsilon = torch.full((chain.num_envs,), 0.5)
    actor = make_actor(config, chain, learner, mixture, epsilon, make_generator(0, "acting", CPU), replay)
    actor.reset(0)
    while int(replay.count()) < 100:
        actor.step()
    for update in range(updates):
        for _ in range(2):
            actor.step()
        batch = replay.sample(config.learner.batch_size)
        replay.update_priorities(batch, learner.update(batch, update).priority)
        if update % 10 == 0:
            actor.fetch(learner.network, learner.novelty)
    batch = replay.sample(128)
    with torch.no_grad():
        learned, _ = learner.network.unroll(batch.inputs, batch.state)
    place = batch.inputs.observation.argmax(-1)
    # The observations from which a step was taken.
    here = batch.valid
    return learned[:-1][here], chain.optimal_values(DISCOUNT)[place[:-1][here]].float()


def test_values_of_a_chain_that_ends_converge_to_the_known_ones() -> None:
    """Right costs a factor of gamma for each step that remains; terminal means no value beyond."""
    chain = Chain(16, 5)
    learned, true = values_in_chain(chain, 500)
    assert true.max() == 1.0
    assert (learned - true).abs().mean() < 0.03
    assert (learned - true).abs().quantile(0.95) < 0.1
    assert (learned.argmax(1) == 1).float().mean() > 0.99


def test_values_of_a_chain_that_is_cut_go_on_beyond_the_cut() -> None:
    """Episodes of 6 steps in a world that pays 1 a step at its right end for ever: 1 / (1 - gamma) = 5 there.

    An agent that takes time limits for deaths finds at most 1 + gamma + ... = 3.7, and less near the cut.
    """
    chain = Chain(16, 4, step_cap=6)
    learned, true = values_in_chain(chain, 600)
    assert true.max() == pytest.approx(5.0)
    assert (learned - true).abs().mean() < 0.15
    at_the_end = learned[true[:, 1] == true.max()]
    assert at_the_end[:, 1].mean() == pytest.approx(5.0, abs=0.2)


def test_values_converge_through_the_value_transform() -> None:
    chain = Chain(16, 4, step_cap=6)
    learned, true = values_in_chain(chain, 600, learner__value_transform="signed-sqrt")
    squashed = true.sign() * ((true.abs() + 1).sqrt() - 1) + 1e-3 * true
    assert (learned - squashed).abs().mean() < 0.06


def fresh_mazes(steps: int = 25) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A random walk in mazes nobody trained on: transitions (x, a, x'), and pictures of one cell, two steps apart."""
    env = DiscoMaze(256, 7, 12, 1024, CPU)
    random = torch.Generator().manual_seed(5)
    step = env.reset(999)
    history = [(step.observation.clone(), env.position.clone(), step.first.clone())]
    rows, pairs = [], []
    for _ in range(steps):
        action = torch.randint(0, 4, (256,), generator=random)
        env.maintain()
        env.send(action)
        step = env.recv()
        history.append((step.observation.clone(), env.position.clone(), step.first.clone()))
        (x, _, _), (y, _, first) = history[-2:]
        rows.append((x[~first], action[~first], y[~first]))
        if len(history) >= 3:
            (x, place, _), (_, _, first), (y, place_after, first_after) = history[-3:]
            back = ~first & ~first_after & (place == place_after)
            pairs.append((x[back], y[back]))
    before, action, after = (torch.cat(part) for part in zip(*rows, strict=True))
    here, again = (torch.cat(part) for part in zip(*pairs, strict=True))
    return before, action, after, here, again


def test_controllable_states_learn_the_maze_and_leave_the_colours_out() -> None:
    """The whole agent on the tiny maze, judged on mazes of their own.

    The action is recognised far more often than by naming the commonest. And f has learned what the paper wants of it:
    two pictures of one cell, all walls recoloured, are much closer than pictures of two neighbouring cells. To a random
    projection they are about as far apart.
    """
    runner = LocalRunner(
        make_tiny_config(
            env__num_envs=16, novelty__filters=(8, 16), novelty__embedding_size=16, novelty__embedding_hidden=32,
            novelty__learning_rate=1e-2, learner__batch_size=32, learner__replay_ratio=30.0, replay__capacity=16_000,
            mixture__epsilon_base=0.8, mixture__epsilon_alpha=0.0,
        ),
        CPU,
    )  # fmt: skip
    model = runner.agent.learner.novelty.inverse
    assert model is not None
    before, action, after, here, again = fresh_mazes()

    @torch.no_grad()
    def same_over_neighbour() -> float:
        f = model.embedding
        same = (f(here) - f(again)).square().sum(1).mean()
        return (same / (f(before) - f(after)).square().sum(1).mean()).item()

    untrained = same_over_neighbour()
    for _ in range(500):
        runner.advance()
    with torch.no_grad():
        logits, _ = model(before, after)
    accuracy = (logits.argmax(1) == action).float().mean().item()
    majority = action.bincount().max().item() / len(action)
    assert majority < 0.3
    assert accuracy > 0.9
    assert untrained > 0.5
    assert same_over_neighbour() < 0.1

"""The scripted policies, against what is known of them."""

from __future__ import annotations

import pytest
import torch

from ngu.envs import SCRIPTED_POLICIES, DiscoMaze, ScriptedPolicy, run_scripted
from ngu.errors import UserError


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("random", 0.045, 0.065),
        ("oscillating", 0.060, 0.068),
        ("wall-avoiding", 0.42, 0.52),
        ("non-reversing", 0.95, 0.99),
        ("wall-follower", 1.0, 1.0),
    ],
)
def test_coverage_of_small_mazes(name: str, low: float, high: float) -> None:
    means = run_scripted(name, size=9, step_cap=100, num_envs=512, seed=0, marks=(50, 100))
    assert list(means) == [50, 100]
    assert low <= means[100] <= high
    assert means[50] <= means[100]


def test_coverage_of_large_mazes() -> None:
    """The figures of the feasibility study: 18 / 12 %, 78 / 50 % and 100 / 68 % at 500 / 200 steps."""
    means = {
        name: run_scripted(name, size=21, step_cap=500, num_envs=128, seed=0, marks=(500, 200))
        for name in ("wall-avoiding", "non-reversing", "wall-follower")
    }
    assert means["wall-avoiding"] == {200: pytest.approx(0.12, abs=0.02), 500: pytest.approx(0.18, abs=0.03)}
    assert means["non-reversing"] == {200: pytest.approx(0.50, abs=0.05), 500: pytest.approx(0.78, abs=0.05)}
    assert means["wall-follower"] == {200: pytest.approx(0.68, abs=0.05), 500: 1.0}


def test_the_wall_follower_walks_every_passage_once_each_way() -> None:
    """A tree of 31 cells has 30 passages, so 60 steps lead back to the start with the whole tree seen."""
    env = DiscoMaze(64, 9, 0, 64, "cpu")
    step = env.reset(seed=0)
    start = env.position.clone()
    policy = ScriptedPolicy("wall-follower", env, seed=0)
    for _ in range(60):
        env.send(policy.act(step))
        step = env.recv()
        env.maintain()
    assert torch.equal(env.position, start)
    assert (step.info["coverage"] == 1).all()


def test_only_the_random_policy_dies_and_the_walker_turns_back_in_dead_ends_alone() -> None:
    for name in SCRIPTED_POLICIES:
        env = DiscoMaze(64, 7, 0, 64, "cpu")
        step = env.reset(seed=1)
        policy = ScriptedPolicy(name, env, seed=1)
        died = False
        places = [env.position.clone()]
        for _ in range(40):
            walls = env.walls.flatten(1)
            ways = sum((~walls).gather(1, env.position[:, None] + move) for move in (-1, 1, -7, 7) if not died)
            env.send(policy.act(step))
            step = env.recv()
            env.maintain()
            died |= bool(step.terminated.any())
            places.append(env.position.clone())
            if name == "non-reversing" and len(places) > 2:
                turned = places[-1] == places[-3]
                assert torch.equal(turned, ways.squeeze(1) == 1)
            if name == "oscillating" and len(places) > 2:
                assert torch.equal(places[-1], places[-3])
        assert died == (name == "random")


def test_impossible_requests_are_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match="nearest is wall-follower"):
        run_scripted("wall-folower", size=9, step_cap=100, num_envs=4, seed=0, marks=(5,))
    with pytest.raises(UserError, match="marks"):
        run_scripted("random", size=9, step_cap=100, num_envs=4, seed=0, marks=())

"""Every variant trains: a few updates of a tiny agent each, with its own number of policies."""

from __future__ import annotations

import math
from typing import Any

import pytest

import ngu
from ngu.experiments.scales import SCALES
from ngu.variants import VARIANTS

_SETTINGS = SCALES["smoke"].settings


def tiny(variant: str) -> ngu.Config:
    hand_crafted = "hand-crafted" in variant
    settings: dict[str, Any] = dict(_SETTINGS["atari" if hand_crafted else "disco-maze"])
    settings |= {"env.num_envs": 16, "run.steps": 16 * 24, "evaluation.period": 0}
    if hand_crafted:
        settings |= {"env.num_envs": 2, "run.steps": 2 * 24, "env.game": "montezuma_revenge", "env.workers": 1}
    own = VARIANTS[variant].changes
    settings = {name: value for name, value in settings.items() if name not in own}
    return ngu.preset("atari-cpu" if hand_crafted else "disco-maze-small", variant, settings)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_learns_a_few_updates_from_what_it_says(variant: str) -> None:
    config = tiny(variant)
    with ngu.NGU(config) as agent:
        agent.learn(config.run.steps)
        lines = agent.history
    last = {name: value for line in lines for name, value in line.items()}
    assert last["learner/updates"] > 0
    assert math.isfinite(last["loss/retrace"])
    novelty = config.novelty
    assert ("loss/inverse" in last) == (novelty.episodic and novelty.controllable_states == "learned")
    assert ("loss/rnd" in last) == novelty.lifelong
    assert (last["novelty/episodic"] > 0) == novelty.episodic
    if not novelty.lifelong:  # RND pays nothing until actors have its first training
        assert (last["novelty/reward"] > 0) == novelty.episodic

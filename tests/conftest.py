"""Shared fixtures: a config that runs in milliseconds, and one thread, so that the same run gives the same bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import settings

from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.presets import preset

torch.set_num_threads(1)

# Ray's workers give way to everything else; beside other tests on two cores they would get no time for many seconds.
os.environ.setdefault("RAY_worker_niceness", "0")
# How long Ray waits for news of why a process cannot be reached before it says just that.
os.environ.setdefault("RAY_timeout_ms_task_wait_for_death_info", "60000")

# The same examples at every run, so that a red test is red for everybody; torch's first calls are slow.
settings.register_profile("ngu", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("ngu")

TINY = {
    "env.num_envs": 8,
    "env.maze_size": 7,
    "env.maze_step_cap": 12,
    "env.maze_pool": 64,
    "novelty.filters": (4, 8),
    "novelty.embedding_size": 8,
    "novelty.embedding_hidden": 16,
    "novelty.hidden": (16,),
    "novelty.rnd_size": 16,
    "network.filters": (4, 8),
    "network.hidden": (16,),
    "network.torso_size": 16,
    "network.lstm_size": 16,
    "network.dueling_size": 16,
    "replay.capacity": 1600,
    "replay.trace_length": 8,
    "replay.period": 4,
    "replay.min_sequences": 20,
    "learner.batch_size": 8,
    "learner.rate_steps": (0,),
    "learner.rate_factors": (1.0,),
    "learner.replay_ratio": 1.25,
    "learner.target_period": 5,
    "actor.update_period": 6,
    "evaluation.num_envs": 4,
    "evaluation.max_steps": 12,
    "evaluation.marks": (3, 12),
}


def make_tiny_config(**overrides: Any) -> Config:
    """The small preset, smaller; overrides are dotted names with `__` for the dot: `mixture__beta=0.0`."""
    changes = {name.replace("__", "."): value for name, value in overrides.items()}
    return with_overrides(preset("disco-maze-small"), {**TINY, **changes})


@pytest.fixture
def tiny() -> Callable[..., Config]:
    return make_tiny_config


@pytest.fixture
def cpu() -> torch.device:
    return torch.device("cpu")

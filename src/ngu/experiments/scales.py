"""How large an experiment is run: the paper's own settings, one GPU node, a laptop, or seconds to see that it works.

A scale chooses the preset of each kind of task and changes a few of its settings. Rates to reckon with stand here, too,
each with its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ngu.errors import UserError, unknown_name
from ngu.experiments.definition import WorldKind


@dataclass(frozen=True)
class Scale:
    """Presets and settings for each kind of task."""

    sentence: str
    presets: Mapping[WorldKind, str]
    settings: Mapping[WorldKind, Mapping[str, Any]] = field(default_factory=dict)
    most_mixtures: int = 32
    """Agents with more policies are trained with this many."""
    smoke: bool = False
    """Run a few cells of an experiment alone."""


_SMALL_TASKS: dict[WorldKind, str] = {"deep-sea": "deep-sea", "random-coin": "random-coin", "minigrid": "minigrid"}
_PAPER: dict[WorldKind, str] = {"atari": "atari", "disco-maze": "disco-maze", **_SMALL_TASKS}
_LAPTOP: dict[WorldKind, str] = {"atari": "atari-cpu", "disco-maze": "disco-maze-small", **_SMALL_TASKS}

_TINY_NETWORKS: dict[str, Any] = {
    "novelty.embedding_size": 4,
    "novelty.embedding_hidden": 8,
    "novelty.rnd_size": 8,
    "novelty.memory_capacity": 64,
    "novelty.hidden": (8,),
    "network.torso_size": 8,
    "network.lstm_size": 8,
    "network.lstm_input_multiple": 1,
    "network.dueling_size": 8,
    "network.hidden": (8,),
    "env.num_envs": 2,
    "env.groups": 1,
    "replay.capacity": 400,
    "replay.trace_length": 8,
    "replay.period": 8,
    "replay.min_sequences": 4,
    "learner.batch_size": 2,
    "learner.rate_steps": (0,),
    "learner.rate_factors": (1.0,),
    "evaluation.num_envs": 1,
    "evaluation.max_steps": 12,
    "evaluation.period": 64,
    "run.steps": 64,
    "run.threads": 1,
    "run.log_period": 32,
    "run.checkpoint_period": 0,
    "run.device": "cpu",
    "run.precision": "fp32",
    "run.tensorboard": False,
}
_TINY_PICTURES: dict[str, Any] = {
    f"{group}.{name}": value
    for group in ("novelty", "network")
    for name, value in {"filters": (4, 4), "kernels": (8, 4), "strides": (8, 4)}.items()
}
_TINY_MAZES: dict[str, Any] = {
    "novelty.filters": (4, 4),
    "network.filters": (4, 4),
    "env.maze_size": 5,
    "env.maze_step_cap": 12,
    "env.maze_pool": 64,
    "evaluation.marks": (12,),
}

SCALES: Mapping[str, Scale] = {
    "paper": Scale("the paper's own settings", _PAPER),
    "node": Scale(
        "one GPU node: more updates for each step, at a higher rate, other settings of learning on Atari, shorter "
        "evaluations, one checkpoint at the end",
        {**_PAPER, "atari": "atari-node"},
    ),
    "laptop": Scale(
        "a CPU: smaller networks, replays and mazes", _LAPTOP, {"atari": {"env.num_envs": 32, "evaluation.num_envs": 4}}
    ),
    "smoke": Scale(
        "seconds for each run, to see that everything works: tiny networks, and only a few of the runs",
        _LAPTOP,
        {
            "atari": {**_TINY_NETWORKS, **_TINY_PICTURES, "env.noops": 1},
            "disco-maze": {**_TINY_NETWORKS, **_TINY_MAZES},
            "deep-sea": _TINY_NETWORKS,
            "random-coin": _TINY_NETWORKS,
            "minigrid": _TINY_NETWORKS,
        },
        most_mixtures=2,
        smoke=True,
    ),
}


def scale(name: str) -> Scale:
    if name not in SCALES:
        raise UserError(unknown_name(f"the scale {name}", name, SCALES))
    return SCALES[name]


@dataclass(frozen=True)
class Rate:
    """How fast the whole agent of a preset was, without evaluations."""

    steps_per_second: float
    machine: Literal["GPU", "core"]
    """One H200 with 16 cores, or one core of a CPU."""
    source: str


RATES: Mapping[str, Rate] = {
    "atari": Rate(16_540, "GPU", "docs/benchmarks.md: `ngu bench atari`, 1.5 trained steps per step"),
    "atari-node": Rate(13_200, "GPU", "docs/montezuma.md: a run of N = 32, 16 trained steps per step"),
    "disco-maze": Rate(208_000, "GPU", "docs/results.md: 40 million steps in 192 s, alone"),
    "disco-maze-small": Rate(5_276, "core", "docs/benchmarks.md: `ngu bench`"),
    "atari-cpu": Rate(590, "core", "docs/benchmarks.md: the end of `ngu train`, 32 environments"),
    "deep-sea": Rate(6_300, "core", "docs/benchmarks.md: 22 s of `ngu train`"),
    "random-coin": Rate(9_646, "core", "docs/benchmarks.md: 25 s of `ngu train`"),
    "minigrid": Rate(1_492, "core", "docs/benchmarks.md: 25 s of `ngu train`"),
}
"""By preset: what hours are reckoned with."""

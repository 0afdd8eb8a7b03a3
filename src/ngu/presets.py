"""The paper's tables as data: a preset says what is trained on what, one of the `VARIANTS` changes a few of its fields.

Each value names its source: `common` is the table of common hyperparameters (App. F.2), `maze` the Disco Maze table
(App. F.3), `Atari` that of Atari's pre-processing (App. F.4), `figures` those of the networks, `text` the running text,
`ours` a choice where the paper is silent (see the docs' table of decisions).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.errors import UserError, unknown_name
from ngu.task_presets import DEEP_SEA, MINIGRID, RANDOM_COIN
from ngu.variants import VARIANTS

_DISCO_MAZE: Mapping[str, Any] = {
    "env.num_envs": 1024,  # ours: one GPU's worth of actors
    "env.maze_size": 21,  # text, Sec. 4.1
    "env.maze_step_cap": 500,  # ours: two tours of the maze and a bit
    "env.maze_pool": 65_536,  # ours
    "mixture.num_mixtures": 1,  # text, Sec. 4.1
    "mixture.beta": 0.5,  # maze
    "mixture.discount_max": 0.99,  # common, discount of r_i
    "mixture.discount_min": 0.99,  # common
    "mixture.cross_mixture_ratio": 0.0,  # common
    "novelty.filters": (16, 32),  # maze
    "novelty.kernels": (3, 3),  # maze
    "novelty.strides": (1, 1),  # maze
    "novelty.embedding_size": 32,  # common, by App. B.1
    "novelty.memory_capacity": 5000,  # maze
    "novelty.neighbours": 10,  # common
    "novelty.kernel_epsilon": 1e-2,  # maze
    "novelty.cluster_distance": 8e-3,  # common
    "novelty.pseudo_count": 1e-3,  # common
    "novelty.max_similarity": 8.0,  # common
    "novelty.max_modulation": 5.0,  # common
    "novelty.learning_rate": 1e-3,  # maze
    "novelty.rnd_learning_rate": 5e-4,  # common
    "novelty.l2_weight": 1e-5,  # common
    "novelty.train_frames": 5,  # text, App. A
    "network.filters": (16, 32),  # maze
    "network.kernels": (3, 3),  # maze
    "network.strides": (1, 1),  # maze
    "network.torso_size": 512,  # ours: the width of the Atari network; with 256 side branches are forgotten
    "network.lstm_size": 512,  # ours
    "network.lstm_input_multiple": 128,  # ours: cuDNN's fastest kernels
    "network.dueling_size": 512,  # ours
    "replay.capacity": 1_000_000,  # maze
    "replay.trace_length": 50,  # maze
    "replay.period": 50,  # maze
    "replay.lookahead": 50,  # ours: with targets that end with their sequence coverage ended below 90 %
    "replay.priority_exponent": 0.9,  # common
    "replay.min_sequences": 6250,  # common
    "learner.batch_size": 64,  # common
    "learner.replay_ratio": 1.5625,  # ours: one update per 2,048 steps; the paper's own ratio is 1.5 (App. A)
    "learner.learning_rate": 1e-3,  # maze
    # ours: without a rise the torso died in four of seven starts; at the full rate values run away and coverage swings
    "learner.rate_steps": (4_000_000, 12_000_000, 16_000_000),
    "learner.rate_factors": (1.0, 1.0, 0.3),
    "learner.average_share": 0.15,  # ours: at a constant rate the average sees more of a maze than the newest weights
    "learner.adam_beta1": 0.9,  # common
    "learner.adam_beta2": 0.999,  # common
    "learner.adam_epsilon": 1e-4,  # common
    "learner.clip_norm": 40.0,  # common
    "learner.target_period": 100,  # maze
    "learner.retrace_lambda": 0.97,  # maze
    "learner.target_epsilon": 0.01,  # common
    "learner.value_transform": "identity",  # maze
    "actor.update_period": 100,  # common
    "evaluation.num_envs": 256,  # ours
    "evaluation.epsilon": 0.0,  # maze
    "evaluation.max_steps": 500,  # ours
    "evaluation.marks": (200, 500),  # ours
    "evaluation.period": 2_000_000,  # ours
    "run.steps": 40_000_000,  # ours: minutes on an H200; coverage no longer rises then
    "run.device": "auto",  # ours
    "run.precision": "fp16",  # ours
    "run.log_period": 500_000,  # ours
    "run.checkpoint_period": 20_000_000,  # ours
}

# What a 2-core CPU learns in minutes: the same agent, smaller in every direction.
_DISCO_MAZE_SMALL: Mapping[str, Any] = {
    **_DISCO_MAZE,
    "env.num_envs": 64,
    "env.maze_size": 9,
    "env.maze_step_cap": 100,
    "env.maze_pool": 2048,
    "novelty.filters": (8, 16),
    "novelty.embedding_size": 16,
    "novelty.embedding_hidden": 64,
    "novelty.learning_rate": 3e-3,
    "network.filters": (8, 16),
    "network.torso_size": 64,
    "network.lstm_size": 64,
    "network.lstm_input_multiple": 1,
    "network.dueling_size": 64,
    "replay.capacity": 200_000,
    "replay.trace_length": 20,
    "replay.period": 20,
    "replay.lookahead": 0,  # with it agents take off later, and here most of a run is taking off
    "replay.min_sequences": 500,
    "learner.batch_size": 32,
    "learner.replay_ratio": 2.5,
    "learner.learning_rate": 3e-3,
    "learner.rate_steps": (50_000, 800_000, 1_000_000, 1_600_000, 2_000_000),
    "learner.rate_factors": (1.0, 1.0, 0.33, 0.33, 0.03),
    "learner.average_share": 0.0,
    "evaluation.num_envs": 128,
    "evaluation.max_steps": 100,
    "evaluation.marks": (50, 100),
    "evaluation.period": 200_000,
    "run.steps": 2_000_000,
    "run.device": "cpu",
    "run.precision": "fp32",
    # A second gains a quarter at best, costs two thirds beside other work, and the numbers would be the machine's.
    "run.threads": 1,
    "run.log_period": 20_000,
    "run.checkpoint_period": 500_000,
}

_ATARI: Mapping[str, Any] = {
    "env.name": "atari",
    "env.num_envs": 256,  # text, App. A: 256 actors
    "env.groups": 2,  # ours: one is stepped while the other's actions are computed
    "env.noops": 30,  # Atari
    "env.max_frames": 108_000,  # Atari: 30 minutes
    "mixture.num_mixtures": 32,  # common
    "mixture.beta": 0.3,  # common
    "mixture.discount_max": 0.997,  # common, discount of r_e
    "mixture.discount_min": 0.99,  # common, discount of r_i
    "mixture.cross_mixture_ratio": 0.0,  # common
    "novelty.filters": (32, 64, 64),  # figures, App. H
    "novelty.kernels": (8, 4, 3),  # figures, App. H
    "novelty.strides": (4, 2, 1),  # figures, App. H
    "novelty.embedding_size": 32,  # figures, App. H
    "novelty.embedding_hidden": 128,  # figures, App. H
    "novelty.embedding_snapshots": 16,  # ours: long episodes keep theirs, and f is renewed only where none uses it
    "novelty.rnd_size": 128,  # figures, App. H
    "novelty.memory_capacity": 30_000,  # common
    "novelty.neighbours": 10,  # common
    "novelty.kernel_epsilon": 1e-4,  # common
    "novelty.cluster_distance": 8e-3,  # common
    "novelty.pseudo_count": 1e-3,  # common
    "novelty.max_similarity": 8.0,  # common
    "novelty.max_modulation": 5.0,  # common
    "novelty.learning_rate": 5e-4,  # common
    "novelty.rnd_learning_rate": 5e-4,  # common
    "novelty.l2_weight": 1e-5,  # common
    "novelty.train_frames": 5,  # text, App. A
    "network.filters": (32, 64, 64),  # figures, App. H
    "network.kernels": (8, 4, 3),  # figures, App. H
    "network.strides": (4, 2, 1),  # figures, App. H
    "network.torso_size": 512,  # figures, App. H
    "network.lstm_size": 512,  # figures, App. H
    "network.log_rewards": True,  # ours: with rewards as they are beta_0 was slower to learn Pong
    "network.lstm_input_multiple": 128,  # ours: cuDNN's fastest kernels
    "network.dueling_size": 512,  # figures, App. H
    "replay.capacity": 5_000_000,  # common
    "replay.trace_length": 80,  # common
    "replay.period": 40,  # common
    "replay.priority_exponent": 0.9,  # common
    "replay.min_sequences": 6250,  # common
    "learner.batch_size": 64,  # common
    "learner.replay_ratio": 1.5,  # text, App. A: 5 updates of 64 x 80 steps against 16,600 agent steps in a second
    "learner.learning_rate": 1e-4,  # common
    "learner.rate_steps": (),  # common: a constant rate
    "learner.rate_factors": (),  # common
    "learner.adam_beta1": 0.9,  # common
    "learner.adam_beta2": 0.999,  # common
    "learner.adam_epsilon": 1e-4,  # common
    "learner.clip_norm": 40.0,  # common
    "learner.target_period": 1500,  # common
    "learner.retrace_lambda": 0.95,  # common
    "learner.target_epsilon": 0.01,  # common
    "learner.value_transform": "signed-sqrt",  # common
    "learner.value_transform_epsilon": 1e-3,  # common
    "actor.update_period": 100,  # common
    "evaluation.num_envs": 10,  # ours
    "evaluation.epsilon": 0.01,  # common
    "evaluation.max_steps": 27_000,  # Atari: whole episodes
    "evaluation.marks": (),  # ours
    "evaluation.period": 10_000_000,  # ours
    "run.steps": 8_750_000_000,  # text, Sec. 4.2: 35 billion frames
    "run.device": "auto",  # ours
    "run.precision": "fp16",  # ours
    "run.log_period": 100_000,  # ours
    "run.checkpoint_period": 20_000_000,  # ours
}

# The same agent, for what one GPU node does in half an hour. What differs: more updates for each step collected, since
# the GPU has the time, at twice the rate after a short rise, with a target network that follows sooner; errors measured
# in units of their policy, since beta_0 would wait for the large values of the others to be learned; RND's mean and
# deviation over the last hundred steps, since in so short a life its first errors would keep alpha at 1; pictures less
# their running mean for Q and f, which else need five to six times the updates to see the player; random actions for
# the first two percent of the run, since from the one action of a new network f learns nothing; no ReLU at the end of
# f, which cuts most of its outputs off before they have learned anything; wider gaps between actions, since a step
# changes less than values are wrong by and agents come to a halt; evaluations that end after five minutes of game; one
# checkpoint, at the end, without replay, since 36 GB take minutes to write.
_ATARI_NODE: Mapping[str, Any] = {
    **_ATARI,
    "mixture.balanced": True,
    "novelty.embedding_relu": False,
    "novelty.embedding_whiten": True,
    "network.whiten": True,
    "novelty.modulator_decay": 0.99,
    "learner.replay_ratio": 16.0,
    "learner.learning_rate": 2e-4,
    "learner.rate_steps": (500_000,),
    "learner.rate_factors": (1.0,),
    "learner.target_period": 250,
    "learner.advantage_learning": 0.9,
    "actor.random_steps": 500_000,
    "evaluation.max_steps": 4500,
    "evaluation.period": 5_000_000,
    "run.steps": 25_000_000,
    "run.checkpoint_period": 0,
    "run.checkpoint_replay": False,
}

# To try it on a laptop: the same agent with few environments and policies, balanced errors, and a replay that fits.
_ATARI_CPU: Mapping[str, Any] = {
    **_ATARI,
    "mixture.balanced": True,
    "env.game": "pong",
    "env.num_envs": 8,
    "env.groups": 1,
    "mixture.num_mixtures": 4,
    "novelty.memory_capacity": 5000,
    "network.torso_size": 256,
    "network.lstm_size": 256,
    "network.lstm_input_multiple": 1,
    "network.dueling_size": 256,
    "replay.capacity": 100_000,
    "replay.min_sequences": 100,
    "learner.batch_size": 16,
    "learner.target_period": 250,
    "evaluation.num_envs": 2,
    "evaluation.max_steps": 1000,
    "evaluation.period": 50_000,
    "run.steps": 200_000,
    "run.device": "cpu",
    "run.precision": "fp32",
    "run.log_period": 2000,
    "run.checkpoint_period": 100_000,
}

# Any Gymnasium environment: settings to begin with.
_GYM: Mapping[str, Any] = {
    **_ATARI,
    "env.name": "gym",
    "env.num_envs": 16,
    "env.groups": 1,
    "mixture.num_mixtures": 8,
    "novelty.hidden": (128,),
    "novelty.embedding_size": 16,
    "novelty.embedding_hidden": 64,
    "novelty.memory_capacity": 5000,
    "novelty.kernel_epsilon": 1e-3,  # text, Sec. 2
    "network.hidden": (128,),
    "network.torso_size": 128,
    "network.lstm_size": 128,
    "network.lstm_input_multiple": 1,
    "network.dueling_size": 128,
    "replay.capacity": 200_000,
    "replay.trace_length": 20,
    "replay.period": 10,
    "replay.min_sequences": 200,
    "learner.batch_size": 32,
    "learner.replay_ratio": 16.0,
    "learner.learning_rate": 1e-3,
    "learner.rate_steps": (0, 150_000, 300_000),
    "learner.rate_factors": (1.0, 1.0, 0.1),
    "learner.target_period": 100,
    "actor.update_period": 20,
    "evaluation.num_envs": 8,
    "evaluation.max_steps": 1000,
    "evaluation.period": 25_000,
    "run.steps": 300_000,
    "run.device": "cpu",
    "run.precision": "fp32",
    "run.log_period": 5000,
    "run.checkpoint_period": 100_000,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "disco-maze-small": _DISCO_MAZE_SMALL,
    "disco-maze": _DISCO_MAZE,
    "atari": _ATARI,
    "atari-node": _ATARI_NODE,
    "atari-cpu": _ATARI_CPU,
    "gym": _GYM,
    "deep-sea": DEEP_SEA,
    "random-coin": RANDOM_COIN,
    "minigrid": MINIGRID,
}
"""What is trained on what; the first is the default."""


def preset(name: str, variant: str = "ngu", overrides: Mapping[str, Any] | None = None) -> Config:
    """The config of a preset with a variant applied, then `overrides` by dotted name; it is checked as a whole."""
    for what, given, known in (("preset", name, PRESETS), ("variant", variant, VARIANTS)):
        if not isinstance(given, str):
            raise UserError(f"the {what} is {given!r}; give the name of one, such as {next(iter(known))}.")
    if name not in PRESETS:
        if re.search(r":|-v\d+$", name):  # the form of Gymnasium's ids
            raise UserError(f"the preset {name} does not exist; to train on it, take the preset gym and set env.id.")
        raise UserError(unknown_name(f"the preset {name}", name, PRESETS))
    if variant not in VARIANTS:
        raise UserError(unknown_name(f"the variant {variant}", variant, VARIANTS))
    labels = {"preset": name, "variant": variant}
    return with_overrides(Config(), {**VARIANTS[variant].applied(PRESETS[name]), **(overrides or {}), **labels})

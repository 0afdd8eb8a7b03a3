"""Presets of the tasks with known answers: sized for two CPU cores and minutes; all values are ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SMALL: Mapping[str, Any] = {
    "env.num_envs": 64,
    "mixture.num_mixtures": 8,
    "mixture.beta": 0.3,
    "mixture.discount_max": 0.99,
    "mixture.discount_min": 0.99,
    "mixture.cross_mixture_ratio": 0.5,
    "novelty.embedding_size": 16,
    "novelty.embedding_hidden": 64,
    "novelty.memory_capacity": 1000,
    "novelty.kernel_epsilon": 1e-2,
    "novelty.learning_rate": 1e-3,
    "novelty.rnd_learning_rate": 5e-4,
    "novelty.rnd_size": 64,
    "network.torso_size": 64,
    "network.lstm_size": 64,
    "network.dueling_size": 64,
    "replay.capacity": 200_000,
    "replay.trace_length": 20,
    "replay.period": 20,
    "replay.min_sequences": 500,
    "learner.batch_size": 32,
    "learner.replay_ratio": 2.5,
    "learner.learning_rate": 1e-3,
    "learner.target_period": 100,
    "actor.update_period": 20,
    "evaluation.num_envs": 32,
    "evaluation.epsilon": 0.0,
    "evaluation.marks": (),
    "run.device": "cpu",
    "run.precision": "fp32",
    "run.threads": 1,  # as for the small maze
}

# The diver falls all the time, so that within an episode every cell is new: what tells paths apart is alpha. It may
# weigh much here, and RND must forget a cell by how often it is seen, slowly enough for the Q-network to follow. Adam
# divides by the size of gradients, which makes the few sights of a rare cell count as much as many of a common one;
# with a larger epsilon they count by their number. The wide kernel keeps the episodic part even.
DEEP_SEA: Mapping[str, Any] = {
    **_SMALL,
    "env.name": "deep-sea",
    "env.sea_size": 20,
    "mixture.num_mixtures": 4,
    "mixture.beta": 0.1,
    "mixture.epsilon_base": 0.3,  # from 0.3 to 0.008: few random steps in an episode of 20, yet some at its last cell
    "mixture.epsilon_alpha": 3.0,
    "novelty.filters": (),  # one bright pixel: its place is all there is to see
    "novelty.kernels": (),
    "novelty.strides": (),
    "novelty.kernel_epsilon": 1.0,
    "novelty.rescale_partial": True,
    "novelty.max_modulation": 20.0,
    "novelty.modulator_decay": 0.99,
    "novelty.rnd_learning_rate": 2e-4,
    "novelty.rnd_normalise": False,  # a pixel that is rarely bright would be blown up to the clip for good
    "novelty.train_frames": 20,  # all of an episode: its last five steps see the lowest rows alone
    "network.filters": (),
    "network.kernels": (),
    "network.strides": (),
    "learner.replay_ratio": 8.0,
    "learner.adam_epsilon": 1e-3,
    "learner.target_period": 20,  # values go back one step of an unlikely path with each copy
    "evaluation.num_envs": 8,
    "evaluation.max_steps": 50,  # as many as the largest sea has; a dive ends by itself
    "evaluation.period": 20_000,
    "run.steps": 400_000,
    "run.log_period": 10_000,
    "run.checkpoint_period": 200_000,
}

# Agent and coin are two bright pixels of 450, and every pair of places is a game of its own: what counts is how many
# coins were found, not how often each was trained on. So there are many rooms, and few updates for each step.
# Convolutions over so empty a picture learn slowly; a dense layer on its pixels has a weight for every place.
RANDOM_COIN: Mapping[str, Any] = {
    **_SMALL,
    "env.name": "random-coin",
    "env.num_envs": 512,
    "mixture.num_mixtures": 2,  # the two adversaries alone
    "mixture.discount_max": 0.97,  # one step of detour costs 3 %: more than the values' own errors
    "mixture.discount_min": 0.97,
    "mixture.epsilon_base": 0.6,  # from 0.6 to 0.08: random walks find one coin of three from the start
    "mixture.epsilon_alpha": 4.0,
    "novelty.filters": (),
    "novelty.kernels": (),
    "novelty.strides": (),
    "novelty.memory_capacity": 200,
    "novelty.rescale_partial": True,
    "novelty.learning_rate": 3e-3,
    "network.filters": (),
    "network.kernels": (),
    "network.strides": (),
    "replay.capacity": 400_000,
    "replay.min_sequences": 1000,
    "learner.batch_size": 64,
    "learner.replay_ratio": 3.0,
    "learner.learning_rate": 3e-3,
    "learner.rate_steps": (50_000, 500_000, 1_500_000),
    "learner.rate_factors": (1.0, 1.0, 0.1),  # a coin's values differ by hundredths, those of novelty by whole numbers
    "learner.value_transform": "signed-sqrt",
    "learner.target_period": 50,
    "actor.update_period": 5,
    "evaluation.num_envs": 64,
    "evaluation.max_steps": 200,
    "evaluation.period": 100_000,
    "run.steps": 1_500_000,
    "run.log_period": 50_000,
    "run.checkpoint_period": 750_000,
}

# In a room all is new at first, behind the door as much as before it, so that the episodic part alone leads through
# doors late and slowly. Alpha pays more for the sight of open doors and of the goal, once its mean and deviation have
# forgotten RND's first errors, which are a hundred times the later ones. What is left to see must be worth less than
# the goal, which ends the episode, or the exploring policies open all doors and then stay away from it: a small beta.
MINIGRID: Mapping[str, Any] = {
    **_SMALL,
    "env.name": "minigrid",
    "env.level": "MultiRoom-N4-S5",
    "mixture.num_mixtures": 4,
    "mixture.beta": 0.004,
    "mixture.discount_max": 0.98,
    "mixture.discount_min": 0.97,
    "mixture.epsilon_base": 0.5,  # from 0.5 to 0.125: a door is opened by one action at one place
    "mixture.epsilon_alpha": 2.0,
    "novelty.filters": (16, 32),
    "network.filters": (16, 32),
    "novelty.kernels": (3, 3),
    "network.kernels": (3, 3),
    "novelty.strides": (1, 1),
    "network.strides": (1, 1),
    "novelty.rescale_partial": True,
    "novelty.max_modulation": 20.0,
    "novelty.modulator_decay": 0.99,
    "novelty.rnd_learning_rate": 1e-4,
    "novelty.train_frames": 10,
    "replay.min_sequences": 200,
    "learner.batch_size": 16,
    "learner.replay_ratio": 6.0,
    "learner.adam_epsilon": 1e-5,
    "learner.target_period": 40,
    "evaluation.max_steps": 640,
    "evaluation.period": 20_000,
    "run.steps": 300_000,
    "run.log_period": 10_000,
    "run.checkpoint_period": 150_000,
}

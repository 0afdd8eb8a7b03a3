"""The paper's two tables of hyperparameters, value by value, against the presets."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from ngu.config import Config
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError
from ngu.learner import Learner
from ngu.presets import PRESETS, VARIANTS, preset
from ngu.retrace import ValueTransform

# App. F.3, line by line; the right-hand side as printed.
DISCO_MAZE_TABLE = {
    "Episodic memory capacity": ("novelty.memory_capacity", 5000),
    "Learning rate (R2D2)": ("learner.learning_rate", 0.001),
    "Learning rate (Action prediction)": ("novelty.learning_rate", 0.001),
    "Replay capacity": ("replay.capacity", 1e6),
    "Intrinsic reward scale beta": ("mixture.beta", 0.5),
    "Trace length": ("replay.trace_length", 50),
    "Replay period": ("replay.period", 50),
    "Retrace lambda": ("learner.retrace_lambda", 0.97),
    "Retrace loss transformation": ("learner.value_transform", "identity"),
    "Target Q-network update period": ("learner.target_period", 100),
    "Q-network filter sizes": ("network.kernels", (3, 3)),
    "Q-network filter strides": ("network.strides", (1, 1)),
    "Q-network num. filters": ("network.filters", (16, 32)),
    "Action prediction network filter sizes": ("novelty.kernels", (3, 3)),
    "Action prediction network filter strides": ("novelty.strides", (1, 1)),
    "Action prediction network num. filters": ("novelty.filters", (16, 32)),
    "Kernel epsilon": ("novelty.kernel_epsilon", 0.01),
    "Evaluation epsilon": ("evaluation.epsilon", 0),
}

# App. F.2, the lines that the Disco Maze table does not replace.
COMMON_TABLE = {
    "Cross Mixture Ratio": ("mixture.cross_mixture_ratio", 0.0),
    "Learning rate (RND)": ("novelty.rnd_learning_rate", 0.0005),
    "Adam epsilon": ("learner.adam_epsilon", 0.0001),
    "Adam beta1": ("learner.adam_beta1", 0.9),
    "Adam beta2": ("learner.adam_beta2", 0.999),
    "Adam clip norm": ("learner.clip_norm", 40),
    "Discount r_i": ("mixture.discount_min", 0.99),
    "Batch size": ("learner.batch_size", 64),
    "R2D2 reward transformation": ("learner.value_transform_epsilon", 0.001),
    "Kernel num. neighbors used": ("novelty.neighbours", 10),
    "Kernel cluster distance xi": ("novelty.cluster_distance", 0.008),
    "Kernel pseudo-counts constant c": ("novelty.pseudo_count", 0.001),
    "Kernel maximum similarity s_m": ("novelty.max_similarity", 8),
    "Replay priority exponent": ("replay.priority_exponent", 0.9),
    "Minimum sequences to start replay": ("replay.min_sequences", 6250),
    "Actor update period": ("actor.update_period", 100),
    "Action prediction network L2 weight": ("novelty.l2_weight", 0.00001),
    "RND clipping factor L": ("novelty.max_modulation", 5),
    "Target epsilon": ("learner.target_epsilon", 0.01),
}

# The running text, and decisions that stand in the docs.
TEXT = {
    "maze of size 21 x 21 (Sec. 4.1)": ("env.maze_size", 21),
    "NGU(N=1) (Sec. 4.1)": ("mixture.num_mixtures", 1),
    "the single policy's discount (decision)": ("mixture.discount_max", 0.99),
    "last 5 frames (App. A)": ("novelty.train_frames", 5),
    "episodes without wiping the memory (App. F.5)": ("novelty.episodes_per_memory", 1),
    "priority 0.9 max + 0.1 mean (R2D2)": ("replay.priority_max_share", 0.9),
    "importance exponent (R2D2)": ("replay.importance_exponent", 0.6),
    "no burn-in (App. A)": ("replay.burn_in", 0),
    "actor epsilon base (R2D2)": ("mixture.epsilon_base", 0.4),
    "actor epsilon alpha (R2D2)": ("mixture.epsilon_alpha", 8),
    "controllable states are learned (Sec. 2)": ("novelty.controllable_states", "learned"),
    "RND outputs (App. H.2)": ("novelty.rnd_size", 128),
    "hidden layer of h (App. H.1)": ("novelty.embedding_hidden", 128),
    "size of controllable states (App. H.1)": ("novelty.embedding_size", 32),
}


def value(config: Config, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), config)


@pytest.mark.parametrize("line", [*DISCO_MAZE_TABLE, *COMMON_TABLE, *TEXT])
def test_disco_maze_is_the_papers_table(line: str) -> None:
    name, printed = (DISCO_MAZE_TABLE | COMMON_TABLE | TEXT)[line]
    assert value(preset("disco-maze"), name) == printed


def test_the_reward_transformation_is_the_one_in_the_table() -> None:
    """sign(x) (sqrt(|x| + 1) - 1) + 0.001 x"""
    transform = ValueTransform(preset("disco-maze").learner.value_transform_epsilon)
    assert transform.squash(torch.tensor([8.0, -8.0])).tolist() == pytest.approx([2.008, -2.008])


def test_all_losses_have_the_adam_of_the_table() -> None:
    """Optimizer: AdamOptimizer (for all losses)."""
    spec = EnvironmentSpec((3, 9, 9), torch.uint8, 4)
    learner = Learner(spec, preset("disco-maze-small"), torch.device("cpu"), torch.Generator())
    trainer = learner.novelty_trainer
    assert trainer.inverse is not None
    assert trainer.rnd is not None
    for optimiser in (learner.optimiser, trainer.inverse, trainer.rnd):
        assert type(optimiser.adam) is torch.optim.Adam
        settings = optimiser.adam.param_groups[0]
        assert (settings["betas"], settings["eps"], optimiser.clip_norm) == ((0.9, 0.999), 1e-4, 40.0)
    rates = [o.learning_rate.item() for o in (learner.optimiser, trainer.inverse, trainer.rnd)]
    assert rates == pytest.approx([3e-3, 3e-3, 5e-4])
    decays = [o.adam.param_groups[0]["weight_decay"] for o in (learner.optimiser, trainer.inverse, trainer.rnd)]
    assert decays == [0.0, 1e-5, 0.0]


def test_the_small_preset_is_the_same_agent() -> None:
    """Sizes, rates and times differ; the mathematics does not."""
    big, small = preset("disco-maze"), preset("disco-maze-small")
    for name in (
        "mixture.num_mixtures", "mixture.beta", "mixture.discount_max", "novelty.kernel_epsilon", "novelty.neighbours",
        "novelty.cluster_distance", "novelty.pseudo_count", "novelty.max_similarity", "novelty.max_modulation",
        "novelty.train_frames", "novelty.l2_weight", "replay.priority_exponent", "replay.priority_max_share",
        "learner.retrace_lambda", "learner.target_epsilon", "learner.value_transform", "learner.adam_epsilon",
    ):  # fmt: skip
        assert value(small, name) == value(big, name), name


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_preset_and_variant_makes_a_valid_config_that_names_itself(name: str, variant: str) -> None:
    config = preset(name, variant)
    assert (config.preset, config.variant) == (name, variant)
    for field, wanted in {**PRESETS[name], **VARIANTS[variant]}.items():
        assert value(config, field) == wanted


def test_the_variants_are_the_papers_baselines() -> None:
    base = preset("disco-maze").novelty
    assert (base.episodic, base.lifelong, base.controllable_states) == (True, True, "learned")
    random = preset("disco-maze", "random-projection").novelty
    assert (random.episodic, random.lifelong, random.controllable_states) == (True, True, "random")
    assert not preset("disco-maze", "rnd-only").novelty.episodic
    assert not preset("disco-maze", "no-rnd").novelty.lifelong


def test_the_default_config_is_the_first_preset() -> None:
    assert Config().preset == next(iter(PRESETS)) == "disco-maze-small"


@pytest.mark.parametrize(
    ("name", "variant", "near"), [("disco-mase", "ngu", "disco-maze"), ("disco-maze", "rnd", "no-rnd")]
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, variant: str, near: str) -> None:
    with pytest.raises(UserError, match=near):
        preset(name, variant)

"""The paper's tables of hyperparameters, value by value, against the presets."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from typing import Any

import pytest
import torch

from ngu.api import NGU
from ngu.config import Config
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError
from ngu.learner import Learner
from ngu.mixture import grouped_actors
from ngu.presets import PRESETS, preset
from ngu.report.groups import flat_settings
from ngu.retrace import ValueTransform
from ngu.variants import VARIANTS

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

# App. F.2, line by line: what Atari is trained with, and the Disco Maze but for the lines of F.3.
COMMON_TABLE = {
    "Cross Mixture Ratio": ("mixture.cross_mixture_ratio", 0.0),
    "Number of mixtures N": ("mixture.num_mixtures", 32),
    "Learning rate (R2D2)": ("learner.learning_rate", 0.0001),
    "Learning rate (RND)": ("novelty.rnd_learning_rate", 0.0005),
    "Learning rate (Action prediction)": ("novelty.learning_rate", 0.0005),
    "Adam epsilon": ("learner.adam_epsilon", 0.0001),
    "Adam beta1": ("learner.adam_beta1", 0.9),
    "Adam beta2": ("learner.adam_beta2", 0.999),
    "Adam clip norm": ("learner.clip_norm", 40),
    "Discount r_i": ("mixture.discount_min", 0.99),
    "Discount r_e": ("mixture.discount_max", 0.997),
    "Batch size": ("learner.batch_size", 64),
    "Trace length": ("replay.trace_length", 80),
    "Replay period": ("replay.period", 40),
    "Retrace lambda": ("learner.retrace_lambda", 0.95),
    "R2D2 reward transformation": ("learner.value_transform", "signed-sqrt"),
    "R2D2 reward transformation, its epsilon": ("learner.value_transform_epsilon", 0.001),
    "Episodic memory capacity": ("novelty.memory_capacity", 30000),
    "Intrinsic reward scale beta": ("mixture.beta", 0.3),
    "Kernel epsilon": ("novelty.kernel_epsilon", 0.0001),
    "Kernel num. neighbors used": ("novelty.neighbours", 10),
    "Kernel cluster distance xi": ("novelty.cluster_distance", 0.008),
    "Kernel pseudo-counts constant c": ("novelty.pseudo_count", 0.001),
    "Kernel maximum similarity s_m": ("novelty.max_similarity", 8),
    "Replay priority exponent": ("replay.priority_exponent", 0.9),
    "Replay capacity": ("replay.capacity", 5e6),
    "Minimum sequences to start replay": ("replay.min_sequences", 6250),
    "Actor update period": ("actor.update_period", 100),
    "Target Q-network update period": ("learner.target_period", 1500),
    "Action prediction network L2 weight": ("novelty.l2_weight", 0.00001),
    "RND clipping factor L": ("novelty.max_modulation", 5),
    "Evaluation epsilon": ("evaluation.epsilon", 0.01),
    "Target epsilon": ("learner.target_epsilon", 0.01),
}

# App. F.4: the lines that are settings; the others are fixed, and `test_atari.py` plays them against a plain emulator.
ATARI_TABLE = {
    "Max episode length, 30 min of 60 frames a second": ("env.max_frames", 30 * 60 * 60),
    "Random noops range": ("env.noops", 30),
}

# The running text, and decisions that stand in the docs: for both, for the Disco Maze, for Atari.
TEXT = {
    "last 5 frames (App. A)": ("novelty.train_frames", 5),
    "episodes without wiping the memory (App. F.5)": ("novelty.memory_episodes", 1),
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
DISCO_MAZE_TEXT = {
    "maze of size 21 x 21 (Sec. 4.1)": ("env.maze_size", 21),
    "NGU(N=1) (Sec. 4.1)": ("mixture.num_mixtures", 1),
    "the single policy's discount (decision)": ("mixture.discount_max", 0.99),
}
ATARI_TEXT = {
    "256 actors (Sec. 3)": ("env.num_envs", 256),
    "35 billion frames, 4 to an agent step (Sec. 4.2)": ("run.steps", 35e9 / 4),
    "5 updates of 64 x 80 against 256 x 260 frames a second (App. A)": ("learner.replay_ratio", 1.5),
    "an evaluation plays whole episodes (App. A)": ("evaluation.max_steps", 30 * 60 * 60 / 4),
    "convolutions of the Q-network (App. H.3)": ("network.filters", (32, 64, 64)),
    "their kernels": ("network.kernels", (8, 4, 3)),
    "their strides": ("network.strides", (4, 2, 1)),
    "the layer behind them": ("network.torso_size", 512),
    "LSTM (App. H.3)": ("network.lstm_size", 512),
    "dueling heads (App. H.3)": ("network.dueling_size", 512),
    "convolutions of f and of RND (App. H.1, H.2)": ("novelty.filters", (32, 64, 64)),
    "kernels of f and of RND": ("novelty.kernels", (8, 4, 3)),
    "strides of f and of RND": ("novelty.strides", (4, 2, 1)),
}


def in_force(*tables: dict[str, tuple[str, Any]]) -> list[Any]:
    """The lines of the tables; a later table's line replaces an earlier one's of the same setting."""
    held = {name: (line, printed) for table in tables for line, (name, printed) in table.items()}
    return [pytest.param(name, printed, id=line) for name, (line, printed) in held.items()]


def value(config: Config, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), config)


@pytest.mark.parametrize(("name", "printed"), in_force(COMMON_TABLE, TEXT, DISCO_MAZE_TABLE, DISCO_MAZE_TEXT))
def test_disco_maze_is_the_papers_table(name: str, printed: Any) -> None:
    assert value(preset("disco-maze"), name) == printed


@pytest.mark.parametrize(("name", "printed"), in_force(COMMON_TABLE, TEXT, ATARI_TABLE, ATARI_TEXT))
def test_atari_is_the_papers_tables(name: str, printed: Any) -> None:
    assert value(preset("atari"), name) == printed


def test_the_learning_rate_of_atari_is_constant() -> None:
    """The table prints one rate, and the paper no schedule."""
    learner = preset("atari").learner
    assert learner.rate_steps == ()


def test_the_reward_transformation_is_the_one_in_the_table() -> None:
    """sign(x) (sqrt(|x| + 1) - 1) + 0.001 x"""
    assert preset("atari").learner.value_transform == "signed-sqrt"
    transform = ValueTransform(preset("atari").learner.value_transform_epsilon)
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


@pytest.mark.parametrize(
    ("big", "small"), [("disco-maze", "disco-maze-small"), ("atari", "atari-node"), ("atari", "atari-cpu")]
)
def test_the_small_presets_are_the_same_agent(big: str, small: str) -> None:
    """Sizes, rates and times differ; the mathematics does not."""
    for name in (
        "mixture.beta", "mixture.discount_min", "mixture.cross_mixture_ratio", "mixture.discount_max",
        "novelty.kernel_epsilon", "novelty.neighbours",
        "novelty.cluster_distance", "novelty.pseudo_count", "novelty.max_similarity", "novelty.max_modulation",
        "novelty.train_frames", "novelty.l2_weight", "replay.priority_exponent", "replay.priority_max_share",
        "learner.retrace_lambda", "learner.target_epsilon", "learner.value_transform", "learner.adam_epsilon",
    ):  # fmt: skip
        assert value(preset(small), name) == value(preset(big), name), name


@pytest.mark.parametrize("name", ["atari", "atari-node", "atari-cpu"])
def test_atari_presets_act_with_all_policies_in_every_group(name: str) -> None:
    config = preset(name)
    envs, policies, groups = config.env.num_envs, config.mixture.num_mixtures, config.env.groups
    order = grouped_actors(envs, policies, groups)
    assert sorted(order) == list(range(envs))
    size = envs // groups
    for group in range(groups):
        counts = Counter(j % policies for j in order[group * size : (group + 1) * size])
        assert counts == dict.fromkeys(range(policies), size // policies)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_fits_every_preset(name: str, variant: str) -> None:
    """A preset with fewer policies or environments than a variant needs gets as many, and nothing else changes."""
    config, own, changes = preset(name, variant), preset(name), VARIANTS[variant].changes
    assert all(value(config, field) == wanted for field, wanted in changes.items())
    assert (config.preset, config.variant) == (name, variant)
    for field, before in flat_settings(own).items():
        if field in ("preset", "variant") or field in changes:
            continue
        after, least = value(config, field), VARIANTS[variant].least.get(field, 0)
        assert after == before or (before < least == after), field


@pytest.mark.parametrize(
    ("name", "variant", "policies", "envs"),
    [("atari-cpu", "ngu-n16", 16, 16), ("atari-cpu", "ngu-n8", 8, 8), ("disco-maze-small", "cmr-0.5", 2, 64)],
)
def test_small_presets_get_the_policies_and_environments_that_a_variant_needs(
    name: str, variant: str, policies: int, envs: int
) -> None:
    config = preset(name, variant)
    assert (config.mixture.num_mixtures, config.env.num_envs) == (policies, envs)
    fewer = {"mixture.num_mixtures": 1, "env.num_envs": 4}
    with pytest.raises(UserError, match="mixture"):
        preset(name, variant, {field: fewer[field] for field in VARIANTS[variant].least})


NAMES = [
    "ngu", "ngu-n1", "ngu-n1-no-rnd", "ngu-no-rnd", "ngu-n2", "ngu-n8", "ngu-n16", "r2d2-retrace", "r2d2-rnd",
    "cmr-0.25", "cmr-0.5", "beta-0.2", "beta-0.5", "no-extrinsic", "random-projection", "rnd-only", "state-16",
    "state-32", "state-64", "neighbours-5", "neighbours-10", "neighbours-30", "max-modulation-1", "max-modulation-5",
    "max-modulation-10", "meta-3", "hand-crafted", "hand-crafted-no-rnd", "hand-crafted-no-extrinsic",
]  # fmt: skip


def test_the_variants_are_the_papers_agents_and_each_is_explained() -> None:
    assert sorted(VARIANTS) == sorted(NAMES)
    for variant in VARIANTS.values():
        assert variant.what.endswith(".")
        assert variant.what.count(". ") == variant.what.count("App. ")  # one sentence
    assert len({variant.label for variant in VARIANTS.values()}) == len(VARIANTS)


def test_the_variants_are_what_the_paper_ran() -> None:
    """N, beta, r_e, the two parts of r_i and controllable states, of Atari's variants by their names in the paper."""

    def agent(variant: str) -> tuple[Any, ...]:
        config = preset("atari", variant)
        novelty, mixture = config.novelty, config.mixture
        return (mixture.num_mixtures, mixture.beta, mixture.extrinsic, novelty.episodic, novelty.lifelong,
                novelty.controllable_states)  # fmt: skip

    assert agent("ngu") == (32, 0.3, True, True, True, "learned")
    assert agent("ngu-no-rnd") == (32, 0.3, True, True, False, "learned")
    assert agent("ngu-n1") == (1, 0.3, True, True, True, "learned")
    assert agent("ngu-n1-no-rnd") == (1, 0.3, True, True, False, "learned")
    assert agent("no-extrinsic") == (32, 0.3, False, True, True, "learned")
    assert agent("random-projection") == (32, 0.3, True, True, True, "random")
    assert agent("rnd-only") == (32, 0.3, True, False, True, "learned")
    assert agent("r2d2-retrace") == (1, 0.0, True, False, False, "learned")
    assert agent("r2d2-rnd") == (1, 0.3, True, False, True, "learned")
    assert agent("hand-crafted") == (1, 0.3, True, True, True, "hand-crafted")
    assert agent("hand-crafted-no-rnd") == (1, 0.3, True, True, False, "hand-crafted")
    assert agent("hand-crafted-no-extrinsic") == (1, 0.3, False, True, True, "hand-crafted")
    assert [preset("atari", f"ngu-n{count}").mixture.num_mixtures for count in (2, 8, 16)] == [2, 8, 16]
    assert [preset("atari", f"hand-crafted{end}").novelty.memory_episodes for end in ("", "-no-rnd")] == [3, 3]
    assert preset("disco-maze").mixture.num_mixtures == 1


@pytest.mark.parametrize("variant", ["state-32", "neighbours-10", "max-modulation-5"])
def test_the_middle_of_each_sweep_is_the_agent_of_the_paper(variant: str) -> None:
    """App. C compares sizes of one setting each, with one policy."""
    middle, single = preset("atari", variant), preset("atari", "ngu-n1")
    assert dataclasses.replace(middle, variant="ngu-n1") == single


def test_the_default_config_is_the_first_preset() -> None:
    assert Config().preset == next(iter(PRESETS)) == "disco-maze-small"


@pytest.mark.parametrize(
    ("name", "variant", "near"),
    [("disco-mase", "ngu", "disco-maze"), ("disco-maze", "no-rnd", "ngu-no-rnd"), ("atary", "ngu", "atari")],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, variant: str, near: str) -> None:
    with pytest.raises(UserError, match=near):
        preset(name, variant)


@pytest.mark.parametrize("name", ["CartPole-v1", "my_package:MyEnv-v0", "my_package:Mine"])
def test_the_id_of_an_environment_is_answered_with_the_preset_gym(name: str) -> None:
    with pytest.raises(UserError, match=f"^the preset {name} does not exist; .* take the preset gym and set env.id.$"):
        preset(name)


@pytest.mark.parametrize("size", [10, 30, 50])
def test_deep_sea_is_evaluated_to_its_floor(size: int) -> None:
    """A dive that is cut before it cannot find the treasure."""
    config = preset("deep-sea", overrides={"env.sea_size": size})
    assert config.evaluation.max_steps >= size


@pytest.mark.parametrize("name", ["disco-maze-small", "deep-sea", "random-coin"])
def test_small_networks_are_trained_on_one_thread_whatever_the_machine_has(name: str) -> None:
    try:
        torch.set_num_threads(2)
        with NGU(preset(name)):
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(1)  # as conftest has it

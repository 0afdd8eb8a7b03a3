"""The paper's tables of settings (App. D and F), line by line, with what holds each value here.

Nothing is run for them: `ngu reproduce table_hyper_discomaze` prints what the paper prints beside what presets have.
"""

from __future__ import annotations

from ngu.experiments.definition import Experiment, Line
from ngu.presets import preset
from ngu.report.groups import flat_settings
from ngu.report.settings import value_in_words


def held_by(line: Line, preset_name: str) -> str:
    """What a preset has in a line: `novelty.neighbours 10`."""
    held = flat_settings(preset(preset_name, line.variant))
    told = [f"{name} {value_in_words(held[name])}" for name in line.settings]
    return "; ".join([*told, *([line.built] if line.built else [])])


def _agent(name: str, variant: str) -> Line:
    """An agent of the comparison of computation; an agent step of Atari has four frames."""
    return Line(name, "256 actors, 35 B frames", ("env.num_envs", "run.steps"), "4 frames a step", variant)


def _others(name: str, printed: str) -> Line:
    return Line(name, printed, built="not part of ngu")


_COMPUTATION = (
    _others("R2D2", "256 actors, 35 B frames"),
    _agent("R2D2(Retrace)", "r2d2-retrace"),
    _agent("R2D2 + RND", "r2d2-rnd"),
    _agent("NGU-RND(N=1)", "ngu-n1-no-rnd"),
    _agent("NGU (N=1)", "ngu-n1"),
    _agent("NGU (N=32)", "ngu"),
    _others("DQN + PixelCNN", "1 actor, 150 M frames"),
    _others("DQN + CTS", "1 actor, 150 M frames"),
    _others("RND", "1024 actors, 16 B frames (2 B)"),
    _others("PPO + CoEx", "1024 actors, 2 B frames"),
)

_COMMON = (
    Line("Number of Seeds", "3", built="--seeds of ngu reproduce; a run has one"),
    Line("Cross Mixture Ratio", "0.0", ("mixture.cross_mixture_ratio",)),
    Line("Number of mixtures N", "32", ("mixture.num_mixtures",)),
    Line("Optimizer", "AdamOptimizer (for all losses)", built="Adam for all losses"),
    Line("Learning rate (R2D2)", "0.0001", ("learner.learning_rate",)),
    Line("Learning rate (RND and Action prediction)", "0.0005", ("novelty.rnd_learning_rate", "novelty.learning_rate")),
    Line("Adam epsilon", "0.0001", ("learner.adam_epsilon",)),
    Line("Adam beta1", "0.9", ("learner.adam_beta1",)),
    Line("Adam beta2", "0.999", ("learner.adam_beta2",)),
    Line("Adam clip norm", "40", ("learner.clip_norm",)),
    Line("Discount r^i", "0.99", ("mixture.discount_min",)),
    Line("Discount r^e", "0.997", ("mixture.discount_max",)),
    Line("Batch size", "64", ("learner.batch_size",)),
    Line("Trace length", "80", ("replay.trace_length",)),
    Line("Replay period", "40", ("replay.period",)),
    Line("Retrace lambda", "0.95", ("learner.retrace_lambda",)),
    Line(
        "R2D2 reward transformation",
        "sign(x) (sqrt(|x| + 1) - 1) + 0.001 x",
        ("learner.value_transform", "learner.value_transform_epsilon"),
    ),
    Line("Episodic memory capacity", "30000", ("novelty.memory_capacity",)),
    Line("Embeddings memory mode", "Ring buffer", built="ring buffer"),
    Line("Intrinsic reward scale beta", "0.3", ("mixture.beta",)),
    Line("Kernel epsilon", "0.0001", ("novelty.kernel_epsilon",)),
    Line("Kernel num. neighbors used", "10", ("novelty.neighbours",)),
    Line("Kernel cluster distance xi", "0.008", ("novelty.cluster_distance",)),
    Line("Kernel pseudo-counts constant c", "0.001", ("novelty.pseudo_count",)),
    Line("Kernel maximum similarity s_m", "8", ("novelty.max_similarity",)),
    Line("Replay priority exponent", "0.9", ("replay.priority_exponent",)),
    Line("Replay capacity", "5e6", ("replay.capacity",)),
    Line("Minimum sequences to start replay", "6250", ("replay.min_sequences",)),
    Line("Actor update period", "100", ("actor.update_period",)),
    Line("Target Q-network update period", "1500", ("learner.target_period",)),
    Line("Embeddings target update period", "once/episode", built="a frozen copy of f for each episode"),
    Line("Action prediction network L2 weight", "0.00001", ("novelty.l2_weight",)),
    Line("RND clipping factor L", "5", ("novelty.max_modulation",)),
    Line("Evaluation epsilon", "0.01", ("evaluation.epsilon",)),
    Line("Target epsilon", "0.01", ("learner.target_epsilon",)),
)

_DISCO_MAZE = (
    Line("Episodic memory capacity", "5000", ("novelty.memory_capacity",)),
    Line("Learning rate (R2D2 and Action prediction)", "0.001", ("learner.learning_rate", "novelty.learning_rate")),
    Line("Replay capacity", "1e6", ("replay.capacity",)),
    Line("Intrinsic reward scale beta", "0.5", ("mixture.beta",)),
    Line("Trace length", "50", ("replay.trace_length",)),
    Line("Replay period", "50", ("replay.period",)),
    Line("Retrace lambda", "0.97", ("learner.retrace_lambda",)),
    Line("Retrace loss transformation", "identity", ("learner.value_transform",)),
    Line("Num. action repeats", "1", built="an action is one step"),
    Line("Target Q-network update period", "100", ("learner.target_period",)),
    Line("Q-network filter sizes", "(3, 3)", ("network.kernels",)),
    Line("Q-network filter strides", "(1, 1)", ("network.strides",)),
    Line("Q-network num. filters", "(16, 32)", ("network.filters",)),
    Line("Action prediction network filter sizes", "(3, 3)", ("novelty.kernels",)),
    Line("Action prediction network filter strides", "(1, 1)", ("novelty.strides",)),
    Line("Action prediction network num. filters", "(16, 32)", ("novelty.filters",)),
    Line("Kernel epsilon", "0.01", ("novelty.kernel_epsilon",)),
    Line("Evaluation epsilon", "0", ("evaluation.epsilon",)),
)

_ATARI = (
    Line("Max episode length", "30 min", ("env.max_frames",), "60 frames a second"),
    Line("Num. action repeats", "4", built="4"),
    Line("Num. stacked frames", "1", built="1"),
    Line("Zero discount on life loss", "false", built="only the game's end ends an episode"),
    Line("Random noops range", "30", ("env.noops",)),
    Line("Sticky actions", "false", built="none"),
    Line("Frames max pooled", "3 and 4", built="the last two of four"),
    Line("Grayscaled/RGB", "Grayscaled", built="grey"),
    Line("Action set", "Full", built="all 18"),
)


def _table(name: str, place: str, title: str, shows: str, lines: tuple[Line, ...], *presets: str) -> Experiment:
    return Experiment(name, "settings", title, place, shows, seeds=0, lines=lines, presets=presets)


TABLES = (
    _table(
        "table_computation_comparison",
        "Tab. 5, App. D",
        "How many actors and frames each agent had",
        "The paper's own agents all had 256 actors and 35 billion frames.",
        _COMPUTATION,
        "atari",
        "atari-node",
    ),
    _table(
        "table_hyper_montezuma_common",
        "Tab. 6, App. F.2",
        "Common hyperparameters",
        "What all experiments have, but for the lines of table_hyper_discomaze on the Disco Maze.",
        _COMMON,
        "atari",
        "atari-node",
        "disco-maze",
    ),
    _table(
        "table_hyper_discomaze",
        "Tab. 7, App. F.3",
        "Disco Maze hyperparameters",
        "What the Disco Maze has instead of the common hyperparameters.",
        _DISCO_MAZE,
        "disco-maze",
        "disco-maze-small",
    ),
    _table(
        "table_hyper_atari",
        "Tab. 8, App. F.4",
        "Atari pre-processing hyperparameters",
        "One frame in grey, four repeats, all 18 actions, up to 30 no-ops, 30 minutes.",
        _ATARI,
        "atari",
    ),
)
"""As experiments that run nothing."""

"""Every setting of the agent: frozen dataclasses, one group per part.

The same definitions serve Python, the command line (`--learner.batch-size 32`), configuration files and the docs: the
sentence under a field is its help text. Values are checked when a config is made, so a config that exists can be run.
All schedules count agent steps or learner updates, and say which; an agent step is one step of one environment,
automatic resets included. Where the defaults come from: see `presets.py` and the docs' table of decisions.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, Literal, NewType, get_args, get_origin, get_type_hints

from ngu.errors import UserError

Precision = Literal["fp32", "bf16", "fp16"]

JsonObject = NewType("JsonObject", str)
"""A JSON object as text, so that a config stays hashable; files and Python may give a table."""


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise UserError(sentence)


def _require_kinds(group: str, settings: Any) -> None:
    """Refuses wrong choices and types in groups that users make by hand; files are read with more care."""
    for name, kind in get_type_hints(type(settings)).items():
        if get_origin(kind) is Literal and getattr(settings, name) not in get_args(kind):
            choices = ", ".join(map(str, get_args(kind)))
            raise UserError(f"{group}.{name} is {getattr(settings, name)!r}; choose one of {choices}.")
    for entry in fields(settings):
        value, default = getattr(settings, entry.name), entry.default
        kind = Integral if isinstance(default, int) else Real
        if isinstance(default, int | float) and not isinstance(value, kind):
            words = {bool: "True or False", int: "a whole number", float: "a number"}
            raise UserError(f"{group}.{entry.name} is {value!r}; give {words[type(default)]}.")


def _json_object(name: str, text: str) -> JsonObject:
    """The same object always as the same text."""
    try:
        value = json.loads(text) if isinstance(text, str) else text
        if isinstance(value, dict):
            return JsonObject(json.dumps(value, sort_keys=True, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        pass
    raise UserError(f'{name} is {text!r}; give a JSON object, such as {{"size": 5}}.')


@dataclass(frozen=True)
class EnvConfig:
    """The environments that actors step."""

    name: Literal["disco-maze", "deep-sea", "random-coin", "minigrid", "atari", "gym"] = "disco-maze"
    """Which kind: Random Disco Maze, Deep Sea, random-coin grid, MiniGrid level, Atari game, Gymnasium environment."""
    num_envs: int = 64
    """How many environments act at the same time."""
    groups: int = 1
    """They are stepped in this many groups: the emulators of one work while actions for another are computed."""
    game: str = "montezuma_revenge"
    """Atari: which of the 57 games; short on the command line: --game."""
    backend: Literal["vector", "workers"] = "vector"
    """Atari: the emulator's own threads, or worker processes, which also read rooms and hand-crafted states."""
    noops: int = 30
    """Atari: an episode begins with 0 to this many no-ops."""
    max_frames: int = 108_000
    """Atari: an episode is cut (truncated) after this many frames."""
    id: str = ""
    """Gymnasium: the id, after its package if that registers it (my_package:MyEnv-v0); short: --env."""
    kwargs: JsonObject = JsonObject("{}")
    """Gymnasium: arguments for the environment's constructor, as a table or JSON: {"size": 5}."""
    threads: int = 0
    """Emulator threads of each group, which mostly work in turns; 0 for one on each core."""
    workers: int = 0
    """Worker processes over all groups; 0 for one on each core."""
    worker_timeout: float = 60.0
    """A worker process that does not answer for so many seconds is replaced."""
    max_restarts: int = 100
    """The run stops after so many restarts of worker processes."""
    maze_size: int = 9
    """Side of the maze in cells, walls included; odd, at least 5."""
    maze_step_cap: int = 100
    """An episode is cut (truncated) after this many steps; 0 for no cap."""
    maze_pool: int = 1024
    """How many mazes are generated at a time; each is used for one episode."""
    sea_size: int = 20
    """Deep Sea: rows and columns, 10 to 50 by custom; a random player finds the treasure once in 2^size episodes."""
    sea_seed: int = 42
    """Deep Sea: draws which action goes right in each cell, as bsuite's mapping_seed."""
    coin_size: int = 15
    """Random-coin grid: cells on a side of the room."""
    coin_step_cap: int = 200
    """Random-coin grid: an episode is cut (truncated) after this many steps."""
    level: str = "DoorKey-8x8"
    """MiniGrid: the level, of DoorKey, KeyCorridor or MultiRoom."""

    def __post_init__(self) -> None:
        for name in ("num_envs", "groups", "max_frames", "coin_step_cap"):
            _require(getattr(self, name) >= 1, f"env.{name} is {getattr(self, name)}; set it to 1 or more.")
        for name in ("sea_size", "coin_size"):
            _require(getattr(self, name) >= 2, f"env.{name} is {getattr(self, name)}; set it to 2 or more.")
        for name in ("noops", "threads", "workers", "max_restarts", "sea_seed"):
            _require(getattr(self, name) >= 0, f"env.{name} is {getattr(self, name)}; set it to 0 or more.")
        _require(self.worker_timeout > 0, f"env.worker_timeout is {self.worker_timeout}; set it above 0.")
        _require(
            self.num_envs % self.groups == 0,
            f"env.groups ({self.groups}) must divide env.num_envs ({self.num_envs}); "
            f"use {self.num_envs + -self.num_envs % self.groups} environments.",
        )
        _require(
            self.maze_size >= 5 and self.maze_size % 2 == 1,
            f"env.maze_size is {self.maze_size}; a maze needs an odd size of 5 or more, such as 9 or 21.",
        )
        _require(
            self.maze_step_cap >= 0,
            f"env.maze_step_cap is {self.maze_step_cap}; set it to 0 (no cap) or more.",
        )
        _require(self.maze_pool >= 1, f"env.maze_pool is {self.maze_pool}; set it to 1 or more.")
        object.__setattr__(self, "kwargs", _json_object("env.kwargs", self.kwargs))

    @property
    def on_device(self) -> bool:
        """The environments are tensors on the agent's own device; others are processes and threads on the host."""
        return self.name in ("disco-maze", "deep-sea", "random-coin")

    @property
    def which(self) -> str:
        """Which of its kind: the game, the level or the id; empty where there is but one."""
        return {"atari": self.game, "minigrid": self.level, "gym": self.id}.get(self.name, "")


@dataclass(frozen=True)
class MixtureConfig:
    """The family of policies Q(x, a, beta_i)."""

    num_mixtures: int = 1
    """N, the number of policies, 1 to 32 in the paper."""
    beta: float = 0.5
    """The largest weight of the intrinsic reward, beta_{N-1}."""
    discount_max: float = 0.99
    """gamma_0, of the exploitative policy; the only discount when N = 1."""
    discount_min: float = 0.99
    """gamma_{N-1}, of the most exploratory policy."""
    cross_mixture_ratio: float = 0.0
    """Share of sampled sequences that are trained as another policy than the one that collected them."""
    balanced: bool = False
    """Measure TD errors in units of their policy, in the loss and in drawing sequences; else the large ones rule."""
    epsilon_base: float = 0.4
    """Actor j of L explores with epsilon_base^(1 + epsilon_alpha j / (L - 1))."""
    epsilon_alpha: float = 8.0
    """See epsilon_base."""
    extrinsic: bool = True
    """Learn from r_e + beta_i r_i. Off: from beta_i r_i alone; the agent never sees r_e, scores are told as ever."""

    def __post_init__(self) -> None:
        _require(self.num_mixtures >= 1, f"mixture.num_mixtures is {self.num_mixtures}; set it to 1 or more.")
        _require(self.beta >= 0, f"mixture.beta is {self.beta}; set it to 0 or more.")
        _require(
            0 < self.discount_min <= self.discount_max < 1,
            "mixture.discount_min and mixture.discount_max must satisfy 0 < min <= max < 1, "
            f"not {self.discount_min} and {self.discount_max}.",
        )
        _require(
            0 <= self.cross_mixture_ratio <= 1,
            f"mixture.cross_mixture_ratio is {self.cross_mixture_ratio}; set it between 0 and 1.",
        )
        _require(
            self.cross_mixture_ratio == 0 or self.num_mixtures > 1,
            "mixture.cross_mixture_ratio needs mixture.num_mixtures of 2 or more; set the ratio to 0.",
        )
        _require(
            0 <= self.epsilon_base <= 1,
            f"mixture.epsilon_base is {self.epsilon_base}; set it between 0 and 1.",
        )
        _require(self.epsilon_alpha >= 0, f"mixture.epsilon_alpha is {self.epsilon_alpha}; set it to 0 or more.")


@dataclass(frozen=True)
class NoveltyConfig:
    """The never-give-up reward: episodic novelty times the clipped life-long modulator."""

    episodic: bool = True
    """Pay for what is new in this episode. Off: the reward is RND's error over its deviation (the RND baseline)."""
    lifelong: bool = True
    """Modulate the reward by alpha, RND's normalised error. Off: alpha is 1, and without `episodic` r_i is 0."""
    controllable_states: Literal["learned", "random", "hand-crafted"] = "learned"
    """Train the embedding f by inverse dynamics, leave it a random projection, or take what environments measure."""
    embedding_size: int = 32
    """p, the length of f's controllable states; a hand-crafted one has its own."""
    embedding_relu: bool = True
    """A ReLU after f's last layer. Where pictures hardly change, it may cut outputs off for all of them."""
    embedding_hidden: int = 128
    """Width of the hidden layer of the action classifier h."""
    embedding_whiten: bool = False
    """f takes observations less their running mean, over their deviation: where little moves, it sees what does."""
    embedding_keypoints: bool = False
    """f takes in where each channel of its convolutions is largest, so that it knows places that were never trained."""
    embedding_snapshots: int = 2
    """Frozen copies of f for running episodes; one that none uses is renewed. At most one more than environments."""
    filters: tuple[int, ...] = (16, 32)
    """Convolution channels of f and of RND's networks."""
    kernels: tuple[int, ...] = (3, 3)
    """Convolution kernel sizes."""
    strides: tuple[int, ...] = (1, 1)
    """Convolution strides."""
    hidden: tuple[int, ...] = (64, 64)
    """Layers of f and of RND's networks for vector observations."""
    memory_capacity: int = 5000
    """Slots of each environment's episodic memory; when full, the oldest entry goes first."""
    memory_episodes: int = 1
    """Episodes of a meta-episode: an environment's memory is wiped, and takes the newest f, every so many episodes."""
    neighbours: int = 10
    """k, the number of nearest neighbours."""
    kernel_epsilon: float = 1e-2
    """epsilon of the inverse kernel."""
    cluster_distance: float = 8e-3
    """xi: normalised squared distances below this count as 0."""
    pseudo_count: float = 1e-3
    """c, added to the root of the summed similarities."""
    max_similarity: float = 8.0
    """s_m: above this similarity the episodic reward is 0."""
    rescale_partial: bool = False
    """With fewer than k entries in memory, scale their similarities up to k instead of summing what is there."""
    distance_decay: float = 0.999
    """Per acting step, how much of the running mean of squared distances is kept."""
    max_modulation: float = 5.0
    """L: alpha is clipped to [1, L]."""
    modulator_decay: float = 0.0
    """Per acting step, how much of RND's running mean and deviation is kept; 0 averages over the whole life."""
    rnd_size: int = 128
    """Outputs of RND's target and predictor."""
    rnd_normalise: bool = True
    """Whiten RND's inputs with running statistics and clip them to [-5, 5], as RND's authors do."""
    learning_rate: float = 1e-3
    """Adam's rate for inverse dynamics."""
    rnd_learning_rate: float = 5e-4
    """Adam's rate for RND's predictor."""
    l2_weight: float = 1e-5
    """Weight of the L2 penalty on the inverse-dynamics networks."""
    train_frames: int = 5
    """How many of each sequence's last transitions train inverse dynamics and RND (see balance_actions)."""
    balance_actions: bool = False
    """Train inverse dynamics as if all actions were as likely, on as many drawn steps; else f learns the policy."""
    warm_up_steps: int = 0
    """Agent steps of random play at first that train f and RND alone; what was collected is then dropped."""
    warm_up_updates: int = 0
    """How many updates of f and RND that time is for. What an untrained f pays is then never learned from."""

    def __post_init__(self) -> None:
        _require_kinds("novelty", self)
        for name in (
            "embedding_size", "embedding_hidden", "embedding_snapshots", "memory_capacity", "neighbours", "rnd_size",
            "train_frames", "memory_episodes",
        ):  # fmt: skip
            _require(getattr(self, name) >= 1, f"novelty.{name} is {getattr(self, name)}; set it to 1 or more.")
        for name in (
            "kernel_epsilon",
            "pseudo_count",
            "learning_rate",
            "rnd_learning_rate",
            "max_similarity",
        ):
            _require(getattr(self, name) > 0, f"novelty.{name} is {getattr(self, name)}; set it above 0.")
        for name in ("cluster_distance", "l2_weight", "warm_up_steps", "warm_up_updates"):
            _require(getattr(self, name) >= 0, f"novelty.{name} is {getattr(self, name)}; set it to 0 or more.")
        _require(self.max_modulation >= 1, f"novelty.max_modulation is {self.max_modulation}; set it to 1 or more.")
        for name in ("distance_decay", "modulator_decay"):
            _require(0 <= getattr(self, name) < 1, f"novelty.{name} is {getattr(self, name)}; set it in [0, 1).")
        _require(
            self.embedding_snapshots >= 2 or self.controllable_states != "learned",
            "novelty.embedding_snapshots must be 2 or more, so that one can be renewed while episodes use another.",
        )
        _require(
            (self.warm_up_steps > 0) == (self.warm_up_updates > 0),
            f"novelty.warm_up_steps is {self.warm_up_steps} and novelty.warm_up_updates {self.warm_up_updates}; "
            "set both above 0, or both to 0.",
        )
        _check_layers("novelty", self)

    @property
    def hand_crafted(self) -> bool:
        """The episodic memory holds states that the environments measure; there is no f."""
        return self.episodic and self.controllable_states == "hand-crafted"


@dataclass(frozen=True)
class ProbeConfig:
    """Linear probes: how well the agent's place can be read off the embedding f, learned beside the agent."""

    enabled: bool = False
    """Train probes on the actors' steps and tell their errors. The environments must say where the agent is."""
    learning_rate: float = 1e-2
    """Adam's rate for the probes."""

    def __post_init__(self) -> None:
        _require(self.learning_rate > 0, f"probe.learning_rate is {self.learning_rate}; set it above 0.")


@dataclass(frozen=True)
class NetworkConfig:
    """The recurrent dueling Q-network."""

    filters: tuple[int, ...] = (16, 32)
    """Convolution channels."""
    kernels: tuple[int, ...] = (3, 3)
    """Convolution kernel sizes."""
    strides: tuple[int, ...] = (1, 1)
    """Convolution strides."""
    hidden: tuple[int, ...] = (64, 64)
    """Layers of the torso for vector observations."""
    torso_size: int = 256
    """Width of the fully connected layer behind the torso."""
    lstm_size: int = 256
    """Units of the LSTM."""
    whiten: bool = False
    """The torso takes observations less their running mean, over their deviation, as RND does; see embedding_whiten."""
    log_rewards: bool = False
    """The LSTM takes sign(r) log(1 + |r|) of both rewards in: novelty of 30, scores of 1,000 would flood its gates."""
    lstm_input_multiple: int = 1
    """The LSTM's input is padded with zeros to a multiple of this (128 lets cuDNN use its fastest kernels)."""
    forget_bias: float = 0.0
    """Is added to the first bias of the LSTM's forget gates: a new network remembers longer the higher it is."""
    dueling_size: int = 256
    """Width of the hidden layer of the value and of the advantage head."""

    def __post_init__(self) -> None:
        for name in ("torso_size", "lstm_size", "lstm_input_multiple", "dueling_size"):
            _require(getattr(self, name) >= 1, f"network.{name} is {getattr(self, name)}; set it to 1 or more.")
        _require(math.isfinite(self.forget_bias), f"network.forget_bias is {self.forget_bias}; give a finite number.")
        _check_layers("network", self)


@dataclass(frozen=True)
class ReplayConfig:
    """Prioritized sequence replay."""

    capacity: int = 100_000
    """Observations (one per transition, and one more per episode) kept over all environments."""
    trace_length: int = 20
    """Transitions in a sequence."""
    period: int = 20
    """Transitions between the starts of successive sequences of an episode."""
    burn_in: int = 0
    """Steps before a sequence that renew its recurrent state and are not trained; 0 (the paper's), or `period`."""
    lookahead: int = 0
    """Steps past a sequence's end, inside its episode, that its targets look at; they are not trained themselves."""
    cut_margin: int = 0
    """Last steps of an episode that was cut, by a time limit for instance, and did not end, that are not trained."""
    priority_exponent: float = 0.9
    """Sequences are drawn with probability proportional to priority to this power."""
    importance_exponent: float = 0.6
    """Importance weights are (1 / (n P))^this, over the largest of the batch; 0 turns them off."""
    priority_max_share: float = 0.9
    """Priority of a sequence: this times the largest |TD error| plus the rest times the mean."""
    min_sequences: int = 500
    """Learning starts when replay holds this many sequences."""
    place: Literal["device", "host"] = "device"
    """Where replay lies: with the agent on run.device, or in the host's memory, which is larger but slower."""
    max_memory_share: float = 0.8
    """Refuse to start if replay would need more than this share of the device's free memory."""

    def __post_init__(self) -> None:
        for name in ("capacity", "trace_length", "period", "min_sequences"):
            _require(getattr(self, name) >= 1, f"replay.{name} is {getattr(self, name)}; set it to 1 or more.")
        _require(
            self.period <= self.trace_length,
            f"replay.period ({self.period}) is longer than replay.trace_length ({self.trace_length}), so steps would "
            "be lost between sequences; set the period to the trace length or less.",
        )
        for name in ("lookahead", "cut_margin"):
            _require(getattr(self, name) >= 0, f"replay.{name} is {getattr(self, name)}; set it to 0 or more.")
        _require(
            self.burn_in in (0, self.period),
            f"replay.burn_in is {self.burn_in}; set it to 0, or to replay.period ({self.period}): recurrent states are "
            "stored at every so many steps.",
        )
        for name in ("priority_exponent", "importance_exponent", "priority_max_share"):
            _require(
                0 <= getattr(self, name) <= 1,
                f"replay.{name} is {getattr(self, name)}; set it between 0 and 1.",
            )
        _require(
            0 < self.max_memory_share <= 1,
            f"replay.max_memory_share is {self.max_memory_share}; set it above 0 and at most 1.",
        )


@dataclass(frozen=True)
class LearnerConfig:
    """Transformed Retrace double Q-learning."""

    batch_size: int = 32
    """Sequences in an update."""
    replay_ratio: float = 1.5
    """Trained steps (batch size times trace length, padding included) for each agent step."""
    learning_rate: float = 1e-3
    """Adam's rate for the Q-network."""
    rate_steps: tuple[int, ...] = ()
    """Agent steps at which rate_factors gives the rate; it rises linearly to the first. None for a constant rate."""
    rate_factors: tuple[float, ...] = ()
    """What learning_rate is multiplied by at rate_steps; between two of them it changes geometrically."""
    adam_beta1: float = 0.9
    """Adam's first-moment decay, of all losses."""
    adam_beta2: float = 0.999
    """Adam's second-moment decay, of all losses."""
    adam_epsilon: float = 1e-4
    """Adam's epsilon, of all losses."""
    clip_norm: float = 40.0
    """Gradients are scaled down to this norm, of each loss."""
    target_period: int = 100
    """Updates between copies of the online network to the target network."""
    average_share: float = 0.0
    """Evaluations and players use an exponential average of weights, with this share of updates as memory; 0: none."""
    retrace_lambda: float = 0.97
    """lambda of Retrace."""
    trace_tolerance: float = 0.0
    """kappa: actions worth at least V - kappa |V| count as the target policy's own in traces; 0 is Retrace itself."""
    advantage_learning: float = 0.0
    """Lowers the target of an action by this times what it is worth less than the best one: gaps grow 1/(1 - this)."""
    target_epsilon: float = 0.01
    """The target policy is epsilon-greedy with this epsilon."""
    value_transform: Literal["identity", "signed-sqrt"] = "identity"
    """h: identity, or sign(x)(sqrt(|x|+1)-1) + eps x."""
    value_transform_epsilon: float = 1e-3
    """eps of h."""
    max_skipped_updates: int = 100
    """The run stops, with a checkpoint, after this many updates in a row with a non-finite loss or gradient."""

    def __post_init__(self) -> None:
        _require_kinds("learner", self)
        for name in ("batch_size", "target_period", "max_skipped_updates"):
            _require(getattr(self, name) >= 1, f"learner.{name} is {getattr(self, name)}; set it to 1 or more.")
        for name in ("replay_ratio", "learning_rate", "adam_epsilon", "clip_norm", "value_transform_epsilon"):
            _require(getattr(self, name) > 0, f"learner.{name} is {getattr(self, name)}; set it above 0.")
        for name in ("retrace_lambda", "target_epsilon", "trace_tolerance"):
            _require(
                0 <= getattr(self, name) <= 1,
                f"learner.{name} is {getattr(self, name)}; set it between 0 and 1.",
            )
        _require(
            0 <= self.advantage_learning < 1,
            f"learner.advantage_learning is {self.advantage_learning}; set it to 0 (gaps as they are) or below 1.",
        )
        _require(
            0 <= self.average_share < 1,
            f"learner.average_share is {self.average_share}; set it to 0 (no average) or to a share below 1.",
        )
        for name in ("adam_beta1", "adam_beta2"):
            _require(0 <= getattr(self, name) < 1, f"learner.{name} is {getattr(self, name)}; set it in [0, 1).")
        _require(
            len(self.rate_steps) == len(self.rate_factors),
            f"learner.rate_steps has {len(self.rate_steps)} numbers and learner.rate_factors {len(self.rate_factors)}; "
            "give as many of both.",
        )
        _require(
            all(0 <= step < later for step, later in pairwise((*self.rate_steps, math.inf))),
            f"learner.rate_steps is {self.rate_steps}; give rising numbers of agent steps, 0 or more.",
        )
        _require(
            all(0 < factor < math.inf for factor in self.rate_factors),
            f"learner.rate_factors is {self.rate_factors}; give numbers above 0.",
        )


@dataclass(frozen=True)
class ActorConfig:
    """Acting."""

    update_period: int = 100
    """Acting steps between fetches of the learner's weights."""
    random_steps: int = 0
    """Act at random for so many agent steps (after a warm-up), learning beside it: new networks prefer one action."""

    def __post_init__(self) -> None:
        _require(self.update_period >= 1, f"actor.update_period is {self.update_period}; set it to 1 or more.")
        _require(self.random_steps >= 0, f"actor.random_steps is {self.random_steps}; set it to 0 or more.")


@dataclass(frozen=True)
class EvaluationConfig:
    """Policies beta_0 and beta_{N-1} on environments of their own."""

    num_envs: int = 128
    """Episodes of each policy in an evaluation (meta-episodes with novelty.memory_episodes), all at the same time."""
    epsilon: float = 0.0
    """The evaluated policies are epsilon-greedy with this epsilon."""
    max_steps: int = 100
    """Steps after which an evaluation episode is cut."""
    marks: tuple[int, ...] = (50, 100)
    """Steps at which the episode's measurements are reported."""
    period: int = 50_000
    """Agent steps between evaluations during training; 0 for one at the end alone."""
    seed: int = 1_000_003
    """Seed of the held-out environments; they are the same at every evaluation."""

    def __post_init__(self) -> None:
        for name in ("num_envs", "max_steps"):
            _require(getattr(self, name) >= 1, f"evaluation.{name} is {getattr(self, name)}; set it to 1 or more.")
        _require(0 <= self.epsilon <= 1, f"evaluation.epsilon is {self.epsilon}; set it between 0 and 1.")
        for name in ("period", "seed"):
            _require(getattr(self, name) >= 0, f"evaluation.{name} is {getattr(self, name)}; set it to 0 or more.")
        _require(
            all(1 <= mark <= self.max_steps for mark in self.marks),
            f"evaluation.marks {self.marks} must lie between 1 and evaluation.max_steps ({self.max_steps}).",
        )


@dataclass(frozen=True)
class RunConfig:
    """How long, where, and what is written down."""

    steps: int = 1_000_000
    """Agent steps to train for, over all environments."""
    runner: Literal["local", "ray"] = "local"
    """Acting and learning in this process, or actors and evaluator in processes of a Ray cluster (extra `ray`)."""
    seed: int = 0
    """Seed of everything random; the same seed gives the same run on the CPU."""
    device: str = "cpu"
    """Where everything runs: cpu, cuda, or auto for cuda where there is one."""
    precision: Precision = "fp32"
    """Arithmetic of the networks on a GPU: fp32, bf16 or fp16 (weights, targets and losses stay fp32)."""
    compile: bool = True
    """On a GPU, fuse small kernels with torch.compile."""
    threads: int = 0
    """CPU threads of PyTorch; 0 leaves its own choice."""
    folder: str = "runs"
    """Parent of the run's folder."""
    name: str = ""
    """Name of the run's folder; empty for preset, game, level or id, variant, seed and time."""
    log_period: int = 10_000
    """Agent steps between lines of metrics."""
    checkpoint_period: int = 250_000
    """Agent steps between checkpoints; 0 for one at the end alone."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints are kept."""
    checkpoint_replay: bool = True
    """Save the replay with the checkpoint, so that a resumed run goes on exactly."""
    tensorboard: bool = True
    """Write TensorBoard event files beside the JSON lines."""
    wandb: bool = False
    """Also log to Weights & Biases (needs the extra `wandb`)."""

    def __post_init__(self) -> None:
        for name in ("steps", "log_period", "keep_checkpoints"):
            _require(getattr(self, name) >= 1, f"run.{name} is {getattr(self, name)}; set it to 1 or more.")
        for name in ("checkpoint_period", "threads", "seed"):
            _require(getattr(self, name) >= 0, f"run.{name} is {getattr(self, name)}; set it to 0 or more.")
        _require(self.threads <= 1024, f"run.threads is {self.threads}; set it to the machine's cores or less.")
        _require(
            "/" not in self.name and "\\" not in self.name and self.name not in (".", ".."),
            f"run.name '{self.name}' must be a plain folder name; use run.folder for its parent.",
        )


@dataclass(frozen=True)
class RayConfig:
    """Actors as processes of a Ray cluster (`run.runner` ray); each has one of the env.groups of environments."""

    address: str = ""
    """The cluster's address, or auto for the one that this machine is part of; empty to start one for this run."""
    cpus_per_actor: float = 1.0
    """Cores that an actor asks the cluster for; it uses as many threads, and one at least."""
    chunk_steps: int = 40
    """Steps of each environment that an actor sends at once."""
    queued_chunks: int = 2
    """Chunks of an actor that may be under way; it waits when the learner has not taken the oldest."""
    compression: Literal["auto", "always", "never"] = "auto"
    """Whether frames are compressed: auto does where they travel to another machine."""
    timeout: float = 300.0
    """Seconds after which an actor that runs and sends nothing is replaced; the evaluator has it for 1,000 steps."""
    max_failures: int = 5
    """How often in a row an actor may fail without sending a chunk before the run stops."""

    def __post_init__(self) -> None:
        for name in ("cpus_per_actor", "timeout"):
            _require(getattr(self, name) > 0, f"ray.{name} is {getattr(self, name)}; set it above 0.")
        for name in ("chunk_steps", "queued_chunks", "max_failures"):
            _require(getattr(self, name) >= 1, f"ray.{name} is {getattr(self, name)}; set it to 1 or more.")


@dataclass(frozen=True)
class Config:
    """All settings of a run."""

    preset: str = "disco-maze-small"
    """The preset that this config began as; a label, not a switch."""
    variant: str = "ngu"
    """The variant that was applied to the preset; a label, not a switch."""
    env: EnvConfig = field(default_factory=EnvConfig)
    mixture: MixtureConfig = field(default_factory=MixtureConfig)
    novelty: NoveltyConfig = field(default_factory=NoveltyConfig)
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    actor: ActorConfig = field(default_factory=ActorConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        envs, trace = self.env.num_envs, self.replay.trace_length
        slots, needed = self.replay.capacity // envs, 2 * (trace + 1)
        _require(
            slots >= needed,
            f"replay.capacity ({self.replay.capacity}) leaves {slots} steps to each of {envs} environments, but a "
            f"trace of {trace} needs {needed}; raise the capacity to {needed * envs} or shorten replay.trace_length.",
        )
        for name in ("lookahead", "cut_margin"):
            _require(
                getattr(self.replay, name) <= slots,
                f"replay.{name} ({getattr(self.replay, name)}) is more than the {slots} steps that replay keeps of "
                f"each environment; set it to {slots} or less.",
            )
        _require(
            self.env.name != "deep-sea" or self.evaluation.max_steps >= self.env.sea_size,
            f"evaluation.max_steps ({self.evaluation.max_steps}) is less than the {self.env.sea_size} steps of a dive, "
            f"so no evaluation could find the treasure; set it to {self.env.sea_size} or more.",
        )
        _require(
            self.mixture.num_mixtures <= envs,
            f"mixture.num_mixtures ({self.mixture.num_mixtures}) is more than env.num_envs ({envs}), so some policies "
            "would never act; use as many environments as policies, or more.",
        )
        _require(
            not self.probe.enabled or (self.novelty.episodic and not self.novelty.hand_crafted),
            "probe.enabled needs an embedding f to look at; set novelty.episodic, and novelty.controllable_states to "
            "learned or random, or leave probes off.",
        )
        _require(
            not self.probe.enabled or self.run.runner == "local",
            f"probe.enabled needs run.runner local, not {self.run.runner}; leave probes off on a cluster.",
        )
        most_sequences = envs * ((slots - 1 - trace) // self.replay.period + 1)
        _require(
            self.replay.min_sequences <= most_sequences,
            f"replay.min_sequences ({self.replay.min_sequences}) is more than a replay of capacity "
            f"{self.replay.capacity} holds when episodes are long; set it to {most_sequences} or less.",
        )
        sequences = -(-self.replay.min_sequences // envs)
        until_learning = envs * (trace + 1 + (sequences - 1) * self.replay.period)
        _require(
            self.warm_up_updates == 0 or self.novelty.warm_up_steps >= until_learning,
            f"novelty.warm_up_steps ({self.novelty.warm_up_steps}) is over before replay holds replay.min_sequences "
            f"({self.replay.min_sequences}); set it to {until_learning} or more, or lower replay.min_sequences.",
        )
        longest = slots - trace - 1
        _require(
            self.run.runner != "ray" or self.ray.chunk_steps <= longest,
            f"ray.chunk_steps ({self.ray.chunk_steps}) is too long for a replay that keeps {slots} steps of each "
            f"environment; set it to {longest} or less, or raise replay.capacity.",
        )  # a chunk must not overwrite rows of the sequences that it completes

    @property
    def steps_per_update(self) -> float:
        """Collected steps for each learner update."""
        return self.learner.batch_size * self.replay.trace_length / self.learner.replay_ratio

    @property
    def random_acting_steps(self) -> int:
        """How many steps each environment acts at random at first."""
        warm_up = self.novelty.warm_up_steps if self.warm_up_updates else 0
        return -(-(warm_up + self.actor.random_steps) // self.env.num_envs)

    @property
    def warm_up_updates(self) -> int:
        """Updates of f and RND before anything else is learned; none where there is neither."""
        learns = self.novelty.lifelong or (self.novelty.episodic and self.novelty.controllable_states == "learned")
        return self.novelty.warm_up_updates if learns else 0


def _check_layers(group: str, config: NoveltyConfig | NetworkConfig) -> None:
    sizes = len(config.filters), len(config.kernels), len(config.strides)
    _require(
        len(set(sizes)) == 1,
        f"{group}.filters, {group}.kernels and {group}.strides must have the same length, not {sizes[0]}, {sizes[1]} "
        f"and {sizes[2]}.",
    )
    for name in ("filters", "kernels", "strides", "hidden"):
        values = getattr(config, name)
        _require(all(value >= 1 for value in values), f"{group}.{name} is {values}; its entries must be 1 or more.")

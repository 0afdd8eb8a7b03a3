"""Acting alone: from observations on the host to actions on the host, with emulators that stand still.

So the time of any number of environments can be measured without making emulators.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ngu.actor import Actor
from ngu.agent import make_actor, make_learner
from ngu.benchmarks.timing import milliseconds
from ngu.benchmarks.whole import fill_memory
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.envs.protocol import EnvironmentSpec, Step
from ngu.graphs import Graphed
from ngu.learner import Learner
from ngu.machine import free_memory
from ngu.mixture import actor_epsilons, actor_mixtures
from ngu.novelty.episodic import EpisodicMemory
from ngu.novelty.nearest import search_nearest
from ngu.replay import SequenceReplay


@dataclass(frozen=True)
class ActingTime:
    """One acting step of all environments of a group."""

    num_envs: int
    num_mixtures: int
    memory_filled: int
    """Entries in each episodic memory."""
    step_ms: float
    """From observations on the host to actions on the host: copies, novelty, Q-network, writing to replay."""
    compute_ms: float
    """Of it everything but the copies between host and device."""
    knn_ms: float | None
    """Of it the nearest-neighbour search, measured alone; None without an episodic memory."""


@dataclass(frozen=True)
class Growth:
    """How the time of an acting step grows."""

    environments: list[ActingTime]
    """With empty and with full memories."""
    memory_filled: list[ActingTime]
    mixtures: list[ActingTime]
    """With the number N of policies."""
    too_large: list[int]
    """Numbers of environments whose memories would not have fitted."""


class StillEnvironment:
    """Environments on the host that take no time and always show the same random observation."""

    graph_safe = False
    restores = False
    device = torch.device("cpu")
    generators: tuple[torch.Generator, ...] = ()

    def __init__(self, spec: EnvironmentSpec, num_envs: int) -> None:
        self.spec = spec
        self.num_envs = num_envs
        generator = torch.Generator().manual_seed(0)
        nothing = torch.zeros(num_envs, dtype=torch.bool)
        observation = torch.rand(num_envs, *spec.observation_shape, generator=generator)
        if spec.observation_dtype == torch.uint8:
            observation = (observation * 255).to(torch.uint8)
        self._step = Step(
            observation=observation,
            reward=torch.zeros(num_envs),
            terminated=nothing,
            truncated=nothing,
            first=nothing,
            info={name: torch.zeros(num_envs) for name in spec.measurements},
        )

    def reset(self, seed: int) -> Step:  # noqa: ARG002
        return dataclasses.replace(self._step, first=torch.ones(self.num_envs, dtype=torch.bool))

    def send(self, action: Tensor) -> None:
        """Nothing happens."""

    def recv(self) -> Step:
        return self._step

    def maintain(self) -> None:
        """Nothing to do."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to take over."""

    def close(self) -> None:
        """Nothing to end."""


def still_actor(config: Config, spec: EnvironmentSpec, num_envs: int, learner: Learner) -> Actor:
    """An actor as the agent's, with a short replay of its own and environments that stand still."""
    device = learner.device
    mixture = torch.tensor(actor_mixtures(num_envs, config.mixture.num_mixtures), device=device)
    epsilon = torch.tensor(
        actor_epsilons(num_envs, config.mixture.epsilon_base, config.mixture.epsilon_alpha), device=device
    )
    place = device if config.replay.place == "device" else torch.device("cpu")
    short = dataclasses.replace(config.replay, capacity=2 * (config.replay.trace_length + 1) * num_envs)
    replay = SequenceReplay(
        spec, mixture.to(place), config.network.lstm_size, short, place, torch.Generator(place).manual_seed(0)
    )
    env = StillEnvironment(spec, num_envs)
    generator = torch.Generator(device).manual_seed(0)
    actor = make_actor(config, env, learner, mixture, epsilon, generator, replay)
    actor.reset(0)
    return actor


def acting_times(actor: Actor, fills: Sequence[int], seconds: float = 0.5) -> list[ActingTime]:
    """Times of an acting step with memories of each fill; each is measured for `seconds`."""
    memory, device = actor.novelty.memory, actor.device
    if memory is not None:
        fill_memory(memory, 0)
    times = []
    for fill in fills:

        def hold(entries: int = fill) -> None:
            # Every step adds an entry.
            if memory is not None:
                memory.written.fill_(entries)

        times.append(
            ActingTime(
                num_envs=actor.env.num_envs,
                num_mixtures=actor.network.num_mixtures,
                memory_filled=fill,
                step_ms=milliseconds(actor.step, device, seconds, before=hold),
                compute_ms=milliseconds(actor._step, device, seconds, before=hold),
                knn_ms=None if memory is None else _search_ms(memory, fill, actor.novelty.config.neighbours, seconds),
            )
        )
    return times


def _search_ms(memory: EpisodicMemory, fill: int, neighbours: int, seconds: float) -> float:
    """The nearest-neighbour search alone."""
    device = memory.entries.device
    query = torch.rand_like(memory.entries[:, 0])
    filled = torch.full_like(memory.written, fill)
    search = Graphed(lambda: search_nearest(query, memory.entries, filled, neighbours), device)
    return milliseconds(search, device, seconds)


def measure_growth(config: Config, spec: EnvironmentSpec, learner: Learner, fill: int, seconds: float = 0.5) -> Growth:
    """Times of an acting step over environments, memory fill and N, from the config's own number of environments.

    `fill` is how full the memories are where N grows; each time is measured for `seconds`.
    """
    envs, full = config.env.num_envs, memory_slots(config)
    environments, too_large = [], []
    for number in sorted({max(envs // part, 1) for part in (8, 4, 2, 1)} | {2 * envs}):
        _release(learner.device)
        if 4 * number * full * config.novelty.embedding_size > free_memory(learner.device) // 2:
            too_large.append(number)
        else:
            environments += acting_times(still_actor(config, spec, number, learner), sorted({0, full}), seconds)
    filled = acting_times(still_actor(config, spec, envs, learner), stated_fills(config, (1000, 10_000)), seconds)
    mixtures = []
    for number in sorted({1, 8, 32, config.mixture.num_mixtures}):
        if number <= envs:
            changed = with_overrides(config, {"mixture.num_mixtures": number, "mixture.cross_mixture_ratio": 0.0})
            other = make_learner(changed, spec, learner.device)
            mixtures += acting_times(still_actor(changed, spec, envs, other), [fill], seconds)
    return Growth(environments, filled, mixtures, too_large)


def _release(device: torch.device) -> None:
    """Gives back the memory of actors that have been measured."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def memory_slots(config: Config) -> int:
    """Entries of a full memory that is never wiped; 0 where there is none."""
    return config.novelty.memory_capacity if config.novelty.episodic else 0


def stated_fills(config: Config, between: Sequence[int]) -> list[int]:
    """Empty, those `between` that fit, and full."""
    full = memory_slots(config)
    return sorted({0, full, *(fill for fill in between if fill < full)})

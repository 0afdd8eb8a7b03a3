"""Puts the parts together: environments, actor, replay, learner, evaluator, all from one config and one seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ngu.actor import Actor
from ngu.checkpoint import check_shapes
from ngu.config import Config
from ngu.envs.make import make_environment
from ngu.envs.protocol import EnvironmentBatch, EnvironmentSpec
from ngu.learner import Learner
from ngu.mixture import Mixture, actor_epsilons, actor_mixtures, grouped_actors
from ngu.networks import QNetwork
from ngu.novelty.model import NoveltyModel
from ngu.novelty.probe import LinearProbe
from ngu.novelty.reward import IntrinsicReward
from ngu.precision import storage_dtype
from ngu.randomness import make_generator, seed_of
from ngu.replay import SequenceReplay
from ngu.retrace import Objective, ValueTransform
from ngu.sequences import RowSink


@dataclass
class Agent:
    """The parts of a training run on one device."""

    config: Config
    device: torch.device
    learner: Learner
    replay: SequenceReplay
    actors: list[Actor]
    """One for each group of environments."""

    @classmethod
    def create(cls, config: Config, device: torch.device) -> Agent:
        """Builds all parts; nothing has acted or learned yet."""
        seed, groups = config.run.seed, config.env.groups
        mixture, epsilon = slots_of(config, device)
        size = config.env.num_envs // groups
        batches: list[EnvironmentBatch] = []
        try:
            # A replay that does not fit is refused before the other groups' emulators are made, which takes long.
            batches.append(make_environment(config, size, device, share=groups))
            learner = make_learner(config, batches[0].spec, device)
            replay = make_replay(config, batches[0].spec, mixture, device)
            batches += [make_environment(config, size, device, share=groups) for _ in range(1, groups)]
        except BaseException:
            for batch in batches:
                batch.close()
            raise
        actors = []
        for group, env in enumerate(batches):
            streams = slice(group * size, (group + 1) * size)
            generator = make_generator(seed, "acting", device, group)
            actors.append(
                make_actor(config, env, learner, mixture[streams], epsilon[streams], generator, replay, streams)
            )
        return cls(config, device, learner, replay, actors)

    def close(self) -> None:
        """Ends the environments' threads and processes."""
        for actor in self.actors:
            actor.env.close()


def slots_of(config: Config, device: torch.device) -> tuple[Tensor, Tensor]:
    """Policy and epsilon of each environment, [E], in the order of their groups."""
    envs, mixtures = config.env.num_envs, config.mixture.num_mixtures
    order = grouped_actors(envs, mixtures, config.env.groups)
    mixture = actor_mixtures(envs, mixtures)
    epsilon = actor_epsilons(envs, config.mixture.epsilon_base, config.mixture.epsilon_alpha)
    return (
        torch.tensor([mixture[j] for j in order], device=device),
        torch.tensor([epsilon[j] for j in order], device=device),
    )


def make_learner(config: Config, spec: EnvironmentSpec, device: torch.device) -> Learner:
    """A learner whose networks depend on the run's seed alone, not on the device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(config.run.seed, "networks"))
        return Learner(spec, config, device, make_generator(config.run.seed, "learning", device))


def make_replay(config: Config, spec: EnvironmentSpec, mixture: Tensor, device: torch.device) -> SequenceReplay:
    """The replay of all environments, on the device or, if the config says so, on the host."""
    place = device if config.replay.place == "device" else torch.device("cpu")
    generator = make_generator(config.run.seed, "replay", place)
    return SequenceReplay(
        spec, mixture.to(place), config.network.lstm_size, config.replay, place, generator,
        balanced=config.mixture.balanced,
    )  # fmt: skip


class Teacher(Protocol):
    """What actors copy: a learner, or networks that are given a learner's weights."""

    device: torch.device
    network: QNetwork
    novelty: NoveltyModel
    mixture: Mixture
    transform: ValueTransform

    @property
    def playing(self) -> QNetwork:
        """The network for an actor that collects nothing."""


class Pupil:
    """The networks of a process that acts or evaluates for a learner elsewhere."""

    def __init__(self, config: Config, spec: EnvironmentSpec, device: torch.device) -> None:
        self.device = device
        self.network = QNetwork(spec, config.mixture.num_mixtures, config.network).to(device).requires_grad_(False)
        self.novelty = NoveltyModel(spec, config.novelty).to(device).requires_grad_(False)
        self.mixture = Mixture.create(config.mixture, device)
        self.transform = ValueTransform.create(config.learner)

    @property
    def playing(self) -> QNetwork:
        """Whatever network it was given."""
        return self.network

    def load(self, weights: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Takes over what `weights_of` gave."""
        self.network.load_state_dict(weights["network"])
        self.novelty.load_state_dict(weights["novelty"])


def weights_of(teacher: Teacher, playing: bool = False) -> dict[str, dict[str, Tensor]]:
    """The weights that a `Pupil` takes over, on the CPU: for collecting or, if `playing`, for evaluating."""
    network = teacher.playing if playing else teacher.network
    parts = {"network": network.state_dict(), "novelty": teacher.novelty.state_dict()}
    return {part: {name: value.cpu() for name, value in state.items()} for part, state in parts.items()}


def make_actor(
    config: Config,
    env: EnvironmentBatch,
    learner: Teacher,
    mixture: torch.Tensor,
    epsilon: torch.Tensor,
    generator: torch.Generator,
    replay: RowSink | None = None,
    streams: slice = slice(None),
) -> Actor:
    """An actor with copies of the learner's networks; `streams` are its part of replay.

    One that collects experience trains a probe of f beside it, if the config says so.
    """
    device = learner.device
    network = QNetwork(env.spec, config.mixture.num_mixtures, config.network).to(device)
    network.load_state_dict((learner.playing if replay is None else learner.network).state_dict())
    network.store_in(storage_dtype(device, config.run.precision))
    novelty = IntrinsicReward(
        env.spec,
        env.num_envs,
        config.novelty,
        device,
        precision=config.run.precision,
        model=learner.novelty,
    )
    ladder = learner.mixture
    objective = Objective(
        ladder.beta[mixture], ladder.discount[mixture], learner.transform, config.learner.advantage_learning
    )
    probe: LinearProbe | None = None
    if config.probe.enabled and replay is not None:
        probe = LinearProbe(config.novelty.embedding_size, env.spec, config.probe, config.learner, device)
    return Actor(
        env, network, novelty, mixture, epsilon, generator, replay, objective, config.run.precision, streams, probe,
        sees_extrinsic=config.mixture.extrinsic, random_start=config.random_acting_steps > 0 and replay is not None,
    )  # fmt: skip


def load_policy(
    config: Config, env: EnvironmentBatch, state: dict[str, Any], device: torch.device
) -> tuple[Learner, IntrinsicReward]:
    """From a checkpoint's state, what playing needs: the learner's networks and the actors' running statistics.

    Without replay or environments, and also on another kind of device than the one that trained.
    """
    learner = make_learner(config, env.spec, device)
    # A generator's state fits its own kind of device alone, and playing does not need it.
    saved = {**state["learner"], "generator": learner.generator.get_state()}
    check_shapes({"learner": learner.state_dict()}, {"learner": saved})
    learner.load_state_dict(saved)
    size = config.env.num_envs // config.env.groups
    statistics = IntrinsicReward(env.spec, size, config.novelty, device, model=learner.novelty)
    novelty = state["actors"]["0"]["novelty"]
    check_shapes({"novelty": statistics.state_dict()}, {"novelty": novelty})
    statistics.load_state_dict(novelty)
    return learner, statistics

"""Puts the parts together: environments, actor, replay, learner, evaluator, all from one config and one seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ngu.actor import Actor
from ngu.checkpoint import check_shapes
from ngu.config import Config
from ngu.envs.make import make_environment
from ngu.envs.protocol import EnvironmentBatch
from ngu.learner import Learner
from ngu.mixture import actor_epsilons, actor_mixtures, grouped_actors
from ngu.networks import QNetwork
from ngu.novelty.reward import IntrinsicReward
from ngu.precision import storage_dtype
from ngu.randomness import make_generator, seed_of
from ngu.replay import SequenceReplay
from ngu.retrace import Objective


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
        seed, envs, groups = config.run.seed, config.env.num_envs, config.env.groups
        order = grouped_actors(envs, config.mixture.num_mixtures, groups)
        mixtures = actor_mixtures(envs, config.mixture.num_mixtures)
        epsilons = actor_epsilons(envs, config.mixture.epsilon_base, config.mixture.epsilon_alpha)
        mixture = torch.tensor([mixtures[j] for j in order], device=device)
        epsilon = torch.tensor([epsilons[j] for j in order], device=device)
        size = envs // groups
        batches: list[EnvironmentBatch] = []
        try:
            # A replay that does not fit is refused before the other groups' emulators are made, which takes long.
            batches.append(make_environment(config, size, device, share=groups))
            learner = make_learner(config, batches[0], device)
            place = device if config.replay.place == "device" else torch.device("cpu")
            replay = SequenceReplay(
                batches[0].spec,
                mixture.to(place),
                config.network.lstm_size,
                config.replay,
                place,
                make_generator(seed, "replay", place),
            )
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


def make_learner(config: Config, env: EnvironmentBatch, device: torch.device) -> Learner:
    """A learner whose networks depend on the run's seed alone, not on the device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(config.run.seed, "networks"))
        return Learner(env.spec, config, device, make_generator(config.run.seed, "learning", device))


def make_actor(
    config: Config,
    env: EnvironmentBatch,
    learner: Learner,
    mixture: torch.Tensor,
    epsilon: torch.Tensor,
    generator: torch.Generator,
    replay: SequenceReplay | None = None,
    streams: slice = slice(None),
) -> Actor:
    """An actor with copies of the learner's networks; `streams` are its part of replay."""
    device = learner.device
    network = QNetwork(env.spec, config.mixture.num_mixtures, config.network).to(device)
    network.load_state_dict(learner.network.state_dict())
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
    objective = Objective(ladder.beta[mixture], ladder.discount[mixture], learner.transform)
    return Actor(env, network, novelty, mixture, epsilon, generator, replay, objective, config.run.precision, streams)


def load_policy(
    config: Config, env: EnvironmentBatch, state: dict[str, Any], device: torch.device
) -> tuple[Learner, IntrinsicReward]:
    """From a checkpoint's state, what playing needs: the learner's networks and the actors' running statistics.

    Without replay or environments, and also on another kind of device than the one that trained.
    """
    learner = make_learner(config, env, device)
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

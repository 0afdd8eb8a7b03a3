"""Puts the parts together: environments, actor, replay, learner, evaluator, all from one config and one seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ngu.actor import Actor
from ngu.config import Config
from ngu.envs import DiscoMaze, EnvironmentBatch
from ngu.learner import Learner
from ngu.mixture import actor_epsilons, actor_mixtures
from ngu.networks import QNetwork
from ngu.novelty.reward import IntrinsicReward
from ngu.replay import SequenceReplay

# Each use of randomness has a stream of its own, so that a change in one does not move the others.
_STREAMS = ("networks", "environments", "acting", "replay", "learning")


def seed_of(run_seed: int, stream: str) -> int:
    """The seed of one random stream of a run."""
    return int(np.random.SeedSequence([run_seed, _STREAMS.index(stream)]).generate_state(1, np.uint64)[0] >> 1)


def make_generator(run_seed: int, stream: str, device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed_of(run_seed, stream))


def make_environment(config: Config, num_envs: int, device: torch.device) -> EnvironmentBatch:
    """The batch of environments that the config names."""
    env = config.env
    return DiscoMaze(
        num_envs=num_envs,
        size=env.maze_size,
        step_cap=env.maze_step_cap,
        pool=env.maze_pool,
        device=device,
        compile_kernels=config.run.compile and device.type == "cuda",
    )


@dataclass
class Agent:
    """The parts of a training run on one device."""

    config: Config
    device: torch.device
    env: EnvironmentBatch
    learner: Learner
    replay: SequenceReplay
    actor: Actor

    @classmethod
    def create(cls, config: Config, device: torch.device) -> Agent:
        """Builds all parts; nothing has acted or learned yet."""
        seed = config.run.seed
        env = make_environment(config, config.env.num_envs, device)
        learner = make_learner(config, env, device)
        envs = config.env.num_envs
        mixture = torch.tensor(actor_mixtures(envs, config.mixture.num_mixtures), device=device)
        epsilon = torch.tensor(
            actor_epsilons(envs, config.mixture.epsilon_base, config.mixture.epsilon_alpha), device=device
        )
        replay = SequenceReplay(
            env.spec,
            mixture,
            config.network.lstm_size,
            config.replay,
            device,
            make_generator(seed, "replay", device),
        )
        actor = make_actor(config, env, learner, mixture, epsilon, make_generator(seed, "acting", device), replay)
        return cls(config, device, env, learner, replay, actor)


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
) -> Actor:
    """An actor with copies of the learner's networks."""
    network = QNetwork(env.spec, config.mixture.num_mixtures, config.network).to(env.device)
    network.load_state_dict(learner.network.state_dict())
    novelty = IntrinsicReward(
        env.spec,
        env.num_envs,
        config.novelty,
        env.device,
        precision=config.run.precision,
        model=learner.novelty,
    )
    return Actor(env, network, novelty, mixture, epsilon, generator, replay, config.run.precision)

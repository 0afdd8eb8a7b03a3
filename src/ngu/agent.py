"""Puts the parts together: environments, actor, replay, learner, evaluator, all from one config and one seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ngu.actor import Actor
from ngu.checkpoint import check_shapes
from ngu.config import Config
from ngu.envs import DiscoMaze, EnvironmentBatch
from ngu.learner import Learner
from ngu.mixture import actor_epsilons, actor_mixtures
from ngu.networks import QNetwork
from ngu.novelty.reward import IntrinsicReward
from ngu.randomness import make_generator, seed_of
from ngu.replay import SequenceReplay
from ngu.retrace import Objective


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
    device = learner.device
    network = QNetwork(env.spec, config.mixture.num_mixtures, config.network).to(device)
    network.load_state_dict(learner.network.state_dict())
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
    return Actor(env, network, novelty, mixture, epsilon, generator, replay, objective, config.run.precision)


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
    statistics = IntrinsicReward(env.spec, config.env.num_envs, config.novelty, device, model=learner.novelty)
    novelty = state["actor"]["novelty"]
    check_shapes({"novelty": statistics.state_dict()}, {"novelty": novelty})
    statistics.load_state_dict(novelty)
    return learner, statistics

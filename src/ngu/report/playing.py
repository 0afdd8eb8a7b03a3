"""Plays with a run's newest checkpoint, for pictures.

Everything happens on the CPU, with the weights and the statistics of RND's error that the checkpoint holds. Nothing of
the run is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from ngu.actor import Actor
from ngu.agent import load_policy, make_actor
from ngu.checkpoint import Checkpoint, load_newest
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.envs.protocol import EnvironmentBatch
from ngu.errors import UserError, unknown_name
from ngu.novelty.lifelong import clipped_modulator
from ngu.run_folder import RunFolder

PolicyName = Literal["explore", "exploit"]
"""beta_{N-1} and beta_0; they are the same when N = 1."""

_CPU = torch.device("cpu")


@dataclass
class Player:
    """A trained policy that is yet to be given environments."""

    config: Config
    """The run's, on the CPU and in full precision."""
    checkpoint: Checkpoint
    mixture: int
    """The policy's index."""

    @classmethod
    def load(cls, run: Path, policy: str) -> Player:
        """Reads the newest intact checkpoint of a run's folder."""
        if policy not in get_args(PolicyName):
            raise UserError(unknown_name(f"the policy {policy}", policy, get_args(PolicyName)))
        folder = RunFolder.open(run)
        own = {"run.device": "cpu", "run.precision": "fp32", "run.compile": False}
        config = with_overrides(folder.config, own)
        checkpoint = load_newest(folder.checkpoints, without=("replay",))
        return cls(config, checkpoint, config.mixture.num_mixtures - 1 if policy == "explore" else 0)

    def actor(self, env: EnvironmentBatch, seed: int) -> Actor:
        """The policy in all of these environments, with the evaluation's epsilon; the seed is that of its chances."""
        config, envs = self.config, env.num_envs
        learner, statistics = load_policy(config, env, self.checkpoint.state, _CPU)
        policies, epsilons = torch.full((envs,), self.mixture), torch.full((envs,), config.evaluation.epsilon)
        actor = make_actor(config, env, learner, policies, epsilons, torch.Generator())
        actor.novelty.restart(learner.novelty, statistics)
        actor.generator.manual_seed(seed)
        return actor


def episodic_part(config: Config, actor: Actor) -> Tensor:
    """[E], the episodic part of the newest r_i = r_episodic * clip(alpha); RND alone has none."""
    if not config.novelty.episodic:
        return torch.zeros_like(actor.intrinsic)
    return actor.intrinsic / clipped_modulator(actor.alpha, config.novelty.max_modulation)

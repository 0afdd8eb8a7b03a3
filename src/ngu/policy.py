"""A trained policy outside of training: one observation in, one action out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ngu.actor import choose_actions
from ngu.config import Config
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError
from ngu.learner import Learner
from ngu.networks import AgentInput, QNetwork, RecurrentState
from ngu.novelty.reward import IntrinsicReward
from ngu.randomness import make_generator


@dataclass
class PolicyState:
    """What a policy carries from one observation of an episode to the next. It is updated in place."""

    recurrent: RecurrentState
    previous_action: Tensor
    novelty: IntrinsicReward
    intrinsic: Tensor
    """[B] r_i of the newest observation"""
    generator: torch.Generator
    """Draws the random actions."""


class Policy:
    """Acts greedily (or epsilon-greedily) with one member of the family."""

    def __init__(self, config: Config, spec: EnvironmentSpec, learner: Learner, statistics: IntrinsicReward) -> None:
        self.config = config
        self.spec = spec
        self.learner = learner
        self.statistics = statistics
        self.device = learner.device

    def begin(self, batch: int) -> PolicyState:
        """The state at the start of `batch` episodes."""
        network: QNetwork = self.learner.playing
        novelty = IntrinsicReward(self.spec, batch, self.config.novelty, self.device, model=self.learner.novelty)
        novelty.restart(self.learner.novelty, self.statistics)
        nothing = torch.full((batch,), -1, dtype=torch.int64, device=self.device)
        generator = make_generator(self.config.run.seed, "acting", self.device)
        pays_nothing = torch.zeros(batch, device=self.device)
        return PolicyState(network.initial_state(batch), nothing, novelty, pays_nothing, generator)

    @torch.no_grad()
    def act(
        self,
        observation: Tensor,
        state: PolicyState,
        reward: Tensor,
        mixture: int,
        epsilon: float,
        controllable_state: Tensor | None = None,
    ) -> Tensor:
        """Actions [B] for observations [B, *observation_shape]; `reward` [B] is what the last step brought.

        `controllable_state` [B, D] is for policies that were trained with hand-crafted ones, and required by them.
        """
        first = state.previous_action < 0
        state.intrinsic = state.novelty(observation, first, controllable_state=controllable_state)
        batch = len(observation)
        index = torch.full((batch,), mixture, device=self.device)
        extrinsic = reward if self.config.mixture.extrinsic else torch.zeros_like(reward)
        inputs = AgentInput(observation, state.previous_action, extrinsic, state.intrinsic, index)
        q, state.recurrent = self.learner.playing.step(inputs, state.recurrent)
        draw = torch.rand(2, batch, device=self.device, generator=state.generator)
        state.previous_action, _ = choose_actions(q, torch.full((batch,), epsilon, device=self.device), draw)
        return state.previous_action

    def check_state(self, state: Any, batch: int) -> None:
        """Refuses a state that does not fit this policy and so many observations."""
        if not isinstance(state, PolicyState):
            raise UserError(
                f"the state is of the type {type(state).__name__}; give what the last call of predict returned beside "
                "the action, or None at the start of an episode."
            )
        if len(state.previous_action) != batch:
            raise UserError(
                f"the state belongs to {len(state.previous_action)} observations, but {batch} were given; keep one "
                "state for each batch of episodes."
            )
        size, hidden = self.config.network.lstm_size, state.recurrent.hidden
        if state.novelty.spec != self.spec or hidden.shape[1] != size or hidden.device.type != self.device.type:
            raise UserError("the state is that of another agent; give None at the start of an episode.")

"""The local runner: acting and learning interleaved in one thread.

For each group of environments in turn: take in what its environments bring, choose and send the next actions, then do
the updates that are due. Environments on the host work through their step meanwhile, and while the other groups have
their turn.

The ratio of trained to collected steps is a setting, so the order of everything follows from the config: the same seed
gives the same run on a CPU. On a GPU an update runs on a stream of its own beside the acting steps that follow it, and
is waited for before the next one is drawn.
"""

from __future__ import annotations

from typing import Any

import torch

from ngu.actor import pop_statistics
from ngu.agent import Agent
from ngu.config import Config
from ngu.envs.protocol import EnvironmentSpec
from ngu.novelty.reward import IntrinsicReward
from ngu.randomness import restore_generator, seed_of
from ngu.runners.learning import LearningLoop


class LocalRunner(LearningLoop):
    """Trains one agent on one device."""

    def __init__(self, config: Config, device: torch.device) -> None:
        self.agent = Agent.create(config, device)
        super().__init__(config, device, self.agent.learner, self.agent.replay)
        self.acting_steps = 0
        self._started = False
        self._at_random = config.random_acting_steps > 0

    @property
    def steps(self) -> int:
        """Agent steps so far: every step of every environment."""
        return self.acting_steps * self.config.env.num_envs

    def advance(self) -> None:
        """One acting step of all environments, and the updates that are due after it."""
        if not self._started:
            self._start()
        # The first action follows the reset.
        if self._at_random and not self.warming_up and self.acting_steps + 1 >= self.config.random_acting_steps:
            for actor in self.agent.actors:
                actor.follow_policies()
            self._at_random = False
        for index, actor in enumerate(self.agent.actors):
            actor.receive()
            actor.send()
            collected = self.steps + (index + 1) * actor.env.num_envs
            while self._update_is_due(collected):
                self._update(collected)
        self.acting_steps += 1
        # Before anything is learned there is nothing to fetch, and frozen copies of f would be spent on the first one.
        if self.learning_since is not None and self.acting_steps % self.config.actor.update_period == 0:
            self.settle()
            for actor in self.agent.actors:
                actor.fetch(self.agent.learner.network, self.agent.learner.novelty)

    def _end_warm_up(self) -> None:
        super()._end_warm_up()
        for actor in self.agent.actors:
            actor.start_over(self.agent.learner.network, self.agent.learner.novelty)

    def _start(self) -> None:
        """Begins new episodes everywhere. A resumed run that has to gets other ones than the run began with."""
        for group, actor in enumerate(self.agent.actors):
            actor.reset(seed_of(self.config.run.seed, "environments", group, self.acting_steps))
        for actor in self.agent.actors:
            actor.send()
        self._started = True

    @property
    def spec(self) -> EnvironmentSpec:
        """What the environments are like."""
        return self.agent.actors[0].env.spec

    @property
    def novelty(self) -> IntrinsicReward:
        """Whose running statistics an evaluation takes over."""
        return self.agent.actors[0].novelty

    @property
    def restores(self) -> bool:
        """Whether a saved state holds the running episodes."""
        return all(actor.env.restores for actor in self.agent.actors)

    def pop_statistics(self) -> dict[str, float]:
        """Metrics since the last call."""
        self.settle()
        counted = {} if self.config.env.on_device else {"env/restarts": float(self.restarts)}
        agent = self.agent
        ages = [age for actor in agent.actors if (age := actor.novelty.embedding_age) is not None]
        if ages:
            fetched_after = self.config.actor.update_period * self.config.env.num_envs
            counted["novelty/embedding_age"] = fetched_after * sum(ages) / len(ages)
        return pop_statistics(agent.actors) | agent.learner.pop_statistics() | agent.replay.statistics() | counted

    @property
    def restarts(self) -> int:
        """Worker processes replaced since the start."""
        return sum(getattr(actor.env, "restarts", 0) for actor in self.agent.actors)

    @property
    def restart_note(self) -> str:
        """A sentence about them: how many, and why, in each group, the last was."""
        reasons = [getattr(actor.env, "restart_reason", "") for actor in self.agent.actors]
        return f"worker processes restarted so far: {self.restarts}; {' '.join(reason for reason in reasons if reason)}"

    def close(self) -> None:
        """Ends the environments' threads and processes."""
        self.settle()
        self.agent.close()

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs to go on exactly."""
        self.settle()
        agent = self.agent
        return {
            "runner": {
                "kind": "local",
                "acting_steps": self.acting_steps,
                "learning_since": list(self.learning_since or ()),
                "warming_up": self.warming_up,
                "device": self.device.type,
            },
            "learner": agent.learner.state_dict(),
            "actors": {str(group): actor.state_dict() for group, actor in enumerate(agent.actors)},
            "replay": agent.replay.state_dict() | {"generator": agent.replay.generator.get_state()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over a saved state.

        Without the replay's part, learning waits until replay has filled again. A state from another kind of device
        brings networks, optimisers and statistics; episodes begin anew, since environments and generators do not fit.
        They also begin anew where the environments cannot be saved; replay then drops what was not yet a sequence.
        """
        self.settle()
        agent = self.agent
        runner = state["runner"]
        moved = runner["device"] != self.device.type
        self.acting_steps = int(runner["acting_steps"])
        self.learning_since = None
        self.warming_up = bool(runner["warming_up"])
        self._started = self.acting_steps > 0 and not moved and self.restores
        agent.learner.load_state_dict(state["learner"])
        for group, actor in enumerate(agent.actors):
            saved = state["actors"][str(group)]
            if moved:
                actor.network.load_state_dict(saved["network"])
                actor.novelty.load_state_dict(saved["novelty"])
                actor.epsilon.copy_(saved["epsilon"])
                if actor.probe is not None:
                    actor.probe.load_state_dict(saved["probe"])
            else:
                actor.load_state_dict(saved)
        if moved:
            return
        if "replay" in state:
            since = runner["learning_since"]
            self.learning_since = (int(since[0]), int(since[1])) if since else None
            agent.replay.load_state_dict(state["replay"])
            restore_generator(agent.replay.generator, state["replay"]["generator"])

"""The local runner: acting and learning interleaved in one thread.

    act, act, ..., [sample, learn, new priorities], act, ...

The ratio of trained to collected steps is a setting, so the order of everything follows from the config: the same seed
gives the same run on a CPU. On a GPU an update runs on a stream of its own beside the acting steps that follow it, and
is waited for before the next one is drawn.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from ngu.agent import Agent
from ngu.config import Config
from ngu.graphs import Graphed
from ngu.learner import Update
from ngu.randomness import restore_generator, seed_of
from ngu.replay import Batch


class LocalRunner:
    """Trains one agent on one device."""

    def __init__(self, config: Config, device: torch.device) -> None:
        self.config = config
        self.device = device
        self.agent = Agent.create(config, device)
        self.acting_steps = 0
        self.learning_since: tuple[int, int] | None = None
        self._started = False
        self._pending: tuple[Batch, Update] | None = None
        self._learner_stream = torch.cuda.Stream() if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        replay = self.agent.replay
        self._sample = Graphed(lambda: replay.sample(config.learner.batch_size), device, (replay.generator,))

    @property
    def steps(self) -> int:
        """Agent steps so far: every step of every environment."""
        return self.acting_steps * self.config.env.num_envs

    def advance(self) -> None:
        """One acting step of all environments, and the updates that are due after it."""
        agent = self.agent
        if not self._started:
            agent.actor.reset(seed_of(self.config.run.seed, "environments"))
            self._started = True
        agent.actor.step()
        self.acting_steps += 1
        while self._update_is_due():
            self._update()
        if self.acting_steps % self.config.actor.update_period == 0:
            self.settle()
            agent.actor.fetch(agent.learner.network, agent.learner.novelty)

    def _update_is_due(self) -> bool:
        if self.learning_since is None:
            if int(self.agent.replay.count()) < self.config.replay.min_sequences:
                return False
            self.learning_since = self.steps, self.agent.learner.updates
        steps, updates = self.learning_since
        return self.agent.learner.updates < updates + int((self.steps - steps) / self.config.steps_per_update)

    def _update(self) -> None:
        self.settle()
        batch = self._sample()
        with self._beside_acting():
            self._pending = batch, self.agent.learner.update(batch, self.steps)
        if self._learner_stream is None:
            self.settle()

    def _beside_acting(self) -> contextlib.AbstractContextManager[Any]:
        """Lets an update run on its own stream, after all that was queued so far."""
        if self._learner_stream is None:
            return contextlib.nullcontext()
        self._learner_stream.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self._learner_stream)

    def settle(self) -> None:
        """Waits for the update under way and writes its priorities; after that all parts agree."""
        if self._learner_stream is not None:
            torch.cuda.current_stream().wait_stream(self._learner_stream)
        if self._pending is not None:
            batch, update = self._pending
            self.agent.replay.update_priorities(batch, update.priority)
            self._pending = None

    def pop_statistics(self) -> dict[str, float]:
        """Metrics since the last call."""
        self.settle()
        return self.agent.actor.pop_statistics() | self.agent.learner.pop_statistics()

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs to go on exactly."""
        self.settle()
        agent = self.agent
        return {
            "runner": {
                "acting_steps": self.acting_steps,
                "learning_since": list(self.learning_since or ()),
                "device": self.device.type,
            },
            "learner": agent.learner.state_dict(),
            "actor": agent.actor.state_dict(),
            "replay": agent.replay.state_dict() | {"generator": agent.replay.generator.get_state()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over a saved state.

        Without the replay's part, learning waits until replay has filled again. A state from another kind of device
        brings networks, optimisers and statistics; episodes begin anew, since environments and generators do not fit.
        """
        self.settle()
        agent = self.agent
        runner = state["runner"]
        moved = runner["device"] != self.device.type
        self.acting_steps = int(runner["acting_steps"])
        self.learning_since = None
        self._started = self.acting_steps > 0 and not moved
        agent.learner.load_state_dict(state["learner"])
        if moved:
            agent.actor.network.load_state_dict(state["actor"]["network"])
            agent.actor.novelty.load_state_dict(state["actor"]["novelty"])
            return
        agent.actor.load_state_dict(state["actor"])
        if "replay" in state:
            since = runner["learning_since"]
            self.learning_since = (int(since[0]), int(since[1])) if since else None
            agent.replay.load_state_dict(state["replay"])
            restore_generator(agent.replay.generator, state["replay"]["generator"])

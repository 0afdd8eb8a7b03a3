"""The local runner: acting and learning interleaved in one thread.

For each group of environments in turn: take in what its environments bring, choose and send the next actions, then do
the updates that are due. Environments on the host work through their step meanwhile, and while the other groups have
their turn.

The ratio of trained to collected steps is a setting, so the order of everything follows from the config: the same seed
gives the same run on a CPU. On a GPU an update runs on a stream of its own beside the acting steps that follow it, and
is waited for before the next one is drawn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from ngu.actor import pop_statistics
from ngu.agent import Agent
from ngu.config import Config
from ngu.graphs import Graphed
from ngu.host_replay import BatchCarrier
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
        size = config.learner.batch_size
        self._carrier: BatchCarrier | None = None
        if replay.device.type == device.type:
            self._sample: Callable[[], Batch] = Graphed(lambda: replay.sample(size), device, (replay.generator,))
        else:
            self._carrier = self._sample = BatchCarrier(replay, size, device)

    @property
    def steps(self) -> int:
        """Agent steps so far: every step of every environment."""
        return self.acting_steps * self.config.env.num_envs

    def advance(self) -> None:
        """One acting step of all environments, and the updates that are due after it."""
        if not self._started:
            self._start()
        for index, actor in enumerate(self.agent.actors):
            actor.receive()
            actor.send()
            collected = self.steps + (index + 1) * actor.env.num_envs
            while self._update_is_due(collected):
                self._update(collected)
        self.acting_steps += 1
        if self.acting_steps % self.config.actor.update_period == 0:
            self.settle()
            for actor in self.agent.actors:
                actor.fetch(self.agent.learner.network, self.agent.learner.novelty)

    def _start(self) -> None:
        """Begins new episodes everywhere. A resumed run that has to gets other ones than the run began with."""
        for group, actor in enumerate(self.agent.actors):
            actor.reset(seed_of(self.config.run.seed, "environments", group, self.acting_steps))
        for actor in self.agent.actors:
            actor.send()
        self._started = True

    def _update_is_due(self, collected: int) -> bool:
        if self.learning_since is None:
            if int(self.agent.replay.count()) < self.config.replay.min_sequences:
                return False
            self.learning_since = collected, self.agent.learner.updates
        steps, updates = self.learning_since
        return self.agent.learner.updates < updates + int((collected - steps) / self.config.steps_per_update)

    def _update(self, collected: int) -> None:
        self.settle()
        batch = self._sample()
        with self._beside_acting():
            self._pending = batch, self.agent.learner.update(batch, collected)
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
            if self._carrier is not None:
                self._carrier.update_priorities(update.priority)
            else:
                self.agent.replay.update_priorities(batch, update.priority)
            self._pending = None

    def pop_statistics(self) -> dict[str, float]:
        """Metrics since the last call."""
        self.settle()
        counted = {"env/restarts": float(self.restarts)} if self.config.env.name != "disco-maze" else {}
        agent = self.agent
        return pop_statistics(agent.actors) | agent.learner.pop_statistics() | agent.replay.statistics() | counted

    @property
    def restarts(self) -> int:
        """Worker processes replaced since the start."""
        return sum(getattr(actor.env, "restarts", 0) for actor in self.agent.actors)

    @property
    def restart_reasons(self) -> list[str]:
        """Why, in each group, the last of them was."""
        reasons = [getattr(actor.env, "restart_reason", "") for actor in self.agent.actors]
        return [reason for reason in reasons if reason]

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
                "acting_steps": self.acting_steps,
                "learning_since": list(self.learning_since or ()),
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
        restored = all(actor.env.restores for actor in agent.actors)
        self._started = self.acting_steps > 0 and not moved and restored
        agent.learner.load_state_dict(state["learner"])
        for group, actor in enumerate(agent.actors):
            saved = state["actors"][str(group)]
            if moved:
                actor.network.load_state_dict(saved["network"])
                actor.novelty.load_state_dict(saved["novelty"])
            else:
                actor.load_state_dict(saved)
        if moved:
            return
        if "replay" in state:
            since = runner["learning_since"]
            self.learning_since = (int(since[0]), int(since[1])) if since else None
            agent.replay.load_state_dict(state["replay"])
            restore_generator(agent.replay.generator, state["replay"]["generator"])

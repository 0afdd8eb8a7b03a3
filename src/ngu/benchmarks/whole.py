"""The whole agent: its rate at a ratio of trained to collected steps, and its learner alone.

It is the runner that trains, untouched: its calls are timed from outside.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ngu.benchmarks.timing import CallTimes, local_runner, milliseconds, wait
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.graphs import Graphed
from ngu.novelty.episodic import EpisodicMemory
from ngu.training import Training

NEVER = 1e-12
"""A ratio of trained to collected steps at which no update is ever due."""
_SETTLING = 4
"""Acting steps before the clock starts."""


@dataclass(frozen=True)
class AgentRun:
    """What the whole agent did in one measurement."""

    steps: int
    """Agent steps: every step of every environment, automatic resets included."""
    group_steps: int
    updates: int
    seconds: float
    reset_share: float
    memory_filled: tuple[float, float]
    """Mean entries of an episodic memory at the beginning and at the end."""
    call_seconds: dict[str, float]
    """Where the time of this process went; the parts add up to `seconds`."""


@dataclass(frozen=True)
class LearnerTimes:
    """The learner alone."""

    batch_size: int
    trace_length: int
    update_ms: float
    """One update: Retrace, inverse dynamics, RND."""
    sampling_ms: float
    """Drawing and gathering a batch from replay."""


class WholeAgent:
    """A runner whose ratio of trained to collected steps can be changed, with memories that are filled at will."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.runner = local_runner(Training(config))
        self.agent = self.runner.agent
        self.device = self.runner.device

    def begin(self) -> None:
        """Resets the environments and leaves a step under way in each group."""
        self.runner.advance()

    def warm_up(self) -> None:
        """Acts until replay has what learning needs, then learns until everything has been recorded."""
        runner, learner = self.runner, self.agent.learner
        while runner.learning_since is None:
            runner.advance()
        settings = self.config.learner
        self._set_ratio(settings.batch_size * self.config.replay.trace_length / self.config.env.num_envs)
        wanted = 3 * Graphed.warmup_calls if self.device.type == "cuda" else 1
        while learner.updates < wanted:
            runner.advance()

    def measure(self, ratio: float, seconds: float, fill: int) -> AgentRun:
        """Runs the agent at `ratio` trained steps for each collected one, or acting alone if that is 0.

        Memories begin with `fill` entries. The clock starts where an update might just have ended, and stops after
        `seconds` at the end of an acting step with an update, so that as much is collected as belongs to the updates.
        """
        runner, learner = self.runner, self.agent.learner
        self._set_ratio(NEVER)
        self.fill_memories(fill)
        filled = self._mean_filled()
        runner.pop_statistics()
        popped = runner.steps
        wait(self.device)
        for _ in range(_SETTLING):
            runner.advance()
        self._set_ratio(ratio or NEVER)

        steps, acted, updates = runner.steps, runner.acting_steps, learner.updates
        times = CallTimes()
        with times.watching(self._calls()):
            start = time.perf_counter()
            while True:
                before = learner.updates
                runner.advance()
                if time.perf_counter() - start >= seconds and (ratio == 0 or learner.updates > before):
                    break
            wait(self.device)
            passed = time.perf_counter() - start
        # Each episode that ends is followed by the automatic reset of its environment.
        resets = runner.pop_statistics()["env/episodes"]
        return AgentRun(
            steps=runner.steps - steps,
            group_steps=(runner.acting_steps - acted) * len(self.agent.actors),
            updates=learner.updates - updates,
            seconds=passed,
            reset_share=resets / (runner.steps - popped),
            memory_filled=(filled, self._mean_filled()),
            call_seconds={**times.seconds, "rest": passed - sum(times.seconds.values())},
        )

    def learner_times(self, seconds: float = 0.5) -> LearnerTimes:
        """Times the learner alone, each part for `seconds`."""
        calls = self.parts()
        return LearnerTimes(
            batch_size=self.config.learner.batch_size,
            trace_length=self.config.replay.trace_length,
            update_ms=milliseconds(calls["update"], self.device, seconds),
            sampling_ms=milliseconds(calls["sampling"], self.device, seconds),
        )

    def parts(self) -> dict[str, Callable[[], object]]:
        """An acting step of the first group, its emulators included, the drawing of a batch, and an update with it."""
        runner, learner, actor = self.runner, self.agent.learner, self.agent.actors[0]
        runner.settle()
        batch = runner._sample()

        def act() -> None:
            actor.receive()
            actor.send()

        return {
            "acting": act,
            "sampling": runner._sample,
            "update": lambda: learner.update(batch, runner.steps),
        }

    def close(self) -> None:
        self.runner.close()

    def _set_ratio(self, ratio: float) -> None:
        """Counts collected steps and updates from here on, at a new ratio."""
        runner = self.runner
        runner.config = with_overrides(self.config, {"learner.replay_ratio": ratio})
        runner.learning_since = runner.steps, self.agent.learner.updates

    def _calls(self) -> list[tuple[str, object, str]]:
        calls: list[tuple[str, object, str]] = [("learner", self.runner, "_update")]
        for actor in self.agent.actors:
            hosted = actor._hosted
            assert hosted is not None
            calls += [
                ("emulators", actor.env, "recv"),
                ("copies", hosted, "receive"),
                ("acting", actor, "_step"),
                ("actions", hosted, "fetch_action"),
                ("actions", hosted, "send"),
                ("sending", actor.env, "send"),
                ("weights", actor, "fetch"),
            ]
            if actor._carrier is not None:
                calls += [("replay", actor._carrier, "begin"), ("replay", actor._carrier, "finish")]
        return calls

    def fill_memories(self, entries: int) -> None:
        """Gives every environment's episodic memory so many random entries."""
        for memory in self._memories():
            fill_memory(memory, entries)

    def _memories(self) -> list[EpisodicMemory]:
        return [actor.novelty.memory for actor in self.agent.actors if actor.novelty.memory is not None]

    def _mean_filled(self) -> float:
        memories = self._memories()
        return float(torch.cat([memory.filled for memory in memories]).float().mean()) if memories else 0.0


def learning_at_once(config: Config) -> Config:
    """The config with a replay that need not hold more sequences than a batch before learning starts."""
    return with_overrides(config, {"replay.min_sequences": min(config.replay.min_sequences, config.learner.batch_size)})


def fill_memory(memory: EpisodicMemory, entries: int) -> None:
    """Fills every environment's memory with random states, as if so many observations had been seen."""
    generator = torch.Generator(memory.entries.device).manual_seed(0)
    memory.entries.uniform_(generator=generator)
    memory.written.fill_(entries)

"""The Ray runner: one learner with its replay in this process, actors and an evaluator in processes of a cluster.

Actors act on CPUs and send chunks of steps. The learner takes one chunk after another, and after each does the updates
that are due: the ratio of trained to collected steps is the local runner's. New weights are put into Ray's object store
once, and actors fetch them from there.
"""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ngu.actor import means_of, subset_names
from ngu.agent import make_learner, make_replay, slots_of, weights_of
from ngu.chunk import DamagedChunkError, add_chunk, unpack
from ngu.config import Config
from ngu.config_reading import to_dict
from ngu.envs.make import make_environment
from ngu.novelty.reward import IntrinsicReward
from ngu.randomness import restore_generator
from ngu.runners.actor_process import (
    ActorProcess,
    EvaluatorProcess,
    Host,
    finite,
    load_running,
    on_this_machine,
    running_of,
)
from ngu.runners.cluster import Head, connect, load_ray
from ngu.runners.fleet import Fleet, Member
from ngu.runners.learning import LearningLoop

_PATIENCE = 0.5
"""Seconds to wait for a chunk before looking around."""
_STEPS_IN_TIME = 1000
"""Steps of an evaluation for which the evaluator has ray.timeout; for longer ones it has as much more."""
_MOST_EVALUATIONS = 4
"""That may wait, each with its weights: where the evaluator cannot keep pace, the oldest that waits is left out."""


@dataclass
class Slot:
    """What is kept of an actor's slot, whoever fills it."""

    acted: int = 0
    """Steps that its environments have taken, each."""
    running: dict[str, Any] | None = None
    """The running statistics of its reward."""
    chunks: int = 0
    seconds: float = 0.0
    """Time that its actors worked for these chunks."""
    weights_from: int = 0
    """The learner's updates when the weights were made that it last acted with."""
    worker_restarts: int = 0


class RayRunner(LearningLoop):
    """Trains one agent with actors on a Ray cluster."""

    restores = False
    """A saved state holds no running episodes."""

    def __init__(self, config: Config, device: torch.device) -> None:
        probe = make_environment(on_this_machine(config), 1, torch.device("cpu"))
        self.spec = probe.spec
        probe.close()
        mixture, _ = slots_of(config, device)
        learner = make_learner(config, self.spec, device)
        super().__init__(config, device, learner, make_replay(config, self.spec, mixture, device))
        self._size = config.env.num_envs // config.env.groups
        self.novelty = IntrinsicReward(self.spec, self._size, config.novelty, device, model=learner.novelty)
        """Holds what an evaluation takes over: the running statistics that the actors sent last, and the newest f."""
        self.steps = 0
        self.slots = [Slot() for _ in range(config.env.groups)]
        self.chunks = self.refused = 0
        self.last_refusal = ""
        self._sums: Tensor | None = None
        self._actors: Fleet | None = None
        self._evaluators: Fleet | None = None
        self._asked: deque[tuple[int, Any, dict[str, Any]]] = deque()
        """Evaluations that are not done: agent steps, weights, running statistics."""
        self.skipped_evaluations = 0
        self._finished: list[tuple[int, dict[str, float]]] = []
        self._version = -1
        """The learner's updates when the published weights were made."""
        self._weights: Any = None
        self._published_at = 0
        self._restarts_before = 0
        self._ray = load_ray()
        self._cluster = connect(config)
        self._head = Head("when there is a cluster again, go on with `ngu resume`")
        # Made once: what Ray has not seen before it hands to the head, and waits for as long as it is not there.
        self._host = self._ray.remote(Host).options(
            num_cpus=config.ray.cpus_per_actor, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )

    # ---------------------------------------------------------------------------------------------- acting

    def advance(self) -> None:
        """Takes in the next chunk, if one comes in time, and does the updates that are due after it."""
        self._head.require()
        actors = self._fleet()
        self._publish()
        for member in actors.members:
            while member.ready and len(member.calls) < self.config.ray.queued_chunks:
                actors.ask(member, "collect", self._version, self._weights, self._compresses(member))
        found = actors.next_answer(_PATIENCE)
        if found is not None:
            member, answer = found
            if self._take_in(member.slot, answer):
                member.failures = 0
                while self._update_is_due(self.steps):
                    self._update(self.steps)
            else:
                # An actor that counts wrong once may do so for ever; another begins with what was good.
                actors.replace(member, self.last_refusal)
        self._hear_evaluator()

    def _take_in(self, index: int, answer: dict[str, Any]) -> bool:
        """Adds a chunk to replay, or refuses it; returns whether it was good."""
        slot, streams = self.slots[index], self._streams(index)
        settings = self.config
        steps = settings.ray.chunk_steps
        try:
            if not finite(answer["running"]):
                raise DamagedChunkError("its running statistics are not finite")
            chunk = unpack(answer["arrays"], self.spec, steps, self._size, settings.network.lstm_size)
            self.settle()
            add_chunk(self.replay, chunk, streams)
        except DamagedChunkError as error:
            self.refused += 1
            self.last_refusal = f"a chunk of actor {index} was refused: {error}"
            # The rows that follow do not follow what is there.
            self.replay.interrupt(streams)
            return False
        self.chunks += 1
        self.steps += chunk.steps
        slot.acted += steps
        slot.chunks += 1
        slot.seconds += float(answer["seconds"])
        slot.running = answer["running"]
        slot.weights_from = int(answer["version"])
        slot.worker_restarts = int(answer["restarts"])
        load_running(self.novelty, slot.running)
        sums = torch.from_numpy(np.array(answer["sums"]))
        self._sums = sums if self._sums is None else self._sums + sums
        return True

    def _publish(self) -> None:
        """Puts the learner's weights where actors fetch them, once in an actor's update period."""
        due = self.steps - self._published_at >= self.config.actor.update_period * self.config.env.num_envs
        if self._weights is None or (due and self.learner.updates > self._version):
            self.settle()
            self._weights = self._ray.put(weights_of(self.learner))
            self._version = self.learner.updates
            self._published_at = self.steps
            if self.novelty.snapshots is not None and self.learner.novelty.inverse is not None:
                self.novelty.snapshots.replace_all(self.learner.novelty.inverse.embedding)

    def _compresses(self, member: Member) -> bool:
        rule = self.config.ray.compression
        if rule == "auto":
            return bool(member.place.get("machine") != os.uname().nodename)
        return rule == "always"

    def _streams(self, slot: int) -> slice:
        return slice(slot * self._size, (slot + 1) * self._size)

    def _fleet(self) -> Fleet:
        """The actors; they are started when they are first needed."""
        if self._actors is None:
            settings = to_dict(self.config)

            def make(slot: int) -> Any:
                kept = self.slots[slot]
                return self._host.remote(ActorProcess, settings, slot, kept.acted, kept.running)

            def lost(slot: int) -> None:
                # The next actor of this slot begins new episodes; what was not yet a sequence is dropped.
                self.replay.interrupt(self._streams(slot))

            self._actors = Fleet("actor", len(self.slots), make, self.config, lost)
        return self._actors

    # ---------------------------------------------------------------------------------------------- evaluation

    def begin_evaluation(self) -> None:
        """Asks the evaluator to play with the present weights; training goes on meanwhile."""
        self._fleet()
        if self._evaluators is None:
            settings = to_dict(self.config)
            # It answers when whole episodes are over, which takes far longer than an actor's chunk.
            steps = self.config.evaluation.max_steps * self.config.novelty.memory_episodes
            timeout = self.config.ray.timeout * max(steps / _STEPS_IN_TIME, 1.0)
            self._evaluators = Fleet(
                "evaluator",
                1,
                lambda _slot: self._host.remote(EvaluatorProcess, settings),
                self.config,
                timeout=timeout,
            )
        self.settle()
        if len(self._asked) == _MOST_EVALUATIONS:
            del self._asked[1]  # the first may be under way
            self.skipped_evaluations += 1
        weights = self._ray.put(weights_of(self.learner, playing=True))
        self._asked.append((self.steps, weights, running_of(self.novelty)))
        self._hear_evaluator()

    def finished_evaluations(self, *, wait: bool = False) -> list[tuple[int, dict[str, float]]]:
        """Evaluations that have come in: agent steps and metrics. With `wait`, all that were asked for.

        An evaluator for which there is no room takes the actors' then; without any for ray.timeout, it is given up.
        """
        had_room = time.monotonic()
        while wait and self._asked:
            self._head.require()
            self._hear_evaluator(_PATIENCE)
            if self._evaluators is None or self._evaluators.members[0].running:
                had_room = time.monotonic()
                continue
            self._end_actors()
            if time.monotonic() > had_room + self.config.ray.timeout:
                self.skipped_evaluations += len(self._asked)
                self._asked.clear()
        finished, self._finished = self._finished, []
        return finished

    def _hear_evaluator(self, seconds: float = 0.0) -> None:
        if self._evaluators is None or not self._asked:
            return
        member = self._evaluators.members[0]
        if member.ready and not member.calls:
            _, weights, running = self._asked[0]
            self._evaluators.ask(member, "evaluate", weights, running)
        found = self._evaluators.next_answer(seconds)
        if found is not None:
            member.failures = 0
            steps, _, _ = self._asked.popleft()
            self._finished.append((steps, found[1]))

    # ---------------------------------------------------------------------------------------------- what is told

    def pop_statistics(self) -> dict[str, float]:
        """Metrics since the last call."""
        self.settle()
        subsets = subset_names(self.config.mixture.num_mixtures, self.config.novelty.memory_episodes)
        told = means_of(self._sums, self.spec, subsets) if self._sums is not None else {"env/episodes": 0.0}
        self._sums = None
        if not self.config.env.on_device:
            told["env/restarts"] = float(sum(slot.worker_restarts for slot in self.slots))
        return told | self.learner.pop_statistics() | self.replay.statistics() | self.cluster_metrics()

    def cluster_metrics(self) -> dict[str, float]:
        """How actors and learner keep pace with each other."""
        actors, evaluators = self._actors, self._evaluators
        trained = self.learner.updates * self.config.learner.batch_size * self.config.replay.trace_length
        ages = [self.learner.updates - slot.weights_from for slot in self.slots if slot.chunks]
        return {
            "ray/actors": float(actors.alive if actors else 0),
            "ray/actor_restarts": float(self.restarts),
            "ray/evaluator_restarts": float(evaluators.restarts if evaluators else 0),
            "ray/skipped_evaluations": float(self.skipped_evaluations),
            "ray/chunks": float(self.chunks),
            "ray/refused_chunks": float(self.refused),
            "ray/waiting_chunks": float(actors.count_waiting() if actors else 0),
            "ray/weights_age": float(np.mean(ages)) if ages else 0.0,
            "ray/samples_per_insert": trained / self.steps if self.steps else 0.0,
        }

    def status(self) -> dict[str, Any]:
        """What `ngu status` shows."""
        members = self._actors.members if self._actors else []
        return {
            "written": time.time(),
            "steps": self.steps,
            "updates": self.learner.updates,
            **self.cluster_metrics(),
            "last_refusal": self.last_refusal,
            "evaluator": self._evaluators.members[0].place if self._evaluators else {},
            "actors": [
                {
                    "slot": member.slot,
                    "alive": member.ready,
                    **member.place,
                    "steps": slot.acted * self._size,
                    "steps_per_second": slot.chunks * self.config.ray.chunk_steps * self._size / slot.seconds
                    if slot.seconds
                    else 0.0,
                    "weights_age": self.learner.updates - slot.weights_from,
                    "restarts": member.restarts,
                    "reason": member.reason,
                }
                for member, slot in zip(members, self.slots, strict=False)
            ],
        }

    @property
    def restarts(self) -> int:
        """Actors replaced since the start."""
        return self._restarts_before + (self._actors.restarts if self._actors else 0)

    @property
    def restart_note(self) -> str:
        """A sentence about them."""
        reasons = self._actors.reasons() if self._actors else []
        return f"actors replaced so far: {self.restarts}; {' '.join(reasons)}"

    # ---------------------------------------------------------------------------------------------- the rest

    def _end_warm_up(self) -> None:
        super()._end_warm_up()
        self.novelty.start_over(self.learner.novelty)
        for slot in self.slots:
            slot.running = None
        self._weights = None  # the next actors wait for new ones
        self._end_actors()

    def _end_actors(self) -> None:
        """They come back when they are next needed, with new episodes."""
        if self._actors is not None:
            self._restarts_before += self._actors.restarts
            self._actors.close()
            self._actors = None
            self.replay.interrupt()

    def close(self) -> None:
        """Ends the actors and the evaluator, and the cluster if it was started here."""
        self.settle()
        for fleet in (self._actors, self._evaluators):
            if fleet is not None and self._ray.is_initialized():
                fleet.close()
        self._actors = self._evaluators = None
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def state_dict(self) -> dict[str, Any]:
        """Learner, replay, and what is kept of each slot; episodes are not saved."""
        self.settle()
        return {
            "runner": {
                "kind": "ray",
                "steps": self.steps,
                "chunks": self.chunks,
                "refused": self.refused,
                "restarts": self.restarts,
                "acted": [slot.acted for slot in self.slots],
                "learning_since": list(self.learning_since or ()),
                "warming_up": self.warming_up,
                "device": self.device.type,
            },
            "learner": self.learner.state_dict(),
            "actors": {"0": {"novelty": self.novelty.state_dict()}},
            "replay": self.replay.state_dict() | {"generator": self.replay.generator.get_state()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over a saved state: actors begin new episodes, with the running statistics that were saved."""
        self.settle()
        runner = state["runner"]
        self.steps, self.chunks, self.refused = (int(runner[name]) for name in ("steps", "chunks", "refused"))
        self._restarts_before = int(runner["restarts"])
        self.learning_since = None
        self.warming_up = bool(runner["warming_up"])
        self.learner.load_state_dict(state["learner"])
        self.novelty.load_state_dict(state["actors"]["0"]["novelty"])
        for slot, acted in zip(self.slots, runner["acted"], strict=True):
            slot.acted = int(acted)
            slot.running = running_of(self.novelty)
        if "replay" in state and runner["device"] == self.device.type:
            since = runner["learning_since"]
            self.learning_since = (int(since[0]), int(since[1])) if since else None
            self.replay.load_state_dict(state["replay"])
            restore_generator(self.replay.generator, state["replay"]["generator"])
            self.replay.interrupt()

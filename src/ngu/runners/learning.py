"""The learner's share of a run: when an update is due, and how it runs beside acting. Runners are built on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from ngu.config import Config
from ngu.graphs import Graphed
from ngu.host_replay import BatchCarrier
from ngu.learner import Learner, Update
from ngu.replay import SequenceReplay
from ngu.sequences import Batch


class LearningLoop:
    """A learner with its replay, and the set ratio of trained to collected steps."""

    def __init__(self, config: Config, device: torch.device, learner: Learner, replay: SequenceReplay) -> None:
        self.config = config
        self.device = device
        self.learner = learner
        self.replay = replay
        self.learning_since: tuple[int, int] | None = None
        """Agent steps and updates, in a warm-up those of f and RND, when replay first held enough sequences."""
        self.warming_up = config.warm_up_updates > 0
        """Whether f and RND are still trained alone, on random play."""
        self._pending: tuple[Batch, Update] | None = None
        self._learner_stream = torch.cuda.Stream() if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        size = config.learner.batch_size
        self._carrier: BatchCarrier | None = None
        if replay.device.type == device.type:
            self._sample: Callable[[], Batch] = Graphed(lambda: replay.sample(size), device, (replay.generator,))
        else:
            self._carrier = self._sample = BatchCarrier(replay, size, device)

    def _update_is_due(self, collected: int) -> bool:
        if self.warming_up and self.learner.novelty_updates >= self.config.warm_up_updates:
            self.settle()
            self._end_warm_up()
        if self.learning_since is None:
            if int(self.replay.count()) < self.config.replay.min_sequences:
                return False
            learner = self.learner
            self.learning_since = collected, learner.novelty_updates if self.warming_up else learner.updates
        steps, updates = self.learning_since
        if self.warming_up:
            return self.learner.novelty_updates < self._novelty_updates_wanted(collected, steps, updates)
        return self.learner.updates < updates + int((collected - steps) / self.config.steps_per_update)

    def _novelty_updates_wanted(self, collected: int, since: int, done: int) -> int:
        """Evenly over what is left of the warm-up, which began or went on at `since` with so many done.

        No more than twice as fast as over the whole of it: what replay lacks at first prolongs a warm-up.
        """
        steps, updates = self.config.novelty.warm_up_steps, self.config.warm_up_updates
        missing = updates - done
        left = max(steps - since, steps * missing // (2 * updates), 1)
        return done + int(missing * min((collected - since) / left, 1.0))

    def _update(self, collected: int) -> None:
        self.settle()
        batch = self._sample()
        with self._beside_acting():
            learner = self.learner
            update = learner.update_novelty(batch) if self.warming_up else learner.update(batch, collected)
            self._pending = batch, update
        if self._learner_stream is None:
            self.settle()

    def _end_warm_up(self) -> None:
        """Drops what was collected: it was paid by an f that had learned nothing. Runners let actors begin anew."""
        self.replay.empty()
        self.learning_since = None
        self.warming_up = False

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
                self.replay.update_priorities(batch, update.priority)
            self._pending = None

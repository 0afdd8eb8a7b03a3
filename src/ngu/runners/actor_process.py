"""What runs in the processes of a cluster: an actor that sends chunks of steps, and the evaluator.

Both are the local runner's own actor and evaluator with networks that are given weights. Nothing here knows of Ray.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch import Tensor

from ngu.agent import Pupil, make_actor, slots_of
from ngu.chunk import ChunkRecorder
from ngu.config import Config
from ngu.config_reading import from_dict, with_overrides
from ngu.envs.make import make_environment
from ngu.evaluator import Evaluator
from ngu.novelty.reward import IntrinsicReward
from ngu.randomness import make_generator, seed_of

CPU = torch.device("cpu")


class Host:
    """A process of the cluster: says where it is as soon as it runs, and builds what works in it when it is told to.

    So a cluster without room, which is to be waited for, differs from a process that hangs while it builds.
    """

    def __init__(self, kind: type, *arguments: Any) -> None:
        self._kind, self._arguments = kind, arguments
        self._worker: Any = None

    def place(self) -> dict[str, Any]:
        """Where this process is."""
        return {"process": os.getpid(), "machine": os.uname().nodename}

    def build(self) -> None:
        """Makes the worker; answers when it can be called."""
        self._worker = self._kind(*self._arguments)

    def call(self, name: str, *arguments: Any) -> Any:
        """What the worker's method returns."""
        return getattr(self._worker, name)(*arguments)


class ActorProcess:
    """One of the groups of environments, acting on the CPU.

    Policy, epsilon and seed belong to the group (its slot): an actor that takes the place of another is the same one,
    with empty memories, at the number of steps that the other had reached.

    Args:
        settings: the run's config, as a dictionary.
        slot: which group.
        acted: steps that the slot's environments have taken before.
        running: the running statistics of the reward that the slot had reached, if it has acted before.
    """

    def __init__(self, settings: dict[str, Any], slot: int, acted: int, running: dict[str, Any] | None) -> None:
        config = on_this_machine(from_dict(settings))
        torch.set_num_threads(max(int(config.ray.cpus_per_actor), 1))
        self.config = config
        self._slot = slot
        self._acted = acted
        self._chosen = acted
        """Actions of each environment that the slot has chosen until now."""
        size = config.env.num_envs // config.env.groups
        group = slice(slot * size, (slot + 1) * size)
        mixture, epsilon = (values[group] for values in slots_of(config, CPU))
        self.env = make_environment(config, size, CPU)
        self._pupil = Pupil(config, self.env.spec, CPU)
        lstm_size = config.network.lstm_size
        self._recorder = ChunkRecorder(self.env.spec, config.ray.chunk_steps, size, lstm_size, config.replay.period)
        generator = make_generator(config.run.seed, "acting", CPU, slot, acted)
        self.actor = make_actor(config, self.env, self._pupil, mixture, epsilon, generator, self._recorder)
        if running is not None:
            load_running(self.actor.novelty, running)
        if acted >= config.random_acting_steps:
            self.actor.follow_policies()
        self._version = -1
        self._since_fetch = 0
        self._started = False

    def collect(self, version: int, weights: dict[str, dict[str, Tensor]], compress: bool) -> dict[str, Any]:
        """Acts until a chunk is full; takes over the weights first, if they are newer and the time has come."""
        begin = time.perf_counter()
        period = self.config.actor.update_period
        if version > self._version and (not self._started or self._since_fetch >= period):
            self._pupil.load(weights)
            self.actor.fetch(self._pupil.network, self._pupil.novelty)
            self._version, self._since_fetch = version, 0
        if not self._started:
            self.actor.reset(seed_of(self.config.run.seed, "environments", self._slot, self._acted))
            self._chosen += 1
            self._started = True
        while not self._recorder.full:
            if self._chosen == self.config.random_acting_steps:
                self.actor.follow_policies()
            self.actor.step()
            self._chosen += 1
        self._since_fetch += self.config.ray.chunk_steps
        sums = self.actor.sums.clone()
        self.actor.sums.zero_()
        return {
            "arrays": self._recorder.take().pack(compress),
            "sums": sums.numpy(),
            "running": running_of(self.actor.novelty),
            "version": self._version,
            "seconds": time.perf_counter() - begin,
            "restarts": int(getattr(self.env, "restarts", 0)),
        }


class EvaluatorProcess:
    """The evaluation worker: policies beta_0 and beta_{N-1} with weights that it is given."""

    def __init__(self, settings: dict[str, Any]) -> None:
        config = on_this_machine(from_dict(settings))
        torch.set_num_threads(max(int(config.ray.cpus_per_actor), 1))
        spec_env = make_environment(config, 1, CPU)
        self._pupil = Pupil(config, spec_env.spec, CPU)
        self._statistics = IntrinsicReward(spec_env.spec, 1, config.novelty, CPU, model=self._pupil.novelty)
        spec_env.close()
        self._evaluator = Evaluator(config, self._pupil, CPU)

    def evaluate(self, weights: dict[str, dict[str, Tensor]], running: dict[str, Any]) -> dict[str, float]:
        """The means of one evaluation."""
        self._pupil.load(weights)
        use_newest(self._statistics, self._pupil, running)
        return self._evaluator.evaluate(self._pupil, self._statistics)


def on_this_machine(config: Config) -> Config:
    """The run's config for a process of the cluster: on the CPU, with the threads that it asked for."""
    threads = max(int(config.ray.cpus_per_actor), 1)
    changes = {"run.device": "cpu", "run.precision": "fp32", "env.threads": threads, "env.workers": threads}
    return with_overrides(config, changes)


def running_of(novelty: IntrinsicReward) -> dict[str, Any]:
    """The running statistics of a reward: d_m^2, and RND's mean and deviation."""
    running: dict[str, Any] = {}
    if novelty.memory is not None:
        running["distance"] = (float(novelty.scale.total), float(novelty.scale.weight))
    if novelty.rnd is not None:
        running["moments"] = {name: value.clone() for name, value in novelty.moments.state_dict().items()}
    return running


def load_running(novelty: IntrinsicReward, running: dict[str, Any]) -> None:
    """Takes over what `running_of` gave."""
    if "distance" in running and novelty.memory is not None:
        total, weight = running["distance"]
        novelty.scale.total.fill_(total)
        novelty.scale.weight.fill_(weight)
    if "moments" in running and novelty.rnd is not None:
        novelty.moments.load_state_dict(running["moments"])


def finite(running: dict[str, Any]) -> bool:
    """Whether running statistics are numbers that rewards can be made of."""
    numbers = [*running.get("distance", ()), *running.get("moments", {}).values()]
    return all(bool(torch.isfinite(torch.as_tensor(number)).all()) for number in numbers)


def use_newest(novelty: IntrinsicReward, pupil: Pupil, running: dict[str, Any]) -> None:
    """Makes `novelty` what `Evaluator.evaluate` looks at: the newest f, and the actors' running statistics."""
    if novelty.snapshots is not None and pupil.novelty.inverse is not None:
        novelty.snapshots.replace_all(pupil.novelty.inverse.embedding)
    load_running(novelty, running)

"""The benchmark of an agent whose environments live on its device (the Disco Maze).

One run measures the whole agent's speed, its parts' times and shares, and the bare environment's speed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ngu.benchmarks.timing import local_runner, milliseconds, wait
from ngu.config import Config
from ngu.envs.make import make_environment
from ngu.graphs import Graphed
from ngu.machine import processor_name, resolve_device
from ngu.novelty.nearest import search_nearest
from ngu.randomness import seed_of
from ngu.training import Training


@dataclass(frozen=True)
class Benchmark:
    """What was measured. Times are milliseconds of one call, alone; on a GPU parts overlap in the whole agent."""

    device: str
    preset: str
    variant: str
    precision: str
    num_envs: int
    env_steps_per_second: float
    """Of the whole agent: every step of every environment, automatic resets included."""
    updates_per_second: float
    experience_share: float
    """Share of those steps that are transitions; the rest are automatic resets, many while episodes are short."""
    bare_env_steps_per_second: float
    """Of the environments alone with random actions."""
    ratio_to_bare: float
    acting_ms: float
    """One step of all environments: policy, environment, novelty, writing to replay."""
    environment_ms: float
    knn_ms: float
    """The nearest-neighbour search alone, over memories of their full size."""
    sampling_ms: float
    update_ms: float
    """One learner update: Retrace, inverse dynamics, RND."""
    acting_share: float
    """Acting steps times their time alone, over the wall time of the agent; parts that overlap add up to over 1."""
    knn_share: float
    sampling_share: float
    update_share: float

    def table(self) -> str:
        """The measurements as aligned text."""
        rows = [
            ("whole agent, env steps/s", f"{self.env_steps_per_second:,.0f}"),
            ("whole agent, updates/s", f"{self.updates_per_second:,.1f}"),
            ("bare environment, env steps/s", f"{self.bare_env_steps_per_second:,.0f}"),
            ("whole agent / bare environment", f"{self.ratio_to_bare:.1%}"),
            ("transitions among the steps", f"{self.experience_share:.1%}"),
            (f"acting, {self.num_envs} environments", f"{self.acting_ms:.3f} ms, share {self.acting_share:.0%}"),
            ("  of it the environments", f"{self.environment_ms:.3f} ms"),
            ("  of it the k-NN search", f"{self.knn_ms:.3f} ms, share {self.knn_share:.0%}"),
            ("sampling a batch", f"{self.sampling_ms:.3f} ms, share {self.sampling_share:.0%}"),
            ("learner update", f"{self.update_ms:.3f} ms, share {self.update_share:.0%}"),
        ]
        width = max(len(name) for name, _ in rows)
        title = f"{self.preset}, {self.variant}, {self.device}, {self.precision}"
        return "\n".join([title, *(f"{name:<{width}}  {value}" for name, value in rows)])

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def measure(config: Config, seconds: float = 10.0) -> Benchmark:
    """Trains for `seconds` after a warm-up, then times each part alone."""
    device = resolve_device(config.run.device)
    training = Training(config)
    runner = local_runner(training)
    agent = runner.agent
    while agent.learner.updates < 3 * Graphed.warmup_calls:
        runner.advance()
    runner.pop_statistics()
    wait(device)
    start, steps, updates, acted = time.perf_counter(), runner.steps, agent.learner.updates, runner.acting_steps
    while time.perf_counter() - start < seconds:
        for _ in range(8):
            runner.advance()
        # Without a wait now and then the host would only queue work.
        wait(device)
    wall = time.perf_counter() - start
    steps, updates, acted = runner.steps - steps, agent.learner.updates - updates, runner.acting_steps - acted
    # Each episode that ends is followed by the automatic reset of its environment.
    resets = runner.pop_statistics()["env/episodes"]

    batch = runner._sample()
    acting = milliseconds(agent.actors[0].step, device)
    sampling = milliseconds(runner._sample, device)
    update = milliseconds(lambda: agent.learner.update(batch, runner.steps), device)
    knn = milliseconds(_knn(training), device)
    environment, bare = _bare_environment(config, device)
    rate = steps / wall
    return Benchmark(
        device=processor_name(device),
        preset=config.preset,
        variant=config.variant,
        precision=config.run.precision,
        num_envs=config.env.num_envs,
        env_steps_per_second=rate,
        updates_per_second=updates / wall,
        experience_share=1 - resets / steps,
        bare_env_steps_per_second=bare,
        ratio_to_bare=rate / bare,
        acting_ms=acting,
        environment_ms=environment,
        knn_ms=knn,
        sampling_ms=sampling,
        update_ms=update,
        acting_share=acting * acted / (wall * 1e3),
        knn_share=knn * acted / (wall * 1e3),
        sampling_share=sampling * updates / (wall * 1e3),
        update_share=update * updates / (wall * 1e3),
    )


def _knn(training: Training) -> Callable[[], object]:
    novelty = training.runner.novelty
    if novelty.memory is None:
        return lambda: None
    entries = novelty.memory.entries
    query = torch.randn_like(entries[:, 0])
    full = torch.full((len(entries),), entries.shape[1], device=entries.device)
    return Graphed(lambda: search_nearest(query, entries, full, novelty.config.neighbours), training.device)


def _bare_environment(config: Config, device: torch.device) -> tuple[float, float]:
    """Milliseconds of one step of all environments with random actions, and the steps per second that makes."""
    env = make_environment(config, config.env.num_envs, device)
    env.reset(seed_of(config.run.seed, "environments"))
    generator = torch.Generator(device).manual_seed(0)

    def act() -> None:
        env.send(torch.randint(env.spec.num_actions, (env.num_envs,), device=device, generator=generator))
        env.recv()

    step = Graphed(act, device, (generator, *env.generators), enabled=env.graph_safe)

    def advance() -> None:
        env.maintain()
        step()

    step_ms = milliseconds(advance, device)
    return step_ms, env.num_envs / step_ms * 1e3

"""The benchmark of an agent whose environments live on the host: Atari and Gymnasium.

One run measures the bare emulator, the whole agent at several ratios of trained to collected steps, and the parts
alone. Agent and bare emulator take turns on the same emulators, so that a machine that drifts is found out: each rate
of the agent is compared with the bare emulator just before and just after it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ngu.benchmarks.acting import (
    ActingTime,
    Growth,
    acting_times,
    measure_growth,
    memory_slots,
    stated_fills,
    still_actor,
)
from ngu.benchmarks.emulators import BareEmulators, BareRate
from ngu.benchmarks.memory import MemoryUse, memory_use
from ngu.benchmarks.timing import kernels
from ngu.benchmarks.whole import AgentRun, LearnerTimes, WholeAgent, learning_at_once
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.envs.atari_game import FRAME_SKIP
from ngu.envs.make import cores, in_emulator_threads
from ngu.errors import UserError
from ngu.machine import processor_name, resident_memory

USUAL_RATIOS = (0.0, 1.5, 8.0, 16.0)
"""Trained steps for each collected step: none, the paper's, and what a GPU has time for."""
_USUAL_FILL = 10_000
_LEAST_RATIO, _LARGEST_RATIO = 0.1, 1000.0
_NEVER_WIPED = 10**6
"""Episodes that share a memory in the benchmark."""


@dataclass(frozen=True)
class AgentRate:
    """The whole agent at one ratio of trained to collected steps, beside the bare emulator."""

    replay_ratio: float
    """Trained steps for each collected step, as set; 0 for acting alone."""
    trained_per_collected: float
    """The same, as counted."""
    env_steps_per_second: float
    """Agent steps: every step of every environment, automatic resets included."""
    frames_per_second: float | None
    updates_per_second: float
    bare_env_steps_per_second: float
    """Of the bare emulator, overlapped groups: the mean of the measurements just before and just after."""
    ratio_to_bare: float
    """The agent's env steps per second over the bare emulator's."""
    reset_share: float
    """Share of the steps that are automatic resets, which take an emulator longer than a step."""
    memory_filled_at_start: float
    memory_filled_at_end: float
    """Mean entries of an episodic memory."""
    group_step_ms: dict[str, float]
    """Where the time of this process goes in one step of one group; see `ngu.benchmarks.table.PARTS`."""
    seconds: float


@dataclass(frozen=True)
class HostedBenchmark:
    """What was measured."""

    preset: str
    variant: str
    environment: str
    """The game, or the Gymnasium id."""
    device: str
    precision: str
    cores: int
    num_envs: int
    groups: int
    emulator_threads: int
    """Threads, or worker processes, that step the environments of each group."""
    pytorch_threads: int
    num_mixtures: int
    frames_per_step: int | None
    """Atari: frames of an agent step."""
    changed_settings: dict[str, tuple[float, float]]
    """Settings that differ in the benchmark: what was asked for, and what was used."""
    memory_slots: int
    memory_fill: int
    """Entries that each episodic memory has when a measurement of the whole agent begins."""
    build_seconds: float
    """Making the agent, its emulators above all."""
    reset_seconds: float
    """The first, seeded reset of all environments, and the first step."""
    bare_lock_step: BareRate
    """All environments as one batch, the last waited for."""
    bare_overlapped: list[BareRate]
    """In the agent's groups: before the first and after each measurement of the agent. This is the bare emulator."""
    bare_env_steps_per_second: float
    """The mean of those."""
    agent: list[AgentRate]
    learner: LearnerTimes
    acting: list[ActingTime]
    """For one group, and for all environments as one."""
    growth: Growth | None
    kernels: dict[str, float] | None
    """Kernels and copies on the GPU in an acting step of a group, the drawing of a batch and an update."""
    memory: MemoryUse

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def table(self) -> str:
        """The measurements as aligned text."""
        from ngu.benchmarks.table import table

        return table(self)


def measure_hosted(
    config: Config,
    seconds: float = 10.0,
    ratios: Sequence[float] = (),
    *,
    fill: int | None = None,
    growth: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> HostedBenchmark:
    """Measures everything.

    Args:
        config: with environments on the host.
        seconds: of each measurement of the whole agent; those of the bare emulator take half as long, those of parts
            alone a tenth, but never more than half a second.
        ratios: of trained to collected steps, 0 for acting alone; `USUAL_RATIOS` and the config's own by default.
        fill: entries of each episodic memory when a measurement of the agent begins; 10,000 by default, or full.
        growth: also measure how acting grows with environments, memories and N.
        say: is told what is measured next.
    """
    ratios = _checked_ratios(config, ratios)
    fill = _checked_fill(config, fill)
    used = benchmark_config(config)
    alone = min(seconds / 10, 0.5)
    resident = resident_memory()
    say(f"making {config.env.num_envs} environments and the agent")
    start = time.perf_counter()
    agent = WholeAgent(used)
    built = time.perf_counter()
    try:
        agent.begin()
        reset = time.perf_counter()
        emulators = BareEmulators([actor.env for actor in agent.agent.actors])
        say("bare emulator")
        lock_step = emulators.lock_step(seconds / 2)
        say("warm-up")
        agent.warm_up()
        warm = resident_memory()
        bare, runs = [emulators.overlapped(seconds / 2)], []
        for ratio in ratios:
            say(
                f"whole agent, {ratio:g} trained steps for each collected step"
                if ratio
                else "whole agent, acting alone"
            )
            runs.append(agent.measure(ratio, seconds, fill))
            bare.append(emulators.overlapped(seconds / 2))
        memory = memory_use(agent.agent, resident, warm)
        say("learner alone")
        learner = agent.learner_times(alone)
        say("acting alone")
        acting = _measure_acting(used, agent, alone)
        grown = None
        if growth:
            say("growth of acting with environments, memories and N")
            grown = measure_growth(used, emulators.groups[0].spec, agent.agent.learner, fill, alone)
        # At the very end: what has been profiled once may stay slower.
        counts = {name: kernels(call, agent.device) for name, call in agent.parts().items()}
        device = processor_name(agent.device)
    finally:
        agent.close()
    frames = FRAME_SKIP if config.env.name == "atari" else None
    return HostedBenchmark(
        preset=config.preset,
        variant=config.variant,
        environment=config.env.which or config.env.name,
        device=device,
        precision=config.run.precision,
        cores=cores(),
        num_envs=config.env.num_envs,
        groups=config.env.groups,
        emulator_threads=_emulator_threads(config),
        pytorch_threads=torch.get_num_threads(),
        num_mixtures=config.mixture.num_mixtures,
        frames_per_step=frames,
        changed_settings=_changed(config, used),
        memory_slots=memory_slots(used),
        memory_fill=fill,
        build_seconds=built - start,
        reset_seconds=reset - built,
        bare_lock_step=lock_step,
        bare_overlapped=bare,
        bare_env_steps_per_second=sum(rate.env_steps_per_second for rate in bare) / len(bare),
        agent=[
            _compared(used, ratio, run, (bare[place], bare[place + 1]), frames)
            for place, (ratio, run) in enumerate(zip(ratios, runs, strict=True))
        ],
        learner=learner,
        acting=acting,
        growth=grown,
        kernels={name: count for name, count in counts.items() if count is not None} or None,
        memory=memory,
    )


def benchmark_config(config: Config) -> Config:
    """The config that is measured: learning begins at once, and memories keep the entries that they are given."""
    config = learning_at_once(config)
    return with_overrides(config, {"novelty.memory_episodes": _NEVER_WIPED}) if config.novelty.episodic else config


def _checked_ratios(config: Config, ratios: Sequence[float]) -> list[float]:
    for ratio in ratios:
        if not (ratio == 0 or _LEAST_RATIO <= ratio <= _LARGEST_RATIO):
            raise UserError(
                f"the ratio {ratio:g} of trained to collected steps cannot be measured; give 0 (acting alone), or "
                f"numbers from {_LEAST_RATIO:g} to {_LARGEST_RATIO:g}."
            )
    return sorted(set(ratios or (*USUAL_RATIOS, config.learner.replay_ratio)))


def _checked_fill(config: Config, fill: int | None) -> int:
    slots = memory_slots(config)
    if fill is None:
        return min(_USUAL_FILL, slots)
    if not 0 <= fill <= slots:
        raise UserError(
            f"memories cannot be filled to {fill:,} entries; give a number from 0 to {slots:,} "
            f"({'novelty.memory_capacity' if slots else 'this variant has no episodic memory'})."
        )
    return fill


def _measure_acting(config: Config, agent: WholeAgent, seconds: float) -> list[ActingTime]:
    """Acting alone for one group's environments, and for all environments as one group."""
    fills = stated_fills(config, (_USUAL_FILL,))
    spec, learner = agent.agent.actors[0].env.spec, agent.agent.learner
    times: list[ActingTime] = []
    for number in sorted({config.env.num_envs // config.env.groups, config.env.num_envs}):
        times += acting_times(still_actor(config, spec, number, learner), fills, seconds)
    return times


def _compared(
    config: Config, ratio: float, run: AgentRun, around: tuple[BareRate, BareRate], frames_per_step: int | None
) -> AgentRate:
    rate = run.steps / run.seconds
    bare = sum(measured.env_steps_per_second for measured in around) / len(around)
    return AgentRate(
        replay_ratio=ratio,
        trained_per_collected=run.updates * config.learner.batch_size * config.replay.trace_length / run.steps,
        env_steps_per_second=rate,
        frames_per_second=None if frames_per_step is None else rate * frames_per_step,
        updates_per_second=run.updates / run.seconds,
        bare_env_steps_per_second=bare,
        ratio_to_bare=rate / bare,
        reset_share=run.reset_share,
        memory_filled_at_start=run.memory_filled[0],
        memory_filled_at_end=run.memory_filled[1],
        group_step_ms={name: spent / run.group_steps * 1e3 for name, spent in run.call_seconds.items()},
        seconds=run.seconds,
    )


def _changed(config: Config, used: Config) -> dict[str, tuple[float, float]]:
    """Settings that differ: name -> (asked for, used)."""
    pairs = {
        "replay.min_sequences": (config.replay.min_sequences, used.replay.min_sequences),
        "novelty.memory_episodes": (config.novelty.memory_episodes, used.novelty.memory_episodes),
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _emulator_threads(config: Config) -> int:
    """As `make_environment` divides the cores among the groups: threads are shared, worker processes are not."""
    env = config.env
    number = (env.threads or cores()) if in_emulator_threads(config) else max((env.workers or cores()) // env.groups, 1)
    return min(number, env.num_envs // env.groups)

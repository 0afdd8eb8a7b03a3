"""The benchmark of the Ray runner: its pace beside the local runner's, what an actor costs, what the learner takes in.

Everything is measured in one run on one machine, with the environments of one actor in the local runner.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ngu.agent import weights_of
from ngu.benchmarks.table import aligned
from ngu.benchmarks.whole import learning_at_once
from ngu.chunk import unpack
from ngu.config import Config
from ngu.config_reading import to_dict, with_overrides
from ngu.machine import resident_memory, resolve_device
from ngu.runners.actor_process import ActorProcess
from ngu.runners.local import LocalRunner
from ngu.runners.ray import RayRunner

PAPERS_STEPS_PER_SECOND = 16_600
"""Agent steps of the paper's 256 actors in a second."""

_MOST_PATIENCE = 20.0
"""How many times as long as was asked for a measurement may take until there is an update to count."""


@dataclass(frozen=True)
class Pace:
    """A runner at work."""

    actors: int
    """0 for the local runner."""
    envs: int
    steps_per_second: float
    updates_per_second: float
    actor_cores: float
    """Cores that an actor kept busy, mean over actors."""
    actor_memory: int
    """Bytes of an actor's process in memory, mean over actors."""
    waiting_share: float
    """Share of the time that actors waited for the learner to take their chunks."""


@dataclass(frozen=True)
class Ingest:
    """The learner's side alone, fed with recorded chunks as fast as it takes them; no updates."""

    steps_per_second: float
    compressed_steps_per_second: float
    bytes_per_step: float
    compressed_bytes_per_step: float
    packing_ms: float
    """To pack a chunk without compression, and with it, on the actor's side."""
    compressing_ms: float
    weights_bytes: int
    seconds: float
    resident_before: int
    resident_after: int


@dataclass(frozen=True)
class ClusterBenchmark:
    """What was measured."""

    preset: str
    world: str
    device: str
    cores: int
    envs_per_actor: int
    chunk_steps: int
    paces: list[Pace]
    ingest: Ingest

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def table(self) -> str:
        """The measurements as aligned text."""
        local = self.paces[0].steps_per_second
        rows = [["runner", "env steps/s", "to local", "updates/s", "cores per actor", "MiB per actor", "actors waited"]]
        for pace in self.paces:
            name = "local" if pace.actors == 0 else f"ray, {pace.actors} actor{'s' if pace.actors > 1 else ''}"
            costs = [f"{pace.actor_cores:.2f}", f"{pace.actor_memory / 2**20:,.0f}", f"{pace.waiting_share:.0%}"]
            rows.append(
                [name, f"{pace.steps_per_second:,.0f}", f"{pace.steps_per_second / local:.2f}",
                 f"{pace.updates_per_second:,.1f}", *(costs if pace.actors else ["", "", ""])]
            )  # fmt: skip
        ingest = self.ingest
        plain = [
            ["taken in, env steps/s", f"{ingest.steps_per_second:,.0f}"],
            ["the same, compressed", f"{ingest.compressed_steps_per_second:,.0f}"],
            ["to the paper's 256 actors", f"{ingest.steps_per_second / PAPERS_STEPS_PER_SECOND:.1f}"],
            ["bytes per env step", f"{ingest.bytes_per_step:,.0f}"],
            ["the same, compressed", f"{ingest.compressed_bytes_per_step:,.0f}"],
            ["packing a chunk", f"{ingest.packing_ms:.2f} ms"],
            ["the same, compressed", f"{ingest.compressing_ms:.2f} ms"],
            ["weights", f"{ingest.weights_bytes / 2**20:,.1f} MiB"],
            ["memory of this process, before", f"{ingest.resident_before / 2**20:,.0f} MiB"],
            ["after", f"{ingest.resident_after / 2**20:,.0f} MiB"],
        ]
        title = (
            f"{self.preset}, {self.world}, learner on {self.device}, {self.cores} cores, "
            f"{self.envs_per_actor} environments per actor, chunks of {self.chunk_steps} steps"
        )
        return "\n\n".join([title, aligned(rows), f"learner's intake alone, {ingest.seconds:.0f} s\n" + aligned(plain)])


def measure_cluster(
    config: Config, seconds: float, actors: Sequence[int] = (1, 2, 4), say: Callable[[str], None] = lambda _: None
) -> ClusterBenchmark:
    """Measures the local runner, then the Ray runner with each number of actors, then the intake."""
    config = learning_at_once(config)
    device = resolve_device(config.run.device)
    each = config.env.num_envs // config.env.groups
    alone = with_overrides(config, {"run.runner": "local", "env.groups": 1, "env.num_envs": each})
    say("local runner")
    paces = [_local_pace(alone, device, seconds)]
    for count in actors:
        say(f"ray, {count} actors")
        many = with_overrides(config, {"env.groups": count, "env.num_envs": count * each})
        paces.append(_ray_pace(many, device, seconds))
    say("intake")
    return ClusterBenchmark(
        preset=config.preset,
        world=config.env.which or config.env.name,
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU",
        cores=os.cpu_count() or 1,
        envs_per_actor=each,
        chunk_steps=config.ray.chunk_steps,
        paces=paces,
        ingest=measure_ingest(config, device, seconds),
    )


def _local_pace(config: Config, device: torch.device, seconds: float) -> Pace:
    runner = LocalRunner(config, device)
    try:
        while runner.learner.updates < 3:
            runner.advance()
        steps, updates, passed = _advance(runner, seconds)
    finally:
        runner.close()
    return Pace(0, config.env.num_envs, steps / passed, updates / passed, 0.0, 0, 0.0)


def _ray_pace(config: Config, device: torch.device, seconds: float) -> Pace:
    runner = RayRunner(config, device)
    try:
        while runner.learner.updates < 3 or runner.cluster_metrics()["ray/actors"] < config.env.groups:
            runner.advance()
        processes = [int(actor["process"]) for actor in runner.status()["actors"]]
        cpu, worked = [_cpu_seconds(process) for process in processes], sum(slot.seconds for slot in runner.slots)
        steps, updates, passed = _advance(runner, seconds)
        busy = [_cpu_seconds(process) - before for process, before in zip(processes, cpu, strict=True)]
        worked = sum(slot.seconds for slot in runner.slots) - worked
        memory = [_resident(process) for process in processes]
    finally:
        runner.close()
    count = config.env.groups
    return Pace(
        actors=count,
        envs=config.env.num_envs,
        steps_per_second=steps / passed,
        updates_per_second=updates / passed,
        actor_cores=sum(busy) / count / passed,
        actor_memory=sum(memory) // count,
        waiting_share=max(1 - worked / (count * passed), 0.0),
    )


def _advance(runner: LocalRunner | RayRunner, seconds: float) -> tuple[int, int, float]:
    """Steps, updates, and the time they took."""
    steps, updates, start = runner.steps, runner.learner.updates, time.perf_counter()
    # On a slow machine an update may take longer to come; a rate without one would say nothing.
    while (passed := time.perf_counter() - start) < seconds or (
        runner.learner.updates == updates and passed < _MOST_PATIENCE * seconds
    ):
        runner.advance()
    runner.settle()
    if runner.device.type == "cuda":
        torch.cuda.synchronize()
    return runner.steps - steps, runner.learner.updates - updates, time.perf_counter() - start


def measure_ingest(config: Config, device: torch.device, seconds: float) -> Ingest:
    """Feeds a runner's intake with chunks that a real actor recorded, slot after slot, as fast as it takes them."""
    runner = RayRunner(config, device)
    actor = ActorProcess(to_dict(config), 0, 0, None)
    try:
        weights = weights_of(runner.learner)
        # An actor's first chunk begins episodes everywhere, so every slot can take it again and again.
        answer = actor.collect(0, weights, compress=False)
        chunk = unpack(answer["arrays"], runner.spec, config.ray.chunk_steps, runner._size, config.network.lstm_size)
        answers = {compress: {**answer, "arrays": chunk.pack(compress)} for compress in (False, True)}
        rates = {}
        resident = 0
        for compress, packed in answers.items():
            taken, start = 0, time.perf_counter()
            while time.perf_counter() - start < seconds or taken < len(runner.slots):
                runner._take_in(taken % len(runner.slots), packed)
                taken += 1
                if taken == 2 * len(runner.slots) and not compress:
                    resident = resident_memory()
            if device.type == "cuda":
                torch.cuda.synchronize()
            per_chunk = config.ray.chunk_steps * runner._size
            rates[compress] = taken * per_chunk / (time.perf_counter() - start)
        assert runner.refused == 0, runner.last_refusal
        size = {kind: sum(array.nbytes for array in packed["arrays"].values()) for kind, packed in answers.items()}
        return Ingest(
            steps_per_second=rates[False],
            compressed_steps_per_second=rates[True],
            bytes_per_step=size[False] / per_chunk,
            compressed_bytes_per_step=size[True] / per_chunk,
            packing_ms=_packing(actor, False),
            compressing_ms=_packing(actor, True),
            weights_bytes=sum(value.nbytes for part in weights.values() for value in part.values()),
            seconds=2 * seconds,
            resident_before=resident or resident_memory(),
            resident_after=resident_memory(),
        )
    finally:
        actor.env.close()
        runner.close()


def _packing(actor: ActorProcess, compress: bool) -> float:
    """Milliseconds to take and pack one full chunk."""
    while not actor._recorder.full:
        actor.actor.step()
    start = time.perf_counter()
    actor._recorder.take().pack(compress)
    return (time.perf_counter() - start) * 1e3


def _cpu_seconds(process: int) -> float:
    """Processor time of a process and all its threads so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

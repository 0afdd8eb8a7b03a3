"""What tests of the Ray runner share: a small config, actors that misbehave, and a look at processes and replay."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from conftest import make_tiny_config
from ray.cluster_utils import Cluster
from torch import Tensor

from ngu.config import Config
from ngu.replay import SequenceReplay
from ngu.runners.actor_process import ActorProcess
from ngu.runners.ray import RayRunner

gymnasium.register(
    id="test/Broken-v0",
    entry_point="gym_factories:Misbehaving",
    kwargs={"index": 0, "what": "raise_an_exception"},
    max_episode_steps=40,
)


def ray_config(actors: int, **overrides: Any) -> Config:
    """A tiny run with two environments for each actor, and room in replay for all that it collects."""
    defaults: dict[str, Any] = {
        "run__runner": "ray",
        "run__threads": 1,
        "env__groups": actors,
        "env__num_envs": 2 * actors,
        "mixture__num_mixtures": 2 * actors,
        "replay__capacity": 60_000 * actors,
        "ray__chunk_steps": 10,
        "evaluation__period": 0,
    }
    return make_tiny_config(**{**defaults, **overrides})


def advance_until(runner: RayRunner, done: Callable[[], bool], seconds: float = 300.0) -> None:
    """Lets a runner work until something is so, however slowly a busy machine comes there."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, runner.status()
        runner.advance()


def make_cluster(**head: Any) -> Cluster:
    """A cluster with a head; see `add_node`."""
    cluster = Cluster()
    add_node(cluster, include_dashboard=False, **head)
    return cluster


def add_node(cluster: Cluster, **resources: Any) -> None:
    """Adds a node; Ray's own limit of 30 seconds is too short for a busy machine."""
    cluster.add_node(wait=False, **resources)
    cluster.wait_for_nodes(timeout=300)


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def raylet_of(node: Any) -> int:
    """The process that is the parent of a node's workers."""
    (raylet,) = node.all_processes["raylet"]
    return int(raylet.process.pid)


def descendants(process: int) -> list[int]:
    """The processes that one has started, and theirs."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = [process]
    for parent in found:
        found += [child for child, of in parents.items() if of == parent]
    return found[1:]


def sequences(replay: SequenceReplay) -> dict[tuple[int, int], list[Tensor]]:
    """Every sequence of a replay that has not turned yet, by stream and first row: its rows, column by column."""
    assert int(replay.rows_written.max()) <= replay.slots
    columns = (replay.observation, replay.action, replay.behaviour, replay.extrinsic, replay.intrinsic)
    held = {}
    for place in (replay.priority > 0).nonzero().squeeze(1).tolist():
        start, stream = divmod(place, replay.streams)
        rows = [(start + step) * replay.streams + stream for step in range(int(replay.length[place]) + 1)]
        held[stream, start] = [column[rows].clone() for column in columns]
    return held


class OnceHanging(ActorProcess):
    """Slot 0 hangs in its third chunk, the first time that it gets there."""

    def collect(self, *arguments: Any) -> dict[str, Any]:
        if self._slot == 0 and self._acted == 0 and self.chunks == 2:
            time.sleep(1000)
        self.chunks += 1
        return super().collect(*arguments)

    chunks = 0


class OnceHangingWhenBuilt(ActorProcess):
    """Slot 0 hangs while it is built, the first time."""

    def __init__(self, settings: dict[str, Any], slot: int, acted: int, running: dict[str, Any] | None) -> None:
        marker = Path(settings["run"]["folder"]) / "hung"
        if slot == 0 and not marker.exists():
            marker.touch()
            time.sleep(1000)
        super().__init__(settings, slot, acted, running)


class OnceDamaging(ActorProcess):
    """The first actor of slot 0 sends two good chunks, then one with a reward that is no number."""

    chunks = 0

    def collect(self, *arguments: Any) -> dict[str, Any]:
        answer = super().collect(*arguments)
        self.chunks += 1
        if self._slot == 0 and self._acted == 0 and self.chunks == 3:
            answer["arrays"]["extrinsic"][4, 1] = np.nan
        return answer


class AlwaysDamaging(ActorProcess):
    """Slot 1 sends nothing but chunks of another shape."""

    def collect(self, *arguments: Any) -> dict[str, Any]:
        answer = super().collect(*arguments)
        if self._slot == 1:
            answer["arrays"]["action"] = answer["arrays"]["action"][:-1]
        return answer

"""What takes too long for every commit: runs on a cluster of three nodes that fails again and again, and ten minutes of
memory. `make test-long` runs them; each prints what it saw.

They start the real command and look at it from outside, as an operator would: at its status, metrics and processes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster
from ray_checks import descendants
from tiny_runs import COMMAND, ENVIRONMENT, options
from worker_checks import gone

from ngu.checkpoint import load_newest
from ngu.metrics import read_metrics
from ngu.report.results import read_results
from ngu.run_folder import RunFolder

pytestmark = pytest.mark.long

RESULTS = Path(__file__).parent.parent / "results"
KILL_PERIOD = 6.0
"""Seconds for which all actors live before one is killed."""
SOAK = 600.0
"""Seconds for which memory is watched."""

# Pong for two cores: the preset atari-cpu with half its width, and updates enough to learn from few steps.
SMALL_ATARI: Mapping[str, Any] = {
    "env.num_envs": 8,
    "env.threads": 1,
    "novelty.filters": (16, 32, 32),
    "network.filters": (16, 32, 32),
    "network.torso_size": 128,
    "network.lstm_size": 128,
    "network.dueling_size": 128,
    "replay.trace_length": 40,
    "replay.period": 20,
    "learner.learning_rate": 5e-4,
    "learner.replay_ratio": 8.0,
    "mixture.epsilon_alpha": 0.0,  # all actors explore much: where all actions are the same, f has nothing to learn
    "evaluation.num_envs": 1,
    "evaluation.period": 10_000,
    "run.steps": 30_000,
    "run.threads": 1,
    "run.log_period": 2_000,
    "run.checkpoint_period": 15_000,
}


@contextmanager
def three_nodes() -> Iterator[Cluster]:
    """A head without room for actors, and two nodes with two cores each; afterwards no process may be left."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=2)
        yield cluster
    finally:
        processes = descendants(os.getpid())
        cluster.shutdown()
        assert gone(processes, seconds=30)


@contextmanager
def started(*arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen([*COMMAND, *arguments], env=ENVIRONMENT, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def status_of(run: Path) -> dict[str, Any]:
    """What the run wrote last for `ngu status`; nothing before it has begun."""
    with suppress(FileNotFoundError):
        return dict(json.loads((run / "status.json").read_bytes()))
    return {"steps": 0, "actors": [], "evaluator": {}}


def trouble(run: Path, process: subprocess.Popen[bytes], cluster: Cluster, steps: int) -> dict[str, int]:
    """Kills an actor every few seconds, a whole node after a third of the run, and the evaluator after half of it.

    Returns how many of each, when the run has ended.
    """
    done = {"actors": 0, "nodes": 0, "evaluators": 0}
    dice = random.Random(0)
    next_kill = 0.0
    lost_at: float | None = None
    while process.poll() is None:
        time.sleep(0.5)
        status = status_of(run)
        if done["nodes"] == 0 and status["steps"] > steps / 3:
            cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
            done["nodes"], lost_at = 1, time.monotonic()
        if lost_at is not None and time.monotonic() > lost_at + 20:
            cluster.add_node(num_cpus=2)
            lost_at = None
        if done["evaluators"] == 0 and status["steps"] > steps / 2 and status["evaluator"]:
            done["evaluators"] += kill(status["evaluator"]["process"])
        alive = [actor["process"] for actor in status["actors"] if actor["alive"]]
        if len(alive) < max(len(status["actors"]), 1) or lost_at is not None:
            next_kill = time.monotonic() + KILL_PERIOD  # where all are always killed, nothing is ever collected
        elif time.monotonic() > next_kill and status["steps"] < 0.97 * steps:
            done["actors"] += kill(dice.choice(alive))
            next_kill = time.monotonic() + KILL_PERIOD  # a status is up to two seconds old
    return done


def kill(process: int) -> int:
    """1 if there was such a process."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def last_of(run: Path, name: str) -> float:
    return [float(row[name]) for row in read_metrics(run / "metrics.jsonl") if name in row][-1]


def mean_of_last_half(run: Path, name: str) -> float:
    values = [float(row[name]) for row in read_metrics(run / "metrics.jsonl") if name in row]
    return statistics.fmean(values[len(values) // 2 :])


def check_counters(run: Path, killed: Mapping[str, int]) -> int:
    """Every kill was seen, and every step is accounted for; returns the updates made."""
    assert killed["nodes"] == killed["evaluators"] == 1
    assert last_of(run, "ray/actor_restarts") >= killed["actors"]  # and those of the node
    assert last_of(run, "ray/evaluator_restarts") >= 1
    assert last_of(run, "ray/refused_chunks") == 0
    saved = load_newest(run / "checkpoints")
    runner, replay, learner = (saved.state[name] for name in ("runner", "replay", "learner"))
    config = RunFolder.open(run).config
    size = config.env.num_envs // config.env.groups
    chunk = config.ray.chunk_steps * size
    assert runner["steps"] == saved.step == runner["chunks"] * chunk == size * sum(runner["acted"])
    assert int(replay["rows_written"].sum()) == runner["steps"]
    since, zero = runner["learning_since"]
    assert learner["updates"] == zero + int((runner["steps"] - since) / config.steps_per_update)
    return int(learner["updates"])


def within_spread(value: float, seeds: list[float]) -> bool:
    """Not worse than the worst of the local seeds by more than they differ among themselves."""
    return value >= min(seeds) - (max(seeds) - min(seeds))


def test_the_maze_is_learned_as_locally_while_actors_a_node_and_the_evaluator_are_killed(tmp_path: Path) -> None:
    files = sorted((RESULTS / "disco-maze-small").glob("ngu-seed*.csv"))
    local = [read_results(file) for file in files]
    name = "eval/explore/coverage@100"
    coverages = [[row[name] for row in results.rows if name in row][-1] for results in local]
    updates = [int(results.rows[-1]["learner/updates"]) for results in local if "learner/updates" in results.rows[-1]]
    assert len(coverages) >= 3
    run, log = tmp_path / "run", tmp_path / "log"
    with three_nodes() as cluster:
        command = ["train", "disco-maze-small", "--runner", "ray", "--address", cluster.address, "--actors", "2"]
        command += ["--envs-per-actor", "32", "--run.threads", "1", "--run.folder", str(tmp_path), "--run.name", "run"]
        with started(*command, log=log) as process:
            killed = trouble(run, process, cluster, 2_000_000)
        assert process.returncode == 0, log.read_text()
    made = check_counters(run, killed)
    coverage = last_of(run, name)
    print(
        f"\nmaze: {killed} killed, {made} updates, coverage {coverage:.3f}; local {coverages} after {updates} updates"
    )
    assert all(abs(made - other) <= 0.01 * other for other in updates)
    assert within_spread(coverage, coverages)


def test_atari_is_learned_as_locally_while_actors_a_node_and_the_evaluator_are_killed(tmp_path: Path) -> None:
    """With the real emulator. What so few steps of Pong teach is RND's predictor; f and scores are only compared."""
    base = ["train", "atari-cpu", *options(SMALL_ATARI), "--run.folder", str(tmp_path)]
    for seeds in ((0, 1), (2,)):  # two at a time
        runs = [
            subprocess.Popen(
                [*COMMAND, *base, "--run.name", f"local-{seed}", "--seed", str(seed)],
                env=ENVIRONMENT,
                stdout=subprocess.DEVNULL,
            )
            for seed in seeds
        ]
        assert [process.wait() for process in runs] == [0] * len(runs)
    run, log = tmp_path / "ray", tmp_path / "log"
    with three_nodes() as cluster:
        command = [*base, "--runner", "ray", "--address", cluster.address, "--actors", "2", "--envs-per-actor", "4"]
        with started(*command, "--run.name", "ray", log=log) as process:
            killed = trouble(run, process, cluster, SMALL_ATARI["run.steps"])
        assert process.returncode == 0, log.read_text()
    made = check_counters(run, killed)
    local = [tmp_path / f"local-{seed}" for seed in range(3)]
    print(f"\nAtari: {killed} killed, {made} updates; local {[last_of(path, 'learner/updates') for path in local]}")
    for name in ("loss/rnd", "loss/inverse"):
        first = next(float(row[name]) for row in read_metrics(run / "metrics.jsonl") if name in row)
        mine, theirs = mean_of_last_half(run, name), [mean_of_last_half(path, name) for path in local]
        print(f"{name}: from {first:.4g} to {mine:.4g}; local {[f'{value:.4g}' for value in theirs]}")
        assert mine < (0.5 if name == "loss/rnd" else 1.0) * first
        assert within_spread(-mine, [-value for value in theirs]), name
    print("score:", last_of(run, "eval/exploit/score"), [last_of(path, "eval/exploit/score") for path in local])


def private_memory(process: int) -> dict[str, float] | None:
    """MiB of a process that are its own, and that it shares: pages of the object store that it has touched."""
    with suppress(FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        if "RssAnon" in fields:
            return {name: int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "RssShmem")}
    return None


def name_of(process: int) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):
        words = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode().split()
        return " ".join(Path(word).name for word in words[:3])
    return ""


def test_memory_is_flat_over_ten_minutes_and_no_process_is_left(tmp_path: Path) -> None:
    """Replay and episodic memories are small enough to be full, and rings to have turned, before the watch begins."""
    run, log = tmp_path / "run", tmp_path / "log"
    settings = {**SMALL_ATARI, "replay.capacity": 4000, "replay.min_sequences": 50, "novelty.memory_capacity": 500}
    settings |= {"evaluation.max_steps": 500, "evaluation.period": 4000, "run.steps": 10**9}
    settings |= {"run.checkpoint_period": 20_000, "run.folder": str(tmp_path), "run.name": "run"}
    command = ["train", "atari-cpu", *options(settings), "--runner", "ray", "--actors", "2", "--envs-per-actor", "4"]
    seen: dict[int, list[tuple[float, dict[str, float]]]] = {}
    names: dict[int, str] = {}
    with started(*command, log=log) as process:
        while status_of(run)["steps"] < 8000:
            assert process.poll() is None, log.read_text()
            time.sleep(1)
        begin = time.monotonic()
        while time.monotonic() < begin + SOAK:
            for child in [process.pid, *descendants(process.pid)]:
                memory = private_memory(child)
                if memory is not None:
                    seen.setdefault(child, []).append((time.monotonic() - begin, memory))
                    names[child] = name_of(child) or names.get(child, "")
            assert process.poll() is None, log.read_text()
            time.sleep(5)
        steps = status_of(run)["steps"]
        processes = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130, log.read_text()
        assert gone(processes, seconds=10)
    print(f"\nsoak: {steps:,} steps in {SOAK:g} s, {last_of(run, 'ray/actor_restarts'):g} restarts")
    assert last_of(run, "ray/actor_restarts") == 0
    for child, rows in seen.items():
        fifths = [[memory for when, memory in rows if i <= 5 * when / SOAK < i + 1] for i in range(5)]
        if not all(fifths):
            continue  # a helper of Ray's that came or went
        for kind, spare in (("RssAnon", 16.0), ("RssShmem", 64.0)):
            medians = [statistics.median(memory[kind] for memory in part) for part in fifths]
            print(f"{names[child][:30]:30} {kind:8} MiB:", *(f"{median:6.1f}" for median in medians))
            assert medians[-1] <= medians[1] + spare, (names[child], kind)

"""`ngu reproduce --cluster` on a real Ray cluster of two nodes: the same runs as here, whoever dies or is stopped."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from ray.cluster_utils import Cluster
from ray_checks import add_node, descendants, make_cluster, parent_of, raylet_of
from rich.console import Console
from terminals import Terminal
from tiny_runs import COMMAND, checkpoint, checkpoint_steps, metrics_without_time
from worker_checks import alive, gone

from ngu.cli import main
from ngu.experiments import on_cluster
from ngu.experiments.catalogue import experiment
from ngu.experiments.plan import Cell, Plan
from ngu.experiments.running import ClusterShare, Outcome, run_cells
from ngu.experiments.scales import scale
from ngu.experiments.watching import Watch
from ngu.metrics import read_metrics
from ngu.run_folder import RunFolder
from ngu.runners.cluster import join, load_ray

PATIENCE = 180.0
TWO = ("ngu", "random-projection")


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """Where the nodes put what they work on, and Ray its sockets, whose paths must be short."""
    with tempfile.TemporaryDirectory(prefix="ngu", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def nodes(temporary: Path) -> Iterator[Cluster]:
    """A head without room for runs, and two nodes for one run each; afterwards no process may be left."""
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv("TMPDIR", str(temporary))
        cluster = make_cluster(num_cpus=0)
        for _ in range(2):
            add_node(cluster, num_cpus=1, num_gpus=1)  # which it is told to have
        join(cluster.address)
        yield cluster
        processes = descendants(os.getpid())
        load_ray().shutdown()
        cluster.shutdown()
    assert gone(processes)


def plan_of(folder: Path, budget: int, arms: tuple[str, ...] = TWO, **settings: Any) -> Plan:
    changes = {name.replace("__", "."): value for name, value in settings.items()}
    return Plan(experiment("fig_disco_maze").only((), arms), scale("smoke"), folder, budget, 1, changes)


def wait_for(condition: Callable[[], Any], running: Future[Outcome] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in three minutes"
        assert running is None or not running.done(), running.result()
        time.sleep(0.01)


@contextmanager
def beside(cells: list[Cell], address: str) -> Iterator[Future[Outcome]]:
    """Runs cells on the cluster while the test looks on and interferes; a test that fails does not wait for them."""
    asked = threading.Event()
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr("ngu.experiments.running._signals", lambda: nullcontext(asked))
        running = pool.submit(run_cells, cells, cluster=ClusterShare(address))
        try:
            yield running
        finally:
            asked.set()
            while not running.done():
                for process in [process for cell in cells for process in trainings(cell)]:
                    os.kill(process, signal.SIGKILL)
                time.sleep(0.1)


def trainings(cell: Cell) -> list[int]:
    """The processes that train a cell on the nodes, by the folder that they have there."""
    found = []
    for process in descendants(os.getpid()):
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "ngu" in words and any(word in (f"--run.folder={Path(cell.name).parent}", cell.name) for word in words):
            found.append(process)
    # One that is about to become another program still has the words of its parent.
    parents = dict.fromkeys(found)
    for process in found:
        with suppress(OSError):
            parents[process] = parent_of(process)
    return [process for process in found if parents[process] not in found]


def hold_with_a_new_checkpoint(cell: Cell, running: Future[Outcome]) -> int:
    """The process that trains a cell, stopped as soon as a checkpoint of it has come back."""
    wait_for(lambda: trainings(cell), running)
    (process,) = trainings(cell)
    before = checkpoint_steps(cell.path)
    wait_for(lambda: checkpoint_steps(cell.path) not in ([], before), running)
    os.kill(process, signal.SIGSTOP)
    return process


def assert_same_run(one: Cell, other: Cell) -> None:
    """All metrics but times, and every byte of the last checkpoint."""
    assert metrics_without_time(one.path) == metrics_without_time(other.path)
    (last,) = checkpoint_steps(one.path)
    assert checkpoint_steps(other.path) == [last]
    assert checkpoint(one.path, last) == checkpoint(other.path, last)


def test_runs_on_a_cluster_are_those_that_run_here(nodes: Cluster, temporary: Path, tmp_path: Path) -> None:
    here, there = (plan_of(tmp_path / name, 64).cells() for name in ("here", "there"))
    blocked = plan_of(tmp_path / "there", 64, ("rnd-only",)).cells()[0]
    blocked.path.mkdir(parents=True)
    (blocked.path / "in the way").touch()

    assert run_cells(here, processes=0).failed == {}
    outcome = run_cells([blocked, *there], cluster=ClusterShare(nodes.address))
    assert {cell.name for cell in outcome.done} == {cell.name for cell in there}
    assert list(outcome.failed) == [blocked.name]
    assert "already has something in it" in outcome.failed[blocked.name]
    for one, other in zip(here, there, strict=True):
        assert_same_run(one, other)
        run = RunFolder.open(other.path)
        assert Path(run.config.run.folder) == other.path.parent, "not that of the machine that it ran on"
        assert run.origin["command"].startswith(other.command())
        assert {path.name for path in other.path.iterdir()} == {
            "checkpoints", "config.json", "lock", "metrics.jsonl", "report.html"
        }  # fmt: skip
        log = other.log.read_text()
        assert log.startswith(f"$ {run.origin['command']}\nrun: {other.name}, from step 0\n")
        assert "100.0%, 64 of 64 steps" in log
    # The lock is free again, and what is done is done.
    before = [(cell.path / "metrics.jsonl").stat().st_mtime_ns for cell in there]
    assert run_cells(there, cluster=ClusterShare(nodes.address)).skipped == there
    assert before == [(cell.path / "metrics.jsonl").stat().st_mtime_ns for cell in there]
    wait_for(lambda: not list(temporary.glob("ngu-run-*")))


def test_a_run_whose_process_and_then_whose_node_is_lost_is_the_run_that_was_not_disturbed(
    nodes: Cluster, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(on_cluster, "_LOOK", 0.05)
    settings = {"run__checkpoint_period": 30, "evaluation__period": 200}
    (here,), (there,) = (plan_of(tmp_path / name, 800, ("ngu",), **settings).cells() for name in ("here", "there"))
    with beside([there], nodes.address) as running:
        first = hold_with_a_new_checkpoint(there, running)
        os.kill(parent_of(first), signal.SIGKILL)
        assert gone([first], seconds=PATIENCE), "what it had started ends with it"

        second = hold_with_a_new_checkpoint(there, running)
        raylet = parent_of(parent_of(second))
        (node,) = (node for node in nodes.worker_nodes if raylet_of(node) == raylet)
        nodes.remove_node(node)
        assert gone([second], seconds=PATIENCE)
        outcome = running.result(timeout=PATIENCE)
    add_node(nodes, num_cpus=1, num_gpus=1)
    assert outcome.done == [there]
    assert outcome.failed == {}
    told = capfd.readouterr().err
    assert f"{there.name}: its process died; it begins again where there is room" in told
    assert told.count("it begins again where there is room") >= 2
    resumed = [int(step.replace(",", "")) for step in re.findall(r", from step ([\d,]+)\n", there.log.read_text())]
    assert resumed[0] == 0
    assert 0 < resumed[1] < resumed[-1], "each time it went on from a checkpoint that had come back"
    run_cells([here], processes=0)
    assert_same_run(here, there)
    wait_for(lambda: not list(temporary.glob("ngu-run-*")))


def test_a_run_that_always_fails_is_told(nodes: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_cluster, "_MOST_FAILURES", 2)
    (cell,) = plan_of(tmp_path, 10**6, ("ngu",)).cells()
    with beside([cell], nodes.address) as running:
        for _ in range(2):
            wait_for(lambda: trainings(cell), running)
            (process,) = trainings(cell)
            os.kill(process, signal.SIGKILL)
            assert gone([process], seconds=PATIENCE)
        outcome = running.result(timeout=PATIENCE)
    assert outcome.done == []
    assert outcome.failed == {cell.name: "it was ended by SIGKILL (2 failures in a row)"}


def test_one_signal_stops_runs_on_the_cluster_and_the_same_command_goes_on(
    nodes: Cluster, temporary: Path, tmp_path: Path
) -> None:
    (cell,) = plan_of(tmp_path, 10**6, ("ngu",)).cells()
    arguments = ["reproduce", "fig_disco_maze", "--scale", "smoke", "--folder", str(tmp_path), "--variants", "ngu"]
    arguments += ["--seeds", "1", "--cluster", nodes.address]
    terminal = Terminal()
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--budget", "1000000"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=terminal.stream,
        text=True,
        start_new_session=True,
    )
    os.close(terminal.stream)
    try:
        wait_for(lambda: (cell.path / "metrics.jsonl").is_file() and len(read_metrics(cell.path / "metrics.jsonl")) > 3)
        machine = os.uname().nodename
        terminal.wait_for(lambda lines: any(line.startswith(f"{cell.name} on {machine}  ") for line in lines))
        (training,) = trainings(cell)
        os.kill(process.pid, signal.SIGINT)
        printed, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    terminal.close()
    assert process.returncode == 130, terminal.screen
    assert "the same command goes on" in printed
    assert terminal.screen == [f"{cell.name}: stopped (1 of 1)", "1 of 1 runs"]
    assert not alive(training)
    (reached,) = checkpoint_steps(cell.path)
    assert reached > 0
    assert f"stopped at {reached:,} steps" in cell.log.read_text()
    wait_for(lambda: not list(temporary.glob("ngu-run-*")))

    assert main([*arguments, "--budget", str(reached + 32)]) == 0
    assert f"run: {cell.name}, from step {reached:,}" in cell.log.read_text()
    steps = [row["step"] for row in read_metrics(cell.path / "metrics.jsonl")]
    assert steps == sorted(steps)
    assert steps[-1] == reached + 32


def test_a_cluster_that_is_lost_is_told_in_a_sentence(tmp_path: Path) -> None:
    """One of its own: what its head takes with it, others still need. Ray would end the command a minute later."""
    (cell,) = plan_of(tmp_path, 10**6, ("ngu",), run__checkpoint_period=30).cells()
    cluster = make_cluster(num_cpus=1)
    address = cluster.address
    try:
        arguments = ["reproduce", "fig_disco_maze", "--scale", "smoke", "--folder", str(tmp_path), "--variants", "ngu"]
        arguments += ["--seeds", "1", "--cluster", address, "--budget", "1000000"]
        process = subprocess.Popen(
            [*COMMAND, *arguments, "--settings", "run.checkpoint_period=30"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_for(lambda: checkpoint_steps(cell.path))
            (head,) = cluster.head_node.all_processes["gcs_server"]
            os.kill(head.process.pid, signal.SIGKILL)
            (training,) = trainings(cell)
            os.kill(training, signal.SIGKILL)  # a run that begins again has no head to ask for a place
            _, told = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    finally:
        cluster.shutdown()
    assert process.returncode == 2, told
    assert f"{cell.name}: it was ended by SIGKILL; it begins again where there is room" in told
    assert f"the head of the Ray cluster at {address} has not answered for" in told
    assert told.rstrip().endswith("when there is a cluster again, the same command goes on.")
    assert "Traceback" not in told
    assert checkpoint_steps(cell.path), "what had come back is there"


@pytest.mark.skipif(torch.cuda.is_available(), reason="runs would train on the GPU")
def test_what_the_user_has_to_put_right_is_not_tried_again(nodes: Cluster, tmp_path: Path) -> None:
    """The nodes only say that they have GPUs; a run that asks for one gets there, and finds none."""
    (cell,) = plan_of(tmp_path, 64, ("ngu",)).cells()
    outcome = run_cells([cell], devices=("cuda",), cluster=ClusterShare(nodes.address))
    sentence = "ngu: the device cuda is asked for, but PyTorch finds no CUDA device here; choose cpu."
    assert outcome.failed == {cell.name: sentence}
    assert cell.log.read_text().count("$ ngu train") == 1


@pytest.mark.parametrize(
    ("share", "devices", "what"),
    [
        ({"cpus": 64}, (), "64 cores"),
        ({"cpus": 2, "gpus": 0.5}, ("cuda",), "2 cores and 0.5 GPU"),
        ({"gpus": 0.5}, ("cuda",), ""),
    ],
)
def test_a_cluster_without_a_machine_that_is_large_enough_is_told(
    share: dict[str, Any], devices: tuple[str, ...], what: str, nodes: Cluster, tmp_path: Path
) -> None:
    cells = plan_of(tmp_path, 64).cells()
    told, asked = io.StringIO(), threading.Event()
    asked.set()  # to stop before anything has begun
    outcome = Outcome()
    with Watch(2, 0, Console(file=told)) as watch:
        on_cluster.ClusterGrid(ClusterShare(nodes.address, **share), devices, outcome, watch, asked).run(cells)
    assert (outcome.done, outcome.failed) == ([], {})
    sentence = f"no machine of the cluster has {what} for a run; runs wait until one joins it\n"
    assert told.getvalue() == (sentence if what else "")
    assert list(tmp_path.iterdir()) == []

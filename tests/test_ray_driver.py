"""The real command with actors on a cluster that it starts: killed and resumed, interrupted, and what it leaves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from ray_checks import descendants
from tiny_runs import COMMAND, ENVIRONMENT, checkpoint_steps, ngu, train_command
from worker_checks import gone

from ngu.checkpoint import load_newest
from ngu.errors import UserError
from ngu.metrics import read_metrics
from ngu.runners.cluster import Head

SETTINGS = {
    "run__runner": "ray",
    "env__groups": 2,
    "env__num_envs": 4,
    "mixture__num_mixtures": 4,
    "replay__capacity": 16000,
    "ray__chunk_steps": 10,
    "evaluation__period": 0,
}


@contextmanager
def started(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a terminal starts it: in a process group of its own. Nothing of it may be left afterwards."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*COMMAND, *command], env=ENVIRONMENT, stdout=file, stderr=subprocess.STDOUT, process_group=0
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_for(done: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 300
    while not done():
        assert time.monotonic() < deadline, log.read_text()
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)


def entries_of(folder: Path) -> list[Path]:
    """Of a process, or none if it has ended."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def listening(processes: list[int]) -> set[str]:
    """The addresses that processes listen on for connections over the network, without their ports."""
    sockets = set()
    for process in processes:
        for entry in entries_of(Path(f"/proc/{process}/fd")):
            try:
                sockets.add(str(entry.readlink()))
            except OSError:
                continue
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                words = bytes.fromhex(fields[1].split(":")[0])
                packed = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
                found.add(socket.inet_ntop(family, packed))
    return found


def test_a_killed_run_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    command = train_command(tmp_path, "run", run__steps=10**8, **SETTINGS)
    with started(command, log) as process:
        wait_for(lambda: len(checkpoint_steps(run)) >= 2, process, log)
        processes = descendants(process.pid)
        assert len(processes) > 5
        # Nothing of it can be reached from another machine.
        assert listening([process.pid, *processes]) <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
        assert listening([process.pid, *processes])
        process.kill()
        assert process.wait() == -9
        assert gone(processes)

    saved = load_newest(run / "checkpoints")
    until = saved.step + 400
    answer = ngu("resume", str(run), "--steps", str(until))
    assert answer.returncode == 0, answer.stderr
    assert f"from step {saved.step:,}" in answer.stdout
    after = load_newest(run / "checkpoints")
    before_runner, runner = saved.state["runner"], after.state["runner"]
    assert runner["steps"] == after.step >= until
    assert (runner["steps"] - before_runner["steps"]) == 20 * (runner["chunks"] - before_runner["chunks"])
    # Replay went on where it was: its rows are still there, and the new ones lie behind them.
    before_replay, replay = saved.state["replay"], after.state["replay"]
    assert int(replay["rows_written"].sum()) == runner["steps"] == 2 * sum(runner["acted"])
    for stream, written in enumerate(before_replay["rows_written"].tolist()):
        for name in ("observation", "action", "extrinsic", "intrinsic", "behaviour"):
            one, other = (state[name].unflatten(0, (-1, 4))[:written, stream] for state in (before_replay, replay))
            assert one.equal(other)
    # So did the ratio of updates to steps, and the optimiser.
    assert runner["learning_since"] == before_runner["learning_since"]
    since, zero = runner["learning_since"]
    assert after.state["learner"]["updates"] == zero + int((runner["steps"] - since) / (8 * 8 / 1.25))
    assert after.state["learner"]["updates"] > saved.state["learner"]["updates"] > 0
    rows = list(read_metrics(run / "metrics.jsonl"))
    assert [row["step"] for row in rows] == sorted(row["step"] for row in rows)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1:{closed}", "no Ray cluster answers at 127.0.0.1:{closed} ("),
        ("ray://127.0.0.1:10001", "the learner must run on a machine of the cluster"),
        ("nonsense", "no Ray cluster answers at nonsense ("),
    ],
)
def test_an_address_without_a_cluster_is_refused_in_a_sentence(address: str, sentence: str, tmp_path: Path) -> None:
    with socket.socket() as free:  # bound, but nobody listens
        free.bind(("127.0.0.1", 0))
        closed = free.getsockname()[1]
        command = train_command(tmp_path, "run", **{**SETTINGS, "ray__address": address.format(closed=closed)})
        answer = ngu(*command)
    assert answer.returncode == 2
    assert sentence.format(closed=closed) in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "run").exists()


def test_a_cluster_with_another_token_is_refused_in_a_sentence(tmp_path: Path) -> None:
    script = "import ray; ray.init('local', num_cpus=1, include_dashboard=False, logging_level='error');"
    script += "print(ray.get_runtime_context().gcs_address, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env={**ENVIRONMENT, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "mine" * 8},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        processes = descendants(cluster.pid)
        command = train_command(tmp_path, "run", **{**SETTINGS, "ray__address": address})
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(ENVIRONMENT, "RAY_AUTH_MODE", "disabled")
            answer = ngu(*command)
        cluster.stdin.write("\n")
    assert gone(processes)
    assert answer.returncode == 2
    sentence = answer.stderr.splitlines()[-1]
    assert sentence.startswith(f"ngu: something listens at {address}, but Ray could not join a cluster there (")
    assert "set RAY_AUTH_MODE=token" in sentence
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_with_a_checkpoint(sent: signal.Signals, tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    command = train_command(tmp_path, "run", run__steps=10**8, **{**SETTINGS, "run__checkpoint_period": 10**8})
    with started(command, log) as process:
        wait_for(lambda: bool((run / "metrics.jsonl").exists() and read_metrics(run / "metrics.jsonl")), process, log)
        processes = descendants(process.pid)
        # Signals to the run's group are not for Ray's processes: Ray would end the run before its checkpoint.
        assert [child for child in processes if os.getpgid(child) == process.pid] == []
        os.killpg(process.pid, sent)  # as a terminal does: to all processes of the command
        assert process.wait(timeout=120) == 130, log.read_text()
        assert gone(processes)
    assert len(checkpoint_steps(run)) == 1
    assert load_newest(run / "checkpoints").step > 0
    assert "Traceback" not in log.read_text()


def test_a_run_that_loses_its_cluster_ends_with_a_checkpoint_and_goes_on(tmp_path: Path) -> None:
    """Ray would end the process a minute after its head, with all that was learned since the last checkpoint."""
    run, log = tmp_path / "run", tmp_path / "log"
    settings = {**SETTINGS, "run__checkpoint_period": 10**8, "ray__timeout": 20}
    command = train_command(tmp_path, "run", run__steps=10**8, **settings)
    with started(command, log) as process:
        wait_for(lambda: bool((run / "metrics.jsonl").exists() and read_metrics(run / "metrics.jsonl")), process, log)
        processes = descendants(process.pid)
        (head,) = (child for child in processes if "gcs_server" in Path(f"/proc/{child}/cmdline").read_text())
        os.kill(head, signal.SIGKILL)
        for actor in processes:  # there is no head to ask for others
            with suppress(OSError):  # one that has ended
                if "ray::" in Path(f"/proc/{actor}/cmdline").read_text():
                    os.kill(actor, signal.SIGKILL)
        assert process.wait(timeout=300) == 2, log.read_text()
        assert gone(processes)
    (reached,) = checkpoint_steps(run)
    told = log.read_text()
    assert "the head of the Ray cluster at 127.0.0.1:" in told
    assert told.rstrip().endswith("when there is a cluster again, go on with `ngu resume`.")
    assert "Traceback" not in told
    answer = ngu("resume", str(run), "--run.steps", str(reached + 40))
    assert answer.returncode == 0, answer.stderr
    assert load_newest(run / "checkpoints").step >= reached + 40


def test_a_head_is_given_time_to_come_back() -> None:
    now = 0.0
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "{}:{}".format(*server.getsockname())
        head = Head("mend it", address, lambda: now)
        now = 100.0
        head.require()
    now = 101.0
    head.require()  # too soon to look again
    now = 103.0
    head.require()
    now = 129.0
    head.require()
    with socket.create_server(server_of(address)):
        now = 131.0
        head.require()
    now = 200.0
    head.require()  # after a long time, the first look that fails
    now = 201.5
    head.require()  # too soon to look again
    now = 202.0
    with pytest.raises(UserError, match=rf"cluster at {address} has not answered for 71 s \(.*\); mend it\.$"):
        head.require()


def server_of(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)

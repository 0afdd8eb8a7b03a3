"""kill -9 at any moment: the run goes on from its newest complete checkpoint and ends as if nothing had happened."""

from __future__ import annotations

import random
import re
import subprocess
import time
from pathlib import Path

import pytest
from tiny_runs import COMMAND, ENVIRONMENT, checkpoint, checkpoint_steps, metrics_without_time, ngu, train_command

from ngu.checkpoint import load_newest

SETTINGS = {
    "env__num_envs": 32,
    "replay__capacity": 6400,
    "learner__replay_ratio": 0.1,
    "run__checkpoint_period": 2000,
    "run__log_period": 1000,
    "evaluation__period": 5000,
}
"""A checkpoint a few times a second, so that many kills hit one that is being written."""


def start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen([*COMMAND, *command], env=ENVIRONMENT, stdout=file, stderr=subprocess.STDOUT)


def being_written(run: Path) -> bool:
    return any(path.name.startswith(".") for path in (run / "checkpoints").glob(".*"))


def wait_for_the_moment(kind: str, run: Path, known: int, draw: random.Random) -> None:
    """Sleeps until the process should die: while it starts, while it trains, or while it writes a checkpoint."""
    if kind == "starting":
        time.sleep(draw.uniform(0.0, 3.0))
        return
    deadline = time.monotonic() + 300
    while checkpoint_steps(run)[-1:] <= [known]:
        assert time.monotonic() < deadline, "the run writes no checkpoints"
        time.sleep(0.005)
    if kind == "training":
        time.sleep(draw.uniform(0.0, 0.6))
        return
    while not being_written(run):
        assert time.monotonic() < deadline, "the run writes no checkpoints"
    # A checkpoint is written within milliseconds: half of the kills come as soon as one has been begun.
    time.sleep(draw.choice([0.0, draw.uniform(0.0, 0.02)]))


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path) -> None:
    draw = random.Random(0)
    run, log = tmp_path / "run", tmp_path / "log"
    moments = ["starting"] * 4 + ["training"] * 10 + ["writing"] * 9
    draw.shuffle(moments)
    moments.insert(0, "training")  # there has to be a first checkpoint
    assert len(moments) >= 20
    command = train_command(tmp_path, "run", run__steps=10**8, **SETTINGS)
    torn = newest = 0
    for kind in moments:
        begun = newest
        process = start(command, log)
        try:
            wait_for_the_moment(kind, run, begun, draw)
        finally:
            process.kill()
        assert process.wait() == -9, log.read_text()
        torn += being_written(run)
        # It went on from the newest complete checkpoint, and every checkpoint it left is whole.
        first_line = re.match(rf"run: {run}, from step ([\d,]+)\n", log.read_text())
        if first_line:
            assert int(first_line[1].replace(",", "")) == begun
        newest = load_newest(run / "checkpoints").step
        assert newest == checkpoint_steps(run)[-1] >= begun
        assert load_newest(run / "checkpoints").passed_over == ()
        command = ["resume", str(run)]
    assert torn > 0, "no kill hit a checkpoint that was being written"

    until = newest + 64
    answer = ngu("resume", str(run), "--steps", str(until))
    assert answer.returncode == 0, answer.stderr
    assert not being_written(run)
    assert (run / "report.html").is_file()
    whole = train_command(tmp_path, "whole", run__steps=until, **{**SETTINGS, "run__checkpoint_period": 0})
    answer = ngu(*whole)
    assert answer.returncode == 0, answer.stderr
    assert checkpoint(run, until) == checkpoint(tmp_path / "whole", until)
    assert metrics_without_time(run) == metrics_without_time(tmp_path / "whole")

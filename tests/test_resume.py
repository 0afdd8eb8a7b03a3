"""A run that was stopped and resumed is, byte for byte, the run that was not stopped."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import (
    COMMAND,
    ENVIRONMENT,
    checkpoint,
    checkpoint_steps,
    contents,
    metrics_without_time,
    ngu,
    train_command,
)

from ngu.checkpoint import load_newest
from ngu.cli import main
from ngu.commands.resume import _restored
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.errors import UserError
from ngu.metrics import read_metrics
from ngu.run_folder import RunFolder


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mixture__num_mixtures": 3, "mixture__cross_mixture_ratio": 0.5, "novelty__memory_episodes": 2},
        {"learner__average_share": 0.5},
        {"network__whiten": True, "novelty__embedding_whiten": True},
        {"novelty__episodic": False},
        {"novelty__lifelong": False, "novelty__controllable_states": "random", "replay__importance_exponent": 0.0},
    ],
    ids=["ngu", "family", "average", "whitened", "rnd", "random projection"],
)
def test_stopping_half_way_changes_no_byte(tmp_path: Path, settings: dict[str, Any]) -> None:
    assert main(train_command(tmp_path, "whole", run__steps=640, **settings)) == 0
    assert main(train_command(tmp_path, "halves", run__steps=320, **settings)) == 0
    assert checkpoint_steps(tmp_path / "halves")[-1] == 320
    assert main(["resume", str(tmp_path / "halves"), "--steps", "640"]) == 0
    whole, halves = checkpoint(tmp_path / "whole", 640), checkpoint(tmp_path / "halves", 640)
    assert set(whole) == {"meta.json", "actors.safetensors", "learner.safetensors", "replay.safetensors"}
    assert halves == whole
    assert RunFolder.open(tmp_path / "halves").config.run.steps == 640
    # The last line at 320 steps belongs to the end of the first half; all others are the same.
    ours, theirs = metrics_without_time(tmp_path / "halves"), metrics_without_time(tmp_path / "whole")
    assert [row for row in ours if row["step"] != 320] == [row for row in theirs if row["step"] != 320]


def test_stopping_between_two_periods_changes_no_byte(tmp_path: Path) -> None:
    """Neither 184 nor 344 is a multiple of any period of logs, evaluations, checkpoints or weights."""
    assert main(train_command(tmp_path, "whole", run__steps=504)) == 0
    assert main(train_command(tmp_path, "parts", run__steps=184)) == 0
    assert main(["resume", str(tmp_path / "parts"), "--steps", "344"]) == 0
    assert main(["resume", str(tmp_path / "parts"), "--run.steps", "504"]) == 0
    assert checkpoint(tmp_path / "parts", 504) == checkpoint(tmp_path / "whole", 504)


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    """The comparison above can fail."""
    for seed in (0, 1):
        assert main(train_command(tmp_path, str(seed), run__steps=240, run__seed=seed)) == 0
    one, other = checkpoint(tmp_path / "0", 240), checkpoint(tmp_path / "1", 240)
    assert all(one[name] != other[name] for name in one)


def test_two_processes_give_the_same_bytes(tmp_path: Path) -> None:
    """The process has left no trace in a run: not its hash seed, not what ran before in it."""
    assert main(train_command(tmp_path, "here", run__steps=240)) == 0
    answer = ngu(*train_command(tmp_path, "there", run__steps=240))
    assert answer.returncode == 0, answer.stderr
    assert checkpoint(tmp_path / "there", 240) == checkpoint(tmp_path / "here", 240)


def test_a_checkpoint_without_replay_fills_it_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(train_command(tmp_path, "run", run__steps=600, run__checkpoint_replay=False)) == 0
    run = tmp_path / "run"
    assert "replay.safetensors" not in checkpoint(run, 600)
    before = load_newest(run / "checkpoints").state["learner"]["updates"]
    assert before > 0
    capsys.readouterr()
    assert main(["resume", str(run), "--steps", "1200", "--run.checkpoint-replay"]) == 0
    assert "this checkpoint has no replay" in capsys.readouterr().err
    state = load_newest(run / "checkpoints").state
    assert state["learner"]["updates"] > before
    written = int(state["replay"]["rows_written"].sum())
    assert 600 <= written <= 620  # what came after the checkpoint, and one row more where an episode began
    since, _ = state["runner"]["learning_since"]
    assert since > 600


def test_a_run_that_goes_on_can_be_evaluated_less_often(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(train_command(tmp_path, "run", run__steps=400, evaluation__period=100)) == 0
    assert main(["resume", str(run), "--steps", "1200", "--evaluation.period", "400"]) == 0
    rows = [row for row in read_metrics(run / "metrics.jsonl") if any(name.startswith("eval/") for name in row)]
    assert [row["step"] for row in rows] == [0, 104, 200, 304, 400, 800, 1200]
    assert RunFolder.open(run).config.evaluation.period == 400


def test_a_finished_run_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(train_command(tmp_path, "run", run__steps=400)) == 0
    run = tmp_path / "run"
    before = contents(run)
    capsys.readouterr()
    for argv in ([], ["--steps", "400"], ["--evaluation.period", "100"]):
        assert main(["resume", str(run), *argv]) == 2
        assert capsys.readouterr().err == (
            "ngu: the run has 400 steps already and --steps counts all of them; give more than that to go on.\n"
        )
        assert contents(run) == before


def test_what_the_last_chunk_of_an_actor_brought_is_not_too_much(
    tmp_path: Path, tiny: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run on a cluster ends up to a chunk beyond its steps, and may then still lack its last evaluation."""
    monkeypatch.setattr("ngu.training.Training.resume", lambda _path, _overrides: "resumed")
    settings = {"run__folder": str(tmp_path), "run__name": "run", "run__runner": "ray", "run__steps": 1000}
    with RunFolder.create(tiny(**settings, env__num_envs=4, env__groups=2, ray__chunk_steps=40)) as folder:
        (folder.checkpoints / "step_000000001079").mkdir(parents=True)
    assert _restored(tmp_path / "run", {}) == "resumed"
    (folder.checkpoints / "step_000000001080").mkdir()
    with pytest.raises(UserError, match="the run has 1,080 steps already"):
        _restored(tmp_path / "run", {})


def test_a_run_that_was_stopped_before_its_last_evaluation_gets_it(tmp_path: Path) -> None:
    assert main(train_command(tmp_path, "run", run__steps=400)) == 0
    run = tmp_path / "run"
    evaluations = [row for row in metrics_without_time(run) if "eval/explore/coverage@12" in row]
    before = contents(run / "checkpoints")
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join(line for line in lines if b"eval/" not in line))
    (run / "report.html").unlink()
    assert main(["resume", str(run)]) == 0
    assert metrics_without_time(run)[-1] == evaluations[-1]
    assert contents(run / "checkpoints") == before
    assert (run / "report.html").is_file()


def test_a_run_that_was_stopped_before_its_first_checkpoint_begins_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(train_command(tmp_path, "whole", run__steps=400)) == 0
    command = train_command(tmp_path, "early", run__steps=400)
    config = RunFolder.open(tmp_path / "whole").config
    RunFolder.create(with_overrides(config, {"run.name": "early"})).close()
    assert main(command) == 2  # the folder is taken
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "early")]) == 0
    assert "stopped before its first checkpoint" in capsys.readouterr().err
    assert checkpoint(tmp_path / "early", 400) == checkpoint(tmp_path / "whole", 400)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_stops_with_a_checkpoint(number: signal.Signals, tmp_path: Path) -> None:
    command = train_command(tmp_path, "run", run__steps=10**7, run__checkpoint_period=0)
    process = subprocess.Popen(
        [*COMMAND, *command], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    run = tmp_path / "run"
    try:
        wait_for_metrics(run, 200, process)
        process.send_signal(number)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    (stopped_at,) = checkpoint_steps(run)
    assert out.splitlines()[-1] == f"stopped at {stopped_at:,} steps; resume with: ngu resume {run}"
    assert not (run / "report.html").exists()
    until = stopped_at + 208
    answer = ngu("resume", str(run), "--steps", str(until))
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(f"run: {run}, from step {stopped_at:,}\n")
    assert (run / "report.html").is_file()
    whole = train_command(tmp_path, "whole", run__steps=until, run__checkpoint_period=0)
    assert main(whole) == 0
    assert checkpoint(run, until) == checkpoint(tmp_path / "whole", until)


def wait_for_metrics(run: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Until the run has written a line of metrics at `step` or later."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        if (run / "metrics.jsonl").exists() and any(row["step"] >= step for row in read_metrics(run / "metrics.jsonl")):
            return
        time.sleep(0.02)
    raise AssertionError("the run wrote no metrics")

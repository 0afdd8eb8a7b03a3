"""Metrics: lines that survive their writer, resumed runs without a double past, and a glossary that is complete."""

from __future__ import annotations

import json
import math
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.errors import UserError
from ngu.metrics import GLOSSARY, MetricsWriter, explain, read_metrics
from ngu.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    with RunFolder.create(with_overrides(Config(), {"run.folder": str(tmp_path), "run.name": "run"})) as created:
        yield created


def write(folder: RunFolder, steps: range, start_step: int = 0, tensorboard: bool = False) -> None:
    with MetricsWriter(folder, start_step=start_step, tensorboard=tensorboard) as writer:
        for step in steps:
            writer.write(step, {"env/coverage": step / 1000})


def steps_in(folder: RunFolder) -> list[int]:
    return [row["step"] for row in read_metrics(folder.metrics_path)]


def test_a_line_is_there_as_soon_as_it_is_written(folder: RunFolder) -> None:
    with MetricsWriter(folder, tensorboard=False) as writer:
        assert read_metrics(folder.metrics_path) == []
        writer.write(10, {"env/coverage": 0.25, "loss/retrace": 1})
        (row,) = read_metrics(folder.metrics_path)
        assert {**row, "time": 0} == {"step": 10, "time": 0, "env/coverage": 0.25, "loss/retrace": 1.0}
        assert 0 <= row["time"] < 60
    assert not folder.tensorboard.exists()


def test_what_is_not_finite_is_null(folder: RunFolder) -> None:
    with MetricsWriter(folder, tensorboard=False) as writer:
        writer.write(1, {"loss/retrace": math.nan, "loss/rnd": math.inf, "loss/inverse": -math.inf})

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    row = json.loads(folder.metrics_path.read_text(), parse_constant=refuse)
    assert [row[f"loss/{name}"] for name in ("retrace", "rnd", "inverse")] == [None] * 3


def test_resuming_drops_what_will_happen_again_and_time_goes_on(folder: RunFolder) -> None:
    write(folder, range(0, 100, 10))
    lines = folder.metrics_path.read_bytes().splitlines(keepends=True)
    changed = [json.dumps(json.loads(line) | {"time": 100.0 + i}).encode() + b"\n" for i, line in enumerate(lines)]
    folder.metrics_path.write_bytes(b"".join(changed))
    with MetricsWriter(folder, start_step=50, tensorboard=False) as writer:
        assert folder.metrics_path.read_bytes() == b"".join(changed[:6])  # byte for byte
        assert 105 <= writer.seconds < 165
        writer.write(60, {})
    assert steps_in(folder) == [0, 10, 20, 30, 40, 50, 60]
    assert read_metrics(folder.metrics_path)[-1]["time"] >= 105


@given(cut=st.integers(0, 10**6), start_step=st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_a_file_cut_anywhere_is_read_and_continued(cut: int, start_step: int, tmp_path_factory: Any) -> None:
    parent = tmp_path_factory.mktemp("cut")
    with RunFolder.create(with_overrides(Config(), {"run.folder": str(parent), "run.name": "run"})) as folder:
        write(folder, range(10))
        whole = folder.metrics_path.read_bytes()
        kept = whole[: cut % (len(whole) + 1)]
        folder.metrics_path.write_bytes(kept)
        # A line without its end counts if nothing else is missing.
        complete = kept.count(b"\n") + (kept.endswith(b"}"))
        assert steps_in(folder) == list(range(complete))
        write(folder, range(20, 22), start_step=start_step)
        assert steps_in(folder) == [*range(min(complete, start_step + 1)), 20, 21]


def test_a_last_line_that_lacks_only_its_end_counts(folder: RunFolder) -> None:
    write(folder, range(3))
    folder.metrics_path.write_bytes(folder.metrics_path.read_bytes()[:-1])
    assert steps_in(folder) == [0, 1, 2]
    write(folder, range(5, 6), start_step=4)
    assert steps_in(folder) == [0, 1, 2, 5]


@pytest.mark.parametrize("bad", [b'{"step": 1, "ti', b"\xff\xfe", b"[1]", b'{"time": 1}', b'{"step": "1"}', b""])
def test_a_damaged_line_in_the_middle_is_named(folder: RunFolder, bad: bytes) -> None:
    write(folder, range(3))
    lines = folder.metrics_path.read_bytes().split(b"\n")
    folder.metrics_path.write_bytes(b"\n".join([lines[0], bad, *lines[1:]]))
    before = folder.metrics_path.read_bytes()
    with pytest.raises(UserError, match=r"line 2 of the metrics .* is damaged"):
        read_metrics(folder.metrics_path)
    with pytest.raises(UserError, match=r"line 2 of the metrics .* is damaged"):
        MetricsWriter(folder, tensorboard=False)
    assert folder.metrics_path.read_bytes() == before


def test_metrics_that_are_not_there_are_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are no metrics at"):
        read_metrics(tmp_path / "metrics.jsonl")


def test_a_full_disk_is_said_and_leaves_a_file_that_can_be_continued(folder: RunFolder) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with MetricsWriter(folder, tensorboard=False) as writer:
        writer.write(1, {"env/coverage": 0.5})
        resource.setrlimit(resource.RLIMIT_FSIZE, (folder.metrics_path.stat().st_size + 10, hard))
        try:
            with pytest.raises(UserError, match=r"cannot write metrics to .*No space left"):
                writer.write(2, {"env/coverage": 0.5})
            with pytest.raises(UserError, match=r"cannot write metrics to .*File too large"):
                writer.write(3, {"env/coverage": 0.5})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert steps_in(folder) == [1]
    write(folder, range(2, 4), start_step=2)
    assert steps_in(folder) == [1, 2, 3]


KILLED = """
import sys
from pathlib import Path
from ngu.metrics import MetricsWriter
from ngu.run_folder import RunFolder
folder = RunFolder.open(Path(sys.argv[1]), lock=True)
with MetricsWriter(folder, tensorboard=False) as writer:
    for step in range(10**9):
        writer.write(step, {"env/coverage": 0.5, "loss/retrace": 0.25})
        print(step, flush=True)
"""


def test_a_killed_writer_loses_no_line_it_had_written(folder: RunFolder) -> None:
    folder.close()
    command = [sys.executable, "-c", KILLED, str(folder.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(500):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        written = 500 + len([line for line in writer.stdout.readlines() if line.endswith("\n")])
    steps = steps_in(folder)
    assert written <= len(steps) <= written + 1
    assert steps == list(range(len(steps)))


# The glossary


def test_every_name_is_explained() -> None:
    for name, sentence in GLOSSARY.items():
        assert sentence.endswith("."), name
        assert explain(name) == sentence


def test_families_match_whole_names() -> None:
    assert explain("eval/beta0/coverage@500") == GLOSSARY["eval/*/coverage@*"]
    assert explain("env/gems") == GLOSSARY["env/*"], "an environment may measure what it likes"
    assert explain("env/gems/explore") == GLOSSARY["env/*/explore"]
    for name in ("replay/mystery", "eval//coverage@5", "my/eval/a/coverage@5", "envXcoverage", "loss/rnd/x"):
        with pytest.raises(ValueError, match=r"is not in ngu\.metrics\.GLOSSARY"):
            explain(name)


def test_a_metric_without_explanation_cannot_be_written(folder: RunFolder) -> None:
    with MetricsWriter(folder, tensorboard=False) as writer:
        for name in ("loss/mystery", "step", "time"):
            with pytest.raises(ValueError, match=name):
                writer.write(1, {name: 1.0})
    assert steps_in(folder) == []


# TensorBoard and W&B


def tensorboard_scalars(folder: RunFolder) -> dict[int, float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder.tensorboard))
    events.Reload()
    return {event.step: event.value for event in events.Scalars("env/coverage")}


def test_tensorboard_shows_the_same_past_as_the_lines(folder: RunFolder) -> None:
    write(folder, range(0, 100, 10), tensorboard=True)
    with MetricsWriter(folder, start_step=50, tensorboard=True) as writer:
        writer.write(65, {"env/coverage": 0.75})
        writer.write(75, {"env/coverage": 0.5})
        # Flushed with every line.
        assert list(tensorboard_scalars(folder)) == steps_in(folder) == [0, 10, 20, 30, 40, 50, 65, 75]
    assert tensorboard_scalars(folder)[65] == 0.75
    assert tensorboard_scalars(folder)[50] == pytest.approx(0.05)


@pytest.mark.skipif(find_spec("wandb") is not None, reason="W&B is installed, so it cannot be missing")
def test_missing_wandb_is_said_before_anything_is_touched(folder: RunFolder) -> None:
    with pytest.raises(UserError, match=r"pip install -e '\.\[wandb\]'"):
        MetricsWriter(folder, wandb=True)
    assert not folder.metrics_path.exists()
    assert not folder.tensorboard.exists()


@pytest.mark.skipif(find_spec("wandb") is None, reason="needs the extra wandb")
def test_wandb_goes_on_with_the_same_run(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    identities = []
    for start_step in (0, 1):
        with MetricsWriter(folder, start_step=start_step, tensorboard=False, wandb=True) as writer:
            writer.write(start_step + 1, {"env/coverage": 0.5})
        identities.append((folder.path / "wandb_id").read_text())
    assert identities[0] == identities[1]

"""The folder of a run on its way between machines: what arrives is what was there, however it came about."""

from __future__ import annotations

import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_runs import contents

from ngu.checkpoint import newest_checkpoint
from ngu.experiments import carrying
from ngu.experiments.carrying import Outbox, Part, Stage, parts_to_go_on, pieces, write_part
from ngu.run_folder import replace_file

NAMES = ["seed-0.log", "seed-0/metrics.jsonl", "seed-0/tensorboard/events"]
CHANGES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from("areL"), st.binary(max_size=8)), max_size=12)


@given(CHANGES)
def test_a_mirror_has_the_same_bytes_after_any_changes(changes: list[tuple[str, str, bytes]]) -> None:
    """Files grow, are replaced by others, emptied, or looked at in between."""
    with tempfile.TemporaryDirectory() as folder:
        root, mirror = Path(folder) / "root", Path(folder) / "mirror"
        root.mkdir()
        mirror.mkdir()
        outbox = Outbox(root)
        for name, kind, content in [*changes, (NAMES[0], "L", b"")]:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "a":
                with path.open("ab") as file:
                    file.write(content)
            elif kind == "r":
                replace_file(path, content)
            elif kind == "e":
                path.write_bytes(b"")
            else:
                for part in outbox.changes():
                    write_part(mirror / part.name, part)
                assert contents(mirror) == contents(root)
                assert outbox.changes() == []


def test_what_only_grows_sends_what_is_new_and_some_things_stay(tmp_path: Path) -> None:
    run = tmp_path / "seed-0"
    (run / "checkpoints" / "step_000000000010").mkdir(parents=True)
    (run / "checkpoints" / "step_000000000010" / "meta.json").write_bytes(b"{}")
    (run / "lock").write_bytes(b"process 1")
    (run / ".config.json.writing").write_bytes(b"{")
    (run / "metrics.jsonl").write_bytes(b"one\n")
    outbox = Outbox(tmp_path)
    assert outbox.changes() == [Part("seed-0/metrics.jsonl", 0, b"one\n")]
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b"two\n")
    assert outbox.changes() == [Part("seed-0/metrics.jsonl", 4, b"two\n")]
    replace_file(run / "metrics.jsonl", b"one\nten\n")
    assert outbox.changes() == [Part("seed-0/metrics.jsonl", 0, b"one\nten\n")]


def test_one_may_look_while_the_run_replaces_its_checkpoints(tmp_path: Path) -> None:
    checkpoints = tmp_path / "seed-0" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (tmp_path / "seed-0.log").write_bytes(b"one\n")
    over = threading.Event()

    def replace_them() -> None:
        while not over.is_set():
            for name in ("learner", "replay"):
                (checkpoints / ".writing-step" / name).mkdir(parents=True)
            (checkpoints / ".writing-step").rename(checkpoints / "step")
            shutil.rmtree(checkpoints / "step")

    outbox = Outbox(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        replacing = pool.submit(replace_them)
        try:
            seen = [outbox.changes() for _ in range(2000)]
        finally:
            over.set()
        replacing.result()
    assert [parts for parts in seen if parts] == [[Part("seed-0.log", 0, b"one\n")]]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 20])
def test_a_file_travels_in_pieces(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "PIECE", 4)
    content = bytes(range(size))
    (tmp_path / "file").write_bytes(content)
    parts = list(pieces(tmp_path / "file", "x/copy"))
    assert len(parts) == max(-(-size // 4), 1)
    for part in parts:
        write_part(tmp_path / part.name, part)
    assert (tmp_path / "x" / "copy").read_bytes() == content


def make_checkpoint(run: Path, step: int, content: bytes) -> Path:
    path = run / "checkpoints" / f"step_{step:012d}"
    path.mkdir(parents=True)
    (path / "meta.json").write_bytes(b"{}")
    (path / "learner.safetensors").write_bytes(content)
    return path


def test_a_staged_checkpoint_stays_while_the_run_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "seed-0"
    stage = Stage(run, tmp_path / "staged")
    assert stage.newest() is None
    old = make_checkpoint(run, 90, b"old")
    stage.skip()
    assert stage.newest() is None, "it came from where the others go"
    new = make_checkpoint(run, 1_000_000_000_000, b"new")
    staged = stage.newest()
    assert staged is not None
    assert (staged.name, dict(staged.sizes)) == (new.name, {"learner.safetensors": 3, "meta.json": 2})
    assert stage.newest() is None
    shutil.rmtree(old)
    shutil.rmtree(new)
    assert stage.read("learner.safetensors", 0) == b"new"
    assert stage.read("learner.safetensors", 2) == b"w"
    assert stage.newest() is None


@pytest.mark.parametrize("replaced", ["", ".replaced-"], ids=["in place", "its successor never came"])
def test_a_run_goes_on_elsewhere_from_its_newest_checkpoint(replaced: str, tmp_path: Path) -> None:
    run = tmp_path / "here" / "seed-0"
    run.mkdir(parents=True)
    for name in ("config.json", "metrics.jsonl", "report.html", "lock"):
        (run / name).write_text(name)
    alone = [part.name for part in parts_to_go_on(run, newest_checkpoint(run / "checkpoints"))]
    assert alone == ["seed-0/config.json"], "without a checkpoint it begins anew"
    make_checkpoint(run, 90, b"old")
    newest = make_checkpoint(run, 200, b"new")
    newest = newest.rename(newest.with_name(f"{replaced}{newest.name}"))
    (run / "checkpoints" / ".writing-step_000000000300").mkdir()
    (run / "checkpoints" / "step_of_mine").mkdir()
    assert newest_checkpoint(run / "checkpoints") == newest
    for part in parts_to_go_on(run, newest):
        write_part(tmp_path / "there" / part.name, part)
    there = tmp_path / "there" / "seed-0"
    assert {path.name for path in there.iterdir()} == {"config.json", "metrics.jsonl", "checkpoints"}
    assert contents(there / "checkpoints") == {
        f"step_000000000200/{name}": content for name, content in contents(newest).items()
    }
    stage = Stage(there, tmp_path / "staged")
    (there / "checkpoints" / "step_of_mine").mkdir()
    staged = stage.newest()
    assert staged is not None
    assert staged.name == "step_000000000200"

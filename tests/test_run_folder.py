"""The run folder: what it holds, what it refuses, and that only one process trains into it."""

from __future__ import annotations

import gc
import json
import os
import platform
import resource
import shlex
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from ngu.config import Config
from ngu.config_reading import to_dict, with_overrides
from ngu.errors import UserError
from ngu.run_folder import SCHEMA_VERSION, RunFolder, replace_file


def config_in(folder: Path, name: str = "", **overrides: object) -> Config:
    return with_overrides(Config(), {"run.folder": str(folder), "run.name": name, **overrides})


def test_a_new_folder_holds_the_config_and_where_it_came_from(tmp_path: Path) -> None:
    config = config_in(tmp_path / "runs", "first", **{"novelty.filters": [4, 8], "run.seed": 3})
    with RunFolder.create(config) as folder:
        assert folder.path == tmp_path / "runs" / "first"
    content = json.loads((folder.path / "config.json").read_text())
    assert content["schema"] == SCHEMA_VERSION
    assert (content["ngu"], content["torch"]) == (version("ngu"), version("torch"))
    assert content["config"] == json.loads(json.dumps(to_dict(config)))
    assert content["git_commit"] is None or len(content["git_commit"].removesuffix("-dirty")) == 40
    assert shlex.split(content["command"]) == [Path(sys.argv[0]).name, *sys.argv[1:]]
    opened = RunFolder.open(folder.path)
    assert opened.config == config
    assert opened.origin == folder.origin
    assert [path.parent for path in (opened.metrics_path, opened.checkpoints, opened.tensorboard)] == [folder.path] * 3
    assert opened.report_path.suffix == ".html"


def test_the_commit_is_the_one_that_git_names(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    if head.returncode:
        pytest.skip("not in a git checkout, so there is no commit to name")
    with RunFolder.create(config_in(tmp_path, "x")) as folder:
        assert folder.origin["git_commit"].removesuffix("-dirty") == head.stdout.strip()


def test_names_are_made_of_preset_variant_seed_and_time_and_never_clash(tmp_path: Path) -> None:
    config = config_in(tmp_path, **{"run.seed": 12, "variant": "rnd"})
    folders = [RunFolder.create(config) for _ in range(3)]
    assert len({folder.path for folder in folders}) == 3
    for folder in folders:
        assert folder.path.name.startswith("disco-maze-small-rnd-seed12-20")
        folder.close()


@pytest.mark.parametrize(
    ("settings", "stem"),
    [
        ({"preset": "gym", "env.name": "gym", "env.id": "CartPole-v1"}, "gym-CartPole-v1-ngu-seed0-20"),
        ({"preset": "gym", "env.name": "gym", "env.id": "my_grid:mine/KeyGrid-v0"}, "gym-KeyGrid-v0-ngu-seed0-20"),
        ({"preset": "gym", "env.name": "gym", "env.id": "a:.. b\0\\" + "y" * 300}, f"gym-b-{'y' * 78}-ngu-seed0-20"),
        ({"preset": "atari-cpu", "env.name": "atari", "env.game": "pong"}, "atari-cpu-pong-ngu-seed0-20"),
        ({"preset": "atari", "env.name": "atari", "env.game": "Montezuma's Revenge"}, "atari-Montezuma-s-Revenge-ngu-"),
        (
            {"preset": "minigrid", "env.name": "minigrid", "env.level": "DoorKey-6x6"},
            "minigrid-DoorKey-6x6-ngu-seed0-20",
        ),
    ],
)
def test_names_say_which_environment(settings: dict[str, object], stem: str, tmp_path: Path) -> None:
    with RunFolder.create(config_in(tmp_path, **settings)) as folder:
        assert folder.path.name.startswith(stem)
        assert folder.path.parent == tmp_path


def test_a_folder_with_something_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match=r"already has something in it; .*ngu resume .*another run\.name"):
        RunFolder.create(config_in(tmp_path, "taken"))
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["thesis.tex"]


def test_an_empty_folder_or_one_with_a_lock_alone_is_taken(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "lock").write_text("process 1 on nowhere\n")  # a start that died before its config
    with RunFolder.create(config_in(tmp_path, "empty")):
        pass
    with pytest.raises(UserError, match="already has something in it"):
        RunFolder.create(config_in(tmp_path, "empty"))


@pytest.mark.parametrize("parent", ["file/runs", "file"])
def test_an_impossible_place_is_said(tmp_path: Path, parent: str) -> None:
    (tmp_path / "file").write_text("")
    for name in ("", "x", "y" * 300):
        with pytest.raises(UserError, match=r"cannot make a run folder in .*run\.folder"):
            RunFolder.create(config_in(tmp_path / parent, name))


def test_opening_what_is_no_run_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no run folder"):
        RunFolder.open(tmp_path / "missing")
    with pytest.raises(UserError, match=r"is not a run folder, it has no config\.json"):
        RunFolder.open(tmp_path)


def test_a_damaged_config_is_said(tmp_path: Path) -> None:
    with RunFolder.create(config_in(tmp_path, "run")) as folder:
        pass
    path = folder.path / "config.json"
    whole = path.read_bytes()
    for size in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match="is damaged"):
            RunFolder.open(folder.path)
    content = json.loads(whole)
    for changed, sentence in (
        ({"schema": SCHEMA_VERSION + 1}, f"has schema {SCHEMA_VERSION + 1} and this ngu reads schema {SCHEMA_VERSION}"),
        ({"config": content["config"] | {"flavour": 1}}, "the setting flavour does not exist"),
        ({"config": 3}, "is damaged"),
    ):
        path.write_text(json.dumps(content | changed))
        with pytest.raises(UserError, match=sentence):
            RunFolder.open(folder.path)


def test_a_changed_config_is_kept_with_its_origin(tmp_path: Path) -> None:
    with RunFolder.create(config_in(tmp_path, "run")) as folder:
        longer = with_overrides(folder.config, {"run.steps": 77})
        folder.replace_config(longer)
    opened = RunFolder.open(folder.path)
    assert opened.config == longer
    assert opened.origin == folder.origin


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            replace_file(path, b"new" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    with path.open("rb") as reader:
        replace_file(path, b"new")
        assert reader.read() == b"old"  # who had it open sees no mixture
    assert path.read_bytes() == b"new"


# The lock

HOLD = """
import sys, time
from pathlib import Path
from ngu.run_folder import RunFolder
folder = RunFolder.open(Path(sys.argv[1]), lock=True)
print("held", flush=True)
time.sleep(60)
"""


def test_one_process_trains_into_a_folder_until_it_dies(tmp_path: Path) -> None:
    RunFolder.create(config_in(tmp_path, "run")).close()
    path = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(UserError, match=rf"another process \(process {holder.pid} on .*\) is training into"):
                RunFolder.open(path, lock=True)
            assert RunFolder.open(path).path == path  # reading goes on
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
    (path / "lock").write_text("process 123456789012 on a machine with a longer name than this one will ever have\n")
    with RunFolder.open(path, lock=True):
        assert (path / "lock").read_text() == f"process {os.getpid()} on {platform.node()}\n"


def test_the_lock_is_held_from_creation_to_closing(tmp_path: Path) -> None:
    folder = RunFolder.create(config_in(tmp_path, "run"))
    with pytest.raises(UserError, match="is training into"):
        RunFolder.open(folder.path, lock=True)
    folder.close()
    folder.close()
    again = RunFolder.open(folder.path, lock=True)
    with pytest.raises(UserError, match="is training into"):
        RunFolder.open(folder.path, lock=True)
    del again
    gc.collect()
    RunFolder.open(folder.path, lock=True).close()


def test_importing_does_not_wait_for_tensorboard() -> None:
    script = (
        "import sys, ngu.run_folder, ngu.metrics, ngu.progress, ngu.checkpoint; print('tensorboard' in sys.modules)"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "False"

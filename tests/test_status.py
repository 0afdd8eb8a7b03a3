"""`ngu status`: what it shows of a run on a cluster, and the sentence where there is nothing to show."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_runs import ENVIRONMENT, contents

from ngu.cli import main
from ngu.config import Config
from ngu.errors import UserError
from ngu.run_folder import RunFolder

pytest.importorskip("ray")

from ngu.commands.status import read_status
from ngu.runners.make import make_runner

EXAMPLES = Path(__file__).parent.parent / "examples"

ACTORS: list[dict[str, Any]] = [
    {
        "slot": 0,
        "alive": True,
        "process": 4711,
        "machine": "here",
        "steps": 6_400,
        "steps_per_second": 1_000.0,
        "weights_age": 3,
        "restarts": 0,
        "reason": "",
    },
    {
        "slot": 1,
        "alive": True,
        "process": 4712,
        "machine": "there",
        "steps": 12_800,
        "steps_per_second": 2_345.0,
        "weights_age": 5,
        "restarts": 2,
        "reason": "its process died",
    },
    {
        "slot": 2,
        "alive": False,
        "steps": 0,
        "steps_per_second": 500.0,
        "weights_age": 8,
        "restarts": 1,
        "reason": "its machine was lost",
    },
]
STATUS: dict[str, Any] = {
    "written": 0.0,
    "steps": 1_019_200,
    "updates": 4_321,
    "ray/actors": 2.0,
    "ray/actor_restarts": 3.0,
    "ray/evaluator_restarts": 1.0,
    "ray/skipped_evaluations": 6.0,
    "ray/chunks": 15.0,
    "ray/refused_chunks": 2.0,
    "ray/waiting_chunks": 4.0,
    "ray/weights_age": 4.0,
    "ray/samples_per_insert": 1.5625,
    "last_refusal": "a chunk of actor 1 was refused: extrinsic is not finite",
    "evaluator": {"machine": "there", "process": 4713},
    "actors": ACTORS,
}


@pytest.fixture
def run(tmp_path: Path, tiny: Callable[..., Config], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run on a cluster that nobody trains, with a status that is 65 seconds old; time stands still."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    config = tiny(run__folder=str(tmp_path), run__name="run", run__runner="ray", env__groups=2)
    with RunFolder.create(config) as folder:
        folder.status_path.write_text(json.dumps({**STATUS, "written": time.time() - 65}))
        return folder.path


def shown(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, dict[str, str], list[str]]:
    """The first line, what the lines below say by name, and the table's lines."""
    capsys.readouterr()
    assert main(["status", str(run)]) == 0
    top, table = capsys.readouterr().out.split("\n\n")
    head, *rows = top.splitlines()
    return head, dict(re.split(" {2,}", row, maxsplit=1) for row in rows), table.splitlines()


def test_the_run_as_a_whole(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, rows, _ = shown(run, capsys)
    assert rows == {
        "written": "1 min 05 s ago",
        "steps": "1,019,200",
        "updates": "4,321",
        "actors alive": "2 of 3",
        "steps/s": "3,345 while actors act",  # those of the one that is not alive do not count
        "age of weights": "4.0 updates",
        "chunks waiting": "4",
        "samples per insert": "1.56",
        "actor restarts": "3",
        "evaluator": "process 4713 on there",
        "evaluator restarts": "1",
        "evaluations left out": "6",
        "chunks": "15",
        "refused chunks": "2, the last: a chunk of actor 1 was refused: extrinsic is not finite",
    }


def test_each_actor_has_a_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, table = shown(run, capsys)
    assert [re.split(" {2,}", line.strip()) for line in table] == [
        ["actor", "alive", "machine", "process", "steps", "steps/s", "age of weights", "restarts", "replaced because"],
        ["0", "yes", "here", "4711", "6,400", "1,000", "3", "0"],
        ["1", "yes", "there", "4712", "12,800", "2,345", "5", "2", "its process died"],
        ["2", "no", "-", "-", "0", "500", "-", "1", "its machine was lost"],
    ]
    assert all(line == line.rstrip() for line in table)


def test_who_trains_is_told_by_the_lock(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The process that trains is another one, as it always is."""
    assert shown(run, capsys)[0] == f"{run} has stopped, no process trains it; this is what it wrote last"
    program = (
        "import pathlib, sys; from ngu.run_folder import RunFolder, replace_file\n"
        "folder = RunFolder.open(pathlib.Path(sys.argv[1]), lock=True)\n"
        "print('locked', flush=True); sys.stdin.readline()\n"
        "replace_file(folder.status_path, folder.status_path.read_bytes())\n"
        "print('written', flush=True); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", program, str(run)]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            process.stdout.readline()
            assert main(["status", str(run)]) == 0
            sentence = capsys.readouterr().out
            assert sentence.startswith(
                f"{run} has no status yet, its actors are being started by process {process.pid}"
            )
            print(file=process.stdin, flush=True)
            process.stdout.readline()
            before = contents(run)
            assert shown(run, capsys)[0].startswith(f"{run} is trained by process {process.pid} on ")
            assert contents(run) == before
        finally:
            process.kill()
    assert " has stopped" in shown(run, capsys)[0]
    RunFolder.open(run, lock=True).close()  # looking leaves no lock behind


def test_as_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    written = found["status"].pop("written")
    assert found == {
        "run": str(run),
        "runner": "ray",
        "process": None,
        "age": found["age"],
        "status": {name: value for name, value in STATUS.items() if name != "written"},
    }
    assert 60 < found["age"] < 120
    assert abs(time.time() - found["age"] - written) < 5


def test_a_run_that_has_none_gets_a_sentence(
    run: Path, tmp_path: Path, tiny: Callable[..., Config], capsys: pytest.CaptureFixture[str]
) -> None:
    def sentence(path: Path) -> str:
        assert main(["status", str(path)]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        return line

    (run / "status.json").unlink()
    assert "was stopped before its actors had started" in sentence(run)
    with RunFolder.open(run, lock=True):
        assert f"its actors are being started by process {os.getpid()} on " in sentence(run)
        assert main(["status", str(run), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["status"], found["age"]) == (None, None)
    (run / "lock").unlink()
    assert "was stopped" in sentence(run)
    RunFolder.create(tiny(run__folder=str(tmp_path), run__name="local")).close()
    assert "it is a run of the local runner" in sentence(tmp_path / "local")


def refused(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["status", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.endswith(".\n")
    return printed.err


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no run folder" in refused(tmp_path / "none", capsys)
    assert "is not a run folder" in refused(tmp_path, capsys)
    assert main(["status"]) == 2
    assert "needs a RUN" in capsys.readouterr().err


def test_a_damaged_status_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = {**STATUS, "written": time.time()}
    cases: list[Any] = [None, [], {}, {**good, "actors": None}, {**good, "actors": [1]}, {**good, "last_refusal": 3}]
    cases += [{name: value for name, value in good.items() if name != missing} for missing in good]
    cases += [{**good, name: value} for name in STATUS for value in ("x", None, float("nan"))]
    needed = [name for name in ACTORS[0] if name not in ("process", "machine")]
    cases += [
        {**good, "actors": [{name: value for name, value in ACTORS[0].items() if name != missing}]}
        for missing in needed
    ]
    whole = json.dumps(good)
    damaged = [json.dumps(case) for case in cases if case != good] + ["", whole[:-1], "\udcff"]
    for text in damaged:
        if '"last_refusal": "x"' in text:
            continue  # any text is a reason
        (run / "status.json").write_bytes(text.encode(errors="surrogateescape"))
        assert "status.json is damaged" in refused(run, capsys), text
    (run / "status.json").unlink()
    (run / "status.json").mkdir()
    assert "cannot read" in refused(run, capsys)


@given(st.binary(max_size=200))
def test_no_bytes_end_it_otherwise(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    class Folder:
        status_path = tmp_path_factory.getbasetemp() / "status.json"

    Folder.status_path.write_bytes(content)
    with pytest.raises(UserError, match="is damaged"):
        read_status(Folder)  # type: ignore[arg-type]


def test_it_shows_what_the_runner_writes(
    run: Path, tiny: Callable[..., Config], cpu: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The names in a status are the runner's own; here it has not started its actors."""
    runner = make_runner(tiny(run__runner="ray", env__groups=2), cpu)
    status = runner.status()  # type: ignore[union-attr]
    runner.close()
    assert set(status) >= set(STATUS)
    (run / "status.json").write_text(json.dumps({**status, "actors": copy.deepcopy(ACTORS)}))
    assert shown(run, capsys)[1]["actors alive"] == "0 of 3"


def test_it_does_not_wait_for_pytorch_or_ray(run: Path) -> None:
    program = (
        "import sys; from ngu.cli import main; main(sys.argv[1:]); sys.exit(bool({'torch', 'ray'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, "status", str(run)]
    assert subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=False).returncode == 0


def test_ray_accepts_the_example_of_a_cluster() -> None:
    """Ray's launcher checks a file against its schema before it does anything."""
    import yaml
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load((EXAMPLES / "cluster.yaml").read_text(encoding="utf-8"))
    prepared = prepare_config(copy.deepcopy(config))
    validate_config(prepared)
    (kind,) = prepared["available_node_types"].values()
    assert kind["min_workers"] == kind["max_workers"] == len(config["provider"]["worker_ips"])
    with pytest.raises(Exception, match="Additional properties are not allowed"):
        validate_config({**prepared, "head_address": "10.0.0.1"})

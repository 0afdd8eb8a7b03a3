"""`ngu reproduce`: every experiment end to end at a toy size, and what happens when runs end early, fail or grow."""

from __future__ import annotations

import csv
import dataclasses
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_runs import COMMAND, ENVIRONMENT

from ngu.cli import main
from ngu.commands.train import read_config
from ngu.config_reading import with_overrides
from ngu.experiments.catalogue import EXPERIMENTS, experiment
from ngu.experiments.collecting import collect
from ngu.experiments.plan import Cell, Plan, smoke_part
from ngu.experiments.running import Outcome, command_of, is_finished, run_cells
from ngu.experiments.scales import scale
from ngu.experiments.watching import last_progress
from ngu.metrics import read_metrics
from ngu.report.results import read_results
from ngu.run_folder import RunFolder


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all experiments: what one has trained, another takes over."""
    return tmp_path_factory.mktemp("reproduce")


def smoke_plan(folder: Path, name: str = "fig_disco_maze", **options: int) -> Plan:
    return Plan(smoke_part(experiment(name)), scale("smoke"), folder, **options)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_end_to_end(name: str, shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["reproduce", name, "--scale", "smoke", "--processes", "0", "--folder", str(shared)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    entry, plan = EXPERIMENTS[name], smoke_plan(shared, name)
    output = shared / "results" / name
    expected = {"table.md", "table.csv", "commands.txt"} | (
        {"figure.png", "figure.svg"} if entry.kind not in ("table", "settings") else set()
    )
    assert {path.name for path in output.iterdir() if path.is_file()} == expected
    assert all(str(output / file) in printed for file in expected)
    for cell in plan.cells():
        assert is_finished(cell)
        path = output / "runs" / cell.task.name / f"{cell.arm.name}-seed0.csv"
        results = read_results(path)
        assert (results.variant, results.seed) == (cell.arm.variant, 0)
        assert results.origin["command"].startswith(f"ngu train {cell.preset} --variant {cell.arm.variant} ")
        assert "core" in results.origin["machine"]
        assert "\n# commit: " in path.read_text()
        assert cell.command() in (output / "commands.txt").read_text()
    rows = list(csv.DictReader((output / "table.csv").read_text().splitlines()))
    own = {column.label for column in plan.experiment.columns}
    assert all(row["ours"] for row in rows if row.get("agent") in own), "everything that was run has a number"
    for label in own & set(entry.published):
        for task in plan.experiment.tasks:
            if task.name in entry.published[label]:
                assert entry.published[label][task.name].text in (output / "table.md").read_text()


def test_runs_are_done_once_and_drawn_again_without_training(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = smoke_plan(shared)
    assert run_cells(plan.cells(), processes=0).failed == {}
    before = {cell.name: (cell.path / "metrics.jsonl").stat().st_mtime_ns for cell in plan.cells()}
    outcome = run_cells(plan.cells(), processes=0)
    assert [cell.name for cell in outcome.skipped] == list(before)
    figure = plan.output / "figure.png"
    figure.unlink(missing_ok=True)
    assert main(["reproduce", "fig_disco_maze", "--scale", "smoke", "--no-run", "--folder", str(shared)]) == 0
    assert figure.is_file()
    assert before == {cell.name: (cell.path / "metrics.jsonl").stat().st_mtime_ns for cell in plan.cells()}
    assert "14" in capsys.readouterr().out


def test_a_larger_budget_takes_runs_further_and_a_smaller_one_looks_at_their_beginning(tmp_path: Path) -> None:
    def cells(budget: int) -> list[Cell]:
        return smoke_plan(tmp_path, budget=budget).cells()[:1]

    run_cells(cells(64), processes=0)
    (further,) = cells(192)
    assert not is_finished(further)
    assert run_cells([further], processes=0).done == [further]
    steps = [row["step"] for row in read_metrics(further.path / "metrics.jsonl")]
    assert steps == sorted(steps), "it went on from where it was"
    assert steps[-1] == 192
    for budget in (64, 192):
        (run,) = collect(smoke_plan(tmp_path, budget=budget)).runs["disco-maze", "ngu"]
        assert run.steps == budget


def test_a_folder_with_runs_of_other_settings_is_refused(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_cells(smoke_plan(shared).cells()[:1], processes=0)
    arguments = ["reproduce", "fig_disco_maze", "--scale", "smoke", "--processes", "0", "--folder", str(shared)]
    assert main([*arguments, "--settings", "novelty.neighbours=3"]) == 2
    error = capsys.readouterr().err
    assert "was run with other settings (novelty.neighbours); choose another --folder." in error


def test_a_run_that_finds_no_place_to_write_fails_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["reproduce", "fig_disco_maze", "--scale", "smoke", "--folder"]
    taken, full = tmp_path / "taken", tmp_path / "full"
    taken.mkdir()
    (taken / "disco-maze").touch()
    log = full / "disco-maze" / "ngu" / "seed-0.log"
    log.parent.mkdir(parents=True)
    log.symlink_to("/dev/full")
    for command, end in (
        ([*arguments, str(taken)], "put that right and give the same command again."),
        ([*arguments, str(full), "--variants", "ngu"], "put that right and give the same command again."),
        ([*arguments, str(taken / "disco-maze")], "choose another place."),
        ([*arguments, f"/proc/{tmp_path.name}"], "choose another place."),
        ([*arguments, str(tmp_path / ("x" * 300)), "--no-run"], "choose another --folder."),
    ):
        assert main(command) == 2
        error = capsys.readouterr().err.splitlines()
        assert all("failed: cannot write" in line for line in error[:-1])
        assert error[-1].startswith("ngu: ")
        assert error[-1].endswith(end)
    assert sorted(path.name for path in taken.iterdir()) == ["disco-maze", "results"]


def test_results_that_find_no_place_to_lie_are_a_sentence(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cells(smoke_plan(shared).cells()[:1], processes=0)
    (tmp_path / "disco-maze").symlink_to(shared / "disco-maze")
    (tmp_path / "results").touch()
    capsys.readouterr()
    assert main(["reproduce", "fig_disco_maze", "--scale", "smoke", "--no-run", "--folder", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"ngu: cannot write {tmp_path / 'results' / 'fig_disco_maze'}")


def test_a_run_that_is_taken_further_is_evaluated_as_seldom_as_a_longer_one(tmp_path: Path) -> None:
    (first, *_) = smoke_plan(tmp_path).cells()
    run_cells([first], processes=0)
    longer = {"evaluation.period": 640, "run.log_period": 128, "run.steps": 3200}
    further = dataclasses.replace(first, steps=3200, settings={**first.settings, **longer})
    command = command_of(further, None, 1)
    assert command[:2] == ["resume", str(first.path)]
    assert {"--evaluation.period=640", "--run.log-period=128", "--run.steps=3200"} <= set(command)


def test_runs_side_by_side_one_fails_the_others_go_on(tmp_path: Path) -> None:
    """In processes of their own; a lock held by this process makes one fail."""
    plan = smoke_plan(tmp_path)
    first, second, _ = plan.cells()
    blocked = first.path
    blocked.mkdir(parents=True)
    (blocked / "in the way").touch()
    outcome = run_cells([first, second], processes=2)
    assert [cell.name for cell in outcome.done] == [second.name]
    assert list(outcome.failed) == [first.name]
    assert "already has something in it" in outcome.failed[first.name]
    assert "$ ngu train disco-maze-small" in second.log.read_text()
    assert last_progress(second.log).startswith("100.0%")
    assert read_results_command(plan, second).startswith("ngu train disco-maze-small --variant random-projection")


def test_a_damaged_run_is_told_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the sentences say to remove is enough."""
    arguments = ["reproduce", "fig_disco_maze", "--scale", "smoke", "--processes", "0", "--folder", str(tmp_path)]
    first, second, third = (cell.path for cell in smoke_plan(tmp_path).cells())
    assert main(arguments) == 0
    (first / "config.json").write_text("{")
    metrics = second / "metrics.jsonl"
    metrics.write_bytes(b"{\n" + metrics.read_bytes())
    capsys.readouterr()
    longer = [*arguments, "--budget", "96"]
    assert main(longer) == 2
    *progress, sentence = capsys.readouterr().err.splitlines()
    assert sentence.startswith("ngu: 2 of 3 runs failed, the first is disco-maze/ngu/seed-0: the run folder")
    for damaged in (first, second):
        assert any("failed" in line and f"{damaged} " in line and "remove" in line for line in progress)
    assert any(line.startswith("disco-maze/rnd-only/seed-0: done") for line in progress)
    shutil.rmtree(first)
    shutil.rmtree(second)
    (meta,) = (third / "checkpoints").glob("*/meta.json")
    meta.write_text("{")
    assert main([*arguments, "--budget", "128"]) == 2
    error = capsys.readouterr().err
    assert f"no checkpoint in {third / 'checkpoints'} is intact" in error
    assert "remove that folder" in error
    shutil.rmtree(third / "checkpoints")
    assert main([*arguments, "--budget", "128"]) == 0


def read_results_command(plan: Plan, cell: Cell) -> str:
    (run,) = collect(plan).runs[cell.task.name, cell.arm.name]
    return run.origin["command"]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in three minutes"
        time.sleep(0.05)


def test_one_signal_stops_all_runs_with_checkpoints_and_the_same_command_goes_on(tmp_path: Path) -> None:
    arguments = ["reproduce", "fig_disco_maze", "--scale", "smoke", "--folder", str(tmp_path), "--variants", "ngu"]
    long = [*COMMAND, *arguments, "--budget", "1000000"]
    process = subprocess.Popen(long, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    cell = Plan(experiment("fig_disco_maze").only((), ("ngu",)), scale("smoke"), tmp_path, 1_000_000).cells()[0]
    wait_for(lambda: (cell.path / "metrics.jsonl").is_file() and len(read_metrics(cell.path / "metrics.jsonl")) > 3)
    os.kill(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=180)
    assert process.returncode == 130
    assert "the same command goes on" in printed
    (checkpoint,) = (cell.path / "checkpoints").glob("step_*")
    reached = int(checkpoint.name.removeprefix("step_"))
    assert "stopped at" in cell.log.read_text()
    assert main([*arguments, "--processes", "0", "--budget", str(reached + 32)]) == 0
    steps = [row["step"] for row in read_metrics(cell.path / "metrics.jsonl")]
    assert steps == sorted(steps)
    assert steps[-1] == reached + 32


def test_the_list_covers_everything_and_names_its_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "--budget", "1000", "--seeds", "1"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in EXPERIMENTS)
    assert "docs/benchmarks.md" in printed
    assert main(["reproduce", "table_ablations", "--list", "--scale", "node"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("ngu train atari-node --variant") == 9 * 8 * 3


def test_settings_that_are_lists_have_commas_and_may_have_no_entry(capsys: pytest.CaptureFixture[str]) -> None:
    lists = ["novelty.hidden=8,4", "network.hidden=16", "learner.rate-steps=", "learner.rate_factors="]
    assert main(["reproduce", "fig_disco_maze", "--list", "--settings", *lists]) == 0
    config = read_config(shlex.split(capsys.readouterr().out.splitlines()[-1])[2:])
    assert (config.novelty.hidden, config.network.hidden) == ((8, 4), (16,))
    assert (config.learner.rate_steps, config.learner.rate_factors) == ((), ())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "`ngu reproduce` needs a NAME; `ngu reproduce --list` shows them all."),
        (["fig_disco_maze", "--settings", "learner.replay_ratoi=4"], "learner.replay_ratoi"),
        (["fig_disco_maze", "--list", "--settings", "learner.replay_ratio=abc"], "learner.replay_ratio"),
        (["fig_disco_maze", "--device", "gpu"], "--device gpu is not a device; give cpu, cuda, cuda:1 or auto."),
        (["fig_disco_maze", "--runner", "slurm"], "--runner is slurm; give local or ray."),
        (["fig_disco_maze", "--tasks="], "the task  of fig_disco_maze does not exist;"),
        (["fig_disco"], "the experiment fig_disco does not exist; the nearest"),
        (["fig_disco_maze", "--scale", "huge"], "the scale huge does not exist; known: laptop, node, paper, smoke."),
        (["fig_disco_maze", "--seeds", "0"], "--seeds is 0; give 1 or more."),
        (["fig_disco_maze", "--settings", "x"], "--settings takes group.setting=value"),
        (["fig_disco_maze", "--settings", "learner.foo=4"], "ngu: the setting learner.foo does not exist; known:"),
        (["fig_disco_maze", "--settings", "learner.replay_ratio=1,2"], "learner.replay_ratio is '1,2'; give a number."),
        (["fig_disco_maze", "--settings", "run.seed=4"], "--settings cannot set run.seed, which every run gets from"),
        (["fig_disco_maze", "--settings", "run.device=cpu"], "; use --device."),
        (["fig_disco_maze", "--settings", "run.runner=ray"], "; use --runner."),
        (["fig_disco_maze", "--settings", "run.seed=4"], "; use --seeds."),
        (["fig_disco_maze", "--settings", "run.steps=40"], "; use --budget."),
        (["fig_disco_maze", "--settings", "run.folder=/tmp/x"], "; use --folder."),
        (["fig_disco_maze", "--settings", "run.name=x"], "; use --folder."),
        (["fig_disco_maze", "--address", "auto"], "--address is where the actors of --runner ray are;"),
        (["fig_disco_maze", "--runner", "local", "--address", "auto"], "give that, too, or --cluster ADDRESS"),
        (["fig_disco_maze", "--runner", "ray", "--processes", "0"], "a Ray run needs one of its own"),
        (["fig_disco_maze", "--variants", "ngu-n2"], "the variant ngu-n2 of fig_disco_maze does not exist"),
        (["fig_disco_maze", "--cluster", "auto", "--processes", "2"], "--processes is for runs on this machine;"),
        (["fig_disco_maze", "--cluster", "auto", "--runner", "ray"], "--runner and --address only their actors;"),
        (["fig_disco_maze", "--cluster", "auto", "--device", "cuda:0", "cuda:1"], "Ray chooses the GPU of each run;"),
        (["fig_disco_maze", "--cluster="], "--cluster needs an address, such as 10.0.0.1:6379, or auto;"),
        (["fig_disco_maze", "--cluster", "auto", "--cpus-per-run", "0"], "--cpus-per-run is 0; give 1 or more."),
        (["fig_disco_maze", "--cluster", "auto", "--gpus-per-run", "2"], "give more than 0, and 1 at most."),
        (["fig_disco_maze", "--cpus-per-run", "2"], "is for runs on a Ray cluster; give its address by --cluster."),
    ],
)
def test_mistakes_are_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (["fig_disco_maze"], True),
        (["table_ablations", "--tasks", "pong", "--seeds", "1", "--device", "cpu"], True),
        (["fig_disco_maze", "--runner", "ray"], True),
        (["fig_disco_maze", "--scale", "paper"], False),
        (["fig_disco_maze", "--scale", "laptop"], False),
        (["fig_disco_maze", "--budget", "1000"], False),
        (["fig_disco_maze", "--cluster", "auto"], False),
        (["fig_disco_maze", "--no-run"], False),
        (["fig_disco_maze", "--list"], False),
        (["beta_distrib"], False),
        (["deep_sea"], False),
    ],
)
def test_the_papers_budget_is_not_begun_without_a_gpu_unless_it_is_asked_for(
    arguments: list[str],
    refused: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun: list[int] = []

    def begin(cells: list[Cell], **_: object) -> Outcome:
        begun.append(len(cells))
        return Outcome()

    monkeypatch.setattr("ngu.experiments.running.run_cells", begin)
    command = ["reproduce", *arguments, "--folder", str(tmp_path)]
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(command) == (2 if refused else 0)
    error = capsys.readouterr().err
    if refused:
        assert error.startswith(f"ngu: this machine has no GPU, and {arguments[0]} at the paper's scale takes about ")
        assert error.endswith("; choose --scale laptop or --scale smoke, or say --scale paper to do it here anyway.\n")
        assert error.count("\n") == 1
        assert not begun
        monkeypatch.setattr("torch.cuda.is_available", lambda: True)
        assert main(command) == 0, "there is one"
        assert begun
    else:
        assert not error
        assert bool(begun) == (not {"--no-run", "--list", "beta_distrib"} & set(arguments))


def smoke_on(address: str, folder: Path) -> list[str]:
    return ["reproduce", "fig_disco_maze", "--scale", "smoke", "--folder", str(folder), "--cluster", address]


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1:{closed}", "no Ray cluster answers at 127.0.0.1:{closed} ("),
        ("127.0.0.1:{closed}", "; start one with `ray start --head`, or leave --cluster out."),
        ("ray://127.0.0.1:10001", "ngu must run on a machine of the cluster; start ngu there with --cluster auto."),
    ],
)
def test_an_address_without_a_cluster_is_refused_in_a_sentence(
    address: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:  # bound, but nobody listens
        free.bind(("127.0.0.1", 0))
        closed = free.getsockname()[1]
        assert main(smoke_on(address.format(closed=closed), tmp_path)) == 2
    error = capsys.readouterr().err
    assert sentence.format(closed=closed) in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_needs_the_package_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # what Python keeps for a package that is not there
    assert main(smoke_on("auto", tmp_path)) == 2
    error = "ngu: a Ray cluster needs the package Ray; install it with: pip install -e '.[ray]' in your clone of ngu.\n"
    assert capsys.readouterr().err == error


def test_a_run_with_its_actors_on_a_cluster_does_not_go_there_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = smoke_plan(tmp_path).cells()[0]
    RunFolder.create(with_overrides(cell.config(), {"run.runner": "ray"})).close()
    assert main(smoke_on("auto", tmp_path)) == 2
    assert f"{cell.path} was begun with --runner ray; go on with that," in capsys.readouterr().err

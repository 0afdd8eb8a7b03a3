"""Whatever a person gets wrong: one sentence on standard error, exit code 2, nothing lost, nothing half-written."""

from __future__ import annotations

import importlib.util
import json
import re
import resource
import shutil
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_tiny_config
from hypothesis import given
from hypothesis import strategies as st
from tiny_runs import checkpoint_steps, contents, ngu, options, train_command

from ngu.checkpoint import load_newest
from ngu.cli import COMMANDS, main
from ngu.commands.arguments import parse, take_apart
from ngu.commands.report import Report
from ngu.commands.train import GROUPS, read_config
from ngu.config import Config
from ngu.errors import UserError
from ngu.run_folder import RunFolder
from ngu.training import Training

Refuse = Callable[..., str]


def check_sentence(text: str) -> str:
    """Exactly one sentence, with no traceback and no frame around it."""
    assert text.startswith("ngu: ")
    assert text.endswith(".\n")
    assert text.count("\n") == 1
    assert "Traceback" not in text
    assert not re.search("[╭│╰]", text)
    return text.removeprefix("ngu: ").strip()


@pytest.fixture
def refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Refuse]:
    """Runs a command line in an empty folder, checks that it is refused in one sentence, and returns the sentence."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    def run(*argv: str) -> str:
        assert main(argv) == 2, argv
        printed = capsys.readouterr()
        assert printed.out == ""
        assert list(here.iterdir()) == []
        return check_sentence(printed.err)

    yield run
    assert list(here.iterdir()) == []


# Names and values


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["trian"], "the command trian does not exist; the nearest is train."),
        (
            ["train", "disco-mase"],
            "the preset disco-mase does not exist; the nearest are disco-maze, disco-maze-small.",
        ),
        (["train", "a", "b"], "`ngu train` takes one PRESET, so 'b' is one too many; see `ngu train --help`."),
        (["train", "--variant", "rnd"], "the variant rnd does not exist; the nearest are rnd-only, r2d2-rnd."),
        (["train", "--maze-size", "9"], "the option --maze-size does not exist; the nearest is --env.maze-size."),
        (
            ["train", "--env.maze-sise", "9"],
            "the option --env.maze-sise does not exist; the nearest are --env.maze-size",
        ),
        (["train", "--frobnicate"], "the option --frobnicate does not exist; see `ngu train --help`."),
        (["train", "-v"], "the option -v does not exist; options have two dashes, see `ngu train --help`."),
        (["eval", "-1"], "the option -1 does not exist; options have two dashes, see `ngu eval --help`."),
        (["train", "--"], "the option -- does not exist; see `ngu train --help`."),
        (["train", "--run", "3"], "the option --run does not exist; "),
        (["train", "--run.steps"], "--run.steps needs a value; give a whole number."),
        (["train", "--steps", "--seed", "1"], "--steps needs a value; give a whole number."),
        (["train", "--steps", "many"], "steps is 'many'; give a whole number."),
        (["train", "--run.steps", "1.5"], "run.steps is '1.5'; give a whole number."),
        (["train", "--run.steps", "9" * 30], f"run.steps is {'9' * 30}; give a number of at most {2**53}."),
        (["train", "--mixture.beta", "big"], "mixture.beta is 'big'; give a number."),
        (["train", "--mixture.beta", "nan"], "mixture.beta is nan; "),
        (["train", "--learner.clip-norm", "inf"], "learner.clip_norm is inf; give a number of at most 1e+30."),
        (["train", "--run.precision", "fp8"], "run.precision is 'fp8'; give one of fp32, bf16, fp16."),
        (["train", "--network.filters"], "--network.filters needs a value; give whole numbers, separated by spaces."),
        (["train", "--network.filters", "8", "x"], "network.filters is 'x'; give whole numbers, separated by spaces."),
        (["train", "--learner.rate-factors", "x"], "learner.rate_factors is 'x'; give numbers, separated by spaces."),
        (["reproduce", "fig_disco_maze", "--tasks"], "--tasks needs a value; give names, separated by spaces."),
        (
            ["train", "--address", "auto"],
            "--address is for actors on a Ray cluster; give --runner ray with it, or",
        ),
        (["train", "--envs-per-actor", "2"], "--envs-per-actor is for actors on a Ray cluster; give --runner ray with"),
        (["train", "--runner", "ray", "--actors", "0"], "--actors is 0; give 1 or more."),
        (["bench", "atari-cpu", "--ratios", "x"], "ratios is 'x'; give numbers, separated by spaces."),
        (
            ["train", "--run.tensorboard", "false"],
            "run.tensorboard takes no value; write --run.tensorboard to switch it",
        ),
        (
            ["train", "--run.no-wandb=yes"],
            "run.no-wandb takes no value; write --run.wandb to switch it on, --run.no-wandb",
        ),
        (["eval"], "`ngu eval` needs a RUN; see `ngu eval --help`."),
        (["resume"], "`ngu resume` needs a RUN; see `ngu resume --help`."),
        (["record"], "`ngu record` needs a RUN; see `ngu record --help`."),
        (["report"], "`ngu report` needs a RUN; see `ngu report --help`."),
        (["report", "--out", "x.html"], "`ngu report` needs a RUN; see `ngu report --help`."),
        (["eval", "a", "--episodes", "few"], "episodes is 'few'; give a whole number."),
        (["record", "a", "--policy", "both"], "policy is 'both'; give one of explore, exploit."),
        (
            ["train", "atari-cpu", "--variant", "hand-crafted"],
            "there is no hand-crafted controllable state for pong; train on montezuma_revenge, or set",
        ),
        (
            ["bench", "disco-maze", "--variant", "hand-crafted", "--device", "cpu"],
            "there is no hand-crafted controllable state for the Disco Maze; set novelty.controllable_states to",
        ),
        (
            ["train", "gym", "--env", "CartPole-v1", "--variant", "hand-crafted", "--env.workers", "1"],
            "the environment CartPole-v1 has no hand-crafted controllable state; name the measurements that make it",
        ),
        (
            ["train", "gym", "--env", "CartPole-v1", "--env.kwargs", '{"size": 5}', "--env.workers", "1"],
            "environment 0 raised TypeError: CartPoleEnv.__init__() got an unexpected keyword argument 'size'",
        ),
        (["train", "gym"], "no Gymnasium environment is named; set env.id, for example to CartPole-v1."),
        (
            ["train", "--env", "my_grid:KeyGrid-v0", "--steps", "3000"],
            "--env is for a Gymnasium environment, but this run plays the Disco Maze (preset disco-maze-small); leave "
            "it out, or write `ngu train gym --env ...`.",
        ),
        (["train", "--game", "montezuma_revenge"], "--game is for an Atari game, but this run plays the Disco Maze"),
        (
            ["bench", "--game=pong"],
            "--game is for an Atari game, but this run plays the Disco Maze (preset disco-maze-",
        ),
        (
            ["train", "gym", "--env", "CartPole-v1", "--env.maze_size", "9"],
            "--env.maze-size is for the Disco Maze, but this run plays a Gymnasium environment (preset gym); leave it",
        ),
        (
            ["train", "minigrid", "--env.threads", "2"],
            "--env.threads is for an Atari game, but this run plays a MiniGrid",
        ),
        (["doctor", "now"], "`ngu doctor` takes no argument, so 'now' is one too many; see `ngu doctor --help`."),
    ],
)
def test_names_and_values(argv: list[str], sentence: str, refuse: Refuse) -> None:
    assert refuse(*argv).startswith(sentence)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"env.maze_size": 8}, "env.maze_size is 8; a maze needs an odd size of 5 or more, such as 9 or 21."),
        ({"env.maze_size": 3}, "env.maze_size is 3; "),
        ({"env.num_envs": 0}, "env.num_envs is 0; set it to 1 or more."),
        ({"mixture.num_mixtures": 0}, "mixture.num_mixtures is 0; set it to 1 or more."),
        ({"mixture.num_mixtures": -2}, "mixture.num_mixtures is -2; set it to 1 or more."),
        ({"mixture.discount_min": 0.999}, "mixture.discount_min and mixture.discount_max must satisfy"),
        ({"replay.period": 30}, "replay.period (30) is longer than replay.trace_length (20)"),
        (
            {"replay.trace_length": 10_000},
            "replay.capacity (200000) leaves 3125 steps to each of 64 environments, but a",
        ),
        (
            {"env.name": "deep-sea", "env.sea_size": 101, "env.maze_size": 9},
            "evaluation.max_steps (100) is less than the 101 steps of a dive",
        ),
        ({"replay.lookahead": -1}, "replay.lookahead is -1; set it to 0 or more."),
        ({"replay.cut_margin": -1}, "replay.cut_margin is -1; set it to 0 or more."),
        ({"replay.cut_margin": 4000}, "replay.cut_margin (4000) is more than the 3125 steps that replay keeps of each"),
        ({"replay.lookahead": 4000}, "replay.lookahead (4000) is more than the 3125 steps that replay keeps of each"),
        ({"replay.burn_in": 7}, "replay.burn_in is 7; set it to 0, or to replay.period (20)"),
        ({"replay.min_sequences": 10**6}, "replay.min_sequences (1000000) is more than a replay of capacity"),
        ({"replay.capacity": 10**15}, "a replay of capacity 1,000,000,000,000,000 needs"),
        ({"network.kernels": (3, 30)}, "observations of 9x9 are too small for convolutions with kernels (3, 30)"),
        ({"network.kernels": (3,)}, "network.filters, network.kernels and network.strides must have the same length"),
        ({"network.lstm_size": 10**11}, "there is not enough memory for these sizes; lower env.num_envs"),
        ({"evaluation.marks": (50, 5000)}, "evaluation.marks (50, 5000) must lie between 1 and evaluation.max_steps"),
        ({"run.name": "a/b"}, "run.name 'a/b' must be a plain folder name; use run.folder for its parent."),
        ({"run.folder": "/proc/nowhere"}, "cannot make a run folder in /proc/nowhere: "),
        ({"run.device": "abacus"}, "run.device 'abacus' is not a device; use cpu, cuda or auto."),
        ({"run.device": "meta"}, "run.device 'meta' is not supported; use cpu, cuda or auto."),
    ],
)
def test_impossible_settings(settings: dict[str, Any], sentence: str, refuse: Refuse) -> None:
    assert refuse("train", *options(settings)).startswith(sentence)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu(refuse: Refuse) -> None:
    sentence = "the device cuda is asked for, but PyTorch finds no CUDA device here; choose cpu."
    assert refuse("train", "--device", "cuda") == sentence


@pytest.mark.skipif(importlib.util.find_spec("wandb") is not None, reason="Weights & Biases is installed")
def test_an_extra_that_is_not_installed(refuse: Refuse) -> None:
    assert refuse("train", "--run.wandb").startswith("run.wandb needs Weights & Biases; install it with")


def test_every_setting_refuses_a_value_of_another_type(refuse: Refuse) -> None:
    hints = typing.get_type_hints(Config)
    tried = 0
    for group in GROUPS:
        for field, kind in typing.get_type_hints(hints[group]).items():
            option = f"--{group}.{field}".replace("_", "-")
            if kind is str:
                continue
            wrong = "false" if kind is bool else "banana"
            assert refuse("train", option, wrong).startswith(
                f"{group}.{field}".replace("_", "-" if kind is bool else "_")
            )
            tried += 1
    assert tried > 70


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["--run.steps", "--steps", "--network.filters", "--run.wandb", "--config", "disco-maze"]),
            st.sampled_from(["1", "-1", "x", "", "--", "-", "=", "--=", "--run.steps=", "--run.wandb=1", "3.5", "\0"]),
            st.sampled_from(
                ["-x", "--run.name=--x", "--run.name=", "--network.filters=3", "--run.name", "--run.no-wandb"]
            ),
            st.text(max_size=5),
        ),
        max_size=5,
    )
)
def test_no_command_line_shows_a_box_or_a_traceback(argv: list[str]) -> None:
    """A command line either means a config or is refused in words; tyro never gets to exit by itself."""
    try:
        sentence = f"{read_config([token for token in argv if token not in ('-h', '--help')]).preset}."
    except UserError as error:
        sentence = str(error)
    assert sentence.endswith(".")


@given(st.lists(st.sampled_from(["a", "-", "-1", "--out", "--out=-x", "--out=", "--no-out", "x.html", ""]), max_size=4))
def test_no_list_of_runs_shows_a_box_or_a_traceback(argv: list[str]) -> None:
    try:
        line = take_apart("ngu report", Report, argv)
    except UserError as error:
        sentence = str(error)
    else:
        command = parse("ngu report", Report, line)
        assert [str(path) for path in command.paths] == [str(Path(text)) for text in line.positionals]
        sentence = "."
    assert sentence.endswith(".")


# Config files


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.toml", b"[env\n", "the config file {path} is not valid TOML: "),
        ("a.json", b"{,}", "the config file {path} is not valid JSON: "),
        ("a.yaml", b"run: 3\n", "the config file {path} is not valid TOML: "),
        ("a.json", b"[1, 2]", "the config file {path} must hold a table of settings."),
        ("a.toml", b"\xff\xfe\x00", "the config file {path} is not UTF-8 text."),
        ("a.toml", b"[env]\nmaze_sise = 9\n", "the setting env.maze_sise does not exist; the nearest"),
        ("a.toml", b"[enf]\nmaze_size = 9\n", "the setting enf does not exist; the nearest is env."),
        ("a.toml", b"env = 3\n", "env is a group of settings; give it a table, not 3."),
        ("a.toml", b"[env]\nmaze_size = 'nine'\n", "env.maze_size is 'nine'; give a whole number."),
        ("a.toml", b"[env]\nmaze_size = 8\n", "env.maze_size is 8; a maze needs an odd size"),
        (
            "a.toml",
            b"[env]\nid = 'CartPole-v1'\n",
            "env.id in {path} is for a Gymnasium environment, but this run plays the Disco Maze (preset "
            "disco-maze-small); leave it out, or take the preset gym.",
        ),
        ("a.toml", b"[run]\ntensorboard = 1\n", "run.tensorboard is 1; give true or false."),
        ("a.json", b'{"network": {"filters": 8}}', "network.filters is 8; give a list of whole numbers."),
        (
            "a.toml",
            b"preset = 'disco-maze'\n",
            "the preset disco-maze cannot be chosen in {path}; put it on the command",
        ),
        (
            "a.toml",
            b"variant = 'ngu-no-rnd'\n",
            "the variant ngu-no-rnd cannot be chosen in {path}; put it on the command",
        ),
    ],
)
def test_config_files(name: str, content: bytes, sentence: str, tmp_path: Path, refuse: Refuse) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert refuse("train", "--config", str(path)).startswith(sentence.format(path=path))


def test_config_files_that_cannot_be_read(tmp_path: Path, refuse: Refuse) -> None:
    missing = tmp_path / "missing.toml"
    assert (
        refuse("train", "--config", str(missing))
        == f"cannot read the config file {missing}: No such file or directory."
    )
    sentence = f"the folder {tmp_path} holds no config.json; give a file of settings or the folder of a run."
    assert refuse("train", "--config", str(tmp_path)) == sentence


# Run folders


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with checkpoints at 400 and 600 steps."""
    folder = tmp_path_factory.mktemp("trained")
    assert main(train_command(folder, "run")) == 0
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A copy to do damage to."""
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "lock").unlink()
    capsys.readouterr()
    return tmp_path / "run"


def refuse_unharmed(refuse: Refuse, run: Path, *argv: str) -> str:
    """As `refuse`, and the run's folder is as it was."""
    before = contents(run)
    sentence = refuse(*argv)
    after = contents(run)
    after.pop("lock", None)
    before.pop("lock", None)
    assert after == before
    return sentence


READERS = ["eval", "resume", "record"]


@pytest.mark.parametrize("command", READERS)
def test_a_missing_run_folder(command: str, tmp_path: Path, refuse: Refuse) -> None:
    nowhere = tmp_path / "nowhere"
    sentence = f"there is no run folder {nowhere}; check the name, or start a run with `ngu train`."
    assert refuse(command, str(nowhere)) == sentence
    assert not nowhere.exists()


def test_a_missing_source_of_a_report(tmp_path: Path, refuse: Refuse) -> None:
    assert (
        refuse("report", str(tmp_path / "x"))
        == f"there is no run folder or results file {tmp_path / 'x'}; check the name."
    )


@pytest.mark.parametrize("command", READERS)
def test_a_folder_that_is_no_run(command: str, tmp_path: Path, refuse: Refuse) -> None:
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    assert refuse_unharmed(refuse, folder, command, str(folder)).startswith(f"{folder} is not a run folder")
    assert [path.name for path in folder.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda _: b"{", "the run folder {run} is damaged: its config.json is not what `ngu train` wrote;"),
        (lambda _: b"[]", "the run folder {run} is damaged: its config.json is not what `ngu train` wrote;"),
        (
            lambda content: content.replace(b'"schema": 1', b'"schema": 99'),
            "the run folder {run} has schema 99 and this",
        ),
        (
            lambda content: content.replace(b'"maze_size"', b'"maze_sise"'),
            "the config of the run folder {run} cannot be",
        ),
        (
            lambda content: content.replace(b'"maze_size": 7', b'"maze_size": 8'),
            "the config of the run folder {run} cannot",
        ),
    ],
)
def test_a_damaged_config(
    command: str, change: Callable[[bytes], bytes], sentence: str, run: Path, refuse: Refuse
) -> None:
    config = run / "config.json"
    before = config.read_bytes()
    config.write_bytes(change(before))
    assert config.read_bytes() != before
    assert refuse_unharmed(refuse, run, command, str(run)).startswith(sentence.format(run=run))


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("file", ["learner.safetensors", "actors.safetensors", "meta.json"])
def test_no_checkpoint_is_intact(command: str, file: str, run: Path, refuse: Refuse) -> None:
    for checkpoint in (run / "checkpoints").iterdir():
        flip_a_byte(checkpoint / file)
    sentence = refuse_unharmed(refuse, run, command, str(run))
    assert sentence.startswith(f"no checkpoint in {run / 'checkpoints'} is intact, the newest is damaged (")


def test_a_damaged_newest_checkpoint_gives_way_to_the_older(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip_a_byte(run / "checkpoints" / "step_000000000600" / "learner.safetensors")
    assert main(["eval", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "step_000000000600 is damaged (the checksum of learner.safetensors is wrong); the older" in printed
    assert "at 400 steps" in printed
    whole = ngu("resume", str(run))
    assert whole.returncode == 0, whole.stderr
    assert "step_000000000600 is damaged" in whole.stderr
    assert load_newest(run / "checkpoints").step == 600


@pytest.mark.parametrize("command", READERS)
def test_a_checkpoint_of_another_schema(command: str, run: Path, refuse: Refuse) -> None:
    for meta in run.glob("checkpoints/*/meta.json"):
        meta.write_bytes(re.sub(rb'"schema": \d+', b'"schema": 99', meta.read_bytes()))
    sentence = refuse_unharmed(refuse, run, command, str(run))
    assert "has schema 99 and this ngu reads schema" in sentence


@pytest.mark.parametrize("command", READERS)
def test_a_checkpoint_of_another_shape(command: str, run: Path, refuse: Refuse) -> None:
    config = run / "config.json"
    content = json.loads(config.read_text())
    content["config"]["network"]["lstm_size"] = 24
    config.write_text(json.dumps(content))
    longer = ["--steps", "800"] if command == "resume" else []
    sentence = refuse_unharmed(refuse, run, command, str(run), *longer)
    assert sentence.startswith("the checkpoint does not fit this agent: ")


@pytest.mark.parametrize("command", ["eval", "record"])
def test_a_run_without_a_checkpoint(command: str, run: Path, refuse: Refuse) -> None:
    shutil.rmtree(run / "checkpoints")
    assert refuse_unharmed(refuse, run, command, str(run)).startswith(
        f"there is no checkpoint in {run / 'checkpoints'}"
    )


def test_a_run_that_another_process_trains(run: Path, refuse: Refuse) -> None:
    with RunFolder.open(run, lock=True):
        sentence = refuse_unharmed(refuse, run, "resume", str(run), "--steps", "800")
    assert re.match(r"another process \(process \d+ on .+\) is training into ", sentence)


def test_a_run_folder_that_is_taken(run: Path, refuse: Refuse) -> None:
    sentence = refuse_unharmed(refuse, run, *train_command(run.parent, run.name))
    assert sentence.startswith(
        f"the folder {run} already has something in it; go on with it by `ngu resume {run}`, or "
    )


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--run.seed", "1"], "run.seed is chosen when a run starts and cannot change"),
        (["--run.name", "x"], "run.name is chosen when a run starts and cannot change"),
        (["--run.folder", "x"], "run.folder is chosen when a run starts and cannot change"),
        (["--run.runner", "ray"], "run.runner is chosen when a run starts and cannot change"),
        (["--steps", "300"], "the run has 600 steps already and --steps counts all of them; give more than that"),
        (["--run.log-period", "0"], "run.log_period is 0; set it to 1 or more."),
        (["--env.maze-size", "9"], "--env.maze-size is chosen when a run starts and cannot change; start another with"),
        (["--env.maze-sise", "9"], "the setting env.maze-sise does not exist; the nearest are maze-size"),
        (["--env.maze-size=9"], "--env.maze-size is chosen when a run starts and cannot change; start another with"),
        (["--evaluation.seed", "9"], "the option --evaluation.seed does not exist; "),
    ],
)
def test_what_cannot_change_in_a_resumed_run(argv: list[str], sentence: str, run: Path, refuse: Refuse) -> None:
    assert refuse_unharmed(refuse, run, "resume", str(run), *argv).startswith(sentence)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--episodes", "0"], "--episodes is 0; give 1 or more."),
        (["--steps", "0"], "--steps is 0; give 1 or more."),
        (["--epsilon", "2"], "evaluation.epsilon is 2.0; set it between 0 and 1."),
    ],
)
def test_impossible_evaluations(argv: list[str], sentence: str, run: Path, refuse: Refuse) -> None:
    assert refuse_unharmed(refuse, run, "eval", str(run), *argv) == sentence


@pytest.mark.parametrize("command", ["report", "record"])
def test_a_place_that_cannot_be_written_to(command: str, run: Path, refuse: Refuse) -> None:
    nowhere = run.parent / "nowhere" / "file"
    sentence = refuse_unharmed(refuse, run, command, str(run), "--out", str(nowhere))
    assert sentence == f"the folder {nowhere.parent} does not exist; make it or choose another --out."
    sentence = refuse_unharmed(refuse, run, command, str(run), "--out", str(run))
    assert sentence == f"{run} is a folder; give the name of a file with --out."


# A full disk


def last_line(text: str) -> str:
    return check_sentence(text.splitlines()[-1] + "\n")


def test_a_run_whose_checkpoints_would_find_no_room(refuse: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused at its start, and trains without replay in its checkpoints; nobody finds out after hours."""
    usage = shutil.disk_usage(".")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    command = train_command(Path("runs"), "full")
    sentence = refuse(*command)
    assert re.fullmatch(r"3 checkpoints with their replay need \S+ [MG]B, and 0.00 MB are free in \S+; .*", sentence)
    assert sentence.endswith("set run.keep_checkpoints to less or run.checkpoint_replay to false.")


def test_a_run_that_begins_anew_and_would_find_no_room(
    refuse: Refuse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was stopped before its first checkpoint; the refusal leaves it as it is."""
    run = tmp_path / "stopped"
    Training.start(make_tiny_config(run__folder=str(tmp_path), run__name=run.name, run__checkpoint_replay=True)).close()
    usage = shutil.disk_usage(".")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    sentence = refuse_unharmed(refuse, run, "resume", str(run))
    assert re.match(r"3 checkpoints with their replay need \S+ [MG]B, and 0.00 MB are free", sentence)


def test_room_is_looked_for_where_the_run_will_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    asked: list[Path] = []
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: (asked.append(place), usage)[1])
    training = Training.start(make_tiny_config(run__folder="~", run__name="here", run__checkpoint_replay=True))
    training.close()
    assert asked == [tmp_path]
    assert (tmp_path / "here").is_dir()


def test_a_run_folder_with_a_name_too_long(refuse: Refuse, tmp_path: Path) -> None:
    sentence = refuse(*train_command(tmp_path / ("x" * 300), "run"))
    assert re.fullmatch(r"cannot make a run folder in \S+: File name too long; choose another place with .*", sentence)


def test_a_file_in_the_place_of_tensorboards_folder(run: Path) -> None:
    shutil.rmtree(run / "tensorboard", ignore_errors=True)
    (run / "tensorboard").write_text("")
    answer = ngu("resume", str(run), "--steps", "800", "--run.tensorboard")
    assert (answer.returncode, "Traceback" in answer.stderr) == (2, False)
    assert last_line(answer.stderr) == f"cannot write to {run / 'tensorboard'}: File exists; move it away."


def test_printing_to_a_full_disk() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "ngu", "--version"]
        answer = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert answer.returncode == 2
    assert check_sentence(answer.stderr) == "the disk is full, writing to standard output; make room."


def test_a_limit_on_the_size_of_files(run: Path) -> None:
    """The checkpoint does not fit; the older ones stay, and the run goes on once there is room."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    before = {step: contents(run / "checkpoints" / f"step_{step:012d}") for step in checkpoint_steps(run)}
    answer = ngu("resume", str(run), "--steps", "1000", preexec_fn=limit)
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr
    assert last_line(answer.stderr).startswith(f"no room for the checkpoint of step 800 in {run / 'checkpoints'}")
    assert {step: contents(run / "checkpoints" / f"step_{step:012d}") for step in checkpoint_steps(run)} == before
    assert not list((run / "checkpoints").glob(".*"))
    whole = ngu("resume", str(run))
    assert whole.returncode == 0, whole.stderr
    assert checkpoint_steps(run)[-1] == 1000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for little more than one checkpoint."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("there is no mount command")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("tensorboard", [False, True])
def test_a_full_disk(tensorboard: bool, small_disk: Path) -> None:
    answer = ngu(*train_command(small_disk, "run", run__steps=100_000, run__tensorboard=tensorboard))
    assert answer.returncode == 2, answer.stderr
    assert "Traceback" not in answer.stderr
    assert "(older checkpoints are untouched)" in last_line(answer.stderr)
    run = small_disk / "run"
    assert not list((run / "checkpoints").glob(".*"))
    assert load_newest(run / "checkpoints").step == checkpoint_steps(run)[-1] > 0
    evaluation = ngu("eval", str(run), "--json")
    assert evaluation.returncode == 0, evaluation.stderr


# What is no mistake of the user


def test_a_bug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "train", ("ngu.nothing", ""))
    with pytest.raises(ModuleNotFoundError):
        main(["train"])

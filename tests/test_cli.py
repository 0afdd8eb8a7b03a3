"""The command line: help, precedence of settings, and each command on a real run."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from tiny_runs import ENVIRONMENT, checkpoint_steps, contents, ngu, options, train_command

from ngu.cli import COMMANDS, main
from ngu.commands.train import GROUPS, Train, read_config
from ngu.config import Config, EnvConfig, RunConfig
from ngu.config_reading import to_dict, with_overrides
from ngu.errors import UserError
from ngu.metrics import read_metrics
from ngu.presets import PRESETS, preset
from ngu.run_folder import RunFolder
from ngu.variants import VARIANTS
from ngu.worlds import WORLDS

# Help


def help_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *argv: str) -> str:
    """The help in one column, without its frames and line breaks."""
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as stopped:
        main([*argv, "--help"])
    assert not stopped.value.code
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_the_help_names_every_command_and_what_it_does(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    text = capsys.readouterr().out
    for name, (_, sentence) in COMMANDS.items():
        assert any(line.split() == [name, *sentence.split()] for line in text.splitlines())


def test_the_help_of_train_explains_every_setting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_text(capsys, monkeypatch, "train")
    hints = typing.get_type_hints(Config)
    for group in GROUPS:
        for field in dataclasses.fields(hints[group]):
            option = f"--{group}.{field.name}".replace("_", "-")
            sentence = re.split(rf" {option},? ", text)[1].partition("(default: ")[0]
            assert re.search(r"\w+ \w+.*\.\s$", sentence), option
    for name in (*PRESETS, *VARIANTS):
        assert name in text


@pytest.mark.parametrize("command", ["train", "bench"])
def test_the_help_names_the_short_forms(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_text(capsys, monkeypatch, command)
    assert "short on the command line: --game." in text
    assert "(my_package:MyEnv-v0); short: --env." in text
    if command == "train":
        assert "--env ID is short for --env.id, of a Gymnasium environment; --game NAME for --env.game" in text


def test_the_help_of_train_shows_the_defaults_of_the_preset(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def default_size(*argv: str) -> str:
        text = help_text(capsys, monkeypatch, "train", *argv)
        return text.partition("--env.maze-size")[2].partition("(default: ")[2].partition(")")[0]

    assert default_size() == str(preset("disco-maze-small").env.maze_size)
    assert default_size("disco-maze") == str(preset("disco-maze").env.maze_size)


def test_the_help_of_resume_offers_only_what_can_change(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_text(capsys, monkeypatch, "resume")
    offered = {field.name for field in dataclasses.fields(RunConfig) if f"--run.{field.name.replace('_', '-')}" in text}
    assert offered == {field.name for field in dataclasses.fields(RunConfig)} - {"seed", "folder", "name", "runner"}
    assert "CPU threads of PyTorch; 0 leaves its own choice. (default: 0)" in text


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "train"])
def test_every_command_has_help(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_text(capsys, monkeypatch, command)
    assert text.startswith(f"usage: ngu {command}")
    assert "default: None" not in text
    assert "(default: )" not in text


def test_help_and_mistakes_do_not_wait_for_pytorch() -> None:
    program = (
        "import sys; from ngu.cli import main; main(['--help']); main(['train', '--run.sede', '1']); "
        "main(['train', 'disco-maz']); sys.exit('torch' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, check=False)
    assert answer.returncode == 0


def test_the_version() -> None:
    answer = ngu("--version")
    assert answer.returncode == 0
    assert answer.stdout.split()[0] == "ngu"


# Settings


def test_every_group_of_settings_is_a_group_of_options() -> None:
    hints = typing.get_type_hints(Config)
    mine = typing.get_type_hints(Train)
    assert {group: mine[group] for group in GROUPS} == {group: hints[group] for group in GROUPS}


@pytest.mark.parametrize("name", WORLDS)
def test_every_setting_can_be_given_on_the_command_line(name: str) -> None:
    """All of those that the world has."""
    world, other = WORLDS[name], preset("disco-maze", "rnd-only")
    elsewhere = {f"env.{field}" for place in WORLDS.values() for field in place.settings if field not in world.settings}
    settings = {
        f"{group}.{field}": value for group in GROUPS for field, value in to_dict(getattr(other, group)).items()
    }
    settings = {field: value for field, value in settings.items() if field not in elsewhere} | {
        "env.name": name,
        "env.num_envs": 96,  # what presets have room for
        "mixture.num_mixtures": 3,  # those that train sequences as another policy's need two
    }
    wanted = with_overrides(preset(world.preset), settings)
    assert wanted != preset(world.preset)
    assert read_config([world.preset, *options(settings)]) == wanted
    equals = [f"--{name}={value}" for name, value in settings.items() if not isinstance(value, bool | tuple)]
    flags = options({name: value for name, value in settings.items() if isinstance(value, bool | tuple)})
    assert read_config([world.preset, *flags, *equals]) == wanted


def test_the_worlds_are_those_of_the_config_and_share_out_its_settings() -> None:
    assert set(WORLDS) == set(typing.get_args(typing.get_type_hints(EnvConfig)["name"]))
    for name, world in WORLDS.items():
        assert preset(world.preset).env.name == name
    owned = {field for world in WORLDS.values() for field in world.settings}
    assert owned | {"name", "num_envs", "groups"} == {field.name for field in dataclasses.fields(EnvConfig)}


def test_a_setting_of_another_world_is_heard_where_the_world_is_chosen_by_its_setting() -> None:
    config = read_config(["--env.name", "gym", "--env", "CartPole-v1", "--env.workers", "2"])
    assert (config.env.name, config.env.id, config.env.workers) == ("gym", "CartPole-v1", 2)
    assert read_config(["atari-cpu", "--game=breakout"]).env.game == "breakout"


@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_every_setting_can_be_given_in_a_file(suffix: str, tmp_path: Path) -> None:
    wanted = dataclasses.replace(preset("disco-maze", "rnd-only"), preset="disco-maze-small", variant="ngu")
    groups = {group: to_dict(getattr(wanted, group)) for group in GROUPS}
    if suffix == ".json":
        text = json.dumps(groups)
    else:
        text = "\n".join(
            f"[{group}]\n" + "\n".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())
            for group, fields in groups.items()
        )
    file = tmp_path / f"settings{suffix}"
    file.write_text(text)
    assert read_config(["--config", str(file)]) == wanted


@pytest.mark.parametrize("place", ["", "config.json"], ids=["folder", "file"])
def test_the_settings_of_a_run_can_be_taken_again(place: str, tmp_path: Path) -> None:
    before = read_config(
        ["gym", "--variant", "rnd-only", "--env", "CartPole-v1", "--run.name", "kg", "--run.folder", str(tmp_path)]
    )
    RunFolder.create(before).close()
    given = ["--config", str(tmp_path / "kg" / place)]
    again = dataclasses.replace(before, run=dataclasses.replace(before.run, name="", folder="runs"))
    assert read_config(given) == again
    assert read_config(["gym", "--variant", "rnd-only", *given]) == again
    other = read_config([*given, "--seed", "7", "--run.name", "second"])
    assert other == with_overrides(again, {"run.seed": 7, "run.name": "second"})
    for argv, sentence in (
        (["atari"], f"the preset of the run {tmp_path / 'kg' / place} is gym, not atari; leave the preset out to"),
        (
            ["--variant", "ngu"],
            "is rnd-only, not ngu; leave the variant out to train with that run's settings, or leave",
        ),
        (["--env.maze-size", "7"], "--env.maze-size is for the Disco Maze, but this run plays a Gymnasium environment"),
    ):
        with pytest.raises(UserError, match=re.escape(sentence)):
            read_config([*argv, *given])


def test_the_settings_of_a_run_of_another_layout_are_not_guessed(tmp_path: Path) -> None:
    RunFolder.create(with_overrides(Config(), {"run.name": "old", "run.folder": str(tmp_path)})).close()
    file = tmp_path / "old" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema": 99}))
    with pytest.raises(UserError, match="has schema 99 and this ngu reads schema"):
        read_config(["--config", str(file)])


def test_the_later_source_counts(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[novelty]\nlifelong = true\nneighbours = 3\n[run]\nseed = 5\ndevice = "cuda"\nsteps = 7\n')
    base = read_config(["disco-maze", "--variant", "ngu-no-rnd"])
    assert (base.preset, base.variant, base.env.maze_size, base.novelty.lifelong) == (
        "disco-maze",
        "ngu-no-rnd",
        21,
        False,
    )
    filed = read_config(["disco-maze", "--variant", "ngu-no-rnd", "--config", str(file)])
    assert (filed.novelty.lifelong, filed.novelty.neighbours, filed.run.seed) == (True, 3, 5)
    assert filed.env.maze_size == 21
    given = read_config(
        ["--config", str(file), "--novelty.neighbours", "4", "--seed", "6", "--device", "cpu", "--run.steps", "8"]
    )
    assert (given.novelty.neighbours, given.run.seed, given.run.device, given.run.steps) == (4, 6, "cpu", 8)
    assert given.novelty.lifelong


def test_settings_are_checked_once_all_sources_are_in() -> None:
    """The period of 50 fits the trace of the preset that is asked for, not that of the default."""
    assert read_config(["disco-maze", "--replay.period", "50"]).replay.period == 50
    assert read_config(["--replay.period", "50", "--replay.trace-length", "50"]).replay.period == 50
    assert read_config(["--run.seed", "1", "disco-maze", "--run.seed", "2"]).run.seed == 2


def test_names_may_have_hyphens_or_underscores() -> None:
    assert read_config(["--env.maze_size", "11"]) == read_config(["--env.maze-size", "11"])


# Runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    # With this seed the policy heeds the novelty reward; the mean of many episodes shows a difference in any of them.
    assert main(train_command(folder, "run", evaluation__num_envs=128, run__seed=1)) == 0
    return folder / "run"


def test_train_leaves_a_whole_run_and_says_where(tmp_path: Path) -> None:
    answer = ngu(*train_command(tmp_path, "run", run__steps=200, run__tensorboard=True))
    assert answer.returncode == 0, answer.stderr
    folder = tmp_path / "run"
    assert RunFolder.open(folder).config.run.steps == 200
    assert checkpoint_steps(folder) == [200]
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8").lower()
    assert list((folder / "tensorboard").iterdir())
    final = [row for row in read_metrics(folder / "metrics.jsonl") if "eval/explore/coverage@12" in row][-1]
    assert final["step"] == 200
    lines = answer.stdout.splitlines()
    assert lines[0] == f"run: {folder}, from step 0"
    assert f"{final['eval/explore/coverage@12']:.1%} after 12 steps" in lines[-2]
    assert lines[-1] == f"report: {folder / 'report.html'}"
    assert "steps/s" in answer.stderr


def test_eval_agrees_with_the_evaluation_in_training(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(run)
    with RunFolder.open(run, lock=True):  # as beside a running training
        before = contents(run)
        assert main(["eval", str(run), "--json"]) == 0
    assert contents(run) == before
    found = json.loads(capsys.readouterr().out)
    last = [row for row in read_metrics(run / "metrics.jsonl") if "eval/explore/coverage@12" in row][-1]
    trained = {name.removeprefix("eval/explore/"): value for name, value in last.items() if name.startswith("eval/")}
    assert found["step"] == 600
    assert found["policies"]["explore"] == trained
    assert found["scripted"]["wall-follower"]["coverage@12"] > found["scripted"]["random"]["coverage@12"]


def test_eval_takes_episodes_seed_and_epsilon(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for extra in ([], ["--seed", "5"], ["--epsilon", "1"], ["--episodes", "50"]):
        assert main(["eval", str(run), "--json", *extra]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert [answer["seed"] for answer in answers] == [1_000_003, 5, 1_000_003, 1_000_003]
    assert [answer["epsilon"] for answer in answers] == [0, 0, 1, 0]
    assert [answer["episodes"] for answer in answers] == [128, 128, 128, 50]
    assert len({json.dumps(answer["policies"]) for answer in answers}) > 1


@pytest.mark.parametrize(("steps", "marks"), [("2", [2]), ("7", [3, 7])])
def test_eval_cut_after_some_steps_has_others_beside_it(
    steps: str, marks: list[int], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(run), "--json", "--steps", steps]) == 0
    answer = json.loads(capsys.readouterr().out)
    for row in (answer["policies"]["explore"], answer["scripted"]["random"]):
        assert [name for name in row if name.startswith("coverage")] == [f"coverage@{mark}" for mark in marks]


def test_eval_prints_a_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run), "--episodes", "64"]) == 0
    head, columns, *rows = capsys.readouterr().out.splitlines()
    assert head == f"{run} at 600 steps, 64 episodes, epsilon 0"
    assert columns.split() == ["coverage@3", "coverage@12", "return", "length"]
    assert rows[0].startswith("explore ")
    assert [row.split()[1] for row in rows[1:]] == [
        "random", "oscillating", "wall-avoiding", "non-reversing", "wall-follower",
    ]  # fmt: skip
    assert len({len(row) for row in [columns, *rows]}) == 1


def test_eval_shows_both_policies_of_a_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(train_command(tmp_path, "run", mixture__num_mixtures=3, run__steps=200)) == 0
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "run"), "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["policies"]) == ["exploit", "explore"]


def test_report_of_runs(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    assert main(["report", str(run), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert "<html" in out.read_text(encoding="utf-8").lower()


def test_a_report_lands_in_the_folder_of_a_single_run(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").is_file()
    assert main(["report", str(run), str(run)]) == 0
    assert (tmp_path / "report.html").is_file()


def test_record_an_episode(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "episode.gif"
    assert main(["record", str(run), "--out", str(out), "--seed", "3", "--policy", "explore"]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_bytes()[:3] == b"GIF"


@pytest.mark.parametrize(
    "options",
    [
        ["deep-sea", "--mixture.num-mixtures", "1", "--mixture.cross-mixture-ratio", "0"],
        ["atari-cpu", "--env.num-envs", "1024", "--replay.capacity", "400000"],
    ],
)
def test_options_that_fit_together_are_taken_together(options: list[str]) -> None:
    config = read_config(options)
    for option, value in zip(options[1::2], options[2::2], strict=True):
        group, field = option.removeprefix("--").replace("-", "_").split(".")
        assert getattr(getattr(config, group), field) == float(value)

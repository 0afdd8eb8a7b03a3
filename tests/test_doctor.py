"""`ngu doctor`: it says what is so, and fails when training does."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import torch

from ngu import doctor
from ngu.cli import main
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.envs.atari_games import ATARI_GAMES
from ngu.envs.make import make_environment
from ngu.errors import UserError
from ngu.machine import free_memory
from ngu.presets import PRESETS, preset
from ngu.replay import SequenceReplay

ROOT = Path(__file__).parent.parent


def test_a_healthy_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["torch"] == version("torch")
    assert lines["gymnasium"] == version("gymnasium")
    assert set(PRESETS) <= set(lines)
    assert lines["device"].startswith("cuda" if torch.cuda.is_available() else "cpu")
    assert re.match(r"a tiny agent made [1-9]\d* updates on \S+ in \d", lines["training"])
    assert lines["all"] == "is well"
    assert lines["ale-py"] == version("ale-py")
    assert lines["Atari"] == f"games      {len(ATARI_GAMES)} of the {len(ATARI_GAMES)} games are there"
    assert re.match(r"\d+ of them on \d+ cores? make [1-9][\d,]* agent steps per second", lines["emulators"])
    assert re.match(r"replay of 5,000,000 transitions wanted, about [1-9][\d,]+ fit", lines["atari"])
    assert ("not needed without CUDA" in lines["Triton"]) == (not torch.cuda.is_available())


def test_every_extra_for_users_is_looked_for() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {re.split(r"[<>=]", package)[0]: extra for extra, (package, *_) in declared.items() if extra != "dev"}
    assert {name: f"extra `{extra}`" for name, extra in wanted.items()} == doctor.OPTIONAL


def make_replay(config: Config, capacity: int) -> SequenceReplay:
    device = torch.device("cpu")
    return SequenceReplay(
        doctor.environment_spec(config),
        torch.zeros(1, dtype=torch.int64),
        config.network.lstm_size,
        with_overrides(config, {"replay.capacity": capacity}).replay,
        device,
        torch.Generator(),
    )


@pytest.mark.parametrize("name", list(PRESETS))
def test_what_fits_is_what_replay_accepts(name: str) -> None:
    """The replay's own check, made before it allocates anything, draws the line at the same place."""
    config = preset(name)
    usable = free_memory(torch.device("cpu")) * config.replay.max_memory_share
    fits = int(usable / doctor.bytes_per_transition(config))
    with pytest.raises(UserError, match=r"set --replay\.capacity to ([\d,]+) or less") as refusal:
        make_replay(config, 10 * fits)
    accepted = int(refusal.value.args[0].rpartition("capacity to ")[2].split()[0].replace(",", ""))
    assert fits == pytest.approx(accepted, rel=0.1)


def test_the_shapes_are_those_of_the_environments() -> None:
    """Memory is reckoned without an emulator, so with shapes that are written down; they are the emulator's."""
    config = preset("atari-cpu")
    env = make_environment(config, 1, torch.device("cpu"))
    said, found = doctor.environment_spec(config), env.spec
    env.close()
    assert (said.observation_shape, said.observation_dtype) == (found.observation_shape, found.observation_dtype)
    assert said.num_actions == found.num_actions


def test_a_replay_that_does_not_fit_comes_with_advice() -> None:
    """On a machine of 4 GiB, and on a GPU of that size beside a host of 64."""
    config = preset("atari")
    alone = doctor._replay_in_words(config, 4 * 2**30, None)
    capacity = int(alone.rpartition("--replay.capacity ")[2])
    assert 400_000 < capacity < 600_000
    assert doctor._replay_in_words(config, 4 * 2**30, 64 * 2**30).endswith("train it with --replay.place host")
    assert "train it" not in doctor._replay_in_words(config, 64 * 2**30, None)
    assert "train it with --replay.capacity" in doctor._replay_in_words(config, 4 * 2**30, 8 * 2**30)


def test_a_machine_without_the_emulator(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Atari is an extra: its lack is said and is no illness, and its memory is reckoned all the same."""
    monkeypatch.setitem(sys.modules, "ale_py", None)
    found = version

    def lacking(package: str) -> str:
        if package == "ale-py":
            raise PackageNotFoundError
        return found(package)

    monkeypatch.setattr(doctor, "version", lacking)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "ale-py           not installed (extra `atari`)" in printed
    assert "Atari games" not in printed
    assert re.search(r"^atari +replay of 5,000,000", printed, re.MULTILINE)


def test_an_emulator_that_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As after a broken installation; mazes can be trained all the same."""
    monkeypatch.setitem(sys.modules, "ale_py", None)
    assert main(["doctor"]) == 0
    assert "Atari games      cannot be played: UserError: Atari games need the emulator" in capsys.readouterr().out


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "REQUIRED", ("torch", "no-such-package"))
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "no-such-package  PROBLEM: missing; install it with `pip install no-such-package`" in printed
    assert "training" not in printed


def test_training_that_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A device that exists for PyTorch and cannot compute, as a broken driver would be."""
    monkeypatch.setattr("ngu.machine.resolve_device", lambda _: torch.device("meta"))
    monkeypatch.setattr("ngu.machine.free_memory", lambda _: 2**30)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"training +PROBLEM: a tiny agent failed on meta: \w+: ", printed)
    assert printed.endswith("until the problems above are solved\n")


def test_rounding_is_downwards_to_two_digits() -> None:
    assert [doctor._rounded(count) for count in (0, 7, 99, 129, 61_999_999)] == [0, 7, 99, 120, 61_000_000]

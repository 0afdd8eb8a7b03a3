"""`ngu doctor`: it says what is so, and fails when training does."""

from __future__ import annotations

import re
from importlib.metadata import version

import pytest
import torch

from ngu import doctor
from ngu.cli import main
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.envs import DiscoMaze
from ngu.errors import UserError
from ngu.machine import free_memory
from ngu.presets import PRESETS, preset
from ngu.replay import SequenceReplay


def test_a_healthy_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["torch"] == version("torch")
    assert lines["gymnasium"] == version("gymnasium")
    assert set(PRESETS) <= set(lines)
    assert lines["device"].startswith("cuda" if torch.cuda.is_available() else "cpu")
    assert re.match(r"a tiny agent made [1-9]\d* updates on \S+ in \d", lines["training"])
    assert lines["all"] == "is well"


def make_replay(config: Config, capacity: int) -> SequenceReplay:
    device = torch.device("cpu")
    env = config.env
    return SequenceReplay(
        DiscoMaze(1, env.maze_size, env.maze_step_cap, 1, device).spec,
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


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "_REQUIRED", ("torch", "no-such-package"))
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

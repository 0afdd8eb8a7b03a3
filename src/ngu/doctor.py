"""`ngu doctor`: what is installed, which device would be used, what would fit, and whether training works.

Exit code 0 if an agent can be trained here, 1 if not.
"""

from __future__ import annotations

import dataclasses
import platform
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from ngu.commands.arguments import parse, take_apart
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.presets import PRESETS, preset

if TYPE_CHECKING:
    import torch

    from ngu.envs.protocol import EnvironmentSpec

_PROG = "ngu doctor"
REQUIRED = ("ngu", "torch", "numpy", "gymnasium", "safetensors", "tyro", "rich", "tensorboard", "matplotlib")
OPTIONAL = {
    "ale-py": "extra `atari`",
    "minigrid": "extra `minigrid`",
    "ray": "extra `ray`",
    "wandb": "extra `wandb`",
    "mkdocs-material": "extra `docs`",
}

_PICTURE = (1, 84, 84)
"""An observation of Atari's."""
_MOST_EMULATORS = 32
"""So many are tried, at most: each takes a tenth of a second to make."""


@dataclass(frozen=True)
class Doctor:
    """Says what is installed, which device would be used and what fits, and trains a tiny agent for a moment.

    The exit code is 0 if an agent can be trained here, else 1.
    """


@dataclass(frozen=True)
class Finding:
    """One line of the examination."""

    name: str
    what: str
    good: bool = True


def main(argv: list[str]) -> int:
    parse(_PROG, Doctor, take_apart(_PROG, Doctor, argv, positional=None))
    healthy = True
    for finding in examine():
        healthy &= finding.good
        print(f"{finding.name:<16} {'' if finding.good else 'PROBLEM: '}{finding.what}", flush=True)
    print("all is well" if healthy else "an agent cannot be trained here until the problems above are solved")
    return 0 if healthy else 1


def examine() -> Iterator[Finding]:
    """Everything that `ngu doctor` prints, one finding after the other."""
    yield Finding("python", platform.python_version())
    missing = False
    for name in REQUIRED:
        installed = _version(name)
        missing |= installed is None
        yield Finding(name, installed or f"missing; install it with `pip install {name}`", installed is not None)
    for name, purpose in OPTIONAL.items():
        yield Finding(name, _version(name) or f"not installed ({purpose})")
    if missing:
        return
    yield from _examine_devices()
    if _version("ale-py") is not None:
        yield from _examine_emulators()
    yield _examine_training()


def _examine_devices() -> Iterator[Finding]:
    import torch

    from ngu.machine import free_memory, human_bytes, processor_name, resolve_device

    yield Finding("CUDA", _cuda())
    cudnn = torch.backends.cudnn.version() if torch.cuda.is_available() else None  # type: ignore[no-untyped-call]
    yield Finding("cuDNN", str(cudnn) if cudnn else "not used")
    yield Finding("Triton", _triton())
    device = resolve_device("auto")
    kind = processor_name(device).removeprefix("CPU, ")
    free = free_memory(device)
    yield Finding(
        "device",
        f"{device} ({kind}), {human_bytes(free)} of memory free; this is what `--device auto` takes",
    )
    host = free_memory(torch.device("cpu"))
    if device.type != "cpu":
        yield Finding("host", f"{human_bytes(host)} of memory free; replay lies there with `--replay.place host`")
    for name in PRESETS:
        yield Finding(name, _replay_in_words(preset(name), free, None if device.type == "cpu" else host))


def _replay_in_words(config: Config, free: int, host: int | None) -> str:
    """How large a replay a preset wants, and what fits into the free bytes of the device, and of the host beside it."""
    size = bytes_per_transition(config) / config.replay.max_memory_share
    fits, wanted = int(free / size), config.replay.capacity
    text = f"replay of {wanted:,} transitions wanted, about {_rounded(fits):,} fit"
    if config.env.name == "gym":
        text += f" if observations are pictures of {_PICTURE[1]} x {_PICTURE[2]}"
    if fits >= wanted:
        return text
    # A preset that does not fit is no illness: its capacity can be lowered, or another preset taken.
    if host is not None and host / size >= wanted:
        return f"{text}; train it with --replay.place host"
    return f"{text}; train it with --replay.capacity {fits}"


def _cuda() -> str:
    import torch

    if torch.cuda.is_available():
        return f"{torch.version.cuda}, {torch.cuda.device_count()} devices"
    if torch.version.cuda is None and shutil.which("nvidia-smi"):
        return "there is an NVIDIA driver, but this PyTorch is a CPU build; install a CUDA build to use the GPU"
    return "no device"


def _triton() -> str:
    import torch

    installed = _version("triton")
    if not torch.cuda.is_available():
        return f"{installed or 'not installed'} (not needed without CUDA)"
    slower = "not installed, so GPU kernels are not fused and memories are searched slower; `pip install triton`"
    return f"{installed}, fuses GPU kernels and searches memories" if installed else slower


def bytes_per_transition(config: Config) -> float:
    """Memory of a transition in replay: measured on a short replay, with what drawing from it needs beside it."""
    import torch

    from ngu.replay import SequenceReplay

    device = torch.device("cpu")
    short = dataclasses.replace(config.replay, capacity=100 * config.replay.period)
    replay = SequenceReplay(
        environment_spec(config),
        torch.zeros(1, dtype=torch.int64),
        config.network.lstm_size,
        short,
        device,
        torch.Generator(),
    )
    stored = sum(tensor.nbytes for tensor in replay.state_dict().values() if isinstance(tensor, torch.Tensor))
    prefix_sums = 2 * torch.finfo(torch.float64).bits // 8
    return stored / short.capacity + prefix_sums


def environment_spec(config: Config) -> EnvironmentSpec:
    """The shapes of a preset's environments; the emulator need not be there, and pictures stand for any environment."""
    import torch

    from ngu.envs.atari_game import NUM_ACTIONS
    from ngu.envs.make import make_environment
    from ngu.envs.protocol import EnvironmentSpec

    if config.env.on_device:
        return make_environment(config, 1, torch.device("cpu")).spec
    return EnvironmentSpec(_PICTURE, torch.uint8, NUM_ACTIONS)


def _examine_emulators() -> Iterator[Finding]:
    """How many of the games there are, and how fast one of them runs without an agent."""
    from ngu.envs.atari_game import load_emulator
    from ngu.envs.atari_games import ATARI_GAMES
    from ngu.envs.make import cores

    try:
        roms = load_emulator().roms
        missing = [game for game in ATARI_GAMES if roms.get_rom_path(game) is None]
        there = f"{len(ATARI_GAMES) - len(missing)} of the {len(ATARI_GAMES)} games are there"
        yield Finding("Atari games", f"{there}; {', '.join(missing)} missing" if missing else there)
        count = min(2 * cores(), _MOST_EMULATORS)
        rate = emulator_rate(count)
    except Exception as error:  # whatever it is, it is what the user wants to know, and mazes do without
        yield Finding("Atari games", f"cannot be played: {type(error).__name__}: {' '.join(str(error).split())}")
        return
    yield Finding(
        "emulators",
        f"{count} of them on {cores()} core{'s' if cores() > 1 else ''} make {_rounded(int(rate)):,} agent steps per "
        "second without an agent; no agent can be faster",
    )


def emulator_rate(count: int, seconds: float = 1.0) -> float:
    """Agent steps per second of `count` emulators of Pong together, with random actions."""
    import torch

    from ngu.envs.atari import AtariVector

    emulators = AtariVector("pong", count)
    try:
        emulators.reset(0)
        generator = torch.Generator().manual_seed(0)
        steps, begin = 0, time.monotonic()
        while time.monotonic() - begin < seconds:
            emulators.send(torch.randint(emulators.spec.num_actions, (count,), generator=generator))
            emulators.recv()
            steps += count
        return steps / (time.monotonic() - begin)
    finally:
        emulators.close()


def _examine_training() -> Finding:
    from ngu.machine import resolve_device

    device = resolve_device("auto")
    begin = time.monotonic()
    try:
        updates = train_a_moment(device)
    except Exception as error:  # whatever it is, it is what the user wants to know
        sentence = " ".join(str(error).split())
        return Finding("training", f"a tiny agent failed on {device}: {type(error).__name__}: {sentence}", good=False)
    return Finding("training", f"a tiny agent made {updates} updates on {device} in {time.monotonic() - begin:.1f} s")


def train_a_moment(device: torch.device) -> int:
    """Trains an agent for a few updates; returns how many were applied, and raises if one was not."""
    from ngu.runners.local import LocalRunner

    config = with_overrides(
        preset("disco-maze-small"),
        {
            "env.num_envs": 8,
            "env.maze_size": 5,
            "env.maze_pool": 16,
            "replay.capacity": 4000,
            "replay.min_sequences": 8,
            "learner.batch_size": 4,
            "run.compile": False,
        },
    )
    runner = LocalRunner(config, device)
    learner = runner.agent.learner
    for _ in range(200):
        runner.advance()
        if learner.updates >= 3:
            break
    skipped = int(runner.pop_statistics()["learner/skipped_updates"])
    if learner.updates == 0 or skipped:
        raise RuntimeError(
            f"{learner.updates} updates were made and {skipped} of them had a non-finite loss or gradient"
        )
    return learner.updates


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _rounded(count: int) -> int:
    """To two significant digits, downwards."""
    unit = int(10 ** max(0, len(str(count)) - 2))
    return count // unit * unit

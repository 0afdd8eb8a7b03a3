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

_PROG = "ngu doctor"
_REQUIRED = ("ngu", "torch", "numpy", "gymnasium", "safetensors", "tyro", "rich", "tensorboard", "matplotlib")
_OPTIONAL = {
    "triton": "fuses GPU kernels; comes with PyTorch for CUDA",
    "ale-py": "extra `atari`",
    "ray": "extra `ray`",
    "wandb": "extra `wandb`",
    "mkdocs-material": "extra `docs`",
}


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
    for name in _REQUIRED:
        installed = _version(name)
        missing |= installed is None
        yield Finding(name, installed or f"missing; install it with `pip install {name}`", installed is not None)
    for name, purpose in _OPTIONAL.items():
        yield Finding(name, _version(name) or f"not installed ({purpose})")
    if missing:
        return
    yield from _examine_devices()
    yield _examine_training()


def _examine_devices() -> Iterator[Finding]:
    import torch

    from ngu.machine import free_memory, human_bytes, resolve_device

    yield Finding("CUDA", _cuda())
    cudnn = torch.backends.cudnn.version() if torch.cuda.is_available() else None  # type: ignore[no-untyped-call]
    yield Finding("cuDNN", str(cudnn) if cudnn else "not used")
    device = resolve_device("auto")
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    free = free_memory(device)
    yield Finding(
        "device", f"{device} ({kind}), {human_bytes(free)} of memory free; this is what `--device auto` takes"
    )
    for name in PRESETS:
        config = preset(name)
        usable = free * config.replay.max_memory_share
        fits = int(usable / bytes_per_transition(config))
        wanted = config.replay.capacity
        # A preset that does not fit is no illness: its capacity can be lowered, or another preset taken.
        hint = "" if fits >= wanted else f"; train it with --replay.capacity {fits}"
        yield Finding(name, f"replay of {wanted:,} transitions wanted, about {_rounded(fits):,} fit{hint}")


def _cuda() -> str:
    import torch

    if torch.cuda.is_available():
        return f"{torch.version.cuda}, {torch.cuda.device_count()} devices"
    if torch.version.cuda is None and shutil.which("nvidia-smi"):
        return "there is an NVIDIA driver, but this PyTorch is a CPU build; install a CUDA build to use the GPU"
    return "no device"


def bytes_per_transition(config: Config) -> float:
    """Memory of a transition in replay: measured on a short replay, with what drawing from it needs beside it."""
    import torch

    from ngu.envs.make import make_environment
    from ngu.replay import SequenceReplay

    device = torch.device("cpu")
    short = dataclasses.replace(config.replay, capacity=100 * config.replay.period)
    replay = SequenceReplay(
        make_environment(config, 1, device).spec,
        torch.zeros(1, dtype=torch.int64),
        config.network.lstm_size,
        short,
        device,
        torch.Generator(),
    )
    stored = sum(tensor.nbytes for tensor in replay.state_dict().values() if isinstance(tensor, torch.Tensor))
    prefix_sums = 2 * torch.finfo(torch.float64).bits // 8
    return stored / short.capacity + prefix_sums


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

"""Command lines of runs that take seconds, and ways to look at what they left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conftest import TINY

from ngu.metrics import read_metrics

COMMAND = [sys.executable, "-m", "ngu"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def options(settings: Mapping[str, Any]) -> list[str]:
    """Settings by dotted name as options of a command line."""
    tokens: list[str] = []
    for name, value in settings.items():
        group, _, field = name.replace("_", "-").rpartition(".")
        if isinstance(value, bool):
            tokens.append(f"--{group}.{field if value else f'no-{field}'}")
        else:
            tokens += [f"--{group}.{field}", *map(str, value if isinstance(value, tuple) else [value])]
    return tokens


def train_command(folder: Path, name: str, **settings: Any) -> list[str]:
    """`train ...` for a tiny run in `folder/name`; settings have `__` for the dot."""
    changes = {key.replace("__", "."): value for key, value in settings.items()}
    fixed = {
        "run.steps": 600,
        "run.threads": 1,
        "run.tensorboard": False,
        "run.folder": str(folder),
        "run.name": name,
        "run.log_period": 200,
        "run.checkpoint_period": 200,
        "evaluation.period": 400,
    }
    return ["train", *options({**TINY, **fixed, **changes})]


def ngu(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs the real command in a process of its own."""
    return subprocess.run(
        [*COMMAND, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False, **options
    )


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def checkpoint_steps(run: Path) -> list[int]:
    """The steps of a run's complete checkpoints, oldest first."""
    return sorted(int(path.name.removeprefix("step_")) for path in (run / "checkpoints").glob("step_*"))


def checkpoint(run: Path, step: int) -> dict[str, bytes]:
    """Every file of one checkpoint."""
    files = contents(run / "checkpoints" / f"step_{step:012d}")
    assert "meta.json" in files
    return files


def metrics_without_time(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics, without what depends on the clock or the machine."""
    return [
        {name: value for name, value in row.items() if name != "time" and not name.startswith(("speed/", "memory/"))}
        for row in read_metrics(run / "metrics.jsonl")
    ]

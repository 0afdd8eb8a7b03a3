"""`ngu status`: what the actors of a run on a Ray cluster are doing."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ngu.commands.arguments import parse, take_apart
from ngu.errors import UserError
from ngu.run_folder import RunFolder

_PROG = "ngu status"
_NUMBERS = (
    "written",
    "steps",
    "updates",
    "ray/actors",
    "ray/actor_restarts",
    "ray/evaluator_restarts",
    "ray/skipped_evaluations",
    "ray/chunks",
    "ray/refused_chunks",
    "ray/waiting_chunks",
    "ray/weights_age",
    "ray/samples_per_insert",
)
_NUMBERS_OF_ACTOR = ("slot", "steps", "steps_per_second", "weights_age", "restarts")
_HEADS = ("actor", "alive", "machine", "process", "steps", "steps/s", "age of weights", "restarts", "replaced because")
_TO_THE_LEFT = ("alive", "machine", "replaced because")


@dataclass(frozen=True)
class Status:
    """Shows what the actors of a run on a Ray cluster are doing: who lives, how fast, with how old weights.

    A run with `--runner ray` leaves word every two seconds; this reads it, and asks nothing of the cluster.
    """

    path: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder."""
    json: bool = False
    """Print JSON instead of a table."""


def main(argv: list[str]) -> int:
    command = parse(_PROG, Status, take_apart(_PROG, Status, argv))
    folder = RunFolder.open(command.path)
    holder = training_process(folder)
    found = None if holder and _is_of_an_earlier_process(folder) else read_status(folder)
    age = None if found is None else max(time.time() - found["written"], 0.0)
    if command.json:
        head = {"run": str(folder.path), "runner": folder.config.run.runner, "process": holder}
        print(json.dumps({**head, "age": age, "status": found}, indent=2))
        return 0
    if found is None or age is None:
        print(_nothing(folder, holder))
        return 0
    who = f"is trained by {holder}" if holder else "has stopped, no process trains it; this is what it wrote last"
    print(f"{folder.path} {who}\n{summary(found, age)}\n\n{actors_table(found['actors'])}")
    return 0


def training_process(folder: RunFolder) -> str | None:
    """Who trains into the folder, as the lock file says it; None if its lock is free.

    A lock that is free is taken and released at once: shared, so that two who look do not see each other.
    """
    path = _lock_path(folder)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, 200).decode(errors="replace").strip() or "a process that has just started"
    except OSError as error:
        raise UserError(f"cannot look at the lock {path}: {error.strerror}.") from None
    else:
        return None
    finally:
        os.close(descriptor)


def _is_of_an_earlier_process(folder: RunFolder) -> bool:
    """Whether the lock was taken after the status was written, by files of one disk and so by one clock."""
    try:
        return folder.status_path.stat().st_mtime < _lock_path(folder).stat().st_mtime
    except OSError:
        return False


def _lock_path(folder: RunFolder) -> Path:
    return folder.path / "lock"


def read_status(folder: RunFolder) -> dict[str, Any] | None:
    """What the run wrote last, after checking that it is that; None if it has written nothing."""
    path = folder.status_path
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError:
        content = None
    if not _is_status(content):
        raise UserError(f"{path} is damaged; remove it, a run in training writes it anew every two seconds.")
    assert isinstance(content, dict)
    return content


def _is_status(content: Any) -> bool:
    if not _has_numbers(content, _NUMBERS) or not isinstance(content.get("last_refusal"), str):
        return False
    if not isinstance(content.get("evaluator"), dict):
        return False
    actors = content.get("actors")
    return isinstance(actors, list) and all(
        _has_numbers(actor, _NUMBERS_OF_ACTOR)
        and isinstance(actor.get("alive"), bool)
        and isinstance(actor.get("reason"), str)
        for actor in actors
    )


def _has_numbers(content: Any, names: tuple[str, ...]) -> bool:
    return isinstance(content, dict) and all(
        isinstance(content.get(name), int | float) and math.isfinite(content[name]) for name in names
    )


def _nothing(folder: RunFolder, holder: str | None) -> str:
    """The sentence for a run that has no status."""
    name = shlex.quote(str(folder.path))
    if folder.config.run.runner != "ray":
        return f"{name} has no actors on a cluster, it is a run of the local runner; `ngu report {name}` shows it."
    if holder:
        return f"{name} has no status yet, its actors are being started by {holder}; ask again in a few seconds."
    return f"{name} has no status, it was stopped before its actors had started; go on with `ngu resume {name}`."


def summary(found: dict[str, Any], age: float) -> str:
    """The run as a whole, one thing on a line."""
    actors = found["actors"]
    rate = sum(actor["steps_per_second"] for actor in actors if actor["alive"])
    refused = f"{found['ray/refused_chunks']:,.0f}"
    if found["last_refusal"]:
        refused += f", the last: {found['last_refusal']}"
    place = found["evaluator"]
    rows = {
        "written": f"{_duration(age)} ago",
        "steps": f"{found['steps']:,.0f}",
        "updates": f"{found['updates']:,.0f}",
        "actors alive": f"{found['ray/actors']:,.0f} of {len(actors)}",
        "steps/s": f"{rate:,.0f} while actors act",
        "age of weights": f"{found['ray/weights_age']:,.1f} updates",
        "chunks waiting": f"{found['ray/waiting_chunks']:,.0f}",
        "samples per insert": f"{found['ray/samples_per_insert']:.3g}",
        "actor restarts": f"{found['ray/actor_restarts']:,.0f}",
        "evaluator": f"process {place['process']} on {place['machine']}" if place else "has no process",
        "evaluator restarts": f"{found['ray/evaluator_restarts']:,.0f}",
        "evaluations left out": f"{found['ray/skipped_evaluations']:,.0f}",
        "chunks": f"{found['ray/chunks']:,.0f}",
        "refused chunks": refused,
    }
    width = max(map(len, rows))
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows.items())


def actors_table(actors: list[dict[str, Any]]) -> str:
    """One line for each actor; one that waits for room in the cluster is at no place yet."""
    cells = [_HEADS]
    for actor in actors:
        cells.append(
            (
                f"{actor['slot']}",
                "yes" if actor["alive"] else "no",
                str(actor.get("machine", "-")),
                str(actor.get("process", "-")),
                f"{actor['steps']:,.0f}",
                f"{actor['steps_per_second']:,.0f}",
                f"{actor['weights_age']:,.0f}" if actor["steps"] else "-",
                f"{actor['restarts']:,.0f}",
                actor["reason"],
            )
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if head in _TO_THE_LEFT else cell.rjust(width)
            for cell, width, head in zip(row, widths, _HEADS, strict=True)
        ).rstrip()
        for row in cells
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"

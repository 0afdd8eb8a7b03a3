"""The measurements that a report is drawn from: of a run's folder, or of a small CSV file that can be kept for good.

A results file says where its numbers come from, then gives them, one row per step at which something was measured:

    # preset: disco-maze
    # variant: ngu
    # seed: 0
    # command: ngu train disco-maze
    # commit: 0123abc
    # machine: NVIDIA H200
    # maze_size: 21
    # maze_step_cap: 500
    step,time,eval/explore/coverage@200,eval/explore/coverage@500
    0,1.2,0.01,0.01

Instead of the maze, `# game: montezuma_revenge` names an Atari game, `# environment: CartPole-v1` one of Gymnasium's.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngu.config import Config
from ngu.errors import UserError
from ngu.metrics import read_metrics
from ngu.report.worlds import World
from ngu.run_folder import RunFolder, replace_file

Floats = NDArray[np.float64]

EXPORTED = (
    "eval/*",
    "env/coverage",
    "env/score*",
    "env/solved*",
    "env/rooms*",
    "env/episodes",
    "env/episode_length*",
    "novelty/reward*",
    "novelty/episodic",
    "novelty/alpha",
    "novelty/embedding_age",
    "inverse/accuracy",
    "inverse/majority",
    "inverse/dimensions",
    "probe/*",
    "loss/retrace",
    "loss/inverse",
    "loss/rnd",
    "learner/updates",
    "learner/grad_norm",
    "learner/q_explo*",
    "learner/td_rms*",
    "learner/followed",
    "actor/q_max",
    "actor/q_max/explo*",
    "speed/steps_per_second",
    "speed/updates_per_second",
    "memory/*",
)
"""The metrics that `write_results_csv` keeps unless told otherwise; a `*` at the end stands for any text."""

_EPISODES = "env/episodes"
_LABELS = ("preset", "variant", "seed")
"""What every header has."""


@dataclass
class Results:
    """What one run measured, and where that comes from."""

    path: Path
    """The run's folder or the results file."""
    preset: str
    variant: str
    seed: int
    origin: dict[str, str]
    """`command`, `commit`, `machine` and what else is known, as text."""
    rows: list[dict[str, float]]
    """In the order of `step`; each has `step`, `time` and the metrics measured there."""
    world: World = field(default_factory=lambda: World("disco-maze"))
    """What it played in."""
    folder: RunFolder | None = None
    """Only a run's folder has a config and checkpoints."""
    notes: list[str] = field(default_factory=list)
    """Sentences about what could not be read."""

    @property
    def config(self) -> Config | None:
        return self.folder.config if self.folder else None

    @property
    def topic(self) -> str:
        """What a section of the page is about: the preset for mazes, the game or environment for others."""
        return self.preset if self.world.kind == "disco-maze" else self.world.title

    @property
    def steps(self) -> int:
        """Agent steps at the last measurement."""
        return int(self.rows[-1]["step"]) if self.rows else 0

    @property
    def seconds(self) -> float:
        """Training time at the last measurement."""
        return max((row["time"] for row in self.rows if "time" in row), default=0.0)

    def series(self, name: str) -> tuple[Floats, Floats]:
        """The steps at which a metric was measured, and its values."""
        points = [(row["step"], row[name]) for row in self.rows if name in row]
        steps, values = np.array(points, dtype=np.float64).reshape(-1, 2).T
        return steps, values

    def last(self, name: str) -> float | None:
        """The newest value of a metric."""
        return next((row[name] for row in reversed(self.rows) if name in row), None)

    def mean(self, name: str, over: int, until: int = 0) -> float | None:
        """The mean over the last `over` agent steps before `until`, or before the end.

        What is measured of training episodes (`env/...`) is weighed by how many of them each line tells of, where that
        was measured.
        """
        end = until or self.steps
        rows = [row for row in self.rows if name in row and end - over < row["step"] <= end]
        if not rows:
            return None
        # A line that measured something of episodes tells of one at least; older files have lost the count of some.
        episodes = [max(row.get(_EPISODES, 1.0), 1.0) if name.startswith("env/") else 1.0 for row in rows]
        return float(np.average([row[name] for row in rows], weights=episodes))

    def last_step(self, name: str) -> int:
        """Agent steps at that value; 0 if there is none."""
        return next((int(row["step"]) for row in reversed(self.rows) if name in row), 0)

    def names(self) -> set[str]:
        """Every metric that was measured."""
        return {name for row in self.rows for name in row} - {"step", "time"}


def read_run(path: Path) -> Results:
    """The measurements of a run's folder; a run that was killed, or has measured nothing yet, is no error."""
    folder = RunFolder.open(path)
    config = folder.config
    notes: list[str] = []
    rows: list[dict[str, Any]] = []
    try:
        rows = read_metrics(folder.metrics_path)
    except UserError as error:
        notes.append(str(error))
    if not rows and not notes:
        notes.append(f"the run {path.name} has measured nothing yet.")
    return Results(
        path=path,
        preset=config.preset,
        variant=config.variant,
        seed=config.run.seed,
        origin=_origin_of(folder),
        rows=_merge(rows),
        world=World.of(config.env),
        folder=folder,
        notes=notes,
    )


def _origin_of(folder: RunFolder) -> dict[str, str]:
    known = {key: str(value) for key, value in folder.origin.items() if value is not None}
    if "git_commit" in known:
        known["commit"] = known.pop("git_commit")
    return known


def _merge(rows: list[dict[str, Any]]) -> list[dict[str, float]]:
    """One row per step: what was logged and what was evaluated there, without the values that were not finite."""
    merged: dict[int, dict[str, float]] = {}
    for row in rows:
        numbers = {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
        if row["step"] in merged and not numbers.get(_EPISODES):
            numbers.pop(_EPISODES, None)  # none has ended since the last line at this step, which may tell of some
        merged.setdefault(row["step"], {}).update(numbers)
    return [merged[step] for step in sorted(merged)]


def write_results_csv(
    run: Path, out: Path, metrics: Sequence[str] | None = None, *, machine: str | None = None
) -> Path:
    """Exports a run's measurements; `metrics` are names, or beginnings of names that end in `*` (default: `EXPORTED`).

    `machine` says where the run was made, if its folder does not.
    """
    results = read_run(run)
    wanted = EXPORTED if metrics is None else metrics
    columns = sorted(name for name in results.names() if any(_matches(name, pattern) for pattern in wanted))
    if not columns:
        why = results.notes[0] if results.notes else f"the run {run} measured none of {', '.join(wanted)}."
        raise UserError(f"there is nothing to export: {why}")
    header = {
        "preset": results.preset,
        "variant": results.variant,
        "seed": results.seed,
        **{key: results.origin.get(key, "unknown") for key in ("command", "commit", "ngu", "torch")},
        "machine": machine or results.origin.get("machine", "unknown"),
        **results.world.header,
    }
    text = io.StringIO()
    for key, value in header.items():
        text.write(f"# {key}: {' '.join(str(value).split())}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", "time", *columns])
    for row in results.rows:
        if any(name in row for name in columns):
            cells = (_cell(row.get(name)) for name in ("time", *columns))
            writer.writerow([str(int(row["step"])), *cells])
    write_file(out, text.getvalue().encode())
    return out


def _matches(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _cell(value: float | None) -> str:
    """The shortest text that reads back as the same number."""
    if value is None:
        return ""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def read_results(path: Path) -> Results:
    """Reads a results file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"cannot read the results file {path}: {reason}.") from None
    comments = [line[1:].strip() for line in lines if line.startswith("#")]
    header = {key.strip(): value.strip() for key, _, value in (comment.partition(":") for comment in comments)}
    table = csv.reader(line for line in lines if line.strip() and not line.startswith("#"))
    columns = next(table, [])
    try:
        labels = {key: header[key] for key in _LABELS}
        if columns[:1] != ["step"]:
            raise _lacking(path, "a header that begins with 'step'")
        seed, world = int(header["seed"]), World.from_header(header)
    except KeyError as error:
        raise _lacking(path, f"a line '# {error.args[0]}: ...'") from None
    except ValueError:
        raise UserError(f"the seed or maze in the header of the results file {path} is not a whole number.") from None
    rows = []
    for number, cells in enumerate(table, start=1):
        try:
            if len(cells) != len(columns):
                raise ValueError
            numbers = {name: float(cell) for name, cell in zip(columns, cells, strict=True) if cell}
            rows.append({name: value for name, value in numbers.items() if math.isfinite(value)})
            if "step" not in rows[-1]:
                raise ValueError
        except ValueError:
            raise UserError(
                f"row {number} of the results file {path} is damaged; export the run's results anew."
            ) from None
    return Results(
        path=path,
        preset=labels["preset"],
        variant=labels["variant"],
        seed=seed,
        origin={key: value for key, value in header.items() if key not in labels and value != "unknown"},
        rows=sorted(rows, key=lambda row: row["step"]),
        world=world,
    )


def _lacking(path: Path, what: str) -> UserError:
    return UserError(f"{path} is not a results file, it lacks {what}; export a run's results anew.")


def read_sources(sources: Sequence[Path]) -> list[Results]:
    """Reads run folders, results files, and folders of them."""
    found: dict[Path, Results] = {}
    for source in sources:
        if source.is_file():
            found[source.resolve()] = read_results(source)
        elif (source / "config.json").is_file():
            found[source.resolve()] = read_run(source)
        elif source.is_dir():
            for path in sorted(source.rglob("*.csv")):
                found[path.resolve()] = read_results(path)
            for path in sorted(source.glob("*/config.json")):
                found[path.parent.resolve()] = read_run(path.parent)
        else:
            raise UserError(f"there is no run folder or results file {source}; check the name.")
    if not found:
        names = ", ".join(map(str, sources)) or "no source"
        raise UserError(f"{names} holds neither runs nor results; name a run folder, a CSV of results or their parent.")
    return list(found.values())


def write_file(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all, in a folder that is made if need be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another place.") from None

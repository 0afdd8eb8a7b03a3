"""The folder of one run: its config, metrics, checkpoints, TensorBoard files and report.

    runs/disco-maze-small-ngu-seed0-20260101-120000/
      config.json      every setting, and which code and command made the run
      metrics.jsonl    one JSON object per line (`ngu.metrics`)
      checkpoints/     the newest checkpoints (`ngu.checkpoint`)
      tensorboard/     the same metrics for TensorBoard
      report.html      written by `ngu report`
      status.json      what the actors of a Ray cluster are doing, for `ngu status`
      lock             held by the process that trains

Only one process trains into a folder: it holds a lock that the operating system releases when the process dies, however
it dies. Reading (`RunFolder.open`) needs no lock, so a run can be reported on while it trains.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
import weakref
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ngu.config import Config
from ngu.config_reading import from_dict, to_dict
from ngu.errors import UserError

SCHEMA_VERSION = 1
"""Version of the layout of a run folder; raised when an older `ngu` could no longer read it."""

_CONFIG_FILE = "config.json"
_LOCK_FILE = "lock"


class RunFolder:
    """One run's folder; `create` makes one for training, `open` finds an existing one."""

    def __init__(self, path: Path, config: Config, origin: dict[str, Any], lock: int | None) -> None:
        self.path = path
        self.config = config
        self.origin = origin
        """What made the run: `ngu`, `torch`, `python`, `git_commit`, `command`, `created`, and the `machine`."""
        # Closing the descriptor of the lock file releases the lock; it closes at the latest when this object goes.
        self._release = None if lock is None else weakref.finalize(self, os.close, lock)

    @classmethod
    def create(cls, config: Config, **origin: str) -> Self:
        """Makes the folder `<run.folder>/<run.name>` with its `config.json`, and locks it for training.

        Without `run.name` the name is made of preset, game, level or id, variant, seed and time. A folder with
        something in it is refused. `origin` says what else is known of the run, such as its `machine`.
        """
        parent = Path(config.run.folder).expanduser()
        try:
            path = _make_folder(parent, config)
            _require_empty(path)
            folder = cls(path, config, {**_origin(), **origin}, _lock(path))
            try:
                _require_empty(path)  # again: another process may have filled it before the lock was ours
                folder._write_config()
                sync_folder(parent)
            except BaseException:
                folder.close()
                raise
        except OSError as error:
            raise UserError(
                f"cannot make a run folder in {parent}: {error.strerror}; choose another place with run.folder."
            ) from None
        return folder

    @classmethod
    def open(cls, path: Path, *, lock: bool = False) -> Self:
        """Opens a folder that `create` made; `lock=True` to train into it."""
        config, origin = _read_config(path)
        try:
            return cls(path, config, origin, _lock(path) if lock else None)
        except OSError as error:
            raise UserError(f"cannot lock the run folder {path} for training: {error.strerror}.") from None

    def replace_config(self, config: Config) -> None:
        """Writes a changed config, such as more `run.steps` for a resumed run."""
        self.config = config
        try:
            self._write_config()
        except OSError as error:
            raise UserError(f"cannot write the config of the run folder {self.path}: {error.strerror}.") from None

    @property
    def metrics_path(self) -> Path:
        """The JSON lines of `ngu.metrics`."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The parent of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard's event files."""
        return self.path / "tensorboard"

    @property
    def report_path(self) -> Path:
        """The page that `ngu report` writes."""
        return self.path / "report.html"

    @property
    def status_path(self) -> Path:
        """What a cluster's actors are doing, while it trains."""
        return self.path / "status.json"

    def close(self) -> None:
        """Releases the lock, if there is one."""
        if self._release is not None:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _write_config(self) -> None:
        content = {"schema": SCHEMA_VERSION, **self.origin, "config": to_dict(self.config)}
        replace_file(self.path / _CONFIG_FILE, (json.dumps(content, indent=2) + "\n").encode())


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all: to a temporary name, flushed to the disk, then renamed."""
    temporary = path.with_name(f".{path.name}.writing")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Flushes a folder's list of names to the disk, so that a rename outlives a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reserve_folder(path: Path) -> int:
    """Makes and locks the folder of a run that trains elsewhere: the descriptor that holds the lock.

    What is refused here is what `create` and `open` refuse: a folder with other things in it, or in use.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not (path / _CONFIG_FILE).is_file():
            _require_empty(path)
        return _lock(path)
    except OSError as error:
        raise UserError(f"cannot use the run folder {path}: {error.strerror}; choose another place.") from None


def _make_folder(parent: Path, config: Config) -> Path:
    if config.run.name:
        path = parent / config.run.name
        path.mkdir(parents=True, exist_ok=True)
        return path
    parts = [config.preset, _in_file_names(config.env.which), config.variant, f"seed{config.run.seed}"]
    stem = "-".join([*filter(None, parts), time.strftime("%Y%m%d-%H%M%S")])
    parent.mkdir(parents=True, exist_ok=True)
    path, attempt = parent / stem, 1
    while True:  # two runs may start in the same second
        try:
            path.mkdir()
            return path
        except FileExistsError:
            attempt += 1
            path = parent / f"{stem}-{attempt}"


def _in_file_names(name: str) -> str:
    """The last part of an environment's name, `my_package:mine/MyEnv-v0`, without what file names cannot have."""
    last = re.split(r"[:/]", name)[-1]
    return re.sub(r"[^A-Za-z0-9_.]+", "-", last).strip("-.")[:80]


def is_taken(path: Path) -> bool:
    """A file, or a folder with something in it; the lock file of a start that went no further does not count."""
    return path.exists() and (not path.is_dir() or any(entry.name != _LOCK_FILE for entry in path.iterdir()))


def _require_empty(path: Path) -> None:
    if is_taken(path):
        raise UserError(
            f"the folder {path} already has something in it; go on with it by `ngu resume {shlex.quote(str(path))}`, "
            "or choose another run.name."
        )


def _lock(path: Path) -> int:
    """Takes the folder's lock: the descriptor that holds it. The holder's process id is written in the lock file."""
    descriptor = os.open(path / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 200).decode(errors="replace").strip()
        os.close(descriptor)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        raise UserError(
            f"another process ({holder or 'just started'}) is training into {path}; wait for it or stop it first."
        ) from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode())
    return descriptor


def _read_config(path: Path) -> tuple[Config, dict[str, Any]]:
    try:
        if not path.is_dir():
            raise UserError(f"there is no run folder {path}; check the name, or start a run with `ngu train`.")
        content = json.loads((path / _CONFIG_FILE).read_bytes())
    except FileNotFoundError:
        raise UserError(
            f"{path} is not a run folder, it has no {_CONFIG_FILE}; name one that `ngu train` made."
        ) from None
    except OSError as error:
        raise UserError(f"cannot read {path / _CONFIG_FILE}: {error.strerror}.") from None
    except ValueError:
        content = None
    if not isinstance(content, dict) or "schema" not in content or not isinstance(content.get("config"), dict):
        raise UserError(
            f"the run folder {path} is damaged: its {_CONFIG_FILE} is not what `ngu train` wrote; put that file back, "
            "or remove the folder to begin anew."
        )
    schema = content.pop("schema")
    if schema != SCHEMA_VERSION:
        raise UserError(
            f"the run folder {path} has schema {schema} and this ngu reads schema {SCHEMA_VERSION}; "
            f"open it with ngu {content.get('ngu', 'of the version that wrote it')}."
        )
    try:
        config = from_dict(content.pop("config"))
    except UserError as error:
        raise UserError(f"the config of the run folder {path} cannot be used: {error}") from None
    return config, content


def _origin() -> dict[str, Any]:
    from ngu import __version__

    return {
        "ngu": __version__,
        "torch": version("torch"),  # the installed version, without waiting for torch's import
        "python": platform.python_version(),
        "git_commit": _git_commit(),
        "command": shlex.join([_program(), *sys.argv[1:]]),
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _program() -> str:
    """What was called; `python -m ngu` is the command `ngu`."""
    path = Path(sys.argv[0])
    return "ngu" if path.name == "__main__.py" and path.parent == Path(__file__).parent else path.name


def _git_commit() -> str | None:
    """The commit of the code that runs, with `-dirty` if files were changed since; None outside a checkout."""
    package = Path(__file__).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    answer = ""
    for command in (
        # Installed inside some other project's checkout, this file is not one of the project's own.
        ["ls-files", "--error-unmatch", Path(__file__).name],
        ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
    ):
        try:
            answer = subprocess.run(
                ["git", *command], cwd=package, env=environment, capture_output=True, text=True, check=True, timeout=10
            ).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return None
    return answer or None

"""How the folder of a run travels between two machines: files as they change, checkpoints in pieces.

A run that trains elsewhere is mirrored here, as it would lie if it trained here: `seed-0.log` and, in `seed-0/`,
config, metrics, TensorBoard files, report, and the newest checkpoint. So what a lost machine costs is what a killed
process costs, the steps since the last checkpoint. Files that only grow send what is new of them.

Nothing here knows of Ray, or waits for PyTorch.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PIECE = 16 * 2**20
"""Bytes of a checkpoint that travel at once."""
_CHECKPOINTS = "checkpoints"
_SETTLED = 2.0
"""Seconds after which a further change of a file has another time."""
_NAME = re.compile(r"step_\d{12,}")
_STAYS = ("lock",)
_TO_GO_ON = ("config.json", "metrics.jsonl", "wandb_id")
"""Files that a run needs to go on elsewhere, beside its checkpoint."""


@dataclass(frozen=True)
class Part:
    """Some bytes of a file."""

    name: str
    """Path below the parent of the run's folder."""
    offset: int
    content: bytes


@dataclass(frozen=True)
class Staged:
    """A checkpoint that is ready to be fetched, and stays so while the run goes on."""

    name: str
    sizes: Mapping[str, int]
    """Bytes of each of its files."""


def write_part(path: Path, part: Part) -> None:
    """Puts a part into its file, which ends there for now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if part.offset else "wb") as file:
        file.seek(part.offset)
        file.write(part.content)
        file.truncate()


def pieces(path: Path, name: str) -> Iterator[Part]:
    """A whole file, one piece after the other; an empty one has a piece, too."""
    with path.open("rb") as file:
        offset = 0
        while (content := file.read(PIECE)) or not offset:
            yield Part(name, offset, content)
            offset += max(len(content), 1)


def parts_to_go_on(run: Path, newest: Path | None) -> Iterator[Part]:
    """What a run needs to go on from its newest checkpoint; without one it begins anew, and its metrics stay."""
    for name in _TO_GO_ON:
        if (run / name).is_file() and (newest is not None or name != "metrics.jsonl"):
            yield from pieces(run / name, f"{run.name}/{name}")
    if newest is not None:
        for path in sorted(newest.iterdir()):
            # One that was to be replaced, and whose successor never came, has another name.
            yield from pieces(path, f"{run.name}/{_CHECKPOINTS}/{_NAME.findall(newest.name)[0]}/{path.name}")


class Outbox:
    """What has changed below a folder since it was last asked for; checkpoints are left to `Stage`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[str, tuple[int, int]] = {}
        """Size and time of change of files that need not be read again while these are the same."""
        self._sent: dict[str, tuple[int, int]] = {}
        """How many bytes went out, and their checksum."""

    def changes(self) -> list[Part]:
        """The new bytes of files that grew, and files whole that are new or were rewritten."""
        parts = []
        for path in sorted(_files(self._root)):
            name = path.relative_to(self._root)
            try:
                if not path.is_file():
                    continue
                stat = path.stat()
                stamp = (stat.st_size, stat.st_mtime_ns)
                if self._seen.get(str(name)) == stamp:
                    continue
                content = path.read_bytes()
            except FileNotFoundError:  # replaced just now
                continue
            if time.time() - stat.st_mtime > _SETTLED:
                self._seen[str(name)] = stamp
            parts += self._new_part(str(name), content)
        return parts

    def _new_part(self, name: str, content: bytes) -> list[Part]:
        sent, checksum = self._sent.get(name, (-1, 0))
        grew = 0 <= sent <= len(content) and zlib.crc32(content[:sent]) == checksum
        if grew and sent == len(content):
            return []
        self._sent[name] = (len(content), zlib.crc32(content))
        return [Part(name, sent, content[sent:]) if grew else Part(name, 0, content)]


class Stage:
    """Holds on to the newest checkpoint of a run: the run itself removes it as soon as it has written another."""

    def __init__(self, run: Path, folder: Path) -> None:
        self._run = run
        self._folder = folder
        self._last: tuple[str, int] | None = None

    def skip(self) -> None:
        """Leaves out the checkpoint that is there: whoever fetches them has sent it."""
        path = self._newest()
        self._last = None if path is None else _stamp(path)

    def _newest(self) -> Path | None:
        """The newest folder with a checkpoint's name: it was written whole (`ngu.checkpoint`)."""
        found = (path for path in (self._run / _CHECKPOINTS).glob("*") if _NAME.fullmatch(path.name))
        return max(found, default=None, key=lambda path: int(path.name.rpartition("_")[2]))

    def newest(self) -> Staged | None:
        """The newest checkpoint, unless it was staged before; the one before it is let go."""
        path = self._newest()
        if path is None:
            return None
        for further_tries in (2, 1, 0):
            try:
                stamp = _stamp(path)
                if stamp == self._last:
                    return None
                shutil.rmtree(self._folder, ignore_errors=True)
                shutil.copytree(path, self._folder, copy_function=_link)
                break
            except (FileNotFoundError, shutil.Error):
                if not path.exists():
                    return None  # the run has just removed it; the next look finds the newer one
                if not further_tries:
                    raise
                # Another of the same step has just taken its place.
        self._last = stamp
        return Staged(path.name, {file.name: file.stat().st_size for file in sorted(self._folder.iterdir())})

    def read(self, name: str, offset: int) -> bytes:
        """A piece of a staged file."""
        with (self._folder / name).open("rb") as file:
            file.seek(offset)
            return file.read(PIECE)


def _files(root: Path) -> Iterator[Path]:
    """What travels by itself. Folders that are being written have hidden names, and may go while one looks into them;
    `os.walk` then passes over them, which `Path.rglob` does not."""
    for folder, inside, names in os.walk(root):
        inside[:] = [name for name in inside if not name.startswith(".") and name != _CHECKPOINTS]
        yield from (Path(folder, name) for name in names if not name.startswith(".") and name not in _STAYS)


def _stamp(checkpoint: Path) -> tuple[str, int]:
    """Differs from that of another checkpoint, even of the same step."""
    return checkpoint.name, (checkpoint / "meta.json").stat().st_mtime_ns


def _link(source: str, target: str) -> None:
    """The same file under a second name, or a copy where the disk knows no such thing."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)

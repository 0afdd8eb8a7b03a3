"""Checkpoints: the whole state of a run, written so that no moment of dying loses the last one.

A state is one nested dictionary per component (learner, actor, replay, ...) with text keys; its leaves are tensors on
any device, numbers, texts, booleans, None, or lists of these. A checkpoint is a folder:

    checkpoints/step_000000123456/
      meta.json              schema version, step, everything that is not a tensor, shapes, sizes and checksums
      learner.safetensors    the tensors of one component; names are paths such as `learner/online/lstm.weight`
      replay.safetensors     on its own, so that it can be left out

It is written under a temporary name, flushed to the disk, and renamed: a folder with a checkpoint's name is complete.
What a dead writer left behind is ignored and removed by the next save. Loading runs no code and checks what it reads.
The same state gives the same bytes. One process writes at a time; `ngu.run_folder` holds the lock.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import re
import shutil
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ngu.errors import UserError
from ngu.run_folder import sync_folder
from ngu.tensor_file import (
    DTYPE_NAMES,
    DamagedFileError,
    FileStamp,
    check_size,
    read_tensors,
    write_bytes,
    write_tensors,
)

SCHEMA_VERSION = 8
"""Version of the layout of a checkpoint; raised when older code could no longer read it."""

_META_FILE = "meta.json"
_WRITING, _REPLACED, _REMOVING = ".writing-", ".replaced-", ".removing-"


class DamagedCheckpointError(UserError):
    """A checkpoint that is there but is not what was written."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"the checkpoint {path} is damaged ({why}); use an older one.")
        self.path = path
        self.why = why


@dataclass(frozen=True)
class Checkpoint:
    """What loading brings; tensors are on the CPU, tuples have become lists."""

    path: Path
    step: int
    state: dict[str, Any]
    passed_over: tuple[str, ...] = ()
    """One sentence for each newer checkpoint that was damaged; show them to the user."""


def save_checkpoint(parent: Path, step: int, state: Mapping[str, Any], *, without: Collection[str] = ()) -> Path:
    """Writes `parent/step_<step>`, leaving out the components named in `without`; replaces one of the same step."""
    components = {name: _Component.of(name, state[name]) for name in sorted(state) if name not in without}
    try:
        if not parent.is_dir():
            parent.mkdir(parents=True)
            sync_folder(parent.parent)
        _sweep(parent)
        return _write(parent, step, components)
    except OSError as error:
        raise UserError(_why_not_saved(error, parent, step, components)) from None


def load_checkpoint(path: Path, *, without: Collection[str] = ()) -> Checkpoint:
    """Loads one checkpoint; the components named in `without` are neither read nor checked."""
    meta = _read_meta(path)
    state = {}
    try:
        for name, component in meta["components"].items():
            if name not in without:
                file = component["file"]
                tensors = read_tensors(path / _tensor_file(name), FileStamp(**file)) if file else {}
                state[name] = _decode(component["state"], name, tensors)
    except DamagedFileError as error:
        raise DamagedCheckpointError(path, str(error)) from None
    except OSError as error:
        raise UserError(f"cannot read the checkpoint {path}: {error.strerror}.") from None
    return Checkpoint(path, meta["step"], state)


def load_newest(parent: Path, *, without: Collection[str] = ()) -> Checkpoint:
    """Loads the newest checkpoint that is intact; `passed_over` says which newer ones were not."""
    damaged: list[DamagedCheckpointError] = []
    for path in reversed(_checkpoints(parent)):
        try:
            checkpoint = load_checkpoint(path, without=without)
        except DamagedCheckpointError as error:
            damaged.append(error)
            continue
        sentences = (
            f"the checkpoint {error.path} is damaged ({error.why}); the older {path.name} is used instead."
            for error in damaged
        )
        return dataclasses.replace(checkpoint, passed_over=tuple(sentences))
    if damaged:
        raise UserError(
            f"no checkpoint in {parent} is intact, the newest is damaged ({damaged[0].why}); remove that folder, and "
            "the run begins anew when it is resumed."
        )
    raise UserError(f"there is no checkpoint in {parent}; the run ended before it wrote one, so start it again.")


def newest_checkpoint(parent: Path) -> Path | None:
    """The folder of the newest checkpoint, or None; it was written whole, but is not checked for damage since."""
    return next(reversed(_checkpoints(parent)), None)


def prune(parent: Path, keep: int) -> None:
    """Removes checkpoints that are older than the `keep` newest; ones seen to be damaged do not count as kept."""
    kept = 0
    for path in reversed(_checkpoints(parent)):
        if kept >= keep:
            _remove(path)
        elif _seems_intact(path):
            kept += 1


def discard_newer(parent: Path, step: int) -> None:
    """Removes checkpoints beyond `step`: the future of a run that is resumed at `step` has yet to happen."""
    for path in _checkpoints(parent):
        if _step_of(path) > step:
            _remove(path)


def check_shapes(expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raises if the tensors of a loaded state (`found`) are not those of the agent that should take it (`expected`)."""
    expected_tensors: dict[str, Tensor] = {}
    found_tensors: dict[str, Tensor] = {}
    _encode(expected, "", expected_tensors)
    _encode(found, "", found_tensors)
    for name in (*expected_tensors, *found_tensors):
        wanted, there = (_describe(tensors.get(name)) for tensors in (expected_tensors, found_tensors))
        if wanted != there:
            raise UserError(
                f"the checkpoint does not fit this agent: {name} is {there} in the checkpoint and {wanted} in the "
                "agent, so their configs differ; use the config that the checkpoint was trained with."
            )


def _describe(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


# Writing


@dataclass(frozen=True)
class _Component:
    """One component taken apart: what goes into meta.json, and the tensors that go into a file of their own."""

    state: Any
    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, name: str, state: Any) -> _Component:
        if not name.isidentifier():
            raise ValueError(f"a component of a checkpoint names a file, so {name!r} must be a plain word")
        tensors: dict[str, Tensor] = {}
        return cls(_encode(state, name, tensors), tensors)


def _encode(node: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """`node` as JSON; tensors are collected under their paths and leave `{"$tensor": dtype, "shape": ...}` behind."""
    if isinstance(node, Tensor):
        if node.dtype not in DTYPE_NAMES:
            raise TypeError(f"a checkpoint cannot hold {node.dtype}, the type of {name}")
        tensors[name] = node
        return {"$tensor": DTYPE_NAMES[node.dtype], "shape": list(node.shape)}
    if isinstance(node, Mapping):
        for key in node:
            if not isinstance(key, str) or "/" in key or key.startswith("$"):
                raise TypeError(f"{name} has the key {key!r}; keys are texts without '/' that do not begin with '$'")
        return {key: _encode(value, f"{name}/{key}" if name else key, tensors) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_encode(value, f"{name}/{index}", tensors) for index, value in enumerate(node)]
    if isinstance(node, float) and not math.isfinite(node):
        return {"$float": str(node)}  # JSON has no infinities
    if node is None or isinstance(node, bool | int | float | str):
        return node
    raise TypeError(f"a checkpoint cannot hold {type(node).__name__}, the type of {name}")


def _write(parent: Path, step: int, components: Mapping[str, _Component]) -> Path:
    final = parent / f"step_{step:012d}"
    temporary = parent / f"{_WRITING}{final.name}"
    try:
        temporary.mkdir()
        entries: dict[str, Any] = {}
        for name, component in components.items():
            entries[name] = {"state": component.state, "file": None}
            if component.tensors:
                stamp = write_tensors(temporary / _tensor_file(name), component.tensors)
                entries[name]["file"] = dataclasses.asdict(stamp)
        meta: dict[str, Any] = {"schema": SCHEMA_VERSION, "step": step, "components": entries}
        meta["crc32"] = _meta_checksum(meta)
        write_bytes(temporary / _META_FILE, [json.dumps(meta, sort_keys=True, indent=1).encode()])
        sync_folder(temporary)
        put_in_place(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


def put_in_place(temporary: Path, final: Path) -> None:
    """Gives a folder that is complete and on the disk its name, beside it, instead of one that has it."""
    # A folder cannot be renamed over a full one. Between the two renames the old one still counts: `_checkpoints`.
    replaced = final.with_name(f"{_REPLACED}{final.name}")
    if final.exists():
        shutil.rmtree(replaced, ignore_errors=True)
        final.rename(replaced)
    try:
        temporary.rename(final)
    except OSError:
        recover(final)
        raise
    sync_folder(final.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def recover(final: Path) -> None:
    """Where `put_in_place` came no further than its first rename, takes that back; `final` may be anything else."""
    replaced = final.parent / f"{_REPLACED}{final.name}"
    if replaced.is_dir() and not final.exists():
        replaced.rename(final)


def _meta_checksum(meta: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(meta, sort_keys=True).encode()):08x}"


def check_room(folder: Path, replay: Mapping[str, Any], kept: int) -> None:
    """Refuses a run whose checkpoints would find no room for their largest part, before it has trained for hours.

    `kept` checkpoints stay there, and the next one is written before the oldest of them goes. A folder that cannot be
    looked at is left to whoever makes it.
    """
    try:
        existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        disk = shutil.disk_usage(existing)
    except OSError:
        return
    needed = (kept + 1) * _bytes(replay.values())
    if needed > disk.free and disk.total > 0:  # nothing in all where there is no disk, such as in /proc
        raise UserError(
            f"{kept + 1} checkpoints with their replay need {_size(needed)}, and {_size(disk.free)} are free in "
            f"{existing}; make room, choose another run.folder, set run.keep_checkpoints to less or "
            "run.checkpoint_replay to false."
        )


def _bytes(values: Iterable[Any]) -> int:
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, Tensor))


def _why_not_saved(error: OSError, parent: Path, step: int, components: Mapping[str, _Component]) -> str:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return (
            f"cannot write the checkpoint of step {step} to {parent}: {error.strerror}; make that folder writable or "
            "choose another run.folder (older checkpoints are untouched)."
        )
    needed = sum(_bytes(component.tensors.values()) for component in components.values())
    return (
        f"no room for the checkpoint of step {step} in {parent} ({error.strerror}): it needs {_size(needed)} and "
        f"{_size(shutil.disk_usage(parent).free)} are free; make room or set run.checkpoint_replay to false (older "
        "checkpoints are untouched)."
    )


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.2f} MB"


# Reading


def _decode(node: Any, name: str, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `_encode`."""
    if isinstance(node, list):
        return [_decode(value, f"{name}/{index}", tensors) for index, value in enumerate(node)]
    if not isinstance(node, dict):
        return node
    if "$float" in node:
        return float(node["$float"])
    if "$tensor" in node:
        tensor = tensors.get(name)
        if tensor is None or [DTYPE_NAMES[tensor.dtype], list(tensor.shape)] != [node["$tensor"], node["shape"]]:
            raise DamagedFileError(f"{name} is not as {_META_FILE} describes it")
        return tensor
    return {key: _decode(value, f"{name}/{key}", tensors) for key, value in node.items()}


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        if not path.is_dir():
            raise UserError(f"there is no checkpoint {path}; check the name.")
        meta = json.loads((path / _META_FILE).read_bytes())
    except FileNotFoundError:
        raise DamagedCheckpointError(path, f"{_META_FILE} is missing") from None
    except OSError as error:
        raise UserError(f"cannot read the checkpoint {path}: {error.strerror}.") from None
    except ValueError:
        raise DamagedCheckpointError(path, f"{_META_FILE} is not valid JSON") from None
    if not isinstance(meta, dict) or "schema" not in meta:
        raise DamagedCheckpointError(path, f"{_META_FILE} does not describe a checkpoint")
    if meta["schema"] != SCHEMA_VERSION:
        raise UserError(
            f"the checkpoint {path} has schema {meta['schema']} and this ngu reads schema {SCHEMA_VERSION}; "
            "load it with the version of ngu that wrote it."
        )
    if meta.pop("crc32", None) != _meta_checksum(meta):
        raise DamagedCheckpointError(path, f"the checksum of {_META_FILE} is wrong")
    return meta


def _seems_intact(path: Path) -> bool:
    """All files are there with their sizes; checksums would take as long as loading."""
    try:
        for name, component in _read_meta(path)["components"].items():
            if component["file"]:
                check_size(path / _tensor_file(name), FileStamp(**component["file"]))
    except (UserError, DamagedFileError):
        return False
    return True


# Names


def _tensor_file(component: str) -> str:
    return f"{component}.safetensors"


def _checkpoints(parent: Path) -> list[Path]:
    """The folders of checkpoints, oldest first.

    A replaced one counts while its successor is not in place: names are sorted, so the successor overrides it.
    """
    by_step: dict[int, Path] = {}
    try:
        for path in sorted(parent.iterdir()) if parent.is_dir() else ():
            if re.fullmatch(rf"({re.escape(_REPLACED)})?step_\d{{12,}}", path.name) and path.is_dir():
                by_step[_step_of(path)] = path
    except OSError as error:
        raise UserError(f"cannot look for checkpoints in {parent}: {error.strerror}.") from None
    return [by_step[step] for step in sorted(by_step)]


def _step_of(path: Path) -> int:
    return int(path.name.rpartition("_")[2])


def _sweep(parent: Path) -> None:
    """Ends what a dead process began: unfinished writes and removals go; a replacement without successor comes back."""
    for path in sorted(parent.iterdir()):
        successor = parent / path.name.removeprefix(_REPLACED)
        if path.name.startswith(_REPLACED) and not successor.exists():
            path.rename(successor)
        elif path.name.startswith((_WRITING, _REPLACED, _REMOVING)):
            shutil.rmtree(path)


def _remove(path: Path) -> None:
    """Renames first, so that a half-removed folder never carries a checkpoint's name."""
    doomed = path.with_name(f"{_REMOVING}{path.name}")
    try:
        if doomed.exists():
            shutil.rmtree(doomed)
        path.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        raise UserError(f"cannot remove the old checkpoint {path}: {error.strerror}.") from None

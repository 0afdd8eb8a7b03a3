"""Chunks: what an actor in another process sends, many steps of its environments at once.

A chunk holds T rows of E streams, as `SequenceReplay.add` takes them one by one, and the recurrent states with which a
sequence may begin: one for every `period` rows of an episode, not one for each row.
"""

from __future__ import annotations

import dataclasses
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ngu.envs.protocol import EnvironmentSpec
from ngu.networks import RecurrentState
from ngu.replay import SequenceReplay
from ngu.sequences import Row

_ROW_TYPES = {
    "action": torch.int16,
    "behaviour": torch.float32,
    "extrinsic": torch.float32,
    "intrinsic": torch.float32,
    "td_error": torch.float32,
    "terminated": torch.bool,
    "truncated": torch.bool,
    "first": torch.bool,
}
_FINITE = ("behaviour", "extrinsic", "intrinsic", "td_error")


@dataclass
class Chunk:
    """T steps of E environments."""

    rows: Row
    """[T, E] or [T, E, ...] each"""
    time: Tensor
    """[K] int64: the rows that the states belong to"""
    env: Tensor
    """[K] int64: their environments"""
    state: RecurrentState
    """[K, H]: the actor's states before it saw those rows"""

    @property
    def steps(self) -> int:
        """Agent steps in it: every row of every environment."""
        return self.rows.first.numel()

    def pack(self, compress: bool) -> dict[str, Any]:
        """As arrays that travel between processes; frames are compressed if that is asked for."""
        arrays = {name: getattr(self.rows, name).numpy() for name in ("observation", *_ROW_TYPES)}
        arrays |= {"time": self.time.numpy(), "env": self.env.numpy()}
        arrays |= {"hidden": self.state.hidden.numpy(), "cell": self.state.cell.numpy()}
        if compress:
            pictures = arrays.pop("observation")
            packed = zlib.compress(pictures.tobytes(), level=1)
            arrays["packed"] = np.frombuffer(packed, dtype=np.uint8)
        return arrays


class DamagedChunkError(ValueError):
    """A chunk that is not what an actor of this run sends; it must not reach replay."""


def unpack(arrays: Any, spec: EnvironmentSpec, steps: int, envs: int, lstm_size: int) -> Chunk:
    """The chunk in what another process sent, after checking that it is one: sizes, types, ranges, finite numbers."""
    if not isinstance(arrays, dict):
        raise DamagedChunkError(f"it is a {type(arrays).__name__}")
    shapes = {"observation": (steps, envs, *spec.observation_shape), **dict.fromkeys(_ROW_TYPES, (steps, envs))}
    types = {"observation": spec.observation_dtype, **_ROW_TYPES}
    found = dict(arrays)
    if "packed" in found:
        found["observation"] = _decompressed(found.pop("packed"), shapes["observation"], spec.observation_dtype)
    states = len(found["time"]) if isinstance(found.get("time"), np.ndarray) else 0
    shapes |= {"time": (states,), "env": (states,), "hidden": (states, lstm_size), "cell": (states, lstm_size)}
    types |= {"time": torch.int64, "env": torch.int64, "hidden": torch.float32, "cell": torch.float32}
    tensors: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        if not isinstance(found.get(name), np.ndarray):
            raise DamagedChunkError(f"{name} is missing")
        # A copy where the array is another process's memory, which must not be written to.
        array = found[name] if found[name].flags.writeable else found[name].copy()
        tensors[name] = torch.from_numpy(array)
        if tuple(tensors[name].shape) != shape or tensors[name].dtype != types[name]:
            raise DamagedChunkError(
                f"{name} is {list(tensors[name].shape)} {tensors[name].dtype} and should be {list(shape)} {types[name]}"
            )
    _check_values(tensors, spec, steps, envs)
    rows = Row(**{entry.name: tensors[entry.name] for entry in dataclasses.fields(Row)})
    return Chunk(rows, tensors["time"], tensors["env"], RecurrentState(tensors["hidden"], tensors["cell"]))


def _decompressed(packed: Any, shape: tuple[int, ...], dtype: torch.dtype) -> np.ndarray[Any, Any]:
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    size = int(np.prod(shape)) * kind.itemsize
    try:
        unpacker = zlib.decompressobj()
        pictures = unpacker.decompress(np.ascontiguousarray(packed, dtype=np.uint8).tobytes(), size + 1)
    except (zlib.error, TypeError, ValueError) as error:
        raise DamagedChunkError(f"its frames cannot be decompressed: {error}") from None
    if len(pictures) != size:
        raise DamagedChunkError(f"its frames have {len(pictures)} bytes or more and should have {size}")
    return np.frombuffer(bytearray(pictures), dtype=kind).reshape(shape)


def _check_values(tensors: dict[str, Tensor], spec: EnvironmentSpec, steps: int, envs: int) -> None:
    floats = [*_FINITE, "hidden", "cell"] + (["observation"] if spec.observation_dtype.is_floating_point else [])
    for name in floats:
        if not torch.isfinite(tensors[name]).all():
            raise DamagedChunkError(f"{name} is not finite")
    ranges = {"action": (-1, spec.num_actions), "time": (0, steps), "env": (0, envs)}
    for name, (least, end) in ranges.items():
        values = tensors[name]
        if values.numel() and not (int(values.min()) >= least and int(values.max()) < end):
            raise DamagedChunkError(f"{name} is outside of {least} to {end - 1}")
    behaviour = tensors["behaviour"]
    if not ((behaviour > 0) & (behaviour <= 1)).all():
        raise DamagedChunkError("behaviour holds what is no probability")


class ChunkRecorder:
    """Takes an actor's rows in the place of a replay, and hands them out as chunks of T steps."""

    device = torch.device("cpu")

    def __init__(self, spec: EnvironmentSpec, steps: int, envs: int, lstm_size: int, period: int) -> None:
        self._period = period
        self._steps = steps
        self._filled = 0
        self._offset = torch.zeros(envs, dtype=torch.int64)
        """Rows since each episode's first one."""
        shape = (steps, envs)
        self._rows = Row(
            observation=torch.zeros(*shape, *spec.observation_shape, dtype=spec.observation_dtype),
            **{name: torch.zeros(shape, dtype=kind) for name, kind in _ROW_TYPES.items()},
        )
        self._states: list[tuple[int, Tensor, Tensor, Tensor]] = []
        self._lstm_size = lstm_size

    @property
    def full(self) -> bool:
        return self._filled == self._steps

    def add(self, row: Row, state: RecurrentState, group: slice = slice(None)) -> None:  # noqa: ARG002
        """Appends one row of each environment; see `SequenceReplay.add`."""
        time = self._filled
        for entry in dataclasses.fields(Row):
            getattr(self._rows, entry.name)[time].copy_(getattr(row, entry.name))
        self._offset = torch.where(row.first, 0, self._offset + 1)
        env = ((self._offset > 0) & (self._offset % self._period == 0)).nonzero().squeeze(1)
        if len(env):
            self._states.append((time, env, state.hidden[env].clone(), state.cell[env].clone()))
        self._filled += 1

    def take(self) -> Chunk:
        """The full chunk; the next rows begin another."""
        none = torch.zeros(0, dtype=torch.int64)
        nothing = torch.zeros(0, self._lstm_size)
        chunk = Chunk(
            rows=Row(**{entry.name: getattr(self._rows, entry.name).clone() for entry in dataclasses.fields(Row)}),
            time=torch.cat([none, *(torch.full_like(env, time) for time, env, _, _ in self._states)]),
            env=torch.cat([none, *(env for _, env, _, _ in self._states)]),
            state=RecurrentState(
                torch.cat([nothing, *(hidden for _, _, hidden, _ in self._states)]),
                torch.cat([nothing, *(cell for _, _, _, cell in self._states)]),
            ),
        )
        self._filled = 0
        self._states.clear()
        return chunk


def add_chunk(replay: SequenceReplay, chunk: Chunk, group: slice) -> None:
    """Appends a chunk to the streams of a group; replay then is as if the rows had come one by one."""
    index = torch.full(chunk.rows.first.shape, -1, dtype=torch.int64)
    index[chunk.time, chunk.env] = torch.arange(len(chunk.time))
    on_device = {
        entry.name: getattr(chunk.rows, entry.name).to(replay.device, non_blocking=True)
        for entry in dataclasses.fields(Row)
    }
    state = RecurrentState(chunk.state.hidden.to(replay.device), chunk.state.cell.to(replay.device))
    if not replay.add_many(Row(**on_device), state, index.to(replay.device), group):
        raise DamagedChunkError("a recurrent state is missing where a sequence may begin")

"""Safetensors files that are streamed, flushed to the disk and checked: what a checkpoint keeps its tensors in.

Any safetensors library reads them. They are written here because the library's own writer holds a host copy of all of a
GPU's tensors at once, computes no checksum on the way, and does not say in a usable form that a disk is full.
"""

from __future__ import annotations

import itertools
import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

DTYPE_NAMES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32",
    torch.int64: "I64", torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64",
}  # fmt: skip
"""The types that can be written, with their names in the format."""

_CHUNK_BYTES = 16 * 2**20


class DamagedFileError(Exception):
    """A file that is not what was written; the message says why, without its path."""


@dataclass(frozen=True)
class FileStamp:
    """What a file has to look like when it is read again."""

    bytes: int
    crc32: str
    """Checksum against accidents (no signature): it costs a quarter of a second per gigabyte."""


def write_bytes(path: Path, pieces: Iterable[bytes | memoryview]) -> FileStamp:
    """Writes a new file and flushes it to the disk."""
    checksum = 0
    with path.open("xb") as file:
        for piece in pieces:
            file.write(piece)
            checksum = zlib.crc32(piece, checksum)
        file.flush()
        os.fsync(file.fileno())
        return FileStamp(file.tell(), f"{checksum:08x}")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> FileStamp:
    """Writes length of the header, header, data. Wide types come first, so that all are aligned.

    Tensors may be on any device. They pass through in pieces of 16 MiB; only non-contiguous ones are copied whole.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {}
    end = 0
    for name in order:
        tensor = tensors[name]
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = itertools.chain.from_iterable(_bytes_of(tensors[name]) for name in order)
    return write_bytes(path, itertools.chain([struct.pack("<Q", len(text)), text], data))


def read_tensors(path: Path, stamp: FileStamp) -> dict[str, Tensor]:
    """Reads a file back to the CPU, after checking every byte of it."""
    check_size(path, stamp)
    checksum = 0
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            checksum = zlib.crc32(buffer[:count], checksum)
    if f"{checksum:08x}" != stamp.crc32:
        raise DamagedFileError(f"the checksum of {path.name} is wrong")
    tensors: dict[str, Tensor] = load_file(path)
    return tensors


def check_size(path: Path, stamp: FileStamp) -> None:
    """Raises if the file is missing, cut short or too long."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise DamagedFileError(f"{path.name} is missing") from None
    if size != stamp.bytes:
        raise DamagedFileError(f"{path.name} has {size} bytes instead of {stamp.bytes}")


def _bytes_of(tensor: Tensor) -> Iterator[memoryview]:
    whole = tensor.detach().contiguous()
    # A dimension of one element may have any stride, but bytes are viewed only where it is 1.
    flat = whole.as_strided((whole.numel(),), (1,)).view(torch.uint8)
    for begin in range(0, flat.numel(), _CHUNK_BYTES):
        yield flat[begin : begin + _CHUNK_BYTES].cpu().numpy().data

"""Mixed precision as a setting."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ngu.config import Precision

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Runs matrix products and convolutions in `precision` on a GPU; does nothing on the CPU or for fp32."""
    enabled = device.type == "cuda" and precision != "fp32"
    return torch.autocast(device.type, dtype=_DTYPES.get(precision, torch.bfloat16), enabled=enabled)


def storage_dtype(device: torch.device, precision: Precision) -> torch.dtype:
    """The type that weights are kept in where they are used and not trained: no copy is made of them at each use."""
    return _DTYPES.get(precision, torch.float32) if device.type == "cuda" else torch.float32


def in_full(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A module's state with weights of any precision as float32, so that a checkpoint fits every precision."""
    return {name: value.float() if value.dtype in _DTYPES.values() else value for name, value in state.items()}

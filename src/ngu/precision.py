"""Mixed precision as a setting."""

from __future__ import annotations

import torch

from ngu.config import Precision

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Runs matrix products and convolutions in `precision` on a GPU; does nothing on the CPU or for fp32."""
    enabled = device.type == "cuda" and precision != "fp32"
    return torch.autocast(device.type, dtype=_DTYPES.get(precision, torch.bfloat16), enabled=enabled)

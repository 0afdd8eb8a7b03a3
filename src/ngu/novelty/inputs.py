"""What a user gives to `IntrinsicReward` is looked at first: one sentence instead of an error from inside PyTorch.

Types, shapes and devices alone are looked at, never values: that takes no time, and waits for no GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ngu.config import NoveltyConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError

_KNOWN = (torch.uint8, torch.float32)


def check_tensor(what: str, given: Any, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    """Refuses anything but a tensor of that shape and type on that kind of device."""
    wanted = f"a tensor of shape {shape} and {dtype}"
    if not isinstance(given, Tensor):
        hint = ", as torch.as_tensor makes one" if hasattr(given, "__array__") else ""
        raise UserError(f"{what} is of the type {type(given).__name__}; give {wanted}{hint}.")
    if tuple(given.shape) != shape:
        swapped = len(shape) == 4 and sorted(given.shape) == sorted(shape)
        hint = "; channels come before height and width" if swapped else ""
        raise UserError(f"{what} has the shape {tuple(given.shape)}; give {wanted}{hint}.")
    if given.dtype != dtype:
        hint = ", from 0 to 255" if dtype == torch.uint8 else ""
        raise UserError(f"{what} is {given.dtype}; give {wanted}{hint}.")
    if given.device.type != device.type:
        raise UserError(f"{what} is on {given.device}, but the reward is on {device}; move one of them.")


def check_parts(spec: Any, config: Any, device: torch.device) -> None:
    """Refuses what no reward could be built from."""
    if not isinstance(spec, EnvironmentSpec):
        raise UserError(
            f"the spec is of the type {type(spec).__name__}; give an ngu.EnvironmentSpec, which "
            "ngu.envs.gym.make_gymnasium_spec(env) makes for a Gymnasium environment."
        )
    if spec.observation_dtype not in _KNOWN:
        raise UserError(
            f"the spec's observation_dtype is {spec.observation_dtype}; set it to torch.uint8 for pictures or "
            "torch.float32 for vectors."
        )
    if not isinstance(config, NoveltyConfig):
        hint = "; a preset's is ngu.preset(name).novelty" if hasattr(config, "novelty") else ""
        raise UserError(f"the config is of the type {type(config).__name__}; give an ngu.NoveltyConfig{hint}.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("the device is cuda, but PyTorch finds no CUDA device here; give device='cpu'.")

"""What networks take in: observations scaled to small numbers or whitened, in the layout that convolutions want."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from ngu.graphs import fusable
from ngu.moments import RunningMoments

_CLIP = 5.0
_COMPUTED_IN = (torch.float32, torch.bfloat16, torch.float16)


def scaled_observation(observation: Tensor, fold: int = 1) -> Tensor:
    """[B, *observation_shape] to what networks take in: images from 0..255 to 0..1, vectors as they are.

    Images come out channels last and, under autocast, in its precision: the layout and type that convolutions want. On
    a GPU they are folded as `Torso.fold` says. Floats pass through, so an observation that several networks share is
    scaled once.
    """
    if observation.dtype != torch.uint8:
        return observation if observation.dtype in _COMPUTED_IN else observation.float()
    if observation.dim() != 4:
        return observation.float() / 255
    return _scaled_image(observation, compute_dtype(observation.device), fold if observation.is_cuda else 1)


def compute_dtype(device: torch.device) -> torch.dtype:
    """The type that convolutions and matrix products run in here and now."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else torch.float32


@fusable
def _scaled_image(image: Tensor, dtype: torch.dtype, fold: int) -> Tensor:
    return folded((image.float() / 255).to(dtype), fold).contiguous(memory_format=torch.channels_last)


def folded(image: Tensor, fold: int) -> Tensor:
    """[B, C, H, W] to [B, C fold^2, H / fold, W / fold]: the pixels of each block become channels of one pixel."""
    return F.pixel_unshuffle(image, fold) if fold > 1 else image


@fusable
def whiten(observation: Tensor, mean: Tensor, deviation: Tensor, dtype: torch.dtype, fold: int = 1) -> Tensor:
    """Observations [B, ...] less their mean, over their deviation, clipped to [-5, 5]; images channels last, `folded`.

    `mean` and `deviation`, which is above 0, are those of one observation, or [B, ...] for each its own.
    """
    white = ((_unit(observation) - mean) / deviation).clamp(-_CLIP, _CLIP).to(dtype)
    return folded(white, fold).contiguous(memory_format=torch.channels_last) if white.dim() == 4 else white


def _unit(observation: Tensor) -> Tensor:
    return observation.float() / 255 if observation.dtype == torch.uint8 else observation.float()


class Whitening(RunningMoments):
    """Observations less their running mean, over their running deviation, clipped to [-5, 5].

    What hardly ever changed has a deviation near 0, and would be blown up to the clip once it does, so `least` is the
    smallest that is divided by. The statistics change in `observe` alone and travel with the weights.
    """

    def __init__(self, shape: tuple[int, ...], least: float) -> None:
        super().__init__(shape)
        self.least = least

    @classmethod
    def for_control(cls, shape: tuple[int, ...]) -> Whitening:
        """For networks that must tell apart whatever they see: pictures, from 0 to 1, never come to the clip."""
        return cls(shape, 1 / _CLIP if len(shape) == 3 else 1e-2)

    def forward(self, observation: Tensor, fold: int = 1) -> Tensor:
        """[B, *shape] as it came from the environments; on a GPU images are folded as `Torso.fold` says."""
        deviation = self.deviation.clamp_min(self.least)
        fold = fold if observation.is_cuda else 1
        return whiten(observation, self.mean, deviation, compute_dtype(observation.device), fold)

    def observe(self, observation: Tensor, valid: Tensor) -> None:
        """Adds [B, *shape] to the statistics; rows that are not marked in `valid` [B] bool do not count."""
        self.update(_unit(observation), valid)


def prepared(observation: Tensor, whitening: Whitening | None, fold: int) -> Tensor:
    """[B, *observation_shape] as the environments gave it, to what a torso with that `fold` takes in."""
    return scaled_observation(observation, fold) if whitening is None else whitening(observation, fold)

"""Bias and ReLU on a GPU, in two Triton kernels; import this module only where Triton is installed.

`ngu.bias_relu` decides when to use it.

Images that are channels last lie in memory as a matrix: a row for each pixel of each image, a column for each channel.
A tile is some whole rows. Forward, a program overwrites one tile. Backward there are only as many programs as the GPU
can hold at once; each goes from tile to tile in equal steps and adds up its share of the bias's gradient. The
shares are added up afterwards, always in the same order, so the same numbers come out every time.
"""

# Triton has no types, and is not there to be checked on most machines.
# mypy: ignore-errors

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_BYTES = 8192
"""Of a tile: as many rows as fit, and one at least."""
FORWARD_WARPS = 4
"""A thread reads four times 16 bytes and ends."""
BACKWARD_WARPS = 8
"""A thread reads two times 16 bytes of each tensor at a time."""
BACKWARD_PROGRAMS = 4
"""Programs for each multiprocessor of the GPU: as many as the registers of a Hopper suffice for at once."""


def bias_relu_in_place(x: Tensor, bias: Tensor) -> Tensor:
    """Overwrites x with relu(x + bias), and can be differentiated once; see `ngu.bias_relu`.

    Args:
        x: [B, C, H, W] channels last, not empty.
        bias: [C].
    """
    return _BiasReLU.apply(x, bias)


class _BiasReLU(torch.autograd.Function):
    """A convolution's gradient needs its input and not its output, so the output may be overwritten."""

    @staticmethod
    def forward(ctx, x: Tensor, bias: Tensor) -> Tensor:
        channels = x.shape[1]
        rows = x.numel() // channels
        width, tile_rows = _tile(channels, x.dtype)
        _overwrite[(triton.cdiv(rows, tile_rows),)](
            x, bias.contiguous(), rows, channels, width, tile_rows, num_warps=FORWARD_WARPS
        )
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        ctx.bias_dtype = bias.dtype
        return x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (output,) = ctx.saved_tensors
        x_gradient, bias_gradient = gradients(gradient, output)
        needs_x, needs_bias = ctx.needs_input_grad
        return x_gradient if needs_x else None, bias_gradient.to(ctx.bias_dtype) if needs_bias else None


def gradients(gradient: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """From the gradient of the output to those of x, in its dtype, and of the bias, in float32.

    Args:
        gradient: [B, C, H, W] in any layout.
        output: [B, C, H, W] channels last.
    """
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    channels = output.shape[1]
    rows = output.numel() // channels
    width, tile_rows = _tile(channels, output.dtype)
    programs = min(triton.cdiv(rows, tile_rows), _most_programs(output.device))
    x_gradient = torch.empty_like(output)
    shares = torch.empty(programs, channels, dtype=torch.float32, device=output.device)
    _differentiate[(programs,)](
        gradient, output, x_gradient, shares, rows, channels, width, tile_rows, num_warps=BACKWARD_WARPS
    )
    return x_gradient, shares.sum(0)


def _tile(channels: int, dtype: torch.dtype) -> tuple[int, int]:
    """Columns and rows of a tile: powers of two, as Triton wants them."""
    width = triton.next_power_of_2(channels)
    return width, max(TILE_BYTES // dtype.itemsize // width, 1)


@functools.cache
def _most_programs(device: torch.device) -> int:
    """Programs that go over the tiles together; without a GPU, as in Triton's interpreter, as for one processor."""
    processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    return BACKWARD_PROGRAMS * processors


# One compilation serves every number of rows: it does not matter to where a row begins.
@triton.jit(do_not_specialize=["rows"])
def _overwrite(x, bias, rows, CHANNELS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Programs: (tiles,)."""
    # Tiles may begin beyond what 32 bits can count to; within one, 32 bits do.
    first = tl.program_id(0).to(tl.int64) * ROWS
    row, channel = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    there = (row < tl.minimum(rows - first, ROWS).to(tl.int32)) & (channel < CHANNELS)
    place = x + first * CHANNELS + (row * CHANNELS + channel)
    value = tl.load(place, mask=there)
    # As torch adds: both in the dtype of x, and the sum rounded to it at the end.
    added = tl.load(bias + channel, mask=channel < CHANNELS).to(value.dtype)
    total = value.to(tl.float32) + added.to(tl.float32)
    # NaN is not at most 0, and stays.
    tl.store(place, tl.where(total <= 0, 0.0, total).to(value.dtype), mask=there)


@triton.jit(do_not_specialize=["rows"])
def _differentiate(
    gradient,
    output,
    x_gradient,
    shares,
    rows,
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Writes the gradient of x, and to shares [programs, C] each program's part of the bias's. Programs: any number."""
    row, channel = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    inside = row * CHANNELS + channel
    sums = tl.zeros([ROWS, WIDTH], tl.float32)
    first = tl.program_id(0).to(tl.int64) * ROWS
    while first < rows:
        there = (row < tl.minimum(rows - first, ROWS).to(tl.int32)) & (channel < CHANNELS)
        place = first * CHANNELS + inside
        result = tl.load(output + place, mask=there, other=0.0).to(tl.float32)
        arrived = tl.load(gradient + place, mask=there, other=0.0)
        passed = tl.where(result <= 0, 0.0, arrived.to(tl.float32))
        tl.store(x_gradient + place, passed.to(arrived.dtype), mask=there)
        sums += passed
        first += tl.num_programs(0) * ROWS
    column = tl.arange(0, WIDTH)
    tl.store(shares + tl.program_id(0) * CHANNELS + column, tl.sum(sums, 0), mask=column < CHANNELS)

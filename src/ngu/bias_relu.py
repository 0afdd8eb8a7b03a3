"""Bias and ReLU after a convolution, in one pass over the images where a GPU can.

Both only read and write memory, and so do their gradients. As torch's own operations they are five passes over images
that fill most of a GPU's time with waiting for memory; by a kernel of our own they are one forward and one backward.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_MOST_CHANNELS = 4096
"""A program of the kernel holds at least one pixel's channels."""


def bias_relu(x: Tensor, bias: Tensor) -> Tensor:
    """relu(x + bias) of a convolution that adds no bias itself.

    Args:
        x: [B, C, H, W] that nothing else reads: on a GPU it is overwritten. Like any tensor that is overwritten, it
            must not be a leaf that requires a gradient. What is not channels last goes through torch's operations.
        bias: [C] in the dtype of x or in float32; its gradient comes in its own dtype.

    Returns:
        [B, C, H, W] in the dtype and layout of x. NaN stays NaN, and lets its gradient through, as in `torch.relu`.
    """
    # What is being compiled is better fused by the compiler.
    if x.device.type == "cuda" and _in_reach_of_kernel(x) and not torch.compiler.is_compiling():
        kernel = _kernel_of(x.device)
        if kernel is not None:
            with torch.cuda.device(x.device):
                return kernel(x, bias)
    return torch.relu(x + bias.to(x.dtype).view(-1, 1, 1))


def _in_reach_of_kernel(x: Tensor) -> bool:
    return (
        x.dim() == 4
        and x.dtype in _DTYPES
        and x.numel() > 0
        and x.shape[1] <= _MOST_CHANNELS
        and x.is_contiguous(memory_format=torch.channels_last)
    )


@functools.cache
def _kernel_of(device: torch.device) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The kernel, or None where Triton is not there or does not work; asked once, before graphs are recorded."""
    if importlib.util.find_spec("triton") is None:
        return None
    try:
        from ngu.bias_relu_kernel import bias_relu_in_place, gradients

        with torch.cuda.device(device), torch.no_grad():
            output = bias_relu_in_place(torch.zeros(1, 8, 1, 1, device=device), torch.zeros(8, device=device))
            gradients(output, output)
    except Exception as error:
        # Triton needs a C compiler, Python's headers and a folder to write to, and fails in as many ways.
        warnings.warn(f"convolutions will be slower, since Triton does not work: {error}", stacklevel=2)
        return None
    return bias_relu_in_place

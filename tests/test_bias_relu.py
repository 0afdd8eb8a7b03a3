"""Bias and ReLU in one pass against torch's own operations, forward and backward.

The kernel's tests run on a GPU, or anywhere that Triton is installed with TRITON_INTERPRET=1 set.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ngu import bias_relu as choice
from ngu.bias_relu import bias_relu
from ngu.graphs import Graphed

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu")
needs_gpu = pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a GPU")
needs_kernel = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or not (INTERPRETED or DEVICE.type == "cuda"),
    reason="needs Triton, and a GPU or TRITON_INTERPRET=1",
)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]

STRANGE = (np.nan, np.inf, -np.inf, -0.0)

BiasReLU = Callable[[Tensor, Tensor], Tensor]


def torchs(x: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(x + bias.to(x.dtype).view(-1, 1, 1))


def kernel(x: Tensor, bias: Tensor) -> Tensor:
    from ngu.bias_relu_kernel import bias_relu_in_place

    return bias_relu_in_place(x, bias)


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def numbers(
    random: np.random.Generator, shape: tuple[int, ...], dtype: torch.dtype, *, strange: tuple[float, ...] = ()
) -> Tensor:
    """Rounded to quarters, so that sums are often 0, and exact: Triton's interpreter cuts off where bfloat16 rounds."""
    values = (random.normal(size=shape) * 4).round() / 4
    for value in strange:
        values[random.random(shape) < 0.05] = value
    return torch.tensor(values).to(DEVICE, dtype)


def check(function: BiasReLU, x: Tensor, bias: Tensor, gradient: Tensor) -> None:
    """Output and gradients are those of torch, the bias's up to the order of addition.

    NaN has a gradient and may be in one, so all is compared as it is. What the bias should get is added up in float64.
    """
    x_leaf, expected_x_leaf = x.clone().requires_grad_(), x.clone().requires_grad_()
    bias_leaf = bias.clone().requires_grad_()
    output = function(channels_last(x_leaf * 1), bias_leaf)
    expected = torchs(expected_x_leaf, bias)
    assert output.dtype == x.dtype
    assert output.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(output, expected, rtol=0, atol=0, equal_nan=True, check_stride=False)

    output.backward(gradient)
    expected.backward(gradient)
    assert x_leaf.grad is not None
    assert expected_x_leaf.grad is not None
    assert bias_leaf.grad is not None
    torch.testing.assert_close(x_leaf.grad, expected_x_leaf.grad, rtol=0, atol=0, equal_nan=True, check_stride=False)
    expected_bias = expected_x_leaf.grad.double().sum((0, 2, 3))
    scale = float(expected_x_leaf.grad.double().abs().sum((0, 2, 3)).nan_to_num(0, 0, 0).max())
    relative = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[bias.dtype]
    assert bias_leaf.grad.dtype == bias.dtype
    torch.testing.assert_close(bias_leaf.grad.double(), expected_bias, rtol=relative, atol=1e-6 * scale, equal_nan=True)


# ------------------------------------------------------------------------------------------- torch's operations


@pytest.mark.parametrize(("images", "channels", "size", "filters"), [(3, 4, 20, 8), (1, 3, 7, 5), (9, 2, 9, 16)])
def test_a_convolution_without_its_bias_and_then_this_is_one_with_its_bias_and_relu(
    images: int, channels: int, size: int, filters: int
) -> None:
    torch.manual_seed(0)
    convolution = nn.Conv2d(channels, filters, 3, 2).to(memory_format=torch.channels_last)
    assert convolution.bias is not None
    x = channels_last(torch.rand(images, channels, size, size))
    gradient = channels_last(torch.randn_like(convolution(x)))
    parameters = [convolution.weight, convolution.bias]

    expected = torch.relu(convolution(x))
    expected_gradients = torch.autograd.grad(expected, parameters, gradient)
    output = bias_relu(nn.functional.conv2d(x, convolution.weight, None, 2), convolution.bias)
    torch.testing.assert_close(output, expected)
    assert (output == 0).any()
    for mine, theirs in zip(torch.autograd.grad(output, parameters, gradient), expected_gradients, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias_dtype", [torch.float32, None])
def test_layouts_and_shapes_that_the_kernel_does_not_take_are_computed_too(
    dtype: torch.dtype, bias_dtype: torch.dtype | None
) -> None:
    random = np.random.default_rng(0)
    bias = numbers(random, (6,), bias_dtype or dtype)
    for shape in ((2, 6, 4, 3), (6, 4, 3), (0, 6, 4, 3)):
        x = numbers(random, shape, dtype, strange=STRANGE)
        output = bias_relu(x, bias)
        assert output.dtype == dtype
        assert output.is_contiguous()
        torch.testing.assert_close(output, torchs(x, bias), rtol=0, atol=0, equal_nan=True)


def test_without_a_gpu_the_convolutions_result_is_left_alone() -> None:
    x = channels_last(torch.randn(2, 3, 4, 5))
    before = x.clone()
    bias_relu(x, torch.ones(3))
    torch.testing.assert_close(x, before, rtol=0, atol=0)


# ------------------------------------------------------------------------------------------- the kernel


@needs_kernel
@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
@given(
    seed=st.integers(0, 2**31),
    images=st.integers(1, 4),
    channels=st.sampled_from([1, 3, 7, 8, 24, 32, 64]),
    size=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    dtype=st.sampled_from(DTYPES),
    bias_in_float32=st.booleans(),
    strange=st.booleans(),
    gradient_in_layout=st.booleans(),
)
@settings(max_examples=80)
def test_the_kernel_equals_torch(
    seed: int,
    images: int,
    channels: int,
    size: tuple[int, int],
    dtype: torch.dtype,
    bias_in_float32: bool,
    strange: bool,
    gradient_in_layout: bool,
) -> None:
    """The interpreter computes with NumPy, which warns of what is not finite."""
    random = np.random.default_rng(seed)
    shape = (images, channels, *size)
    # With the largest number, a sum may become infinite.
    x = numbers(random, shape, dtype, strange=(*STRANGE, torch.finfo(dtype).max) if strange else ())
    bias = numbers(random, (channels,), torch.float32 if bias_in_float32 else dtype)
    gradient = numbers(random, shape, dtype, strange=STRANGE if strange else ())
    check(kernel, x, bias, channels_last(gradient) if gradient_in_layout else gradient)


@needs_kernel
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("images", "channels"), [(12, 32), (5, 64), (7, 33), (1, 4096)])
def test_the_kernel_goes_over_many_tiles(images: int, channels: int, dtype: torch.dtype) -> None:
    """More of them than programs, and the last one not full; one pixel's channels may fill a tile."""
    random = np.random.default_rng(0)
    shape = (images, channels, 19, 21)
    x, bias = numbers(random, shape, dtype), numbers(random, (channels,), torch.float32)
    check(kernel, x, bias, numbers(random, shape, dtype))


@needs_kernel
@pytest.mark.parametrize("dtype", DTYPES[: 2 if INTERPRETED else 3])
def test_the_kernel_rounds_like_torch(dtype: torch.dtype) -> None:
    """The bias first, then the sum. The interpreter rounds bfloat16 in a way of its own."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    x = torch.randn(4, 16, 19, 21, device=DEVICE, generator=generator).to(dtype)
    bias = torch.randn(16, device=DEVICE, generator=generator)
    check(kernel, x, bias, torch.randn(x.shape, device=DEVICE, generator=generator).to(dtype))


@needs_kernel
def test_nan_stays_and_lets_its_gradient_through() -> None:
    x = channels_last(torch.tensor([torch.nan, -1.0, 1.0, 2.0], device=DEVICE).view(1, 4, 1, 1))
    bias = torch.tensor([0.0, 0.0, torch.nan, 0.0], device=DEVICE, requires_grad=True)
    output = kernel(x, bias)
    assert output.flatten().isnan().tolist() == [True, False, True, False]
    output.backward(torch.tensor([1.0, 2.0, 3.0, torch.nan], device=DEVICE).view(1, 4, 1, 1))
    assert bias.grad is not None
    torch.testing.assert_close(
        bias.grad, torch.tensor([1.0, 0.0, 3.0, torch.nan], device=DEVICE), rtol=0, atol=0, equal_nan=True
    )


@needs_kernel
@pytest.mark.parametrize("recorded", [False, True])
def test_the_kernel_overwrites_and_autograd_knows(recorded: bool) -> None:
    x = channels_last(torch.randn(2, 3, 4, 5, device=DEVICE))
    with torch.no_grad():
        assert kernel(x, torch.ones(3, device=DEVICE)).data_ptr() == x.data_ptr()
    # Whose gradient needs what was overwritten gets an error, and no wrong gradient.
    exponential = x.clone().requires_grad_().exp()
    with torch.set_grad_enabled(recorded):
        kernel(exponential, torch.ones(3, device=DEVICE))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        exponential.sum().backward()


@needs_kernel
def test_only_the_gradients_that_are_needed_are_returned() -> None:
    def x() -> Tensor:
        return channels_last(torch.randn(2, 3, 4, 5, device=DEVICE))

    bias = torch.ones(3, device=DEVICE, requires_grad=True)
    kernel(x(), bias).sum().backward()
    assert bias.grad is not None
    leaf = x().requires_grad_()
    kernel(leaf * 1, bias.detach()).sum().backward()
    assert leaf.grad is not None


@needs_kernel
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_kernel_works_without_gradients(mode: Callable[[], torch.no_grad]) -> None:
    with mode():
        x, bias = torch.randn(2, 8, 3, 3, device=DEVICE), torch.randn(8, device=DEVICE)
        expected = torchs(x, bias)
        output = kernel(channels_last(x), bias)
        torch.testing.assert_close(output, expected, rtol=0, atol=0)
        assert not output.requires_grad


# ------------------------------------------------------------------------------------------- on a GPU


@needs_gpu
@needs_kernel
def test_the_kernel_is_chosen_on_a_gpu() -> None:
    x = channels_last(torch.randn(2, 8, 4, 5, device=DEVICE))
    assert choice._kernel_of(x.device) is not None
    assert bias_relu(x, torch.ones(8, device=DEVICE)).data_ptr() == x.data_ptr()


@needs_gpu
@needs_kernel
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_recorded_step_computes_what_torch_does(dtype: torch.dtype) -> None:
    """Convolution, bias and ReLU twice, under autocast, with gradients, at sizes that occupy the whole GPU.

    The tolerance is for the convolutions: recorded ones need not be computed by the same algorithm.
    """
    close = 1e-3 if dtype == torch.float32 else 2e-2
    torch.manual_seed(0)
    layers = [nn.Conv2d(4, 32, 8, 4, device=DEVICE), nn.Conv2d(32, 64, 4, 2, device=DEVICE)]
    parameters = [value for layer in layers for value in (layer.weight, layer.bias) if value is not None]
    images = channels_last(torch.empty(500, 4, 84, 84, device=DEVICE))

    def step(function: BiasReLU) -> tuple[Tensor, ...]:
        with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
            out = images
            for layer in layers:
                assert layer.bias is not None
                out = function(nn.functional.conv2d(out, layer.weight, None, layer.stride), layer.bias)
        return out.detach(), *torch.autograd.grad(out.float().square().mean(), parameters)

    recorded = Graphed(lambda: step(bias_relu), DEVICE)
    for _ in range(7):
        images.uniform_()
        for mine, theirs in zip(recorded(), step(torchs), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=close, atol=close * float(theirs.abs().max()))
    assert recorded._graph is not None


@needs_gpu
@needs_kernel
def test_the_same_numbers_come_out_every_time() -> None:
    from ngu.bias_relu_kernel import gradients

    torch.manual_seed(0)
    output, gradient = (channels_last(torch.randn(700, 32, 20, 20, device=DEVICE)) for _ in range(2))
    first = gradients(gradient, output)
    for _ in range(10):
        for mine, theirs in zip(gradients(gradient, output), first, strict=True):
            assert torch.equal(mine, theirs)


@needs_gpu
@needs_kernel
def test_images_beyond_what_32_bits_can_count() -> None:
    """2^31 elements and some more, of which the last few are looked at."""
    from ngu.bias_relu_kernel import gradients

    images = 2**31 // (64 * 32 * 32) + 3
    if torch.cuda.mem_get_info()[0] < 20 * 2**30:
        pytest.skip("needs 20 GiB of the GPU's memory")
    x = torch.empty(images, 64, 32, 32, dtype=torch.float16, device=DEVICE, memory_format=torch.channels_last).zero_()
    bias = torch.arange(64, device=DEVICE) - 31.0
    output = bias_relu(x, bias)
    assert torch.equal(output[-1, :, -1, -1].float(), bias.clamp_min(0))
    x_gradient, bias_gradient = gradients(output, output)
    assert torch.equal(x_gradient[-1], output[-1])
    torch.testing.assert_close(bias_gradient.double(), bias.double().clamp_min(0) * images * 32 * 32, rtol=1e-5, atol=0)

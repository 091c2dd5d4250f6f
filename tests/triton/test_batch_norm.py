"""Statistics of channels and the sums of their gradient, and what they make of a tensor."""

import pytest
import torch
from triton_harness import assert_matches_reference

from onefold.kernels import batch_norm_ref as ref
from onefold.kernels.gpu.pointwise import channels_last as memory
from onefold.kernels.gpu.reduce import batch_norm_kernels

SHAPES = [(5, 3), (4, 7, 9), (3, 5, 4, 7), (2, 70, 3, 5), (2, 3, 2, 5, 3), (2, 2, 40, 31)]
MEMORY = {4: torch.channels_last, 5: torch.channels_last_3d}


def layouts(x):
    """The tensor in row-major order, channels-last, and as neither."""
    yield x
    if x.ndim in MEMORY:
        yield x.contiguous(memory_format=MEMORY[x.ndim])
        yield x.transpose(-1, -2).contiguous().transpose(-1, -2)


def check(x):
    channels = x.shape[1]
    wide = torch.promote_types(x.dtype, torch.float32)
    running = torch.randn(channels, dtype=wide), torch.rand(channels, dtype=wide) + 0.5
    mean, rstd, *_ = assert_matches_reference(
        ref.channel_statistics, x, *running, 0.3, 1e-5, slack=8
    )
    assert_matches_reference(ref.channel_statistics, x, None, None, 1.0, 1e-3, slack=8)
    shape = mean.shape
    weight, bias = torch.randn(shape, dtype=wide), torch.randn(shape, dtype=wide)
    y = assert_matches_reference(ref.batch_normalized, x, mean, rstd, weight, bias, 1e-5, slack=4)
    dy = torch.randn_like(y)
    sums = assert_matches_reference(ref.channel_sums, dy, x, mean, rstd, slack=64)
    args = (dy, x, mean, rstd, weight, *sums, channels / x.numel())
    assert_matches_reference(ref.batch_norm_slope, *args, slack=4)
    if not x.is_contiguous():
        dy = dy.contiguous()
        assert_matches_reference(ref.channel_sums, dy, x, mean, rstd, slack=64)
    return y


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layouts(shape):
    for x in layouts(torch.randn(shape)):
        y = check(x)
        assert y.stride() == x.stride()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_dtypes(dtype):
    for x in layouts(torch.randn(2, 5, 4, 3).to(dtype)):
        check(x)


@pytest.mark.parametrize("last", [False, True])
def test_several_programs_of_each_channel(last):
    x = torch.randn(9, 3, 31, 33)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    assert batch_norm_kernels.as_channels(x, last)[1].splits > 1
    check(x)


@pytest.mark.parametrize("last", [False, True])
def test_a_large_mean_costs_no_accuracy(last):
    x = torch.randn(8, 4, 17, 5) + 3000
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    exact = x.double().var((0, 2, 3), correction=0)
    _, rstd, _, _ = batch_norm_kernels.channel_statistics(x, None, None, 1.0, 0.0)
    # Means at 3000 are off by up to 2**-13 each, half a unit in the last place, and deviations from
    # them, which are of the size of 1, by as much. The error of the mean of 680 squares has then a
    # deviation of 2 * 2**-13 / 680**0.5; a difference of two sums would be off by more than 0.1.
    rtol = 4 * 2 * 2**-13 / 680**0.5
    torch.testing.assert_close(rstd.flatten().double() ** -2, exact, rtol=rtol, atol=0)


def test_channels_last_is_read_as_it_lies(monkeypatch):
    def copied(x):
        raise AssertionError("a copy of what is dense already")

    monkeypatch.setattr(memory, "contiguous", copied)
    for wanted in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 6, 5, 4).contiguous(memory_format=wanted)
        mean, rstd, *_ = batch_norm_kernels.channel_statistics(x, None, None, 1.0, 1e-5)
        torch.testing.assert_close(mean.flatten(), x.mean((0, 2, 3)))
        _, level = batch_norm_kernels.channel_sums(x, x, mean, rstd)
        torch.testing.assert_close(level.flatten(), x.sum((0, 2, 3)))


def test_no_elements_and_no_channels():
    for shape in ((3, 0, 4), (0, 3, 4)):
        x = torch.zeros(shape)
        mean, rstd, *_ = assert_matches_reference(ref.channel_statistics, x, None, None, 1.0, 0.1)
        assert_matches_reference(ref.channel_sums, x, x, mean, rstd)

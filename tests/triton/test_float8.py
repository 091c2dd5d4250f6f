"""float8 by blocks: quantizing bit by bit, and products against dequantized ones in float64."""

from unittest import mock

import pytest
import torch
from device_checks import DEVICE
from hypothesis import given, settings, strategies as st
from triton_harness import poisoned_memory

from onefold.kernels import float8_ref, select
from onefold.kernels.gpu.matmul import float8_kernels as gpu

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
# How far a product may be off, beside the sum of the sizes of its terms. Tensor cores before
# Blackwell add the terms of a block with 13 bits behind the first of the largest term.
SUMMED = 1e-6
COARSE = DEVICE == "cuda" and torch.cuda.get_device_capability() < (10, 0)
ON_TENSOR_CORES = 2.0**-11 if COARSE else SUMMED


def quantize(x, block, dtype=E4M3, triton_kernel=None):
    """By the Triton kernel, which must give the reference's bits."""
    triton_kernel = triton_kernel or select.triton_kernel(float8_ref.quantize_fp8)
    with poisoned_memory():
        values, scales = triton_kernel(x, block, dtype)
    wanted, wanted_scales = float8_ref.quantize_fp8(x, block, dtype)
    assert values.dtype is dtype and values.shape == wanted.shape
    assert torch.equal(values.view(torch.uint8), wanted.view(torch.uint8))
    assert torch.equal(scales, wanted_scales)
    return values, scales


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [E4M3, E5M2], ids=str)
def test_quantize(dtype, kind):
    for shape, block in (
        ((5, 70), (1, 32)),
        ((70, 40), (32, 32)),
        ((2, 33, 128), (1, 128)),
        ((3, 2, 33, 65), (32, 32)),
        ((0, 64), (1, 32)),
        ((5, 7), (2, 3)),
        ((7, 50), (1, 20)),
        ((150, 130), (130, 120)),
        ((2, 20000), (1, 20000)),
    ):
        quantize((torch.randn(shape) * 10).to(dtype), block, kind)
    quantize(torch.randn(64, 33).to(dtype).T, (1, 32), kind)


def off_by_a_bit(values, scales):
    bits = values.view(torch.uint8).clone()
    bits[-1, -1] ^= 1
    return bits.view(values.dtype), scales


@pytest.mark.parametrize(
    "change",
    [
        off_by_a_bit,
        lambda values, scales: (values, scales.nextafter(torch.tensor(9.0))),
        lambda values, scales: (values.view(E5M2), scales),
        lambda values, scales: (values[:-1], scales),
        lambda values, scales: (values, scales.fill_(float("nan"))),
    ],
)
def test_what_is_quantized_wrongly_is_seen(change):
    x = torch.randn(5, 70)
    quantize(x, (1, 32), triton_kernel=float8_ref.quantize_fp8)
    with pytest.raises(AssertionError):
        quantize(x, (1, 32), triton_kernel=lambda *args: change(*float8_ref.quantize_fp8(*args)))


def rolled(x):
    """The rows, each in place of the next; torch has no roll for these dtypes on cuda."""
    return x.view(torch.uint8).roll(1, 0).view(x.dtype)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a, s, b, t, *rest: float8_ref.scaled_matmul(a, s, b, t * (1 + 1e-4), *rest),
        lambda a, s, b, t, *rest: float8_ref.scaled_matmul(a, s.roll(1, 1), b, t, *rest),
        lambda a, s, b, t, *rest: float8_ref.scaled_matmul(a, s, rolled(b), t, *rest),
        lambda *args: float8_ref.scaled_matmul(*args).double(),
        lambda *args: float8_ref.scaled_matmul(*args).fill_(float("nan")),
    ],
)
def test_a_wrong_product_is_seen(wrong):
    a, b = torch.randn(5, 70), torch.randn(70, 33)
    check_product(a, b, 32, triton_kernel=float8_ref.scaled_matmul)
    with pytest.raises(AssertionError):
        check_product(a, b, 32, triton_kernel=wrong)


def test_more_blocks_than_a_grid_has_programs_are_left_to_torch(monkeypatch):
    launch = mock.Mock()
    monkeypatch.setattr(gpu._quantize, "launch", launch)
    x = torch.randn(1, 65536)
    for mine, true in zip(
        gpu.quantize_fp8(x, (1, 1), E4M3), float8_ref.quantize_fp8(x, (1, 1), E4M3), strict=True
    ):
        assert torch.equal(mine.float(), true.float())
    gpu.quantize_fp8(x[:, 1:], (1, 1), E4M3)
    launch.assert_called_once()


def test_quantize_extremes():
    x = torch.randn(4, 64)
    x[0, :32] = 0.0
    x[1] *= 1e-40
    x[2] *= 1e30
    x[3, 3] = 3e38
    values, _ = quantize(x, (1, 32))
    assert values.float().abs().amax(1).tolist() == [448.0, *values.float().abs().amax(1)[1:]]
    x[3, 3] = float("nan")
    with poisoned_memory():
        values, scales = select.triton_kernel(float8_ref.quantize_fp8)(x, (1, 32), E4M3)
    assert values[3, :32].float().isnan().all() and scales[3, 0].isnan()
    assert scales[3, 1].isfinite() and scales[:3].isfinite().all()
    wanted = float8_ref.quantize_fp8(x, (1, 32), E4M3)
    assert torch.equal(values.float().isnan(), wanted[0].float().isnan())


def check_product(a, b, block, rows=1, columns=None, dtype=torch.float32, triton_kernel=None):
    """By the Triton kernel; against the float64 product of the dequantized, beside that of
    their sizes.
    """
    part = SUMMED if triton_kernel else ON_TENSOR_CORES
    triton_kernel = triton_kernel or select.triton_kernel(float8_ref.scaled_matmul)
    columns = block if columns is None else columns
    left, right = (
        quantize(a, (rows, block)),
        quantize(b, (block, columns) if columns > 1 else (1, 1)),
    )
    if columns == 1:
        turned = quantize(b.T.contiguous(), (1, block))
        right = turned[0].T, turned[1].T
    with poisoned_memory():
        y = triton_kernel(*left, *right, block, rows, columns, dtype)
    wide = float8_ref.dequantize(*left, (rows, block), torch.float64)
    other = float8_ref.dequantize(*right, (block, columns), torch.float64)
    exact, size = wide @ other, wide.abs() @ other.abs()
    assert y.dtype is dtype
    off = (y.double() - exact).abs()
    assert (off <= size * part + exact.abs() * torch.finfo(dtype).eps).all()
    return y


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_scaled_matmul(dtype):
    for m, k, n in ((5, 70, 33), (70, 64, 130)):
        a, b = torch.randn(m, k), torch.randn(k, n)
        check_product(a, b, 32, dtype=dtype)
        check_product(a, b, 32, rows=32, columns=1, dtype=dtype)
    check_product(torch.randn(3, 300), torch.randn(300, 5), 128, dtype=dtype)


@pytest.mark.parametrize("block", [4, 72, 160, 256])
def test_any_block(block):
    check_product(torch.randn(3, 2 * block), torch.randn(2 * block, 5), block)
    check_product(
        torch.randn(9, block + 7), torch.randn(block + 7, 70), block, rows=block, columns=1
    )


def test_no_elements():
    check_product(torch.randn(0, 64), torch.randn(64, 5), 32)
    check_product(torch.randn(2, 0), torch.randn(0, 5), 32)


def test_blocks_of_very_different_sizes():
    """Each block's sum is scaled before it is added, so small blocks are not lost in large ones."""
    a = torch.randn(4, 96)
    a[:, 32:64] *= 1e6
    b = torch.randn(96, 4)
    b[32:64] *= 1e-6
    check_product(a, b, 32)


@settings(max_examples=8)
@given(st.integers(1, 40), st.integers(1, 100), st.integers(1, 40), st.booleans())
def test_any_shape(m, k, n, square):
    check_product(torch.randn(m, k), torch.randn(k, n), 32, rows=32 if square else 1)

"""Samples of float8 by blocks: the oracle dequantizes and multiplies in float64."""

from typing import Any

import torch

from onefold.engine.names import names
from onefold.testing import Sample, T

E5M2 = torch.float8_e5m2
# Tensor cores before Blackwell add the products of a block with 14 bits: of sums of about 10 they
# are off by up to 2.5e-3.
TOL = 2.5e-3 if torch.cuda.is_available() else 1e-5


def spread(scales: torch.Tensor, block: tuple[int, int], shape: torch.Size) -> torch.Tensor:
    """The scale of each element."""
    rows, columns = (torch.arange(size) // side for size, side in zip(shape[-2:], block))  # noqa: B905
    return scales[..., rows, :][..., columns]


def quantized(
    x: torch.Tensor, block: Any = 128, dtype: torch.dtype = torch.float8_e4m3fn
) -> tuple[torch.Tensor, torch.Tensor]:
    """Block by block, in loops."""
    high, wide = (1, block) if isinstance(block, int) else block
    x = x.float()
    top = torch.finfo(dtype).max
    rows = [
        [part.abs().amax((-2, -1)) / top for part in strip.split(wide, -1)]
        for strip in x.split(high, -2)
    ]
    scales = torch.stack([torch.stack(row, -1) for row in rows], -2)
    scales = scales.clamp(min=torch.finfo(torch.float32).tiny)
    values = (x / spread(scales, (high, wide), x.shape)).clamp(-top, top).to(dtype)
    return values.double(), scales


def quantize(x: Any, *args: Any, **kw: Any) -> Any:
    """float8 has no comparison: the values as float64."""
    values, scales = names.quantize_fp8(x, *args, **kw)
    return names.cast(values, torch.float64), scales


def product(a: torch.Tensor, b: torch.Tensor, block: int, rows: int, columns: int) -> torch.Tensor:
    """In float64, of what is quantized."""
    left, right = quantized(a, (rows, block)), quantized(b, (block, columns))
    wide = left[0] * spread(left[1], (rows, block), a.shape).double()
    other = right[0] * spread(right[1], (block, columns), b.shape).double()
    return (wide @ other).float()


def multiply(a: Any, b: Any, block: int, rows: int, columns: int) -> Any:
    left = names.quantize_fp8(a, (rows, block))
    right = names.quantize_fp8(b, (block, columns))
    return names.scaled_matmul(*left, *right, block=block, out_dtype=torch.float32)


def quantizing(*shape: int, **kw: Any) -> Sample:
    return Sample("quantize_fp8", (T(*shape),), kw, torch=quantized, call=quantize, grad=False)


def of(m: int, k: int, n: int, block: int, rows: int, columns: int) -> Sample:
    return Sample(
        "scaled_matmul",
        (T(m, k), T(k, n), block, rows, columns),
        torch=product,
        call=multiply,
        grad=False,
        tol=TOL,
    )


SAMPLES = [
    quantizing(6, 12, block=2),
    quantizing(5, 7, block=3),
    quantizing(12, 8, block=(2, 4)),
    quantizing(5, 7, block=(3, 2), dtype=E5M2),
    quantizing(3, 4, 12, block=(1, 2)),
    quantizing(5, 70, block=32),
    quantizing(40, 70, block=(32, 32)),
    quantizing(4, 5),
    of(6, 12, 8, 2, 1, 2),
    of(6, 12, 5, 2, 2, 1),
    of(5, 7, 3, 3, 1, 3),
    of(6, 128, 70, 32, 1, 32),
    of(40, 70, 64, 32, 32, 1),
]

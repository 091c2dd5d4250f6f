"""What the kernels of convolutions share: sizes, which place a tap reads, and tiles."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .tape import watched
from .tiles import power_of_2

Ints = tuple[int, ...]
Pair = tuple[int, int]

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
LEAST = 16  # channels of a group from which the matrix units are used


class Sizes(NamedTuple):
    """stride, padding and dilation of the two dims."""

    stride: Pair
    padding: Pair
    dilation: Pair

    @classmethod
    def of(cls, stride: Ints, padding: Ints, dilation: Ints) -> Sizes:
        """Sizes of one dim are those of the last of two."""
        return cls(two(stride, 1), two(padding, 0), two(dilation, 1))


def two(sizes: Ints, fill: int) -> Pair:
    """Sizes of one or two dims as two; the missing one is in front."""
    found: Pair = (*(fill,) * (2 - len(sizes)), *sizes)  # type: ignore[assignment]
    return found


def works(x: Tensor) -> bool:
    """Whether the kernels here take it."""
    return x.ndim in (3, 4) and x.dtype in DTYPES


def as_planes(x: Tensor) -> Tensor:
    """[N, C, L] as [N, C, 1, L]."""
    return x if x.ndim == 4 else x.unsqueeze(2)


def channels_last(x: Tensor) -> Tensor:
    """Dense as [N, H, W, C]."""
    return x.permute(0, 2, 3, 1).contiguous()


def precision_of(dtype: torch.dtype) -> str:
    """How float32 is multiplied: as torch's flag for convolutions says."""
    return "tf32" if dtype is torch.float32 and watched(_allows_tf32) else "ieee"


def _allows_tf32() -> bool:
    return torch.backends.cudnn.allow_tf32


@triton.jit
def source_of(
    o, tap, size, STRIDE: tl.constexpr, PAD: tl.constexpr, DILATION: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """(the place of the input that a tap reads for a place of the result, whether there is one)"""
    if TRANSPOSED:
        reached = o + PAD - tap * DILATION
        i = reached // STRIDE
        return i, (reached >= 0) & (reached % STRIDE == 0) & (i < size)
    else:
        i = o * STRIDE - PAD + tap * DILATION
        return i, (i >= 0) & (i < size)


def tiles(
    places: int, outs: int, depth: int, dtype: torch.dtype, flat: bool
) -> tuple[int, int, int, int]:
    """(rows, columns, depth, warps) of a program's tile; a flat one has an address per element."""
    half = dtype.itemsize == 2
    bm = 128 if places >= 4096 else 64 if places >= 64 else 16
    bn = min(max(power_of_2(outs), 16), 128 if half else 64)
    bk = min(max(power_of_2(depth), 16), 64 if half else 32)
    if flat:
        bm, bn, bk = min(bm, 64), min(bn, 64), min(bk, 32)
    if dtype is torch.float64:
        bm, bn, bk = min(bm, 32), min(bn, 32), 16
    return bm, bn, bk, 8 if bm * bn >= 128 * 128 else 4

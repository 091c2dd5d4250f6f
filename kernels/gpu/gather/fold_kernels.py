"""Sliding windows added where they overlap: each element gathers what the windows have of it.

So nothing is written twice, and sums have a fixed order.
"""

from __future__ import annotations

from math import prod

import torch
import triton.language as tl
from torch import Tensor

from ... import fold_ref as reference
from ...fold_ref import Pair
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..pointwise.copy_kernels import contiguous
from ..reduce.reduction_tiles import NUMBERS, TRITON, cdiv, wide_of

# Left to torch: complex numbers and booleans, and planes of 2^31 elements or more, which are
# counted in int32.

_LARGEST = 2**31 - 2**16
_BLOCK = 512


@Kernel
def _fold(
    x, y, height, width, down, across, kh, kw, dilation_h, dilation_w, top, left,
    stride_h, stride_w, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x is (planes, kh, kw, down, across), y (planes, height, width)."""
    blocks = tl.cdiv(height * width, BLOCK)
    plane = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = at < height * width
    row, column = at // width + top, at % width + left
    first = x + plane * (kh * kw) * (down * across)
    # Windows that one element may be in.
    over_h = tl.cdiv((kh - 1) * dilation_h + 1, stride_h)
    over_w = tl.cdiv((kw - 1) * dilation_w + 1, stride_w)
    v = tl.zeros((BLOCK,), WIDE)
    for a in range(over_h):
        r = row // stride_h - (over_h - 1 - a)
        i = row - r * stride_h
        there = inside & (r >= 0) & (r < down) & (i % dilation_h == 0) & (i // dilation_h < kh)
        for b in range(over_w):
            c = column // stride_w - (over_w - 1 - b)
            j = column - c * stride_w
            mask = there & (c >= 0) & (c < across) & (j % dilation_w == 0) & (j // dilation_w < kw)
            place = (i // dilation_h * kw + j // dilation_w).to(tl.int64) * (down * across)
            v += tl.load(first + place + (r * across + c), mask=mask, other=0).to(WIDE)
    tl.store(y + plane * (height * width) + at, v.to(y.dtype.element_ty), mask=inside)


def fold(
    x: Tensor, size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair
) -> Tensor:
    ordinary = x.dtype.is_floating_point and x.dtype in NUMBERS
    if not ordinary or max(prod(size), x.shape[-1]) > _LARGEST:
        return reference.fold(x, size, kernel, dilation, padding, stride)
    channels = x.shape[-2] // prod(kernel)
    y = torch.empty((*x.shape[:-2], channels, *size), dtype=x.dtype, device=x.device)
    if not y.numel():
        return y
    down, across = windows(size, kernel, dilation, padding, stride)
    numbers = (*size, down, across, *kernel, *dilation, *padding, *stride)
    planes = prod(y.shape[:-2])
    _fold.launch(
        (planes * cdiv(prod(size), _BLOCK),),
        (x if x.is_contiguous() else contiguous(x), y, *numbers),
        (TRITON[wide_of(x.dtype)], _BLOCK),
    )
    return y


def windows(size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Pair:
    """How many windows there are in each column and in each row of windows."""
    both = zip(size, kernel, dilation, padding, stride, strict=True)
    down, across = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in both]
    return down, across


CASES = [Case(_fold, (x, x), (tl.float32, _BLOCK)) for x in ("*bf16", "*fp32")]

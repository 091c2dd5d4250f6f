"""Binary searches in rows that are in order, with one thread for each number."""

from __future__ import annotations

from functools import partial
from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import search_ref as reference
from ..conv.conv_geometry import blank
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..reduce.reduction_tiles import NUMBERS, cdiv, widened

# Left to torch: a Python number that is looked for, and dtypes that Triton lacks.

_BLOCK = 256


@triton.jit
def _comparable(v):
    """In the dtype of comparisons: integers are compared as they are."""
    return widened(v) if v.dtype.is_floating() else v


@Kernel
def _search(
    rows, numbers, sorter, y, count: tl.int64, across: tl.int64, n: tl.int64, step: tl.int64, turns,
    RIGHT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`across` numbers are looked for in each row of n; `step` is 0 where there is one row."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    wanted = _comparable(tl.load(numbers + at, mask=inside, other=0))
    row = at // across * step
    low = tl.zeros((BLOCK,), tl.int64)
    high = low + n
    for _ in range(turns):
        open_ = inside & (low < high)
        middle = (low + high) // 2
        place = row + middle
        if sorter is not None:
            place = row + tl.load(sorter + place, mask=open_, other=0)
        found = _comparable(tl.load(rows + place, mask=open_, other=0))
        # A number that is NaN is behind all others, as in torch.
        ahead = ~(found > wanted) if RIGHT else ~(found >= wanted)
        low = tl.where(open_ & ahead, middle + 1, low)
        high = tl.where(open_ & ~ahead, middle, high)
    tl.store(y + at, low.to(y.dtype.element_ty), mask=inside)


def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    find = partial(reference.searchsorted, out_int32=out_int32, right=right, side=side)
    if not isinstance(input, Tensor) or sorted_sequence.dtype not in NUMBERS:
        return find(sorted_sequence, input, sorter=sorter)
    # On tensors without data torch raises the errors that it has.
    order = None if sorter is None else blank(sorter)
    dtype = find(blank(sorted_sequence), blank(input), sorter=order).dtype
    y = torch.empty(input.shape, dtype=dtype, device=input.device)
    n = sorted_sequence.shape[-1] if sorted_sequence.ndim else 1
    across = input.shape[-1] if sorted_sequence.ndim > 1 else max(prod(input.shape), 1)
    order = None if sorter is None else sorter.contiguous()
    _search.launch(
        (cdiv(y.numel(), _BLOCK),),
        (
            sorted_sequence.contiguous(), input.contiguous(), order, y, y.numel(), across, n,
            n if sorted_sequence.ndim > 1 else 0, n.bit_length(),
        ),
        (right or side == "right", _BLOCK),
    )  # fmt: skip
    return y


def bucketize(
    input: Tensor | float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    if boundaries.ndim != 1:
        return reference.bucketize(input, boundaries, out_int32=out_int32, right=right)
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


CASES = [
    Case(_search, (f"*{dtype}", f"*{dtype}", None, "*i64"), (True, _BLOCK))
    for dtype in ("fp64", "fp32", "i64")
]

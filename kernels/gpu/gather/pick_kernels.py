"""One element along a dim, selected by an index per kept element, and its gradient."""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..reduce.reduction_tiles import first_of, one_group, tiles


@Kernel
def _pick(
    x, index, y, kept, n, inner, begin,
    ROWS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    at, first, inside = first_of(kept, n, inner, ROWS, BK)
    step = 1 if ROWS else inner
    r = tl.load(index + at, mask=inside, other=0) - begin
    here = inside & (r >= 0) & (r < n)
    v = tl.load(x + first + tl.where(here, r, 0) * step, mask=here, other=0)
    tl.store(y + at, v, mask=inside)


@Kernel
def _place(
    values, index, y, kept, n, inner, begin, chunk,
    ROWS: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    at, first, inside = first_of(kept, n, inner, ROWS, BK)
    step = 1 if ROWS else inner
    start_of = tl.program_id(1).to(tl.int64) * chunk
    wanted = tl.load(index + at, mask=inside, other=-1) - begin
    v = tl.load(values + at, mask=inside, other=0)[:, None]
    for start in range(0, chunk, BR):
        r = (start_of + start + tl.arange(0, BR))[None, :]
        found = tl.where(r == wanted[:, None], v, tl.zeros_like(v))
        tl.store(y + first[:, None] + r * step, found, mask=inside[:, None] & (r < n))


def picked(x: Tensor, index: Tensor, dim: int, begin: int) -> Tensor:
    """x at each index minus `begin` along `dim`; 0 for an index outside."""
    dense, outer, n, inner = one_group(x, (dim % x.ndim,))
    t = tiles(outer, n, inner, False)
    y = torch.empty(index.shape, dtype=x.dtype, device=x.device)
    block = 256 if t.rows else min(t.kept_block, 256)
    programs = -(-outer // block) if t.rows else t.programs
    _pick.launch(
        (programs,),
        (dense, index.contiguous(), y, t.kept, n, inner, begin),
        (t.rows, block),
    )
    return y


def placed(values: Tensor, index: Tensor, shape: tuple[int, ...], dim: int, begin: int) -> Tensor:
    """Zeros of `shape` with the values at each index minus `begin` along `dim`."""
    y = torch.empty(shape, dtype=values.dtype, device=values.device)
    _, outer, n, inner = one_group(y, (dim % y.ndim,))
    t = tiles(outer, n, inner)
    pointers = (values.contiguous(), index.contiguous(), y)
    t.launch(_place, pointers, (begin, t.chunk), (), t.fitting_warps)
    return y


CASES = [
    Case(_pick, ("*bf16", "*i64", "*bf16"), (True, 256)),
    Case(_place, ("*bf16", "*i64", "*bf16"), (True, 2, 2048)),
]

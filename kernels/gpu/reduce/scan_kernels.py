"""Cumulative sums and products along a dim, forwards or backwards.

Where few elements are kept, chunks whose size depends only on the shape are reduced, their results
are scanned, and each chunk is scanned from the end of the chunks before it. No program waits for
another.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.configs import Config
from ..launch.jit_kernel import Kernel
from .reduction_tiles import TRITON, first_of, one_group, tiles, times, wide_of
from .row_configs import Form, Shared


@Kernel
def _scan(
    x, carries, y, kept, n, inner, chunk,
    PRODUCT: tl.constexpr, BACK: tl.constexpr, ENDS: tl.constexpr, CARRIED: tl.constexpr,
    WIDE: tl.constexpr, ROWS: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    index, first, inside = first_of(kept, n, inner, ROWS, BK)
    split = tl.program_id(1).to(tl.int64)
    begin = split * chunk
    step = 1 if ROWS else inner
    at = tl.arange(0, BR)
    neutral = 1 if PRODUCT else 0
    carry = tl.full((BK,), neutral, WIDE)
    ends = tl.full((BK, BR), neutral, WIDE)
    last = at == (0 if BACK else BR - 1)
    if CARRIED:  # what the chunks before this one come to
        before = split + 1 if BACK else split - 1
        known = inside & (before >= 0) & (before < tl.num_programs(1))
        carry = tl.load(carries + before * kept + index, mask=known, other=neutral)
    for start in range(0, chunk, BR):
        r = (chunk - BR - start if BACK else start) + at
        mask = inside[:, None] & (begin + r < n)[None, :]
        where = first[:, None] + (begin + r[None, :]) * step
        v = tl.load(x + where, mask=mask, other=neutral).to(WIDE)
        if ENDS:
            ends = ends * v if PRODUCT else ends + v
        else:
            if PRODUCT:
                run = tl.associative_scan(v, 1, times, reverse=BACK) * carry[:, None]
            else:
                run = tl.cumsum(v, 1, reverse=BACK) + carry[:, None]
            tl.store(y + where, run.to(y.dtype.element_ty), mask=mask)
            carry = tl.sum(tl.where(last[None, :], run, 0), 1)
    if ENDS:
        end = tl.reduce(ends, 1, times) if PRODUCT else tl.sum(ends, 1)
        tl.store(y + split * kept + index, end, mask=inside)


def scan(x: Tensor, dim: int, product: bool, back: bool, chosen: Config | None = None) -> Tensor:
    """Running sums or products along a dim, in tiles that are `chosen` or the table's."""
    dtype = x.dtype if x.dtype.is_floating_point else torch.int64
    dense, outer, n, inner = one_group(x, (dim % x.ndim,) if x.ndim else ())
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    t = SHARED.of(x.dtype, outer, n, inner, chosen)
    wide = wide_of(dtype)
    how = (product, back)
    carries = torch.empty((t.splits if t.splits > 1 else 0, t.kept), dtype=wide, device=x.device)
    if t.splits > 1:
        t.launch(_scan, (dense, None, carries), (t.chunk,), (*how, True, False, TRITON[wide]))
        u = tiles(1, t.splits, t.kept, split=False)
        u.launch(_scan, (carries, None, carries), (u.chunk,), (*how, False, False, TRITON[wide]))
    t.launch(_scan, (dense, carries, y), (t.chunk,), (*how, False, t.splits > 1, TRITON[wide]))
    return y


@triton.jit
def _after(a, b, c, d):
    """What y -> a * y + b and then y -> c * y + d do, as one such step."""
    return a * c, b * c + d


@Kernel
def _recurrence(
    a, b, y, kept, n, inner,
    BACK: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    _, first, inside = first_of(kept, n, inner, ROWS, BK)
    step = 1 if ROWS else inner
    at = tl.arange(0, BR)
    carry = tl.zeros((BK,), WIDE)
    last = at == (0 if BACK else BR - 1)
    blocks = tl.cdiv(n, BR)
    for block in range(blocks):
        r = (blocks - 1 - block if BACK else block) * BR + at
        mask = inside[:, None] & (r < n)[None, :]
        where = first[:, None] + r[None, :].to(tl.int64) * step
        factor = tl.load(a + where, mask=mask, other=1).to(WIDE)
        added = tl.load(b + where, mask=mask, other=0).to(WIDE)
        factor, added = tl.associative_scan((factor, added), 1, _after, reverse=BACK)
        run = added + factor * carry[:, None]
        tl.store(y + where, run.to(y.dtype.element_ty), mask=mask)
        carry = tl.sum(tl.where(last[None, :], run, 0), 1)


def recurrence(a: Tensor, b: Tensor, dim: int, back: bool) -> Tensor:
    """y[i] = b[i] + a[i] * y[i - 1] along a dim, or (`back`) with y[i + 1]."""
    dense, outer, n, inner = one_group(b, (dim % b.ndim,) if b.ndim else ())
    y = torch.empty(b.shape, dtype=b.dtype, device=b.device)
    t = tiles(outer, n, inner, split=False)
    warps = min(2 * t.fitting_warps, 8)  # two numbers for each element
    t.launch(_recurrence, (a.contiguous(), dense, y), (), (back, TRITON[wide_of(b.dtype)]), warps)
    return y


def _cases(x: str, n: int, form: Form, warps: int) -> list[Case]:
    constants = (False, True, tl.float32, *form)
    return [Case(_scan, (x, "*fp32", x), (False, b, *constants), warps) for b in (False, True)]


SHARED = Shared("scan", lambda dtype, outer, n, inner: tiles(outer, n, inner))
_SIZES = ((16384, 8192, 1), (1, 1 << 24, 1), (1, 16384, 4096))
TUNED = [SHARED.tuned(_SIZES, lambda x, to: lambda: scan(x, 1, False, False, to), _cases)]
_ROWS, _COLUMNS = (tl.float32, True, 2, 2048), (tl.float32, False, 128, 32)
CASES = [
    Case(_scan, ("*bf16", "*fp32", "*bf16"), (False, back, False, True, *tile))
    for back in (False, True)
    for tile in (_ROWS, _COLUMNS)
]
CASES += [
    Case(_scan, ("*fp32", None, "*fp32"), (product, False, False, False, *_ROWS))
    for product in (False, True)
]
CASES += [
    Case(_recurrence, (x,) * 3, (True, *tile), warps=8)
    for x, tile in (("*fp32", _ROWS), ("*bf16", _COLUMNS))
]

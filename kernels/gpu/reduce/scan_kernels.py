"""Cumulative sums and products along a dim, forwards or backwards.

Where few elements are kept, chunks whose size depends only on the shape are reduced, their results
are scanned, and each chunk is scanned from the end of the chunks before it. No program waits for
another.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.configs import Config
from ..launch.jit_kernel import Kernel
from .reduction_tiles import TRITON, first_of, one_group, tiles, wide_of
from .row_configs import Given, Shared


@triton.jit
def _times(a, b):
    return a * b


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
                run = tl.associative_scan(v, 1, _times, reverse=BACK) * carry[:, None]
            else:
                run = tl.cumsum(v, 1, reverse=BACK) + carry[:, None]
            tl.store(y + where, run.to(y.dtype.element_ty), mask=mask)
            carry = tl.sum(tl.where(last[None, :], run, 0), 1)
    if ENDS:
        end = tl.reduce(ends, 1, _times) if PRODUCT else tl.sum(ends, 1)
        tl.store(y + split * kept + index, end, mask=inside)


def scan(x: Tensor, dim: int, product: bool, back: bool, chosen: Config | None = None) -> Tensor:
    """Running sums or products along a dim, in tiles that are `chosen` or the table's."""
    dtype = x.dtype if x.dtype.is_floating_point else torch.int64
    dense, outer, n, inner = one_group(x, (dim % x.ndim,) if x.ndim else ())
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    given = SHARED.of(x.dtype, outer, n, inner, chosen)
    t = given[0]
    wide = wide_of(dtype)
    carries = torch.empty((t.splits if t.splits > 1 else 0, t.kept), dtype=wide, device=x.device)
    if t.splits > 1:
        _launch(dense, None, carries, given, (product, back, True, False), wide)
        through = tiles(1, t.splits, t.kept, split=False), 4
        _launch(carries, None, carries, through, (product, back, False, False), wide)
    _launch(dense, carries, y, given, (product, back, False, t.splits > 1), wide)
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
    _recurrence.launch(
        (t.programs,),
        (a.contiguous(), dense, y, t.kept, n, inner),
        (back, TRITON[wide_of(b.dtype)], t.rows, t.kept_block, t.block),
        warps=min(2 * t.warps, 8),  # two numbers for each element
    )
    return y


def _launch(
    x: Tensor, carries: Tensor | None, y: Tensor, given: Given, constants: tuple[bool, ...],
    wide: torch.dtype,
) -> None:  # fmt: skip
    t, warps = given
    _scan.launch(
        t.grid,
        (x, carries, y, t.kept, t.n, t.inner, t.chunk),
        (*constants, TRITON[wide], t.rows, t.kept_block, t.block),
        warps=warps,
    )


def _rule(dtype: torch.dtype, outer: int, n: int, inner: int) -> Given:
    return tiles(outer, n, inner), 4


def _sums(x: Tensor, chosen: Config) -> Callable[[], Tensor]:
    return lambda: scan(x, 1, False, False, chosen)


def _cases(dtype: str, sizes: tuple[int, ...], chosen: Config) -> list[Case]:
    tile = (tl.float32, sizes[2] == 1, chosen["kept"], chosen["block"])
    types = (f"*{dtype}", "*fp32", f"*{dtype}", *("i32",) * 4)
    return [Case(_scan, types, (False, back, False, True, *tile), chosen["warps"])
            for back in (False, True)]  # fmt: skip


SHARED = Shared("scan", _rule)
TUNED = [SHARED.tuned(((16384, 8192, 1), (1, 1 << 24, 1), (1, 16384, 4096)), _sums, _cases)]
CASES = [
    Case(
        _scan,
        ("*bf16", "*fp32", "*bf16", *("i32",) * 4),
        (False, back, False, True, tl.float32, rows, kept, block),
    )
    for back in (False, True)
    for rows, kept, block in ((True, 2, 2048), (False, 128, 32))
]
CASES += [
    Case(
        _scan,
        ("*fp32", None, "*fp32", *("i32",) * 4),
        (product, False, False, False, tl.float32, True, 2, 2048),
    )
    for product in (False, True)
]
CASES += [
    Case(
        _recurrence,
        (kind, kind, kind, *("i32",) * 3),
        (True, tl.float32, rows, kept, block),
        warps=8,
    )
    for kind, rows, kept, block in (("*fp32", True, 2, 2048), ("*bf16", False, 128, 32))
]

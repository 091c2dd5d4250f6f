"""Rotary position embedding. A block of the cos and sin tables is read once for several heads."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import rotary_ref as reference
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..reduce.reduction_tiles import cdiv, power_of_2

# Left to torch: rows of more than 4096 pairs: no head is that wide.

_WIDEST = 4096
_TILE = 1024  # pairs that a program turns at a time
_HEADS = 8  # that share what a program reads of the tables
_MOST = 65535  # programs along the second dim of a grid
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@triton.jit
def _turn(x, y, cos, sin, row, y_row, inside, count, APART: tl.constexpr, PAIRS: tl.constexpr,
          EVEN: tl.constexpr):  # fmt: skip
    """Rotate one row of pairs for each position of a block."""
    wide = cos.dtype
    if APART:
        at = tl.arange(0, PAIRS)[None, :]
        mask = inside if EVEN else inside & (at < count)
        a = tl.load(x + row + at, mask=mask, other=0).to(wide)
        b = tl.load(x + row + count + at, mask=mask, other=0).to(wide)
        tl.store(y + y_row + at, (a * cos - b * sin).to(y.dtype.element_ty), mask=mask)
        tl.store(y + y_row + count + at, (b * cos + a * sin).to(y.dtype.element_ty), mask=mask)
    else:
        at = tl.arange(0, 2 * PAIRS)[None, :]
        mask = inside if EVEN else inside & (at < 2 * count)
        both = tl.load(x + row + at, mask=mask, other=0).to(wide)
        a, b = tl.split(tl.reshape(both, (row.shape[0], PAIRS, 2)))
        turned = tl.join(a * cos - b * sin, b * cos + a * sin)
        turned = tl.reshape(turned, (row.shape[0], 2 * PAIRS))
        tl.store(y + y_row + at, turned.to(y.dtype.element_ty), mask=mask)


@Kernel
def _rotary(
    x, cos, sin, y, length, heads, count, rest,
    x_batch, x_step, x_head, y_batch, y_step, y_head, table_batch,
    WIDE: tl.constexpr, APART: tl.constexpr, BACK: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, PAIRS: tl.constexpr, REST: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(length, ROWS)
    batch = (tl.program_id(0) // blocks).to(tl.int64)
    position = (tl.program_id(0) % blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    inside = position < length
    pair = tl.arange(0, PAIRS)[None, :]
    mask = inside if EVEN else inside & (pair < count)
    where = batch * table_batch + position * count + pair
    c = tl.load(cos + where, mask=mask, other=0).to(WIDE)
    s = tl.load(sin + where, mask=mask, other=0).to(WIDE)
    if BACK:
        s = -s
    first = tl.program_id(1) * HEADS
    for head in range(first, tl.minimum(first + HEADS, heads)):
        far = tl.cast(head, tl.int64)
        row = batch * x_batch + position * x_step + far * x_head
        y_row = batch * y_batch + position * y_step + far * y_head
        _turn(x, y, c, s, row, y_row, inside, count, APART, PAIRS, EVEN)
        if REST > 0:
            at = 2 * count + tl.arange(0, REST)[None, :]
            kept = inside & (at < 2 * count + rest)
            tl.store(y + y_row + at, tl.load(x + row + at, mask=kept, other=0), mask=kept)


def _order(ndim: int, seq_dim: int) -> tuple[int, ...]:
    """The order of dims as batch, length, heads, features. Several dims of heads stay in order."""
    first = (0,) if seq_dim else ()
    return (*first, seq_dim, *[d for d in range(1, ndim - 1) if d != seq_dim], ndim - 1)


def _heads_last(x: Tensor, seq_dim: int) -> Tensor:
    """x as (batch, length, heads, features)."""
    ordered = x.permute(_order(x.ndim, seq_dim))
    batch = x.shape[0] if seq_dim else 1
    return ordered.reshape(batch, x.shape[seq_dim], -1, x.shape[-1])


def _empty(x: Tensor, seq_dim: int) -> Tensor:
    """An empty tensor like x, for which `_heads_last` is a view.

    Its dims lie in the order of those of x, so that heads that were split off are joined for free.
    """
    if x.ndim <= (4 if seq_dim else 3):  # at most one dim of heads
        return torch.empty_like(x)
    order = _order(x.ndim, seq_dim)
    y = torch.empty([x.shape[d] for d in order], dtype=x.dtype, device=x.device)
    return y.permute([order.index(d) for d in range(x.ndim)])


def rotary(
    x: Tensor, cos: Tensor, sin: Tensor, seq_dim: int, interleaved: bool, back: bool
) -> Tensor:
    seq_dim %= x.ndim
    count = cos.shape[-1]
    fits = x.dtype in _DTYPES and cos.dtype in _DTYPES and cos.dtype is sin.dtype
    if not fits or not 0 < count <= _WIDEST or not x.numel():
        return reference.rotary(x, cos, sin, seq_dim, interleaved, back)
    x = x if x.stride(-1) == 1 else x.contiguous()
    y = _empty(x, seq_dim)
    given = _heads_last(x, seq_dim)
    made = _heads_last(y, seq_dim)
    batch, length, heads, features = given.shape
    pairs = power_of_2(count)
    rows = max(min(_TILE // pairs, power_of_2(length)), 1)
    rest = features - 2 * count
    shared = max(_HEADS, power_of_2(cdiv(heads, _MOST)))
    _rotary.launch(
        (batch * cdiv(length, rows), cdiv(heads, shared)),
        (
            given, cos.contiguous(), sin.contiguous(), made, length, heads, count, rest,
            *given.stride()[:3], *made.stride()[:3], cos[0].numel() if cos.ndim == 3 else 0,
        ),
        (
            tl.float64 if x.dtype is torch.float64 else tl.float32, not interleaved, back,
            pairs == count, rows, pairs, power_of_2(rest) if rest else 0, shared,
        ),
        warps=min(max(rows * pairs // 256, 1), 8),
    )  # fmt: skip
    return y


def _case(dtype: str, apart: bool, back: bool, pairs: int, rest: int, heads: int = _HEADS) -> Case:
    rows = _TILE // pairs
    sizes = ("i32?", "i32?", "i32", "i32" if rest else "i32?")
    steps = ("i32",) * 7
    return Case(
        _rotary,
        (f"*{dtype}", "*fp32", "*fp32", f"*{dtype}", *sizes, *steps),
        (tl.float32, apart, back, True, rows, pairs, rest, heads),
    )


CASES = [
    _case("bf16", True, False, 64, 0),
    _case("bf16", False, True, 64, 0),
    _case("fp32", True, True, 32, 64),
]

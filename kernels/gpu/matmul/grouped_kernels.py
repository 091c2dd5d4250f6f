"""Products of matrices in groups: the tiles of all groups are programs of one launch.

The host does not know the ends of the groups. There are as many programs as any ends could need;
each finds its group from the ends, and those that are left over write the zeros behind the last.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import grouped_ref as reference
from ..launch.aot_cases import Case
from ..launch.configs import architecture
from ..launch.jit_kernel import Kernel
from ..reduce.reduction_tiles import TRITON, cdiv, power_of_2, wide_of
from .gemm import left_out
from .gemm_config import DEEP, Tile, by_rule, kind_of
from .gemm_operands import dense
from .gemm_tiles import GROUP_OF_ROWS, forms_of_tile, place

# Left to torch: complex numbers, bools and float8, for which `left_out` says why.

_GROUP = tl.constexpr(GROUP_OF_ROWS)


@triton.jit
def _bounds(ends, groups, m, GROUPS: tl.constexpr):
    """(the index, the first row and the row behind) of each group; behind the last, the rest."""
    g = tl.arange(0, GROUPS)
    high = tl.load(ends + g, mask=g < groups, other=0).to(tl.int32)
    high = tl.where(g < groups, tl.minimum(tl.maximum(high, 0), m), m)
    high = tl.associative_scan(high, 0, _larger)
    before = tl.load(ends + g - 1, mask=(g > 0) & (g <= groups), other=0).to(tl.int32)
    before = tl.where(g <= groups, tl.minimum(tl.maximum(before, 0), m), m)
    return g, tl.associative_scan(before, 0, _larger), high


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@Kernel
def _rows(
    a, b, y, ends, groups, m, n, k, a_row, a_column, b_group, b_row, b_column,
    PRECISION: tl.constexpr, WIDE: tl.constexpr, GROUPS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_DENSE: tl.constexpr,
    B_DENSE: tl.constexpr,
):  # fmt: skip
    """Of the tiles of rows, in the order of their groups, one, times BN columns."""
    a_column = 1 if A_DENSE else a_column
    b_column = 1 if B_DENSE else b_column
    a_row = a_row if A_DENSE else 1
    b_row = b_row if B_DENSE else 1
    g, low, high = _bounds(ends, groups, m, GROUPS)
    tiles = tl.cdiv(high - low, BM)
    last = tl.cumsum(tiles, 0)
    most = (tl.cdiv(m, BM) + groups) * BM
    tile, tile_n = place(tl.program_id(0), most, n, BM, BN, _GROUP)
    mine = (tile >= last - tiles) & (tile < last)
    if tile < tl.max(last, 0):
        group = tl.sum(tl.where(mine, g, 0), 0)
        first = tl.sum(tl.where(mine, low + (tile - last + tiles) * BM, 0), 0)
        end = tl.sum(tl.where(mine, high, 0), 0)
        row = first + tl.arange(0, BM)
        column = tile_n * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), WIDE)
        if group < groups:
            own, term = tl.arange(0, BM)[:, None], tl.arange(0, BK)
            other = tl.arange(0, BN)[None, :]
            at_a = a + first.to(tl.int64) * a_row + (own * a_row + term[None, :] * a_column)
            at_b = b + group.to(tl.int64) * b_group + (tile_n * BN).to(tl.int64) * b_column
            at_b += term[:, None] * b_row + other * b_column
            for done in range(0, k, BK):
                there = term < k - done
                u = tl.load(at_a, mask=(row < end)[:, None] & there[None, :], other=0.0)
                v = tl.load(at_b, mask=there[:, None] & (column < n)[None, :], other=0.0)
                total = tl.dot(u, v, total, input_precision=PRECISION, out_dtype=WIDE)
                at_a += BK * a_column
                at_b += BK * b_row
        to = y + row[:, None].to(tl.int64) * n + column[None, :]
        inside = (row < end)[:, None] & (column < n)[None, :]
        tl.store(to, total.to(y.dtype.element_ty), mask=inside)


@Kernel
def _sums(
    a, b, y, ends, groups, m, n, k, a_row, a_column, b_row, b_column,
    PRECISION: tl.constexpr, WIDE: tl.constexpr, GROUPS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_DENSE: tl.constexpr,
    B_DENSE: tl.constexpr,
):  # fmt: skip
    """BM rows and BN columns of the matrix of one group: a sum over the rows of that group."""
    a_column = 1 if A_DENSE else a_column
    b_column = 1 if B_DENSE else b_column
    a_row = a_row if A_DENSE else 1
    b_row = b_row if B_DENSE else 1
    group = tl.program_id(2)
    g, low, high = _bounds(ends, groups, m, GROUPS)
    first = tl.sum(tl.where(g == group, low, 0), 0)
    end = tl.sum(tl.where(g == group, high, 0), 0)
    own, other, term = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    first_a, first_b = tl.program_id(0) * BM, tl.program_id(1) * BN
    row, column = first_a + own, first_b + other
    total = tl.zeros((BM, BN), WIDE)
    # In 64 bits to the tile: whole columns may be of more than 2^31 elements.
    at_a = a + first.to(tl.int64) * a_row + first_a.to(tl.int64) * a_column
    at_a += term[None, :] * a_row + own[:, None] * a_column
    at_b = b + first.to(tl.int64) * b_row + first_b.to(tl.int64) * b_column
    at_b += term[:, None] * b_row + other[None, :] * b_column
    for done in range(first, end, BK):
        there = term < end - done
        u = tl.load(at_a, mask=(row < k)[:, None] & there[None, :], other=0.0)
        v = tl.load(at_b, mask=there[:, None] & (column < n)[None, :], other=0.0)
        total = tl.dot(u, v, total, input_precision=PRECISION, out_dtype=WIDE)
        at_a += BK * a_row
        at_b += BK * b_row
    to = y + (group.to(tl.int64) * k + row[:, None]) * n + column[None, :]
    inside = (row < k)[:, None] & (column < n)[None, :]
    tl.store(to, total.to(y.dtype.element_ty), mask=inside)


def _tile(kind: str, m: int, n: int, k: int, groups: int, dense: bool) -> Tile:
    """The tile of so many products of one size, as which the groups are taken.

    The largest is for new GPUs, and sums of dense rows: elsewhere it would need more registers than
    there are.
    """
    large = dense and architecture() in DEEP
    tile = by_rule(kind, max(m, 1), n, max(k, 1), groups, large)
    return tile._replace(stages=min(tile.stages, 3))


def _steps(x: Tensor) -> tuple[Tensor, tuple[int, int], bool]:
    """A matrix or batch with one dense dim, the strides of the last dims, and which is dense."""
    x, columns, step = dense(x)
    return x, (1, step) if columns else (step, 1), not columns


def grouped_rows(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    if left_out(a) or not a.dtype.is_floating_point or 0 in a.shape or 0 in b.shape:
        return reference.grouped_rows(a, b, ends)
    (m, k), (groups, _, n) = a.shape, b.shape
    a, a_steps, a_dense = _steps(a)
    b, b_steps, b_dense = _steps(b)
    y = torch.empty((m, n), dtype=a.dtype, device=a.device)
    kind, wide = kind_of(a.dtype), wide_of(a.dtype)
    t = _tile(kind, cdiv(m, groups), n, k, groups, a_dense)
    _rows.launch(
        ((cdiv(m, t.m) + groups) * cdiv(n, t.n),),
        (a, b, y, ends.contiguous(), groups, m, n, k, *a_steps, b.stride(0), *b_steps),
        _form(kind, wide, groups, t, a_dense, b_dense),
        warps=t.warps,
        stages=t.stages,
    )
    return y


def grouped_sums(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    empty = 0 in a.shape or 0 in b.shape or not ends.numel()
    if left_out(a) or not a.dtype.is_floating_point or empty:
        return reference.grouped_sums(a, b, ends)
    (m, k), n, groups = a.shape, b.shape[1], ends.numel()
    a, a_steps, a_dense = _steps(a)
    b, b_steps, b_dense = _steps(b)
    y = torch.empty((groups, k, n), dtype=a.dtype, device=a.device)
    kind, wide = kind_of(a.dtype), wide_of(a.dtype)
    t = _tile(kind, k, n, cdiv(m, groups), groups, a_dense and b_dense)
    _sums.launch(
        (cdiv(k, t.m), cdiv(n, t.n), groups),
        (a, b, y, ends.contiguous(), groups, m, n, k, *a_steps, *b_steps),
        _form(kind, wide, groups, t, a_dense, b_dense),
        warps=t.warps,
        stages=t.stages,
    )
    return y


def _form(
    kind: str, wide: torch.dtype, groups: int, t: Tile, a_dense: bool, b_dense: bool
) -> tuple[object, ...]:
    """The constants of both kernels. There is room for one more group, which is behind the last."""
    precision = "tf32" if kind == "tf32" else "ieee"
    room = power_of_2(groups + 1)
    return (precision, TRITON[wide], room, t.m, t.n, t.k, a_dense, b_dense)


def _cases(kernel: Kernel, dtype: str, kind: str, t: Tile, columns: bool = False) -> list[Case]:
    numbers = len(kernel.types) - 4
    types = (f"*{dtype}",) * 3 + ("*i32",) + ("i32?",) + ("i32",) * (numbers - 1)
    wide = torch.float64 if kind == "double" else torch.float32
    form = _form(kind, wide, 127, t, True, not columns)
    return forms_of_tile(kernel, types, form, t)


_LARGE, _MIDDLE, _SMALL = Tile(128, 256, 64, 8, 3), Tile(128, 128, 64, 8, 3), Tile(64, 64, 64, 4, 3)
CASES = [
    *_cases(_rows, "bf16", "half", _LARGE),
    *_cases(_rows, "bf16", "half", _LARGE, columns=True),
    *_cases(_sums, "bf16", "half", _LARGE),
    *_cases(_rows, "bf16", "half", _MIDDLE),
    *_cases(_rows, "bf16", "half", _MIDDLE, columns=True),
    *_cases(_rows, "bf16", "half", _SMALL),
    *_cases(_sums, "bf16", "half", _MIDDLE),
    *_cases(_rows, "fp32", "tf32", Tile(128, 128, 32, 8, 3)),
    *_cases(_sums, "fp32", "ieee", Tile(128, 64, 16, 8, 3)),
    *_cases(_sums, "fp64", "double", Tile(64, 64, 16, 4, 3)),
]

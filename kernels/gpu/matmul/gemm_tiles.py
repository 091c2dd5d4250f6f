"""Matrix products with one program per tile, for every layout and dtype."""

from __future__ import annotations

from dataclasses import replace

import torch
import triton
import triton.language as tl

from ..launch.aot_cases import Case, per_maker
from ..launch.jit_kernel import Kernel
from ..pointwise.prologue import function_of, gelu_and_sum
from .gemm_config import DEEP, Tile

GELU_AND_SUM = function_of(gelu_and_sum(torch.bfloat16), ())  # as after a layer
GROUP_OF_ROWS = 8  # of tiles, whose columns are made together while they are in the cache


@triton.jit
def element_of(x, row, column, x_row, inside):
    """The elements at these places, which are x itself if they have been loaded."""
    if x.dtype.is_ptr():
        return tl.load(x + row.to(tl.int64) * x_row + column, mask=inside, other=0.0)
    else:
        return x


@triton.jit
def _rounded(y, ROUND: tl.constexpr, PACKED: tl.constexpr):
    """y in another dtype; PACKED, on NVIDIA's GPUs, converts two elements at once."""
    # Where a rounded number is also stored, ptxas converts it by the slow unit that exp2 uses.
    if PACKED and y.dtype == tl.float32 and ROUND == tl.bfloat16:
        return tl.inline_asm_elementwise(
            "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [y], tl.bfloat16, is_pure=True, pack=2
        )
    elif PACKED and y.dtype == tl.float32 and ROUND == tl.float16:
        return tl.inline_asm_elementwise(
            "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [y], tl.float16, is_pure=True, pack=2
        )
    else:
        return y.to(ROUND)


@triton.jit
def apply_epilogue(
    y, bias, x, z, kept, row, column, m, n, x_row, z_row,
    CHAIN: tl.constexpr, ROUND: tl.constexpr, PACKED: tl.constexpr = False,
):  # fmt: skip
    """x + (y + bias) for elements y of the product at (row, column), or a function of them.

    CHAIN is a function of the product, rounded to the dtype ROUND as if it were stored, and of x
    and z. `kept` is the output for the product itself, if it is needed, too.
    """
    inside = (row < m) & (column < n)
    if bias is not None:
        y += tl.load(bias + column, mask=column < n, other=0.0)
    if CHAIN is None:
        if x is not None:
            y += element_of(x, row, column, x_row, inside)
        return y
    else:
        v = _rounded(y, ROUND, PACKED)
        if kept is not None:
            tl.store(kept + row.to(tl.int64) * n + column, v, mask=inside)
        of_x, of_z = v, v  # for what is not there, and not used
        if x is not None:
            of_x = element_of(x, row, column, x_row, inside)
        if z is not None:
            of_z = element_of(z, row, column, z_row, inside)
        return CHAIN(v, of_x, of_z, v)


@triton.jit
def place(tile, m, n, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """The row and the column of a tile, in an order that reuses operands in the L2 cache."""
    width = GROUP * tl.cdiv(n, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(m, BM) - first, GROUP)
    return first + tile % width % height, tile % width // height


@triton.jit
def _grid(rows, k, LEFT: tl.constexpr):
    """The dims of an operand's tile: (rows, k) for the LEFT operand, else (k, rows)."""
    if LEFT:
        return rows[:, None], k[None, :]
    else:
        return rows[None, :], k[:, None]


@triton.jit
def _pointers(
    x, first, count, step, start, ROWS: tl.constexpr, BK: tl.constexpr, K_DENSE: tl.constexpr,
    LEFT: tl.constexpr,
):  # fmt: skip
    """Pointers to ROWS rows from `first` on, by BK terms of the sum from `start` on."""
    rows, k = _grid(tl.arange(0, ROWS), tl.arange(0, BK), LEFT)
    if K_DENSE:
        # Rows beyond the end are read as the last one: no mask for what is not stored.
        rows = tl.minimum(rows, count - 1 - first)
        return x + first.to(tl.int64) * step + start + (rows * step + k)
    else:
        return x + start.to(tl.int64) * step + first + (k * step + rows)


@triton.jit
def _block(
    at, first, count, left, ROWS: tl.constexpr, BK: tl.constexpr, K_DENSE: tl.constexpr,
    LEFT: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """The block at these pointers, with zeros beyond the remaining `left` terms of the sum."""
    rows, k = _grid(tl.arange(0, ROWS), tl.arange(0, BK), LEFT)
    if K_DENSE:
        if EVEN:
            return tl.load(at)
        else:
            return tl.load(at, mask=k < left, other=0.0)
    elif EVEN:
        return tl.load(at, mask=rows < count - first, other=0.0)
    else:
        return tl.load(at, mask=(rows < count - first) & (k < left), other=0.0)


@Kernel
def tiles(
    a, b, y, bias, x, z, kept, m, n, k, a_step, b_step, inner, a_outer, a_inner, b_outer, b_inner,
    batches, span, x_row, z_row,
    A_T: tl.constexpr, B_T: tl.constexpr, KIND: tl.constexpr, EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    CHAIN: tl.constexpr, ROUND: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    if WIDE:  # offsets inside a tile, or along the sum, pass 2^31
        n, span = tl.cast(n, tl.int64), tl.cast(span, tl.int64)
        a_step, b_step = tl.cast(a_step, tl.int64), tl.cast(b_step, tl.int64)
    count = tl.cdiv(m, BM) * tl.cdiv(n, BN)
    tile_m, tile_n = place(tl.program_id(0) % count, m, n, BM, BN, GROUP)
    # The parts of the sum come one after the other, each for all batches.
    part = tl.program_id(0) // count
    batch = (part % batches).to(tl.int64)
    start = part // batches * span
    a += batch // inner * a_outer + batch % inner * a_inner
    b += batch // inner * b_outer + batch % inner * b_inner
    y += part.to(tl.int64) * m * n
    first_m, first_n = tile_m * BM, tile_n * BN
    at_a = _pointers(a, first_m, m, a_step, start, BM, BK, not A_T, True)
    at_b = _pointers(b, first_n, n, b_step, start, BN, BK, B_T, False)
    if KIND == "double":
        total = tl.zeros((BM, BN), tl.float64)
    elif KIND == "whole":
        total = tl.zeros((BM, BN), y.dtype.element_ty)
    else:
        total = tl.zeros((BM, BN), tl.float32)
    for done in range(start, tl.minimum(start + span, k), BK):
        u = _block(at_a, first_m, m, k - done, BM, BK, not A_T, True, EVEN)
        v = _block(at_b, first_n, n, k - done, BN, BK, B_T, False, EVEN)
        if KIND == "whole":
            total += tl.sum(u[:, :, None] * v[None, :, :], 1).to(total.dtype)
        elif KIND == "tf32":
            total = tl.dot(u, v, total, input_precision="tf32")
        else:
            total = tl.dot(u, v, total, input_precision="ieee", out_dtype=total.dtype)
        at_a += BK * a_step if A_T else BK
        at_b += BK if B_T else BK * b_step
    row = (first_m + tl.arange(0, BM))[:, None]
    column = (first_n + tl.arange(0, BN))[None, :]
    total = apply_epilogue(total, bias, x, z, kept, row, column, m, n, x_row, z_row, CHAIN, ROUND)
    at = y + first_m.to(tl.int64) * n + tl.arange(0, BM)[:, None] * n + column
    tl.store(at, total.to(y.dtype.element_ty), mask=(row < m) & (column < n))


def form(
    a: bool, b: bool, kind: str, even: bool, wide: bool, tile: Tile, out: tuple[object, ...]
) -> tuple[object, ...]:
    """The constants of the kernel; `out` are those of `apply_epilogue`."""
    return (a, b, kind, even, wide, *out, tile.m, tile.n, tile.k, GROUP_OF_ROWS)


def cases(
    dtype: str, kind: str, tile: Tile, layout: str = "nn", even: bool = True, y: str = "",
    chain: bool = False, adds: bool = False,
) -> list[Case]:  # fmt: skip
    """The compiled form of a tile on the GPUs of each vendor; one that `adds` reads y, too."""
    given = f"*{dtype}" if chain else None
    x = f"*{y}" if adds else given
    types = (
        *(f"*{dtype}",) * 2, f"*{y or dtype}", given, x, None, given, *("i32",) * 5, "i32?",
        *("i32",) * 4, "i32?", "i32", "i32", "i32",
    )  # fmt: skip
    out = (GELU_AND_SUM, tl.bfloat16) if chain else (None, None)
    constants = form(layout[0] == "t", layout[1] == "t", kind, even, False, tile, out)
    on_amd = min(tile.stages, 2) if tile.n <= 128 else 0
    return per_maker(tiles, types, constants, tile.warps, tile.stages, on_amd)


def forms_of_tile(
    kernel: Kernel, types: tuple[str | None, ...], constants: tuple[object, ...], tile: Tile
) -> list[Case]:
    """The compiled forms of a kernel that has the largest tile on GPUs of `DEEP` alone."""
    if tile.m * tile.n > 128 * 128:
        why = "on other GPUs this tile needs more registers than there are"
        return [Case(kernel, types, constants, tile.warps, tile.stages, targets=DEEP, why=why)]
    return per_maker(kernel, types, constants, tile.warps, tile.stages, min(tile.stages, 2))


_LARGE = Tile(128, 256, 64, 8, 3)
_DEEP = "four stages fit there, and are the default"
_MIDDLE = Tile(128, 128, 64, 8, 3)
CASES = [
    *cases("bf16", "half", _LARGE),
    *[
        replace(case, stages=4, targets=DEEP, why=_DEEP)
        for tile, layout in ((_LARGE, "tn"), (_MIDDLE, "nn"))
        for case in cases("bf16", "half", tile, layout, y="fp32")[:1]
    ],
    *cases("bf16", "half", _MIDDLE),
    *cases("bf16", "half", _MIDDLE, "nt", chain=True),
    *cases("bf16", "half", _MIDDLE, "tn", y="fp32"),
    *cases("bf16", "half", _MIDDLE, "tn", y="fp32", adds=True),
    *cases("fp16", "half", _MIDDLE, "tt", even=False),
    *cases("bf16", "half", Tile(64, 64, 64, 4, 4), even=False),
    *cases("bf16", "half", Tile(16, 64, 128, 4, 3), "nt"),
    *cases("fp32", "tf32", Tile(128, 128, 32, 8, 3)),
    *cases("fp32", "tf32", Tile(64, 64, 32, 4, 4), "tn", even=False),
    *cases("fp32", "ieee", Tile(128, 64, 16, 8, 3)),
    *cases("fp32", "ieee", Tile(32, 32, 32, 4, 3), "nt", even=False),
    *cases("fp64", "double", Tile(64, 64, 16, 4, 3)),
    *cases("i64", "whole", Tile(16, 16, 16, 4, 1), even=False),
]

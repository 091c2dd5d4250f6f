"""The weight gradient of a convolution: a matrix product over all positions of the output.

The positions are split into parts, each with its own sum. The sums are added in order, without
atomics. How many there are depends on the sizes and on the kind of GPU, as for matrix products.
"""

from __future__ import annotations

from math import prod

import torch
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.configs import Config
from ..launch.jit_kernel import Kernel
from ..matmul.gemm_config import Tile, parts_of
from ..matmul.gemm_tiles import forms_of_tile
from ..pointwise.channels_last import dense, empty, turned_back
from ..reduce.reduction_tiles import cdiv, power_of_2
from . import one_product
from .conv_geometry import (
    LARGE,
    LEAST,
    TILES,
    TYPES,
    Products,
    Sizes,
    Triple,
    Volumes,
    kind_of,
    small_tile,
    tile_of,
)
from .windows import advanced, reached, starts_of_part

_MANY = 2048  # programs, whose loads wait for each other


@Kernel
def _part_product(
    dy, x, parts, places: tl.int64, part: tl.int64,
    d, h, width, od, oh, ow, channels, outs, groups,
    TAPS: tl.constexpr, S: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
    DEEP: tl.constexpr, FLAT: tl.constexpr, PRECISION: tl.constexpr,
    BN: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Rows are output channels of a group, columns channels of a tap, or of all taps if FLAT."""
    WIDE: tl.constexpr = parts.dtype.element_ty
    COUNT: tl.constexpr = TAPS[0] * TAPS[1] * TAPS[2]
    group = tl.program_id(2) % groups
    number = (tl.program_id(2) // groups).to(tl.int64)
    o = tl.program_id(0) * BN + tl.arange(0, BN)
    if FLAT:
        column = tl.program_id(1) * BC + tl.arange(0, BC)
        tap = (column // channels)[None, :]
        c = column % channels
        known = column < COUNT * channels
    else:
        blocks = tl.cdiv(channels, BC)
        tap = tl.program_id(1) // blocks
        c = tl.program_id(1) % blocks * BC + tl.arange(0, BC)
        column = tap * channels + c
        known = c < channels
    size = groups * channels
    step = tl.arange(0, BK)
    m, left, first, e, i, j = starts_of_part(
        number, part, places, d, h, width, od, oh, ow, size, S, P, DEEP, BK
    )
    of_dy = dy + (m * (groups * outs))[None, :] + (group * outs + o)[:, None]
    x += group * channels
    total = tl.zeros((BN, BC), WIDE)
    for done in range(0, left, BK):
        inside = step < tl.minimum(left - done, BK).to(tl.int32)
        mask = inside[None, :] & (o < outs)[:, None]
        gs = tl.load(of_dy + done * (groups * outs), mask=mask, other=0.0)
        further, exists = reached(
            e[:, None], i[:, None], j[:, None], tap, d, h, width, size, TAPS, D, False, DEEP
        )
        mask = inside[:, None] & exists & known[None, :]
        xs = tl.load(x + first[:, None] + (further + c[None, :]), mask=mask, other=0.0)
        total = tl.dot(gs, xs, total, input_precision=PRECISION, out_dtype=WIDE)
        first, e, i, j = advanced(first, e, i, j, d, h, width, od, oh, ow, size, BK, S, P, DEEP)
    rows = number * groups * outs + group * outs + o
    at = rows[:, None] * (COUNT * channels) + column[None, :]
    tl.store(parts + at, total, mask=(o < outs)[:, None] & known[None, :])


@Kernel
def _part_small_groups(
    dy, x, parts, places: tl.int64, part: tl.int64,
    d, h, width, od, oh, ow, channels, outs, groups,
    TAPS: tl.constexpr, S: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
    DEEP: tl.constexpr, DEPTHWISE: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One tap and channel of a group, for a block of output channels of all groups.

    DEPTHWISE: each group has one of both, so their neighbors lie side by side.
    """
    WIDE: tl.constexpr = parts.dtype.element_ty
    number = tl.program_id(2).to(tl.int64)
    o = tl.program_id(0) * BN + tl.arange(0, BN)
    every = groups if DEPTHWISE else groups * outs
    known = o < every
    tap, c, size = tl.program_id(1), o, groups
    if not DEPTHWISE:
        size = groups * channels
        c = o // outs * channels + tap % channels
        tap = tap // channels
    step = tl.arange(0, BK)
    m, left, first, e, i, j = starts_of_part(
        number, part, places, d, h, width, od, oh, ow, size, S, P, DEEP, BK
    )
    of_dy = dy + (m * every)[:, None] + o[None, :]
    total = tl.zeros((BK, BN), WIDE)
    for done in range(0, left, BK):
        inside = step < tl.minimum(left - done, BK).to(tl.int32)
        mask = inside[:, None] & known[None, :]
        gs = tl.load(of_dy + done * every, mask=mask, other=0.0)
        further, exists = reached(e, i, j, tap, d, h, width, size, TAPS, D, False, DEEP)
        xs = tl.load(
            x + first[:, None] + (further + c[None, :]), mask=mask & exists[:, None], other=0.0
        )
        total += gs.to(WIDE) * xs.to(WIDE)
        first, e, i, j = advanced(first, e, i, j, d, h, width, od, oh, ow, size, BK, S, P, DEEP)
    at = (number * every + o) * tl.num_programs(1) + tl.program_id(1)
    tl.store(parts + at, tl.sum(total, 0), mask=known)


@Kernel
def _join(parts, dw, count, number, channels, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    """Add the parts in order, and convert from channels-last to row-major order.

    With one of TAPS, whatever their number, the order stays.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), parts.dtype.element_ty)
    this = parts
    for _ in range(number):
        total += tl.load(this + at, mask=at < count, other=0.0)
        this += count
    plane = TAPS * channels
    inner = at % plane
    to = at // plane * plane + inner % channels * TAPS + inner // channels
    tl.store(dw + to, total.to(dw.dtype.element_ty), mask=at < count)


def _part_of_small(places: int, programs: int) -> int:
    """The positions per part where groups are small."""
    wanted = max(_MANY // max(programs, 1), 1)
    return max(power_of_2(cdiv(places, wanted)), 64 if places < 4096 else 512)


def weight_grad(
    rows: Tensor, columns: Tensor, taps: Triple, sizes: Sizes, groups: int, last: bool = False,
    tile: Tile | None = None,
) -> Tensor:  # fmt: skip
    """dw[o, c, tap] = sum of rows[n, o, place] * columns[n, c, source] over n and places.

    The source is the position that the tap reads for the place. The channels are `last` in memory,
    or else the taps.
    """
    n, outs, *output = rows.shape
    channels, *source = columns.shape[1:]
    v = Volumes.of(n, source, output, taps, sizes)
    if tile is None and one_product.is_product(rows.dtype, v, taps, sizes, groups):
        return one_product.weight_grad(rows, columns)
    outs, channels, places = outs // groups, channels // groups, v.places
    count = prod(taps)
    depth = count * channels
    wide = torch.float64 if rows.dtype is torch.float64 else torch.float32
    ends: tuple[object, ...]
    if groups > 1 and min(channels, outs) < LEAST:
        depthwise = channels == outs == 1
        bk, bn, warps = small_tile(places, groups * outs, depthwise, rows.dtype, 32)
        grid, stages = (cdiv(groups * outs, bn), depth, 1), 3
        part = _part_of_small(places, grid[0] * depth)
        number = cdiv(places, part)
        kernel, ends = _part_small_groups, (depthwise, bn, bk)
    else:
        kind, flat = kind_of(rows.dtype), channels % LEAST != 0
        across, times = (depth, groups) if flat else (channels, groups * count)
        p = Products(outs, across, places, 1, times, flat, True)
        chosen = tile or tile_of("convolution_weight_grad", kind, p)
        bn, bc, bk, warps, stages, *_ = chosen
        grid = (cdiv(outs, bn), times // groups * cdiv(across, bc), groups)
        number, part = parts_of(kind, p.m, p.n, p.k, times, chosen)
        kernel, ends = _part_product, (flat, "tf32" if kind == "tf32" else "ieee", bn, bc, bk)
    parts = torch.empty((number, groups * outs, depth), dtype=wide, device=rows.device)
    args = (
        dense(rows, True), dense(columns, True), parts, places, part, *v.source, *v.output,
        channels, outs, groups,
    )  # fmt: skip
    constants = (taps, *sizes, v.deep, *ends)
    kernel.launch((*grid[:2], grid[2] * number), args, constants, warps, stages)
    if last and number == 1 and wide is rows.dtype:
        return turned_back(parts.view(groups * outs, *taps, channels))
    dw = empty((groups * outs, channels, *taps), last, rows.dtype, rows.device)
    joined = (parts, dw, dw.numel(), number, channels)
    _join.launch((cdiv(dw.numel(), 256),), joined, (1 if last else count, 256))
    return dw


_WINDOW = ((1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1), False)
_DEEP = ((3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), True)
_SEVEN = ((1, 7, 7), (1, 2, 2), (0, 3, 3), (1, 1, 1), False)
_NUMBERS = ("i64?", "i64?", *("i32?",) * 6)


def cases(
    kind: str, sizes: tuple[int, ...], config: Config, window: tuple[object, ...] = _WINDOW
) -> list[Case]:
    """The compiled forms of a tile."""
    dtype, precision = TYPES[kind]
    parts = "*fp64" if kind == "double" else "*fp32"
    types = (f"*{dtype}", f"*{dtype}", parts, *_NUMBERS)
    tile = Tile(**config)
    return forms_of_tile(_part_product, types, (*window, False, precision, *tile[:3]), tile)


_BF16 = ("*bf16", "*bf16", "*fp32", *_NUMBERS)
_EACH = (*_BF16, "i32?", "i32?", "i32")
CASES = [
    *[
        case
        for kind, tile in (*TILES, ("half", LARGE._replace(m=256, n=128)))
        for window in (_WINDOW, _DEEP)
        for case in cases(kind, (), tile._asdict(), window)
    ],
    Case(_part_product, (*_BF16, "i32?", "i32", "i32?"), (*_SEVEN, True, "ieee", 64, 64, 32), 8, 2),
    Case(_part_product, (*_BF16, "i32?", "i32", "i32?"), (*_DEEP, True, "ieee", 64, 64, 32), 8, 2),
    Case(_part_small_groups, (*_BF16, *("i32?",) * 3), (*_WINDOW, False, 64, 32)),
    Case(_part_small_groups, _EACH, (*_WINDOW, True, 64, 32)),
    Case(_part_small_groups, _EACH, (*_WINDOW, True, 64, 128), warps=8),
    Case(_part_small_groups, _EACH, (*_DEEP, True, 64, 128), warps=8),
    Case(_join, ("*fp32", "*bf16", "i32", "i32?"), (9, 256)),
]

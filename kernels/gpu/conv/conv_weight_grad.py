"""The weight gradient of a convolution: a matrix product over all positions of the output.

The positions are split into parts of a fixed size, each with its own sum. The sums are added in
order, so the result uses no atomics and does not depend on the number of processors.
"""

from __future__ import annotations

from math import prod

import torch
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.configs import Config
from ..launch.jit_kernel import Kernel
from ..matmul.gemm_config import Tile
from ..pointwise.channels_last import dense
from ..reduce.reduction_tiles import cdiv, power_of_2
from .conv_geometry import (
    LEAST,
    TYPES,
    Sizes,
    Triple,
    Volumes,
    advanced,
    kind_of,
    positions,
    sources,
    tile_of,
)


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
        tap = column // channels
        c = column % channels
        known = column < COUNT * channels
    else:
        blocks = tl.cdiv(channels, BC)
        tap = tl.program_id(1) // blocks
        c = tl.program_id(1) % blocks * BC + tl.arange(0, BC)
        column = tap * channels + c
        known = c < channels
    total = tl.zeros((BN, BC), WIDE)
    start, _, image, e, i, j = positions(number * part, places, od, oh, ow, DEEP, BK)
    for begin in range(0, part, BK):
        m = start + begin
        inside = m < places
        gs = tl.load(
            dy + (m * (groups * outs) + group * outs)[None, :] + o[:, None],
            mask=inside[None, :] & (o < outs)[:, None], other=0.0,
        )  # fmt: skip
        if FLAT:
            at, exists = sources(
                image[:, None], e[:, None], i[:, None], j[:, None], tap[None, :],
                d, h, width, TAPS, S, P, D, False, DEEP,
            )  # fmt: skip
            at = at * (groups * channels) + group * channels
            mask = inside[:, None] & exists & known[None, :]
        else:
            at, exists = sources(image, e, i, j, tap, d, h, width, TAPS, S, P, D, False, DEEP)
            at = (at * (groups * channels) + group * channels)[:, None]
            mask = (inside & exists)[:, None] & known[None, :]
        xs = tl.load(x + at + c[None, :], mask=mask, other=0.0)
        total = tl.dot(gs, xs, total, input_precision=PRECISION, out_dtype=WIDE)
        image, e, i, j = advanced(image, e, i, j, od, oh, ow, BK, DEEP)
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

    DEPTHWISE: each group has one of both, so their neighbours lie side by side.
    """
    WIDE: tl.constexpr = parts.dtype.element_ty
    number = tl.program_id(2).to(tl.int64)
    o = tl.program_id(0) * BN + tl.arange(0, BN)
    every = groups if DEPTHWISE else groups * outs
    known = o < every
    tap, c, inputs = tl.program_id(1), o, groups
    if not DEPTHWISE:
        inputs = groups * channels
        c = o // outs * channels + tap % channels
        tap = tap // channels
    total = tl.zeros((BK, BN), WIDE)
    start, _, image, e, i, j = positions(number * part, places, od, oh, ow, DEEP, BK)
    for begin in range(0, part, BK):
        m = start + begin
        inside = m < places
        at, exists = sources(image, e, i, j, tap, d, h, width, TAPS, S, P, D, False, DEEP)
        gs = tl.load(
            dy + (m * every)[:, None] + o[None, :],
            mask=inside[:, None] & known[None, :], other=0.0,
        )  # fmt: skip
        mask = (inside & exists)[:, None] & known[None, :]
        xs = tl.load(x + (at * inputs)[:, None] + c[None, :], mask=mask, other=0.0)
        total += gs.to(WIDE) * xs.to(WIDE)
        image, e, i, j = advanced(image, e, i, j, od, oh, ow, BK, DEEP)
    at = (number * every + o) * tl.num_programs(1) + tl.program_id(1)
    tl.store(parts + at, tl.sum(total, 0), mask=known)


@Kernel
def _join(parts, dw, count, number, channels, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    """Add the parts in order, and convert from channels-last to the layout of the weight."""
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


def _part(places: int, tile_count: int) -> int:
    """The positions per part. They depend on shapes and tiles, not on the number of processors."""
    wanted = max(256 // max(tile_count, 1), 1)  # enough programs for a large chip
    least = cdiv(places, wanted)
    return max(power_of_2(least), 64 if places < 4096 else 512)


def weight_grad(
    rows: Tensor, columns: Tensor, taps: Triple, sizes: Sizes, groups: int,
    tile: Tile | None = None,
) -> Tensor:  # fmt: skip
    """dw[o, c, tap] = sum of rows[n, o, place] * columns[n, c, source] over n and places.

    The source is the position that the tap reads for the place.
    """
    n, outs, *output = rows.shape
    channels, *source = columns.shape[1:]
    v = Volumes.of(n, source, output, taps, sizes)
    outs, channels, places = outs // groups, channels // groups, v.places
    depth = prod(taps) * channels
    wide = torch.float64 if rows.dtype is torch.float64 else torch.float32
    kind = kind_of(rows.dtype)
    small = groups > 1 and min(channels, outs) < LEAST
    flat = channels % LEAST != 0
    if small:
        bn, bk = min(max(power_of_2(groups * outs), 16), 64), 32
        grid = (cdiv(groups * outs, bn), depth)
    else:
        bn, bc, bk, warps, stages, *_ = tile or tile_of(
            "convolution_weight_grad", kind, outs, depth if flat else channels, places, flat
        )
        if flat and kind == "tf32" and tile is None:
            warps, stages = max(warps, 8), min(stages, 2)  # 4 warps, or 3 stages, would spill
        across = cdiv(depth, bc) if flat else prod(taps) * cdiv(channels, bc)
        grid = (cdiv(outs, bn), across)
    part = _part(places, grid[0] * grid[1] * (1 if small else groups))
    number = cdiv(places, part)
    parts = torch.empty((number, groups * outs, depth), dtype=wide, device=rows.device)
    args = (
        dense(rows, True), dense(columns, True), parts, places, part, *v.source, *v.output,
        channels, outs, groups,
    )  # fmt: skip
    window = (taps, *sizes, v.deep)
    if small:
        _part_small_groups.launch((*grid, number), args, (*window, channels == outs == 1, bn, bk))
    else:
        constants = (*window, flat, "tf32" if kind == "tf32" else "ieee", bn, bc, bk)
        _part_product.launch((*grid, groups * number), args, constants, warps, stages)
    shape = (groups * outs, channels, *taps)
    dw = torch.empty(shape, dtype=rows.dtype, device=rows.device)
    _join.launch(
        (cdiv(dw.numel(), 256),), (parts, dw, dw.numel(), number, channels), (prod(taps), 256)
    )
    return dw


_WINDOW = ((1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1), False)
_DEEP = ((3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), True)
_SEVEN = ((1, 7, 7), (1, 2, 2), (0, 3, 3), (1, 1, 1), False)
_NUMBERS = ("i64?", "i64?", *("i32?",) * 6)


def cases(
    kind: str, sizes: tuple[int, ...], config: Config, window: tuple[object, ...] = _WINDOW
) -> list[Case]:
    """The compiled form of a tile."""
    tile = Tile(**config)
    dtype, precision = TYPES[kind]
    parts = "*fp64" if kind == "double" else "*fp32"
    constants = (*window, False, precision, tile.m, tile.n, tile.k)
    types = (f"*{dtype}", f"*{dtype}", parts, *_NUMBERS)
    return [Case(_part_product, types, constants, tile.warps, tile.stages)]


_BF16 = ("*bf16", "*bf16", "*fp32", *_NUMBERS)
CASES = [
    *cases("half", (), Tile(128, 128, 64, 8, 3)._asdict()),
    *cases("half", (), Tile(128, 128, 64, 8, 3)._asdict(), _DEEP),
    *cases("tf32", (), Tile(128, 64, 32, 4, 3)._asdict()),
    *cases("tf32", (), Tile(128, 64, 32, 4, 3)._asdict(), _DEEP),
    Case(_part_product, (*_BF16, "i32?", "i32", "i32?"), (*_SEVEN, True, "ieee", 64, 64, 32)),
    Case(_part_product, (*_BF16, "i32?", "i32", "i32?"), (*_DEEP, True, "ieee", 64, 64, 32)),
    Case(_part_small_groups, (*_BF16, *("i32?",) * 3), (*_WINDOW, False, 64, 32)),
    Case(_part_small_groups, (*_BF16, "i32?", "i32?", "i32"), (*_WINDOW, True, 64, 32)),
    Case(_part_small_groups, (*_BF16, "i32?", "i32?", "i32"), (*_DEEP, True, 64, 32)),
    Case(_join, ("*fp32", "*bf16", "i32", "i32?"), (9, 256)),
]

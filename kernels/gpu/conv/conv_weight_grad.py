"""The weight gradient of a convolution: a matrix product over all positions of the output.

The positions are split into parts of a fixed size, each with its own sum. The sums are added in
order, so the result uses no atomics and does not depend on the number of processors.
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.configs import Config
from ..launch.jit_kernel import Kernel
from ..matmul.gemm_config import Tile
from ..reduce.reduction_tiles import cdiv, power_of_2
from .conv_geometry import (
    LEAST,
    TYPES,
    Pair,
    Sizes,
    advanced,
    channels_last,
    kind_of,
    positions,
    source_of,
    tile_of,
)


@Kernel
def _part_product(
    dy, x, parts, places: tl.int64, part: tl.int64, h, width, oh, ow, channels, outs, groups,
    TAPS: tl.constexpr, S: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
    FLAT: tl.constexpr, PRECISION: tl.constexpr,
    BN: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Rows are output channels of a group, columns channels of a tap, or of all taps if FLAT."""
    WIDE: tl.constexpr = parts.dtype.element_ty
    group = tl.program_id(2) % groups
    number = (tl.program_id(2) // groups).to(tl.int64)
    o = tl.program_id(0) * BN + tl.arange(0, BN)
    if FLAT:
        column = tl.program_id(1) * BC + tl.arange(0, BC)
        tap = column // channels
        c = column % channels
        known = column < TAPS[0] * TAPS[1] * channels
    else:
        blocks = tl.cdiv(channels, BC)
        tap = tl.program_id(1) // blocks
        c = tl.program_id(1) % blocks * BC + tl.arange(0, BC)
        column = tap * channels + c
        known = c < channels
    total = tl.zeros((BN, BC), WIDE)
    start, _, image, i, j = positions(number * part, places, oh, ow, BK)
    for begin in range(0, part, BK):
        m = start + begin
        inside = m < places
        base = image * h * width
        gs = tl.load(
            dy + (m * (groups * outs) + group * outs)[None, :] + o[:, None],
            mask=inside[None, :] & (o < outs)[:, None], other=0.0,
        )  # fmt: skip
        if FLAT:
            a, in_h = source_of(i[:, None], (tap // TAPS[1])[None, :], h, S[0], P[0], D[0], False)
            b, in_w = source_of(
                j[:, None], (tap % TAPS[1])[None, :], width, S[1], P[1], D[1], False
            )
            at = (base[:, None] + a * width + b) * (groups * channels) + group * channels
            mask = inside[:, None] & in_h & in_w & known[None, :]
        else:
            a, in_h = source_of(i, tap // TAPS[1], h, S[0], P[0], D[0], False)
            b, in_w = source_of(j, tap % TAPS[1], width, S[1], P[1], D[1], False)
            at = ((base + a * width + b) * (groups * channels) + group * channels)[:, None]
            mask = (inside & in_h & in_w)[:, None] & known[None, :]
        xs = tl.load(x + at + c[None, :], mask=mask, other=0.0)
        total = tl.dot(gs, xs, total, input_precision=PRECISION, out_dtype=WIDE)
        image, i, j = advanced(image, i, j, oh, ow, BK)
    rows = number * groups * outs + group * outs + o
    at = rows[:, None] * (TAPS[0] * TAPS[1] * channels) + column[None, :]
    tl.store(parts + at, total, mask=(o < outs)[:, None] & known[None, :])


@Kernel
def _part_small_groups(
    dy, x, parts, places: tl.int64, part: tl.int64, h, width, oh, ow, channels, outs, groups,
    TAPS: tl.constexpr, S: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One tap and channel of a group, for a block of output channels of all groups."""
    WIDE: tl.constexpr = parts.dtype.element_ty
    number = tl.program_id(2).to(tl.int64)
    o = tl.program_id(0) * BN + tl.arange(0, BN)
    known = o < groups * outs
    tap = tl.program_id(1) // channels
    c = o // outs * channels + tl.program_id(1) % channels
    total = tl.zeros((BK, BN), WIDE)
    start, _, image, i, j = positions(number * part, places, oh, ow, BK)
    for begin in range(0, part, BK):
        m = start + begin
        inside = m < places
        base = image * h * width
        a, in_h = source_of(i, tap // TAPS[1], h, S[0], P[0], D[0], False)
        b, in_w = source_of(j, tap % TAPS[1], width, S[1], P[1], D[1], False)
        at = (base + a * width + b) * (groups * channels)
        gs = tl.load(
            dy + (m * (groups * outs))[:, None] + o[None, :],
            mask=inside[:, None] & known[None, :], other=0.0,
        )  # fmt: skip
        mask = (inside & in_h & in_w)[:, None] & known[None, :]
        xs = tl.load(x + at[:, None] + c[None, :], mask=mask, other=0.0)
        total += gs.to(WIDE) * xs.to(WIDE)
        image, i, j = advanced(image, i, j, oh, ow, BK)
    at = (number * groups * outs + o) * (TAPS[0] * TAPS[1] * channels) + tl.program_id(1)
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
    rows: Tensor, columns: Tensor, taps: Pair, sizes: Sizes, groups: int, tile: Tile | None = None
) -> Tensor:
    """dw[o, c, r, s] = sum of rows[n, o, i, j] * columns[n, c, i', j'] over n, i and j.

    i' and j' are the positions that tap (r, s) reads for i and j.
    """
    n, outs, oh, ow = rows.shape
    _, channels, h, width = columns.shape
    outs, channels, places = outs // groups, channels // groups, n * oh * ow
    depth = taps[0] * taps[1] * channels
    wide = torch.float64 if rows.dtype is torch.float64 else torch.float32
    kind = kind_of(rows.dtype)
    small = groups > 1 and min(channels, outs) < LEAST
    flat = channels % LEAST != 0
    if small:
        bn, bk = min(max(power_of_2(groups * outs), 16), 64), 32
        grid = (cdiv(groups * outs, bn), depth)
    else:
        bn, bc, bk, warps, stages, _ = tile or tile_of(
            "convolution_weight_grad", kind, outs, depth if flat else channels, places, flat
        )
        if flat and kind == "tf32" and tile is None:
            warps = max(warps, 8)  # 4 would spill
        across = cdiv(depth, bc) if flat else taps[0] * taps[1] * cdiv(channels, bc)
        grid = (cdiv(outs, bn), across)
    part = _part(places, grid[0] * grid[1] * (1 if small else groups))
    number = cdiv(places, part)
    parts = torch.empty((number, groups * outs, depth), dtype=wide, device=rows.device)
    args = (
        channels_last(rows), channels_last(columns), parts, places, part, h, width, oh, ow,
        channels, outs, groups,
    )  # fmt: skip
    window = (taps, *sizes)
    if small:
        _part_small_groups.launch((*grid, number), args, (*window, bn, bk))
    else:
        constants = (*window, flat, "tf32" if kind == "tf32" else "ieee", bn, bc, bk)
        _part_product.launch((*grid, groups * number), args, constants, warps, stages)
    dw = torch.empty((groups * outs, channels, *taps), dtype=rows.dtype, device=rows.device)
    _join.launch(
        (cdiv(dw.numel(), 256),),
        (parts, dw, dw.numel(), number, channels),
        (taps[0] * taps[1], 256),
    )
    return dw


_WINDOW = ((3, 3), (1, 1), (1, 1), (1, 1))


def cases(kind: str, sizes: tuple[int, ...], config: Config) -> list[Case]:
    """The compiled form of a tile."""
    tile = Tile(**config)
    dtype, precision = TYPES[kind]
    parts = "*fp64" if kind == "double" else "*fp32"
    numbers = ("i64?", "i64?", *("i32?",) * 4)
    constants = (*_WINDOW, False, precision, tile.m, tile.n, tile.k)
    types = (f"*{dtype}", f"*{dtype}", parts, *numbers)
    return [Case(_part_product, types, constants, tile.warps, tile.stages)]


CASES = [
    *cases("half", (), Tile(128, 128, 64, 8, 3)._asdict()),
    *cases("tf32", (), Tile(128, 64, 32, 4, 3)._asdict()),
    Case(
        _part_product, ("*bf16", "*bf16", "*fp32", "i64?", "i64?", *("i32?",) * 5, "i32", "i32?"),
        ((7, 7), (2, 2), (3, 3), (1, 1), True, "ieee", 64, 64, 32)
    ),
    Case(
        _part_small_groups,
        ("*bf16", "*bf16", "*fp32", "i64?", "i64?", *("i32?",) * 7), (*_WINDOW, 64, 32)
    ),
    Case(_join, ("*fp32", "*bf16", "i32", "i32?"), (9, 256)),
]  # fmt: skip

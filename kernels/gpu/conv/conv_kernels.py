"""Convolution as a matrix product: rows are positions of the output, columns its channels.

Tensors are channels-last, so that the channels of a window are read 16 bytes at once. A transposed
convolution (the gradient of the input) is the same product: each output position computes which
input positions contribute to it. Few channels and small groups have kernels of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import triton.language as tl
from torch import Tensor

from ... import conv_ref as reference
from ..launch.aot_cases import Case
from ..launch.configs import Config, Tuned, random_inputs
from ..launch.jit_kernel import Kernel
from ..matmul.gemm_config import Tile, shape_class
from ..pointwise.copy_kernels import contiguous, reshape
from ..reduce.reduction_tiles import cdiv, power_of_2
from . import conv_weight_grad
from .conv_geometry import (
    LEAST,
    TYPES,
    Ints,
    Sizes,
    as_planes,
    blank,
    channels_last,
    kind_of,
    positions,
    source_of,
    tile_of,
    tiles_allowed,
    two,
    works,
)
from .conv_weight_grad import weight_grad

# Left to torch: convolutions of three dims, and dtypes that are not floating.


@Kernel
def product(
    x, w, bias, y, places: tl.int64, h, width, oh, ow, channels, outs, groups,
    TAPS: tl.constexpr, S: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
    TRANSPOSED: tl.constexpr, BIAS: tl.constexpr,
    FLAT: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """`channels` and `outs` are those of one group. FLAT treats taps and channels as one dim."""
    WIDE: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    group = tl.program_id(2)
    first_m = tl.program_id(0).to(tl.int64) * BM
    m, inside, image, i, j = positions(first_m, places, oh, ow, BM)
    o = tl.program_id(1) * BN + tl.arange(0, BN)
    base = image * h * width
    weights = w + (group * outs + o).to(tl.int64) * (TAPS[0] * TAPS[1] * channels)
    total = tl.zeros((BM, BN), WIDE)
    c = tl.arange(0, BK)
    if FLAT:
        for begin in range(0, TAPS[0] * TAPS[1] * channels, BK):
            k = begin + c
            tap = k // channels
            a, in_h = source_of(
                i[:, None], (tap // TAPS[1])[None, :], h, S[0], P[0], D[0], TRANSPOSED
            )
            b, in_w = source_of(
                j[:, None], (tap % TAPS[1])[None, :], width, S[1], P[1], D[1], TRANSPOSED
            )
            known = k < TAPS[0] * TAPS[1] * channels
            at = (base[:, None] + a * width + b) * (groups * channels) + group * channels
            xs = tl.load(
                x + at + (k % channels)[None, :],
                mask=inside[:, None] & in_h & in_w & known[None, :], other=0.0,
            )  # fmt: skip
            ws = tl.load(
                weights[None, :] + k[:, None], mask=known[:, None] & (o < outs)[None, :], other=0.0
            )
            total = tl.dot(xs, ws, total, input_precision=PRECISION, out_dtype=WIDE)
    else:
        steps = tl.cdiv(channels, BK)
        for step in range(TAPS[0] * TAPS[1] * steps):
            tap = step // steps
            k = step % steps * BK + c
            a, in_h = source_of(i, tap // TAPS[1], h, S[0], P[0], D[0], TRANSPOSED)
            b, in_w = source_of(j, tap % TAPS[1], width, S[1], P[1], D[1], TRANSPOSED)
            at = (base + a * width + b) * (groups * channels) + group * channels
            known = k < channels
            xs = tl.load(
                x + at[:, None] + k[None, :],
                mask=(inside & in_h & in_w)[:, None] & known[None, :], other=0.0,
            )  # fmt: skip
            ws = tl.load(
                weights[None, :] + (tap * channels + k)[:, None],
                mask=known[:, None] & (o < outs)[None, :], other=0.0,
            )  # fmt: skip
            total = tl.dot(xs, ws, total, input_precision=PRECISION, out_dtype=WIDE)
    if BIAS:
        total += tl.load(bias + group * outs + o, mask=o < outs, other=0.0).to(WIDE)[None, :]
    at = m[:, None] * (groups * outs) + (group * outs + o)[None, :]
    known = inside[:, None] & (o < outs)[None, :]
    tl.store(y + at, total.to(y.dtype.element_ty), mask=known)


@Kernel
def small_groups(
    x, w, bias, y, places: tl.int64, h, width, oh, ow, channels, outs, groups,
    TAPS: tl.constexpr, S: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
    TRANSPOSED: tl.constexpr, BIAS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Columns are the channels of all groups; each reads the inputs of its own group."""
    WIDE: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    first_m = tl.program_id(0).to(tl.int64) * BM
    m, inside, image, i, j = positions(first_m, places, oh, ow, BM)
    o = tl.program_id(1) * BN + tl.arange(0, BN)
    known = o < groups * outs
    first = o // outs * channels
    base = image * h * width
    total = tl.zeros((BM, BN), WIDE)
    for step in range(TAPS[0] * TAPS[1] * channels):
        tap = step // channels
        c = step % channels
        a, in_h = source_of(i, tap // TAPS[1], h, S[0], P[0], D[0], TRANSPOSED)
        b, in_w = source_of(j, tap % TAPS[1], width, S[1], P[1], D[1], TRANSPOSED)
        at = (base + a * width + b) * (groups * channels) + c
        mask = (inside & in_h & in_w)[:, None] & known[None, :]
        xs = tl.load(x + at[:, None] + first[None, :], mask=mask, other=0.0)
        ws = tl.load(
            w + o.to(tl.int64) * (TAPS[0] * TAPS[1] * channels) + step, mask=known, other=0.0
        )
        total += xs.to(WIDE) * ws.to(WIDE)[None, :]
    if BIAS:
        total += tl.load(bias + o, mask=known, other=0.0).to(WIDE)[None, :]
    at = m[:, None] * (groups * outs) + o[None, :]
    tl.store(y + at, total.to(y.dtype.element_ty), mask=inside[:, None] & known[None, :])


def _weights(w: Tensor, transposed: bool, groups: int) -> Tensor:
    """[channels of the result, kH, kW, channels of a group of the input], dense."""
    if not transposed:
        return channels_last(w)
    channels, outs, *taps = w.shape
    split = reshape(w, (groups, channels // groups, outs, *taps)).permute(0, 2, 3, 4, 1)
    return contiguous(split).view(groups * outs, *taps, channels // groups)


def convolution(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int, tile: Tile | None = None,
) -> Tensor:  # fmt: skip
    given = (stride, padding, dilation, transposed, output_padding, groups)
    if not works(x):
        return reference.convolution(x, w, bias, *given)
    shape = reference.convolution(blank(x), blank(w), None, *given).shape
    if x.ndim == 3:
        sizes = Sizes.of(stride, padding, dilation)
        more = (transposed, two(output_padding, 0), groups)
        return convolution(as_planes(x), as_planes(w), bias, *sizes, *more).squeeze(2)
    n, outs, oh, ow = shape
    y = torch.empty((n, oh, ow, outs), dtype=x.dtype, device=x.device)
    weights = _weights(w, transposed, groups)
    channels, h, width = x.shape[1:]
    outs, channels, places = outs // groups, channels // groups, n * oh * ow
    bias = None if bias is None else bias.contiguous()
    args = (
        channels_last(x), weights, bias, y, places, h, width, oh, ow, channels, outs, groups,
    )  # fmt: skip
    window = (tuple(w.shape[2:]), stride, padding, dilation, transposed, bias is not None)
    if groups > 1 and min(channels, outs) < LEAST:
        bm, bn = 16, min(max(power_of_2(groups * outs), 16), 64)
        grid: tuple[int, ...] = (cdiv(places, bm), cdiv(groups * outs, bn))
        small_groups.launch(grid, args, (*window, bm, bn))
        return y.permute(0, 3, 1, 2)
    flat = channels % LEAST != 0
    depth = channels * weights.shape[1] * weights.shape[2] if flat else channels
    kind = kind_of(x.dtype)
    bm, bn, bk, warps, stages, _ = tile or tile_of("convolution", kind, places, outs, depth, flat)
    grid = (cdiv(places, bm), cdiv(outs, bn), groups)
    constants = (*window, flat, "tf32" if kind == "tf32" else "ieee", bm, bn, bk)
    product.launch(grid, args, constants, warps, stages)
    return y.permute(0, 3, 1, 2)


def convolution_weight_grad(
    dy: Tensor, x: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int, tile: Tile | None = None,
) -> Tensor:  # fmt: skip
    given = (stride, padding, dilation, transposed, output_padding, groups)
    if not works(x) or not dy.numel() or not x.numel():
        return reference.convolution_weight_grad(dy, x, shape, *given)
    sizes = Sizes.of(stride, padding, dilation)
    rows, columns = as_planes(dy), as_planes(x)
    if transposed:  # the input is to the result what the result is to the input
        rows, columns = columns, rows
    taps = two(shape[2:], 1)
    return weight_grad(rows, columns, taps, sizes, groups, tile).view(shape)


def _places(sizes: tuple[int, ...]) -> tuple[int, int, int]:
    """(places, outs, channels) of a convolution of images, side, channels, outs."""
    images, side, channels, outs = sizes
    return images * side * side, outs, channels


def _of_weight(sizes: tuple[int, ...]) -> tuple[int, int, int]:
    places, outs, channels = _places(sizes)
    return outs, channels, places


def _call(
    config: Config, dtype: torch.dtype, sizes: tuple[int, ...], back: bool
) -> Callable[[], Tensor]:
    images, side, channels, outs = sizes
    plane, filters = (side, side), (outs, channels, 3, 3)
    x, dy, w = random_inputs(dtype, (images, channels, *plane), (images, outs, *plane), filters)
    window = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    if back:
        return lambda: convolution_weight_grad(dy, x, w.shape, *window, Tile(**config))
    return lambda: convolution(x, w, None, *window, Tile(**config))


def _tuned(
    kernel: str, of: Callable[[tuple[int, ...]], tuple[int, int, int]], back: bool,
    cases: Callable[[str, tuple[int, ...], Config], list[Case]],
) -> Tuned:  # fmt: skip
    return Tuned(
        kernel,
        (torch.bfloat16, torch.float32),
        {shape_class(*of(sizes)): sizes for sizes in _SIZES},
        lambda dtype, sizes: [t._asdict() for t in tiles_allowed(kind_of(dtype), *of(sizes))],
        partial(_call, back=back),
        cases,
        kind_of,
    )


_ONE = ((3, 3), (1, 1), (1, 1), (1, 1), False, False)


def _cases(kind: str, sizes: tuple[int, ...], config: Config) -> list[Case]:
    tile = Tile(**config)
    dtype, precision = TYPES[kind]
    types = (*[f"*{dtype}"] * 4, "i64?", *("i32?",) * 4)
    constants = (*_ONE, False, precision, tile.m, tile.n, tile.k)
    return [Case(product, types, constants, tile.warps, tile.stages)]


_SIZES = ((32, 56, 64, 64), (32, 28, 128, 128), (32, 14, 256, 256), (32, 7, 512, 512))
TUNED = [
    _tuned("convolution", _places, False, _cases),
    _tuned("convolution_weight_grad", _of_weight, True, conv_weight_grad.cases),
]

CASES = [
    *_cases("half", (), Tile(128, 128, 64, 8, 3)._asdict()),
    *_cases("tf32", (), Tile(128, 64, 32, 4, 3)._asdict()),
    Case(
        product, (*["*bf16"] * 4, "i64?", *("i32?",) * 5, "i32", "i32?"),
        ((7, 7), (2, 2), (3, 3), (1, 1), False, False, True, "ieee", 64, 64, 32)
    ),
    Case(
        product, (*["*bf16"] * 4, "i64?", *("i32?",) * 4),
        ((3, 3), (2, 2), (1, 1), (1, 1), True, False, False, "ieee", 128, 128, 64), warps=8
    ),
    Case(
        small_groups, (*["*bf16"] * 4, "i64?", *("i32?",) * 7), (*_ONE, 16, 64)
    ),
]  # fmt: skip

"""Convolution of one, two or three dims as a matrix product: rows are positions of the output,
columns its channels. Where it can, TMA copies the windows (`conv_boxes.py`).

Tensors are channels-last, so that the channels of a window are read 16 bytes at once. A transposed
convolution (the gradient of the input) is the same product: each output position computes which
input positions contribute to it. Few channels and small groups have kernels of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import torch
import triton.language as tl
from torch import Tensor

from ... import conv_ref as reference
from ..launch.aot_cases import Case
from ..launch.configs import Config, Tuned, random_inputs
from ..launch.jit_kernel import Kernel
from ..matmul.gemm_config import Tile
from ..matmul.gemm_tiles import forms_of_tile
from ..pointwise.channels_last import dense, empty, turned
from ..pointwise.copy_kernels import contiguous, reshape
from ..reduce.reduction_tiles import cdiv
from . import conv_boxes, conv_weight_grad, one_product
from .conv_geometry import (
    IMAGES,
    LARGE,
    LEAST,
    TILES,
    TYPES,
    Ints,
    Products,
    Sizes,
    Volumes,
    as_volumes,
    blank,
    kind_of,
    of_images,
    small_tile,
    three,
    tile_of,
    tiles_allowed,
    works,
)
from .conv_weight_grad import weight_grad
from .phases import phases
from .windows import positions, reached, results, starts

# Left to torch: dtypes that are not floating, and convolutions of nothing.


@Kernel
def product(
    x, w, bias, y, places: tl.int64, d, h, width, od, oh, ow,
    y_image: tl.int64, y_depth, y_row, y_column, channels, outs, groups,
    TAPS: tl.constexpr, S: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
    TRANSPOSED: tl.constexpr, DEEP: tl.constexpr, SPREAD: tl.constexpr, BIAS: tl.constexpr,
    FLAT: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """`channels` and `outs` are those of one group. FLAT treats taps and channels as one dim."""
    WIDE: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    COUNT: tl.constexpr = TAPS[0] * TAPS[1] * TAPS[2]
    group = tl.program_id(2)
    every = groups * channels
    first_m = tl.program_id(0).to(tl.int64) * BM
    m, inside, image, e, i, j = positions(first_m, places, od, oh, ow, DEEP, BM)
    to = results(m, image, e, i, j, groups * outs, y_image, y_depth, y_row, y_column, SPREAD, DEEP)
    o = tl.program_id(1) * BN + tl.arange(0, BN)
    step = tl.arange(0, BK)
    weights = w + ((group * outs + o).to(tl.int64) * (COUNT * channels))[None, :] + step[:, None]
    first, e, i, j = starts(image, e, i, j, d, h, width, S, P, TRANSPOSED, DEEP)
    x += (first * every + group * channels)[:, None]
    e, i, j = e[:, None], i[:, None], j[:, None]
    total = tl.zeros((BM, BN), WIDE)
    length = COUNT * channels if FLAT else COUNT * tl.cdiv(channels, BK) * BK
    tap, begin_c = 0, 0  # where a step begins
    for begin in range(0, length, BK):
        if FLAT:
            column = begin
            of_tap, c = (begin + step)[None, :] // channels, (begin + step) % channels
            known = begin + step < COUNT * channels
        else:
            column = tap * channels + begin_c
            of_tap, c = tap, begin_c + step
            known = c < channels
        further, exists = reached(e, i, j, of_tap, d, h, width, every, TAPS, D, TRANSPOSED, DEEP)
        mask = inside[:, None] & exists & known[None, :]
        xs = tl.load(x + (further + c[None, :]), mask=mask, other=0.0)
        mask = known[:, None] & (o < outs)[None, :]
        ws = tl.load(weights + column, mask=mask, other=0.0)
        total = tl.dot(xs, ws, total, input_precision=PRECISION, out_dtype=WIDE)
        if not FLAT:
            begin_c += BK
            tap = tl.where(begin_c < channels, tap, tap + 1)
            begin_c = tl.where(begin_c < channels, begin_c, 0)
    if BIAS:
        total += tl.load(bias + group * outs + o, mask=o < outs, other=0.0).to(WIDE)[None, :]
    known = inside[:, None] & (o < outs)[None, :]
    at = to[:, None] + (group * outs + o)[None, :]
    tl.store(y + at, total.to(y.dtype.element_ty), mask=known)


@Kernel
def small_groups(
    x, w, bias, y, places: tl.int64, d, h, width, od, oh, ow,
    y_image: tl.int64, y_depth, y_row, y_column, channels, outs, groups,
    TAPS: tl.constexpr, S: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
    TRANSPOSED: tl.constexpr, DEEP: tl.constexpr, SPREAD: tl.constexpr, BIAS: tl.constexpr,
    DEPTHWISE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Columns are the channels of all groups; each reads the inputs of its own group.

    The weight is [taps, channels, outs of all groups]. DEPTHWISE: each group has one channel and
    one out, so neighbors of both lie side by side.
    """
    WIDE: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    COUNT: tl.constexpr = TAPS[0] * TAPS[1] * TAPS[2]
    first_m = tl.program_id(0).to(tl.int64) * BM
    m, inside, image, e, i, j = positions(first_m, places, od, oh, ow, DEEP, BM)
    o = tl.program_id(1) * BN + tl.arange(0, BN)
    every = groups if DEPTHWISE else groups * outs
    size = groups if DEPTHWISE else groups * channels
    known = o < every
    to = results(m, image, e, i, j, every, y_image, y_depth, y_row, y_column, SPREAD, DEEP)
    first, e, i, j = starts(image, e, i, j, d, h, width, S, P, TRANSPOSED, DEEP)
    c = o if DEPTHWISE else o // outs * channels
    x += (first * size)[:, None] + c[None, :]
    total = tl.zeros((BM, BN), WIDE)
    for tap in range(COUNT):
        further, exists = reached(e, i, j, tap, d, h, width, size, TAPS, D, TRANSPOSED, DEEP)
        mask = (inside & exists)[:, None] & known[None, :]
        for step in range(1 if DEPTHWISE else channels):
            xs = tl.load(x + (further + step), mask=mask, other=0.0)
            ws = tl.load(w + ((tap * channels + step) * every + o), mask=known, other=0.0)
            total += xs.to(WIDE) * ws.to(WIDE)[None, :]
    if BIAS:
        total += tl.load(bias + o, mask=known, other=0.0).to(WIDE)[None, :]
    at = to[:, None] + o[None, :]
    tl.store(y + at, total.to(y.dtype.element_ty), mask=inside[:, None] & known[None, :])


def _weights(w: Tensor, transposed: bool, groups: int, small: bool) -> Tensor:
    """[outs of all groups, taps, channels of a group of the input], dense.

    For small groups [taps, channels, outs].
    """
    if not transposed:
        return contiguous(w.permute(2, 3, 4, 1, 0)) if small else dense(w, True)
    channels, outs, *taps = w.shape
    split = reshape(w, (groups, channels // groups, outs, *taps))
    order = (3, 4, 5, 1, 0, 2) if small else (0, 2, 3, 4, 5, 1)
    return contiguous(split.permute(order))


def convolution(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int, tile: Tile | None = None,
) -> Tensor:  # fmt: skip
    given = (stride, padding, dilation, transposed, output_padding, groups)
    if not works(x) or not x.numel() or not w.numel():
        return reference.convolution(x, w, bias, *given)
    shape = reference.convolution(blank(x), blank(w), None, *given).shape
    y = empty(shape, True, x.dtype, x.device)
    taps, sizes = three(w.shape[2:], 1), Sizes.of(stride, padding, dilation)
    v = Volumes.of(x.shape[0], x.shape[2:], shape[2:], taps, sizes)
    if tile is None and one_product.is_product(x.dtype, v, taps, sizes, groups):
        return one_product.convolution(x, w, bias, transposed, y)
    if transposed and tile is None and one_product.has_patches(x.dtype, v, taps, sizes, groups):
        one_product.patches(as_volumes(x), as_volumes(w), bias, as_volumes(y))
        return y
    bias = None if bias is None else bias.contiguous()
    source, weight, result = dense(x, True), as_volumes(w), as_volumes(y)
    if not transposed or sizes.stride == (1, 1, 1):
        _convolve(source, weight, bias, result, sizes, transposed, groups, x.shape, tile)
        return y
    for phase in phases(taps, sizes):
        part = result[phase.outputs]
        if part.numel():
            ones = Sizes((1, 1, 1), phase.padding, phase.dilation)
            own = weight[phase.taps]
            _convolve(source, own, bias, part, ones, True, groups, x.shape, tile)
    return y


def _convolve(
    x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, sizes: Sizes, transposed: bool,
    groups: int, shape: Ints, tile: Tile | None,
) -> None:  # fmt: skip
    """Compute y, a volume whose channels are dense, from channels-last x of this shape.

    A weight without taps gives the bias alone.
    """
    n, every, *output = y.shape
    outs, channels = every // groups, shape[1] // groups
    if not w.numel():
        w, channels = w.new_empty((*w.shape[:2], 1, 1, 1)), 0
    taps = three(w.shape[2:], 1)
    strides = y.stride()
    v = Volumes.of(n, shape[2:], output, taps, sizes, strides[0] != output[0] * strides[2])
    small = groups > 1 and min(shape[1] // groups, outs) < LEAST
    image = strides[0] if v.deep else strides[2]
    spread = transposed and not turned(y).is_contiguous()
    weight = _weights(w, transposed, groups, small)
    args = (
        x, weight, bias, y, v.places, *v.source, *v.output, image, *strides[2:], channels, outs,
        groups,
    )  # fmt: skip
    window = (taps, *sizes, transposed, v.deep, spread, bias is not None)
    if small:
        depthwise = channels == outs == 1
        bm, bn, warps = small_tile(v.places, every, depthwise, x.dtype, 16)
        grid: tuple[int, ...] = (cdiv(v.places, bm), cdiv(every, bn))
        small_groups.launch(grid, args, (*window, depthwise, bm, bn), warps)
        return
    flat, kind, count = channels % LEAST != 0, kind_of(x.dtype), prod(taps)
    depth, count = (channels * count, 1) if flat else (channels, count)
    p = Products(v.places, outs, depth, count, groups, flat)
    y_strides = (image, *strides[3:])
    if tile is None and conv_boxes.suit(x, weight, y, y_strides, v, p, sizes):
        conv_boxes.convolve(x, weight, bias, y, y_strides, v, p, taps, sizes, transposed)
        return
    chosen = tile or tile_of("convolution", kind, p)
    bm, bn, bk, warps, stages, *_ = chosen
    bn = min(bn, 128) if spread else bn  # where each result lies takes registers
    grid = (cdiv(v.places, bm), cdiv(outs, bn), groups)
    constants = (*window, flat, "tf32" if kind == "tf32" else "ieee", bm, bn, bk)
    product.launch(grid, args, constants, warps, stages)


def convolution_weight_grad(
    dy: Tensor, x: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int, last: bool = False,
    tile: Tile | None = None,
) -> Tensor:  # fmt: skip
    given = (stride, padding, dilation, transposed, output_padding, groups, last)
    if not works(x) or not dy.numel() or not x.numel():
        return reference.convolution_weight_grad(dy, x, shape, *given)
    sizes = Sizes.of(stride, padding, dilation)
    # With `transposed`, the input is to the result what the result is to the input.
    rows, columns = (x, dy) if transposed else (dy, x)
    taps = three(shape[2:], 1)
    return weight_grad(rows, columns, taps, sizes, groups, last, tile).view(shape)


def _of_weight(sizes: tuple[int, ...]) -> Products:
    images, side, channels, outs = sizes
    return Products(outs, channels, images * side * side, times=9, across=True)


def _call(
    config: Config, dtype: torch.dtype, sizes: tuple[int, ...], back: bool
) -> Callable[[], Tensor]:
    images, side, channels, outs = sizes
    plane, filters = (side, side), (outs, channels, 3, 3)
    made = random_inputs(dtype, (images, channels, *plane), (images, outs, *plane), filters)
    x, dy, w = (each.contiguous(memory_format=torch.channels_last) for each in made)
    window = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    if back:
        return lambda: convolution_weight_grad(dy, x, w.shape, *window, False, Tile(**config))
    return lambda: convolution(x, w, None, *window, Tile(**config))


def _tuned(
    kernel: str, of: Callable[[tuple[int, ...]], Products], back: bool,
    cases: Callable[[str, tuple[int, ...], Config], list[Case]],
) -> Tuned:  # fmt: skip
    return Tuned(
        kernel,
        (torch.bfloat16, torch.float32),
        {of(sizes).shape_class: sizes for sizes in IMAGES},
        lambda dtype, sizes: [t._asdict() for t in tiles_allowed(kind_of(dtype), of(sizes))],
        partial(_call, back=back),
        cases,
        kind_of,
    )


_ONE = ((1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1), False, False, False, False)
_DEEP = ((3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), False, True, False, False)
_NUMBERS = ("i64?", *("i32?",) * 6, "i64", *("i32",) * 3)


def _cases(
    kind: str, sizes: tuple[int, ...], config: Config, window: tuple[object, ...] = _ONE
) -> list[Case]:
    """The compiled forms of a tile."""
    dtype, precision = TYPES[kind]
    types = (*[f"*{dtype}"] * 4, *_NUMBERS)
    tile = Tile(**config)
    return forms_of_tile(product, types, (*window, False, precision, *tile[:3]), tile)


TUNED = [
    _tuned("convolution", of_images, False, _cases),
    _tuned("convolution_weight_grad", _of_weight, True, conv_weight_grad.cases),
]

_SEVEN = ((1, 7, 7), (1, 2, 2), (0, 3, 3), (1, 1, 1), False, False, False, False)
_PHASE = ((1, 2, 2), (1, 1, 1), (0, 1, 1), (1, 1, 1), True, False, True, False)
_BF16 = (*["*bf16"] * 4, *_NUMBERS)
CASES = [
    *[
        case
        for kind, tile in (*TILES, ("half", LARGE))
        for window in (_ONE, _DEEP)
        for case in _cases(kind, (), tile._asdict(), window)
    ],
    Case(product, (*_BF16, "i32?", "i32", "i32?"), (*_SEVEN, True, "ieee", 64, 64, 32), 8, 2),
    Case(product, (*_BF16, "i32?", "i32", "i32?"), (*_DEEP, True, "ieee", 64, 64, 32), 8, 2),
    *_cases("half", (), TILES[0][1]._asdict(), _PHASE),
    Case(small_groups, (*_BF16, *("i32?",) * 3), (*_ONE, False, 16, 64)),
    *[
        Case(small_groups, (*[x] * 4, *_NUMBERS, "i32?", "i32?", "i32"), (*window, True, *tile), w)
        for x, window in (("*bf16", _ONE), ("*fp32", _ONE), ("*bf16", _DEEP))
        for tile, w in (((16, 64), 4), ((128, 64), 8))
    ],
]

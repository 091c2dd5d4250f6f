"""Convolution of one, two or three dims as a matrix product: rows are positions of the output,
columns its channels.

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
from ..matmul.gemm_config import Tile, shape_class
from ..pointwise.channels_last import dense, empty
from ..pointwise.copy_kernels import contiguous, reshape
from ..reduce.reduction_tiles import cdiv, power_of_2
from . import conv_weight_grad
from .conv_geometry import (
    LEAST,
    TYPES,
    Ints,
    Sizes,
    Volumes,
    as_volumes,
    blank,
    kind_of,
    positions,
    sources,
    three,
    tile_of,
    tiles_allowed,
    works,
)
from .conv_weight_grad import weight_grad

# Left to torch: dtypes that are not floating.


@Kernel
def product(
    x, w, bias, y, places: tl.int64, d, h, width, od, oh, ow, channels, outs, groups,
    TAPS: tl.constexpr, S: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
    TRANSPOSED: tl.constexpr, DEEP: tl.constexpr, BIAS: tl.constexpr,
    FLAT: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """`channels` and `outs` are those of one group. FLAT treats taps and channels as one dim."""
    WIDE: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    COUNT: tl.constexpr = TAPS[0] * TAPS[1] * TAPS[2]
    group = tl.program_id(2)
    first_m = tl.program_id(0).to(tl.int64) * BM
    m, inside, image, e, i, j = positions(first_m, places, od, oh, ow, DEEP, BM)
    o = tl.program_id(1) * BN + tl.arange(0, BN)
    weights = w + (group * outs + o).to(tl.int64) * (COUNT * channels)
    total = tl.zeros((BM, BN), WIDE)
    c = tl.arange(0, BK)
    if FLAT:
        for begin in range(0, COUNT * channels, BK):
            k = begin + c
            at, exists = sources(
                image[:, None], e[:, None], i[:, None], j[:, None], (k // channels)[None, :],
                d, h, width, TAPS, S, P, D, TRANSPOSED, DEEP,
            )  # fmt: skip
            known = k < COUNT * channels
            at = at * (groups * channels) + group * channels
            xs = tl.load(
                x + at + (k % channels)[None, :],
                mask=inside[:, None] & exists & known[None, :], other=0.0,
            )  # fmt: skip
            ws = tl.load(
                weights[None, :] + k[:, None], mask=known[:, None] & (o < outs)[None, :], other=0.0
            )
            total = tl.dot(xs, ws, total, input_precision=PRECISION, out_dtype=WIDE)
    else:
        steps = tl.cdiv(channels, BK)
        for step in range(COUNT * steps):
            tap = step // steps
            k = step % steps * BK + c
            at, exists = sources(image, e, i, j, tap, d, h, width, TAPS, S, P, D, TRANSPOSED, DEEP)
            at = at * (groups * channels) + group * channels
            known = k < channels
            xs = tl.load(
                x + at[:, None] + k[None, :],
                mask=(inside & exists)[:, None] & known[None, :], other=0.0,
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
    x, w, bias, y, places: tl.int64, d, h, width, od, oh, ow, channels, outs, groups,
    TAPS: tl.constexpr, S: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
    TRANSPOSED: tl.constexpr, DEEP: tl.constexpr, BIAS: tl.constexpr, DEPTHWISE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Columns are the channels of all groups; each reads the inputs of its own group.

    The weight is [taps, channels, outs of all groups]. DEPTHWISE: each group has one channel and
    one out, so neighbours of both lie side by side.
    """
    WIDE: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    first_m = tl.program_id(0).to(tl.int64) * BM
    m, inside, image, e, i, j = positions(first_m, places, od, oh, ow, DEEP, BM)
    o = tl.program_id(1) * BN + tl.arange(0, BN)
    every = groups if DEPTHWISE else groups * outs
    known = o < every
    total = tl.zeros((BM, BN), WIDE)
    COUNT: tl.constexpr = TAPS[0] * TAPS[1] * TAPS[2]
    for step in range(COUNT if DEPTHWISE else COUNT * channels):
        tap = step if DEPTHWISE else step // channels
        at, exists = sources(image, e, i, j, tap, d, h, width, TAPS, S, P, D, TRANSPOSED, DEEP)
        mask = (inside & exists)[:, None] & known[None, :]
        if DEPTHWISE:
            at = (at * groups)[:, None] + o[None, :]
        else:
            at = (at * (groups * channels))[:, None] + (o // outs * channels)[None, :]
            at += step % channels
        xs = tl.load(x + at, mask=mask, other=0.0)
        ws = tl.load(w + step * every + o, mask=known, other=0.0)
        total += xs.to(WIDE) * ws.to(WIDE)[None, :]
    if BIAS:
        total += tl.load(bias + o, mask=known, other=0.0).to(WIDE)[None, :]
    at = m[:, None] * every + o[None, :]
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
    if not works(x):
        return reference.convolution(x, w, bias, *given)
    n, every, *output = reference.convolution(blank(x), blank(w), None, *given).shape
    taps, sizes = three(w.shape[2:], 1), Sizes.of(stride, padding, dilation)
    v = Volumes.of(n, x.shape[2:], output, taps, sizes)
    outs, channels = every // groups, x.shape[1] // groups
    small = groups > 1 and min(channels, outs) < LEAST
    y = empty((n, every, *output), True, x.dtype, x.device)
    args = (
        dense(x, True), _weights(as_volumes(w), transposed, groups, small),
        None if bias is None else bias.contiguous(), y, v.places, *v.source, *v.output,
        channels, outs, groups,
    )  # fmt: skip
    window = (taps, *sizes, transposed, v.deep, bias is not None)
    if small:
        bm, bn = 16, min(max(power_of_2(every), 16), 64)
        grid: tuple[int, ...] = (cdiv(v.places, bm), cdiv(every, bn))
        small_groups.launch(grid, args, (*window, channels == outs == 1, bm, bn))
        return y
    flat = channels % LEAST != 0
    depth = channels * prod(taps) if flat else channels
    kind = kind_of(x.dtype)
    chosen = tile or tile_of("convolution", kind, v.places, outs, depth, flat)
    bm, bn, bk, warps, stages, *_ = chosen
    grid = (cdiv(v.places, bm), cdiv(outs, bn), groups)
    constants = (*window, flat, "tf32" if kind == "tf32" else "ieee", bm, bn, bk)
    product.launch(grid, args, constants, warps, stages)
    return y


def convolution_weight_grad(
    dy: Tensor, x: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int, tile: Tile | None = None,
) -> Tensor:  # fmt: skip
    given = (stride, padding, dilation, transposed, output_padding, groups)
    if not works(x) or not dy.numel() or not x.numel():
        return reference.convolution_weight_grad(dy, x, shape, *given)
    sizes = Sizes.of(stride, padding, dilation)
    # With `transposed`, the input is to the result what the result is to the input.
    rows, columns = (x, dy) if transposed else (dy, x)
    return weight_grad(rows, columns, three(shape[2:], 1), sizes, groups, tile).view(shape)


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


_ONE = ((1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1), False, False, False)
_DEEP = ((3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), False, True, False)
_NUMBERS = ("i64?", *("i32?",) * 6)


def _cases(
    kind: str, sizes: tuple[int, ...], config: Config, window: tuple[object, ...] = _ONE
) -> list[Case]:
    tile = Tile(**config)
    dtype, precision = TYPES[kind]
    types = (*[f"*{dtype}"] * 4, *_NUMBERS)
    constants = (*window, False, precision, tile.m, tile.n, tile.k)
    return [Case(product, types, constants, tile.warps, tile.stages)]


_SIZES = ((32, 56, 64, 64), (32, 28, 128, 128), (32, 14, 256, 256), (32, 7, 512, 512))
TUNED = [
    _tuned("convolution", _places, False, _cases),
    _tuned("convolution_weight_grad", _of_weight, True, conv_weight_grad.cases),
]

_SEVEN = ((1, 7, 7), (1, 2, 2), (0, 3, 3), (1, 1, 1), False, False, False)
_BACK = ((1, 3, 3), (1, 2, 2), (0, 1, 1), (1, 1, 1), True, False, False)
_BF16 = (*["*bf16"] * 4, *_NUMBERS)
CASES = [
    *_cases("half", (), Tile(128, 128, 64, 8, 3)._asdict()),
    *_cases("half", (), Tile(128, 128, 64, 8, 3)._asdict(), _DEEP),
    *_cases("tf32", (), Tile(128, 64, 32, 4, 3)._asdict()),
    *_cases("tf32", (), Tile(128, 64, 32, 4, 3)._asdict(), _DEEP),
    Case(product, (*_BF16, "i32?", "i32", "i32?"), (*_SEVEN, True, "ieee", 64, 64, 32)),
    Case(product, (*_BF16, "i32?", "i32", "i32?"), (*_DEEP, True, "ieee", 64, 64, 32)),
    Case(product, _BF16, (*_BACK, False, "ieee", 128, 128, 64), warps=8),
    Case(small_groups, (*_BF16, *("i32?",) * 3), (*_ONE, False, 16, 64)),
    *[
        Case(small_groups, (*[x] * 4, *_NUMBERS, "i32?", "i32?", "i32"), (*window, True, 16, 64))
        for x, window in (("*bf16", _ONE), ("*fp32", _ONE), ("*bf16", _DEEP))
    ],
]

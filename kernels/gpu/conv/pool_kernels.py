"""Max and average pooling: a program computes a tile of positions and channels of the result.

Row-major order and channels-last are read as they lie. In row-major order every plane is one of
the batch, and there is one channel. Gradients use no atomics: the gradient of an element is the sum
over the windows that cover it, in order.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple, TypeAlias

import torch
import triton.language as tl
from torch import Tensor

from ... import pool_ref as reference
from ...pool_ref import AvgSizes, Ints, MaxSizes, UnpoolSizes
from ..gather.scatter_gather import Along, checked, places_of, write
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..pointwise.channels_last import dense, empty, turned_back
from ..pointwise.copy_kernels import contiguous, fill
from ..reduce.reduction_tiles import cdiv, widened
from .conv_geometry import Triple, blank, three
from .pool_geometry import (
    DIMS,
    TILES,
    divisor,
    first_over,
    in_plane,
    is_last,
    launch_pool,
    reach,
    spot,
    tap_of,
    window,
)


@Kernel
def _max(
    x, y, indices, positions: tl.int64, channels, d, h, w, od, oh, ow,
    K: tl.constexpr, S: tl.constexpr, P: tl.constexpr, D: tl.constexpr, ADAPT: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """With ADAPT K are the sizes of the largest windows."""
    to, inside, image, i, j, k, ch = spot(positions, channels, od, oh, ow, BP, BC)
    a0, a1 = reach(i, d, od, S[0], P[0], ADAPT)
    b0, b1 = reach(j, h, oh, S[1], P[1], ADAPT)
    c0, c1 = reach(k, w, ow, S[2], P[2], ADAPT)
    best = tl.full((BP, BC), 0, x.dtype.element_ty)
    where = tl.full((BP, BC), -1, tl.int32)
    for tap in range(K[0] * K[1] * K[2]):
        r, s, t = tap_of(tap, K)
        a, b, c = a0 + r * D[0], b0 + s * D[1], c0 + t * D[2]
        ok = inside & (a >= 0) & (a < a1) & (b >= 0) & (b < b1) & (c >= 0) & (c < c1)
        at = (a * h + b) * w + c
        v = tl.load(x + in_plane(image, at, ch, channels, d, h, w, BC), mask=ok, other=0)
        # As in torch, the first of the largest, or the last NaN.
        better = ok & ((where < 0) | (v > best) | (v != v))
        best = tl.where(better, v, best)
        where = tl.where(better, at, where)
    tl.store(y + to, best, mask=inside)
    tl.store(indices + to, where.to(tl.int64), mask=inside)


@Kernel
def _max_grad(
    dy, indices, dx, positions: tl.int64, channels, d, h, w, od, oh, ow,
    K: tl.constexpr, S: tl.constexpr, P: tl.constexpr, D: tl.constexpr, ADAPT: tl.constexpr,
    OVER: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """OVER is the largest number of windows that cover an element, if they have no gaps."""
    to, inside, image, i, j, k, ch = spot(positions, channels, d, h, w, BP, BC)
    mine = (i * h + j) * w + k
    GAPS: tl.constexpr = D[0] != 1 or D[1] != 1 or D[2] != 1
    COUNT: tl.constexpr = K if GAPS else OVER
    i0 = first_over(i, d, od, K[0], S[0], P[0], ADAPT)
    j0 = first_over(j, h, oh, K[1], S[1], P[1], ADAPT)
    k0 = first_over(k, w, ow, K[2], S[2], P[2], ADAPT)
    total = widened(tl.zeros((BP, BC), dx.dtype.element_ty))
    for number in range(COUNT[0] * COUNT[1] * COUNT[2]):
        ok = inside
        if GAPS:  # from the last tap to the first: the windows then come in their order
            r, s, t = tap_of(COUNT[0] * COUNT[1] * COUNT[2] - 1 - number, COUNT)
            a, b, c = i + P[0] - r * D[0], j + P[1] - s * D[1], k + P[2] - t * D[2]
            ok &= (a >= 0) & (b >= 0) & (c >= 0)
            ok &= (a % S[0] == 0) & (b % S[1] == 0) & (c % S[2] == 0)
            a, b, c = a // S[0], b // S[1], c // S[2]
        else:  # the place of the maximum tells whether a window is over it
            r, s, t = tap_of(number, COUNT)
            a, b, c = i0 + r, j0 + s, k0 + t
        ok &= (a < od) & (b < oh) & (c < ow)
        at = in_plane(image, (a * oh + b) * ow + c, ch, channels, od, oh, ow, BC)
        ok &= tl.load(indices + at, mask=ok, other=-1) == mine
        total += widened(tl.load(dy + at, mask=ok, other=0))
    tl.store(dx + to, total.to(dx.dtype.element_ty), mask=inside)


@Kernel
def _take(
    u, indices, y, positions: tl.int64, channels, d, h, w, od, oh, ow,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    to, inside, image, _, _, _, ch = spot(positions, channels, od, oh, ow, BP, BC)
    place = tl.load(indices + to, mask=inside, other=0)
    at = in_plane(image, place, ch, channels, d, h, w, BC)
    tl.store(y + to, tl.load(u + at, mask=inside, other=0), mask=inside)


@Kernel
def _put(
    y, indices, x, positions: tl.int64, channels, d, h, w, od, oh, ow,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Indices that are not in the plane are left out."""
    to, inside, image, _, _, _, ch = spot(positions, channels, od, oh, ow, BP, BC)
    place = tl.load(indices + to, mask=inside, other=-1)
    inside &= (place >= 0) & (place < tl.full((), d, tl.int64) * h * w)
    at = in_plane(image, place, ch, channels, d, h, w, BC)
    tl.store(y + at, tl.load(x + to, mask=inside, other=0), mask=inside)


@Kernel
def _avg(
    x, y, positions: tl.int64, channels, d, h, w, od, oh, ow,
    K: tl.constexpr, S: tl.constexpr, P: tl.constexpr,
    ADAPT: tl.constexpr, PAD: tl.constexpr, DIVISOR: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """K are the sizes of the largest windows."""
    to, inside, image, i, j, k, ch = spot(positions, channels, od, oh, ow, BP, BC)
    a0, a1, a2 = window(i, d, od, K[0], S[0], P[0], ADAPT)
    b0, b1, b2 = window(j, h, oh, K[1], S[1], P[1], ADAPT)
    c0, c1, c2 = window(k, w, ow, K[2], S[2], P[2], ADAPT)
    total = widened(tl.zeros((BP, BC), y.dtype.element_ty))
    for tap in range(K[0] * K[1] * K[2]):
        r, s, t = tap_of(tap, K)
        a, b, c = a0 + r, b0 + s, c0 + t
        ok = inside & (a >= 0) & (a < tl.minimum(a1, d)) & (b >= 0) & (b < tl.minimum(b1, h))
        ok &= (c >= 0) & (c < tl.minimum(c1, w))
        at = in_plane(image, (a * h + b) * w + c, ch, channels, d, h, w, BC)
        total += widened(tl.load(x + at, mask=ok, other=0))
    size = divisor(a0, a2, b0, b2, c0, c2, d, h, w, PAD, DIVISOR)
    tl.store(y + to, (total / size).to(y.dtype.element_ty), mask=inside)


@Kernel
def _avg_grad(
    dy, dx, positions: tl.int64, channels, d, h, w, od, oh, ow,
    K: tl.constexpr, S: tl.constexpr, P: tl.constexpr,
    ADAPT: tl.constexpr, PAD: tl.constexpr, DIVISOR: tl.constexpr,
    OVER: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """OVER is the largest number of windows that cover an element."""
    to, inside, image, i, j, k, ch = spot(positions, channels, d, h, w, BP, BC)
    i0 = first_over(i, d, od, K[0], S[0], P[0], ADAPT)
    j0 = first_over(j, h, oh, K[1], S[1], P[1], ADAPT)
    k0 = first_over(k, w, ow, K[2], S[2], P[2], ADAPT)
    total = widened(tl.zeros((BP, BC), dx.dtype.element_ty))
    for over in range(OVER[0] * OVER[1] * OVER[2]):
        r, s, t = tap_of(over, OVER)
        a, b, c = i0 + r, j0 + s, k0 + t
        a0, a1, a2 = window(a, d, od, K[0], S[0], P[0], ADAPT)
        b0, b1, b2 = window(b, h, oh, K[1], S[1], P[1], ADAPT)
        c0, c1, c2 = window(c, w, ow, K[2], S[2], P[2], ADAPT)
        ok = inside & (a < od) & (b < oh) & (c < ow) & (a0 <= i) & (i < a1)
        ok &= (b0 <= j) & (j < b1) & (c0 <= k) & (k < c1)
        at = in_plane(image, (a * oh + b) * ow + c, ch, channels, od, oh, ow, BC)
        v = widened(tl.load(dy + at, mask=ok, other=0))
        size = divisor(a0, a2, b0, b2, c0, c2, d, h, w, PAD, DIVISOR)
        total += tl.where(ok, v / tl.where(ok, size, 1), 0.0)
    tl.store(dx + to, total.to(dx.dtype.element_ty), mask=inside)


_MaxConstants: TypeAlias = tuple[Triple, Triple, Triple, Triple, bool]


def _max_constants(sizes: MaxSizes) -> _MaxConstants:
    size, stride, padding, dilation, _ = sizes
    return three(size, 1), three(stride, 1), three(padding, 0), three(dilation, 1), False


def _most_over(size: Triple, stride: Triple) -> Triple:
    """The largest number of windows that cover an element, of each dim."""
    depth, height, width = (cdiv(k, s) for k, s in zip(size, stride, strict=True))
    return depth, height, width


def _adaptive_constants(windows: Triple) -> _MaxConstants:
    return windows, (1, 1, 1), (0, 0, 0), (1, 1, 1), True


def _maxima(x: Tensor, shape: Ints, planes: int, constants: _MaxConstants) -> tuple[Tensor, Tensor]:
    last = is_last(x, planes)
    y, indices = (empty(shape, last, dtype, x.device) for dtype in (x.dtype, torch.int64))
    launch_pool(_max, (dense(x, last), y, indices), planes, x.shape, shape, constants, last)
    return y, indices


def _at_maxima(
    dy: Tensor, places: Tensor, shape: Ints, planes: int, constants: _MaxConstants, over: Triple
) -> Tensor:
    last = is_last(places, planes)
    dx = empty(shape, last, dy.dtype, dy.device)
    pointers = (dense(dy, last), dense(places, last), dx)
    launch_pool(_max_grad, pointers, planes, shape, dy.shape, (*constants, over), last)
    return dx


def max_pool(x: Tensor, planes: int, sizes: MaxSizes) -> tuple[Tensor, Tensor]:
    shape = reference.max_pool(blank(x), planes, sizes)[0].shape
    return _maxima(x, shape, planes, _max_constants(sizes))


def max_pool_grad(dy: Tensor, places: Tensor, shape: Ints, planes: int, sizes: MaxSizes) -> Tensor:
    constants = _max_constants(sizes)
    return _at_maxima(dy, places, shape, planes, constants, _most_over(*constants[:2]))


def adaptive_max_pool(x: Tensor, planes: int, size: Ints) -> tuple[Tensor, Tensor]:
    shape = reference.adaptive_max_pool(blank(x), planes, size)[0].shape
    largest = _Windows.between(x.shape[-planes:], shape[-planes:]).size
    return _maxima(x, shape, planes, _adaptive_constants(largest))


def adaptive_max_pool_grad(
    dy: Tensor, places: Tensor, shape: Ints, planes: int, size: Ints
) -> Tensor:
    over = _Windows.between(dy.shape[-planes:], shape[-planes:]).size
    return _at_maxima(dy, places, shape, planes, _adaptive_constants((1, 1, 1)), over)


def max_pool_take(u: Tensor, places: Tensor, planes: int) -> Tensor:
    last = is_last(places, planes)
    y = empty(places.shape, last, u.dtype, u.device)
    pointers = (dense(u, last), dense(places, last), y)
    launch_pool(_take, pointers, planes, u.shape, y.shape, (), last)
    return y


def max_unpool(x: Tensor, places: Tensor, planes: int, sizes: UnpoolSizes) -> Tensor:
    shape = reference.max_unpool(blank(x), blank(places), planes, sizes).shape
    plane, count = prod(shape[-planes:]), prod(x.shape[-planes:])
    along = Along(plane, 0, plane)
    size, stride, *_ = sizes
    apart = all(k <= s for k, s in zip(size, stride, strict=True))
    last = apart and is_last(x, planes)
    y = fill(empty(shape, last, x.dtype, x.device), 0)
    if apart:  # no two windows have an element in common, so no place is that of two maxima
        index = checked(dense(places, last), along, x.ndim - planes)
        given = turned_back(dense(x, True)) if last else contiguous(x)
        pointers = (y, index, given)
        launch_pool(_put, pointers, planes, shape, x.shape, (), last)
    else:  # of those with one place, the last is written
        index = checked(places, along, x.ndim - planes)
        found = places_of(index, count, 1, along, y.numel())
        write(y, found, contiguous(x), count, 1, plane, True)
    return y


class _Windows(NamedTuple):
    """The constants of `_avg`: sizes of the largest windows, their strides, and so on."""

    size: Triple
    stride: Triple
    padding: Triple
    adaptive: bool
    pad: bool
    divisor: int

    @classmethod
    def of(cls, sizes: AvgSizes) -> _Windows:
        size, stride, padding, _, pad, divisor = sizes
        windows = (three(size, 1), three(stride, 1), three(padding, 0))
        return cls(*windows, False, pad, divisor or 0)

    @classmethod
    def between(cls, inputs: Ints, outputs: Ints) -> _Windows:
        """Adaptive windows, which may begin at any position."""
        d, h, w = (
            max([-(-(i + 1) * n // o) - i * n // o for i in range(o)], default=1)
            for n, o in zip(three(inputs, 1), three(outputs, 1), strict=True)
        )
        return cls((d, h, w), (1, 1, 1), (0, 0, 0), True, True, 0)


def _averaged(x: Tensor, shape: Ints, planes: int, windows: _Windows) -> Tensor:
    last = is_last(x, planes)
    y = empty(shape, last, x.dtype, x.device)
    launch_pool(_avg, (dense(x, last), y), planes, x.shape, shape, windows, last)
    return y


def _spread(dy: Tensor, shape: Ints, planes: int, windows: _Windows, over: Triple) -> Tensor:
    last = is_last(dy, planes)
    dx = empty(shape, last, dy.dtype, dy.device)
    launch_pool(_avg_grad, (dense(dy, last), dx), planes, shape, dy.shape, (*windows, over), last)
    return dx


def avg_pool(x: Tensor, planes: int, sizes: AvgSizes) -> Tensor:
    shape = reference.avg_pool(blank(x), planes, sizes).shape
    return _averaged(x, shape, planes, _Windows.of(sizes))


def avg_pool_grad(dy: Tensor, shape: Ints, planes: int, sizes: AvgSizes) -> Tensor:
    windows = _Windows.of(sizes)
    return _spread(dy, shape, planes, windows, _most_over(windows.size, windows.stride))


def adaptive_avg_pool(x: Tensor, planes: int, size: Ints) -> Tensor:
    shape = reference.adaptive_avg_pool(blank(x), planes, size).shape
    return _averaged(x, shape, planes, _Windows.between(x.shape[-planes:], shape[-planes:]))


def adaptive_avg_pool_grad(dy: Tensor, shape: Ints, planes: int, size: Ints) -> Tensor:
    inputs, outputs = shape[-planes:], dy.shape[-planes:]
    # As many windows cover an element as elements would be in a window the other way round.
    over = _Windows.between(outputs, inputs).size
    return _spread(dy, shape, planes, _Windows.between(inputs, outputs), over)


_WINDOW = ((1, 3, 3), (1, 2, 2), (0, 1, 1))
_MAX = (*_WINDOW, (1, 1, 1), False)
_ADAPTIVE = ((1, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), True)

CASES = [
    case
    for tile in TILES
    for case in (
        *[Case(_max, (x, x, "*i64", *DIMS), (*_MAX, *tile)) for x in ("*bf16", "*fp32")],
        Case(_max_grad, ("*bf16", "*i64", "*bf16", *DIMS), (*_MAX, (1, 2, 2), *tile)),
        Case(_max, ("*bf16", "*bf16", "*i64", *DIMS), (*_ADAPTIVE, *tile)),
        Case(
            _max_grad,
            ("*bf16", "*i64", "*bf16", *DIMS),
            ((1, 1, 1), *_ADAPTIVE[1:], (1, 3, 3), *tile),
        ),
        *[Case(kernel, ("*bf16", "*i64", "*bf16", *DIMS), tile) for kernel in (_take, _put)],
        Case(_avg, ("*bf16", "*bf16", *DIMS), (*_WINDOW, False, True, 0, *tile)),
        Case(_avg, ("*bf16", "*bf16", *DIMS), (*_WINDOW, True, True, 0, *tile)),
        Case(_avg_grad, ("*bf16", "*bf16", *DIMS), (*_WINDOW, False, True, 0, (1, 2, 2), *tile)),
    )
]
CASES += [Case(_max, ("*bf16", "*bf16", "*i64", *DIMS), ((2, 2, 2), (2, 2, 2), *_MAX[2:], 16, 64))]

"""Power-average pooling: powers, sum and root in one pass, and the gradient in one."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ... import lp_pool_ref as reference
from ...lp_pool_ref import PowerSizes
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..pointwise.channels_last import dense, empty
from ..pointwise.scalar_functions import div, pow
from ..pointwise.special_functions import sqrt
from ..reduce.reduction_tiles import widened
from .conv_geometry import Triple, blank, three
from .pool_geometry import (
    DIMS,
    TILES,
    divisor,
    first_over,
    in_plane,
    is_last,
    launch_pool,
    spot,
    tap_of,
    window,
)

# Left to torch: integers.


@triton.jit
def _power(x, POWER: tl.constexpr):
    if POWER == 0:
        return tl.full(x.shape, 1, x.dtype)
    elif POWER == 1:
        return x
    elif POWER == 2:
        return x * x
    elif POWER == -1:
        return div(tl.full(x.shape, 1, x.dtype), x)
    elif POWER == 0.5:
        return sqrt(x)
    else:
        return pow(x, tl.full(x.shape, POWER, x.dtype))


@Kernel
def _lp(
    x, y, positions: tl.int64, channels, d, h, w, od, oh, ow,
    K: tl.constexpr, S: tl.constexpr, POWER: tl.constexpr, ROOT: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    to, inside, image, i, j, k, ch = spot(positions, channels, od, oh, ow, BP, BC)
    a0, _, a2 = window(i, d, od, K[0], S[0], 0, False)
    b0, _, b2 = window(j, h, oh, K[1], S[1], 0, False)
    c0, _, c2 = window(k, w, ow, K[2], S[2], 0, False)
    count: tl.constexpr = K[0] * K[1] * K[2]
    total = widened(tl.zeros((BP, BC), y.dtype.element_ty))
    for tap in range(count):
        r, s, t = tap_of(tap, K)
        a, b, c = a0 + r, b0 + s, c0 + t
        ok = inside & (a < d) & (b < h) & (c < w)
        at = in_plane(image, (a * h + b) * w + c, ch, channels, d, h, w, BC)
        v = widened(tl.load(x + at, mask=ok, other=0))
        total += tl.where(ok, _power(v, POWER), 0.0)
    size = divisor(a0, a2, b0, b2, c0, c2, d, h, w, True, 0)
    mean = total / size
    tl.store(y + to, _power(mean * count, ROOT).to(y.dtype.element_ty), mask=inside)


@Kernel
def _lp_grad(
    dy, y, x, dx, positions: tl.int64, channels, d, h, w, od, oh, ow,
    K: tl.constexpr, S: tl.constexpr, POWER: tl.constexpr, OVER: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """OVER is the largest number of windows that cover an element."""
    to, inside, image, i, j, k, ch = spot(positions, channels, d, h, w, BP, BC)
    i0 = first_over(i, d, od, K[0], S[0], 0, False)
    j0 = first_over(j, h, oh, K[1], S[1], 0, False)
    k0 = first_over(k, w, ow, K[2], S[2], 0, False)
    count: tl.constexpr = K[0] * K[1] * K[2]
    total = widened(tl.zeros((BP, BC), dx.dtype.element_ty))
    for over in range(OVER[0] * OVER[1] * OVER[2]):
        r, s, t = tap_of(over, OVER)
        a, b, c = i0 + r, j0 + s, k0 + t
        a0, a1, a2 = window(a, d, od, K[0], S[0], 0, False)
        b0, b1, b2 = window(b, h, oh, K[1], S[1], 0, False)
        c0, c1, c2 = window(c, w, ow, K[2], S[2], 0, False)
        ok = inside & (a < od) & (b < oh) & (c < ow) & (i < a1) & (j < b1) & (k < c1)
        ok &= (a0 <= i) & (b0 <= j) & (c0 <= k)
        at = in_plane(image, (a * oh + b) * ow + c, ch, channels, od, oh, ow, BC)
        root = widened(tl.load(y + at, mask=ok, other=0))
        slope = widened(tl.load(dy + at, mask=ok, other=0)) * _power(root, 1 - POWER) * count
        size = divisor(a0, a2, b0, b2, c0, c2, d, h, w, True, 0)
        total += tl.where(ok & (root != 0), slope / tl.where(ok, size, 1), 0.0)
    own = widened(tl.load(x + to, mask=inside, other=0))
    tl.store(dx + to, (total * _power(own, POWER - 1)).to(dx.dtype.element_ty), mask=inside)


def lp_pool(x: Tensor, planes: int, sizes: PowerSizes) -> Tensor:
    if not x.is_floating_point():
        return reference.lp_pool(x, planes, sizes)
    shape = reference.lp_pool(blank(x), planes, sizes).shape
    last = is_last(x, planes)
    y = empty(shape, last, x.dtype, x.device)
    power, size, stride, _ = sizes
    constants = (three(size, 1), three(stride, 1), power, 1.0 / power)
    launch_pool(_lp, (dense(x, last), y), planes, x.shape, shape, constants, last)
    return y


def lp_pool_grad(dy: Tensor, x: Tensor, y: Tensor, planes: int, sizes: PowerSizes) -> Tensor:
    last = is_last(x, planes)
    dx = empty(x.shape, last, x.dtype, x.device)
    power, size, stride, _ = sizes
    over: Triple = three([-(-k // s) for k, s in zip(size, stride, strict=True)], 1)
    constants = (three(size, 1), three(stride, 1), power, over)
    pointers = (dense(dy, last), dense(y, last), dense(x, last), dx)
    launch_pool(_lp_grad, pointers, planes, x.shape, dy.shape, constants, last)
    return dx


_WINDOW = ((1, 3, 3), (1, 2, 2))

CASES = [
    case
    for tile in TILES
    for case in (
        *[
            Case(_lp, ("*bf16", "*bf16", *DIMS), (*_WINDOW, power, 1 / power, *tile))
            for power in (2.0, 3.0)
        ],
        Case(_lp_grad, (*("*bf16",) * 4, *DIMS), (*_WINDOW, 2.0, (1, 2, 2), *tile)),
    )
]

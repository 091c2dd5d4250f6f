"""Images at another size: a program has some places of the result, and some of their channels.

Along each dim a place of the result has a few places in the input (taps), with a weight for each.
The gradient of a place is the sum over the places that it is a tap of, without atomics. Tensors are
read as they lie: with the channels last, or in row-major order, where every place has one channel.
"""

from __future__ import annotations

from math import ceil, prod

import triton
import triton.language as tl
from torch import Tensor

from ... import interpolate_ref as reference
from ...interpolate_ref import Ints, Scales
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..pointwise.channels_last import dense, empty, is_channels_last
from ..reduce.reduction_tiles import NUMBERS, cdiv, power_of_2

# Left to torch: integers between which polynomials lie, which torch rounds in its own way, and
# planes of 2^30 places or more, as a place is counted in int32.

_PLACES = 128  # of one channel
_TILE = 2048  # places times channels; with fewer ptxas spills registers that there are
_CHANNELS = 128  # at most
_MAX_PLACES = 1 << 30  # of a plane
_MANY = 1 << 30  # places of all planes, which are counted in int64
_TAPS = {"nearest": 1, "nearest-exact": 1, "linear": 2, "bilinear": 2, "trilinear": 2, "bicubic": 4}
_PRECISE = 1 << 22  # places that float32 tells apart by a quarter


@triton.jit
def _places(
    count, d, h, w, inner, MANY: tl.constexpr, PLACES: tl.constexpr, CHANNELS: tl.constexpr
):  # fmt: skip
    """The tile of this program: (offset, exists), and the outer index and place of its rows."""
    across = tl.cdiv(inner, CHANNELS)
    # A division of 64 bits is a call, around which registers are spilled.
    begin = (tl.program_id(0) // across).to(tl.int64 if MANY else tl.int32) * PLACES
    channel = (tl.program_id(0) % across * CHANNELS + tl.arange(0, CHANNELS))[None, :]
    row = begin.to(tl.int64) + tl.arange(0, PLACES)
    size = tl.full((), d, tl.int32) * h * w  # a size of 1 is a constant of the compiler
    whole = begin // size
    rest = (begin - whole * size).to(tl.int32) + tl.arange(0, PLACES)
    outer = whole.to(tl.int64) + rest // size
    place = rest % size
    inside = (row < count)[:, None] & (channel < inner)
    at = row[:, None] * inner + channel
    return at, inside, channel, outer, place // (h * w), place // w % h, place % w


@triton.jit
def _rows(x, outer, i, j, k, d, h, w, inner, channel):
    """Pointers to the channels of places."""
    place = outer * (tl.full((), d, tl.int64) * h * w) + ((i * h + j) * w + k)
    return x + (place[:, None] * inner + channel)


@triton.jit
def _source(o, size, scale, TAPS: tl.constexpr, EXACT: tl.constexpr, ALIGN: tl.constexpr):
    """(the place below, how far it is to the next) in the input, of a place of the result."""
    if TAPS == 1:
        near = o.to(tl.float32)  # as in torch, for every dtype
        at = tl.floor((near + 0.5 if EXACT else near) * scale.to(tl.float32)).to(tl.int32)
        return tl.minimum(at, size - 1), near * 0.0
    else:
        place = o.to(scale.dtype)
        place = scale * place if ALIGN else scale * (place + 0.5) - 0.5
        if TAPS == 2 and not ALIGN:
            place = tl.maximum(place, 0.0)
        below = tl.floor(place)
        return below.to(tl.int32), place - below


@triton.jit
def _near(x):
    """The weight of a cubic convolution with a = -3/4, as in torch, within one place."""
    return (1.25 * x - 2.25) * x * x + 1.0


@triton.jit
def _far(x):
    """And from one place to two."""
    return ((3.75 - 0.75 * x) * x - 6.0) * x + 3.0


@triton.jit
def _tap(below, part, size, TAP: tl.constexpr, TAPS: tl.constexpr):
    """(place, weight) of a tap."""
    if TAPS == 1:
        return below, part + 1.0
    elif TAPS == 2:
        at = tl.minimum(below + TAP, size - 1)
        return at, part if TAP == 1 else 1.0 - part
    else:
        at = tl.minimum(tl.maximum(below + TAP - 1, 0), size - 1)
        if TAP == 0:
            return at, _far(part + 1.0)
        elif TAP == 1:
            return at, _near(part)
        elif TAP == 2:
            return at, _near(1.0 - part)
        else:
            return at, _far(2.0 - part)


@Kernel
def _resized(
    x, y, count, d, h, w, od, oh, ow, inner,
    d_scale: tl.float64, h_scale: tl.float64, w_scale: tl.float64,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, EXACT: tl.constexpr, ALIGN: tl.constexpr,
    MANY: tl.constexpr, PLACES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """D, H and W are the numbers of taps."""
    WIDE: tl.constexpr = tl.float64 if y.dtype.element_ty == tl.float64 else tl.float32
    at, inside, channel, outer, i, j, k = _places(count, od, oh, ow, inner, MANY, PLACES, CHANNELS)
    a0, a_part = _source(i, d, d_scale.to(WIDE), D, EXACT, ALIGN)
    b0, b_part = _source(j, h, h_scale.to(WIDE), H, EXACT, ALIGN)
    c0, c_part = _source(k, w, w_scale.to(WIDE), W, EXACT, ALIGN)
    if D * H * W == 1:
        source = _rows(x, outer, a0, b0, c0, d, h, w, inner, channel)
        tl.store(y + at, tl.load(source, mask=inside, other=0), mask=inside)
    else:
        total = tl.zeros((PLACES, CHANNELS), WIDE)
        for r in tl.static_range(D):
            a, a_weight = _tap(a0, a_part, d, r, D)
            for s in tl.static_range(H):
                b, b_weight = _tap(b0, b_part, h, s, H)
                row = tl.zeros((PLACES, CHANNELS), WIDE)
                for t in tl.static_range(W):
                    c, c_weight = _tap(c0, c_part, w, t, W)
                    source = _rows(x, outer, a, b, c, d, h, w, inner, channel)
                    v = tl.load(source, mask=inside, other=0)
                    row += c_weight.to(WIDE)[:, None] * v.to(WIDE)
                total += (a_weight.to(WIDE) * b_weight.to(WIDE))[:, None] * row
        tl.store(y + at, total.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _first(i, back, TAPS: tl.constexpr, EXACT: tl.constexpr, ALIGN: tl.constexpr):
    """The first place of the result that an element may be a tap of; `back` is 1 / scale."""
    reach: tl.constexpr = TAPS // 2
    place = (i - reach).to(tl.float32)
    if TAPS == 1:
        found = place * back - (0.5 if EXACT else 0.0)
    else:
        found = place * back if ALIGN else (place + 0.5) * back - 0.5
    return tl.maximum(tl.floor(found).to(tl.int32) - 1, 0)


@triton.jit
def _weight(o, i, size, scale, TAPS: tl.constexpr, EXACT: tl.constexpr, ALIGN: tl.constexpr):
    """The weight with which an element is a tap of a place of the result; 0 if it is none."""
    below, part = _source(o, size, scale, TAPS, EXACT, ALIGN)
    total = part * 0.0
    for t in tl.static_range(TAPS):
        at, weight = _tap(below, part, size, t, TAPS)
        total += tl.where(at == i, weight, 0.0)
    return total


@Kernel
def _resized_grad(
    dy, dx, count, d, h, w, od, oh, ow, inner,
    d_scale: tl.float64, h_scale: tl.float64, w_scale: tl.float64,
    d_back: tl.float64, h_back: tl.float64, w_back: tl.float64, d_most, h_most, w_most,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, EXACT: tl.constexpr, ALIGN: tl.constexpr,
    MANY: tl.constexpr, PLACES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """`d_most` and so on: of how many places of the result an element is a tap at most."""
    WIDE: tl.constexpr = tl.float64 if dx.dtype.element_ty == tl.float64 else tl.float32
    at, inside, channel, outer, i, j, k = _places(count, d, h, w, inner, MANY, PLACES, CHANNELS)
    a0 = _first(i, d_back.to(tl.float32), D, EXACT, ALIGN)
    b0 = _first(j, h_back.to(tl.float32), H, EXACT, ALIGN)
    c0 = _first(k, w_back.to(tl.float32), W, EXACT, ALIGN)
    total = tl.zeros((PLACES, CHANNELS), WIDE)
    for r in range(d_most):
        a = a0 + r
        a_weight = _weight(a, i, d, d_scale.to(WIDE), D, EXACT, ALIGN).to(WIDE)
        a_weight = tl.where(a < od, a_weight, 0.0)
        for s in range(h_most):
            b = b0 + s
            b_weight = _weight(b, j, h, h_scale.to(WIDE), H, EXACT, ALIGN).to(WIDE)
            b_weight = tl.where(b < oh, a_weight * b_weight, 0.0)
            for t in range(w_most):
                c = c0 + t
                weight = _weight(c, k, w, w_scale.to(WIDE), W, EXACT, ALIGN).to(WIDE)
                weight = tl.where(c < ow, b_weight * weight, 0.0)
                source = _rows(dy, outer, a, b, c, od, oh, ow, inner, channel)
                v = tl.load(source, mask=inside & (weight != 0.0)[:, None], other=0)
                total += weight[:, None] * v.to(WIDE)
    tl.store(dx + at, total.to(dx.dtype.element_ty), mask=inside)


def _three(sizes: Ints) -> tuple[int, int, int]:
    """The sizes of one to three dims as three; missing ones are added in front."""
    depth, height, width = (*(1,) * (3 - len(sizes)), *map(int, sizes))
    return depth, height, width


def _scale(size: int, out: int, mode: str, align_corners: bool, asked: float | None) -> float:
    """How far apart in the input two neighbors of the result are."""
    if align_corners:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    # Where the sizes are one or twice the other, torch goes by them and not by what was asked for.
    if size == out and mode not in ("nearest-exact", "bicubic"):
        return 1.0
    if mode == "nearest" and out == 2 * size:
        return 0.5
    return 1.0 / asked if asked else size / out


def _most(size: int, out: int, scale: float, taps: int) -> int:
    """Of how many places of the result, from `_first` on, an element is a tap at most."""
    if not scale:
        return out
    spare = 3 + 2 * (out // _PRECISE)
    return min(out, ceil(max(2 * (taps // 2), 1) / scale) + spare)


def interpolate(
    x: Tensor, planes: int, size: Ints, mode: str, align_corners: bool, scales: Scales
) -> Tensor:
    taps = _TAPS[mode]
    small = max(prod(x.shape[2:]), prod(size)) < _MAX_PLACES
    exact = x.dtype.is_floating_point or taps == 1
    if x.dtype not in NUMBERS or not (small and exact):
        return reference.interpolate(x, planes, size, mode, align_corners, scales)
    last = is_channels_last(x)
    given, y = dense(x, last), empty((*x.shape[:2], *size), last, x.dtype, x.device)
    steps = _scales(x.shape[2:], size, mode, align_corners, scales)
    inner = x.shape[1] if last else 1
    count = y.numel() // max(inner, 1)
    dims, tile = (*_three(x.shape[2:]), *_three(size), inner), _tile(inner)
    _resized.launch(
        _grid(count, inner, tile),
        (given, y, count, *dims, *steps),
        (
            *_taps_of(taps, planes),
            mode == "nearest-exact",
            align_corners,
            count >= _MANY,
            *tile,
        ),
    )
    return y


def interpolate_grad(
    dy: Tensor, shape: Ints, planes: int, size: Ints, mode: str, align_corners: bool, scales: Scales
) -> Tensor:
    if max(prod(shape[2:]), prod(size)) >= _MAX_PLACES:
        return reference.interpolate_grad(dy, shape, planes, size, mode, align_corners, scales)
    taps = _taps_of(_TAPS[mode], planes)
    last = is_channels_last(dy)
    given, dx = dense(dy, last), empty(shape, last, dy.dtype, dy.device)
    steps = _scales(shape[2:], size, mode, align_corners, scales)
    inputs, outputs = _three(shape[2:]), _three(size)
    most = [_most(*each) for each in zip(inputs, outputs, steps, taps, strict=True)]
    back = [1.0 / step if step else 0.0 for step in steps]
    inner = shape[1] if last else 1
    count, tile = prod(shape) // max(inner, 1), _tile(inner)
    _resized_grad.launch(
        _grid(count, inner, tile),
        (given, dx, count, *inputs, *outputs, inner, *steps, *back, *most),
        (*taps, mode == "nearest-exact", align_corners, count >= _MANY, *tile),
    )
    return dx


def _tile(inner: int) -> tuple[int, int]:
    """Places and channels."""
    if inner == 1:
        return _PLACES, 1
    channels = min(power_of_2(inner), _CHANNELS)
    return _TILE // channels, channels


def _grid(count: int, inner: int, tile: tuple[int, int]) -> tuple[int]:
    return (cdiv(count, tile[0]) * cdiv(inner, tile[1]),)


def _scales(
    sizes: Ints, outs: Ints, mode: str, align_corners: bool, scales: Scales
) -> tuple[float, ...]:
    found = [
        _scale(size, out, mode, align_corners, asked)
        for size, out, asked in zip(sizes, outs, scales, strict=True)
    ]
    return (*(1.0,) * (3 - len(found)), *found)


def _taps_of(taps: int, planes: int) -> tuple[int, int, int]:
    depth, height, width = (*(1,) * (3 - planes), *(taps,) * planes)
    return depth, height, width


_DIMS = ("*bf16", "*bf16", "i32", *("i32?",) * 6)
_FORMS = [
    ((1, 1, 1), False, 1), ((1, 2, 2), False, 1), ((1, 4, 4), True, 1), ((2, 2, 2), False, 1),
    ((1, 1, 1), False, 64), ((1, 2, 2), False, 64), ((1, 4, 4), True, 64),
]  # fmt: skip
CASES = [
    case
    for taps, align, inner in _FORMS
    for lane, rest in [
        ("i32?" if inner == 1 else "i32", (*taps, False, align, False, *_tile(inner)))
    ]
    for case in (
        Case(_resized, (*_DIMS, lane, *("fp64",) * 3), rest),
        Case(_resized_grad, (*_DIMS, lane, *("fp64",) * 6, *("i32?",) * 3), rest),
    )
]

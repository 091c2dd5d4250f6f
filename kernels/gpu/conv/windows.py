"""The windows of a convolution: which position of the input a tap reads for one of the output.

A window begins at its first tap, the same distance before each of the others. So addresses are
computed once for each window, and a tap adds a number to all of them.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def positions(first, places, od, oh, ow, DEEP: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK positions of the output from `first` on, which exist, their image, depth, row and
    column.
    """
    m = first + tl.arange(0, BLOCK)
    image = m // (oh * ow)
    e = tl.zeros((BLOCK,), tl.int32)
    if DEEP:
        e = (image % od).to(tl.int32)
        image = image // od
    return m, m < places, image, e, (m // ow % oh).to(tl.int32), (m % ow).to(tl.int32)


@triton.jit
def starts(
    image, e, i, j, d, h, width, S: tl.constexpr, P: tl.constexpr,
    TRANSPOSED: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """The number of the input position of a window's first tap, then its depth, row and column.

    It may be outside of the input. A TRANSPOSED convolution has strides of 1; see `phases.py`.
    """
    if TRANSPOSED:
        c, a, b = e + P[0], i + P[1], j + P[2]
    else:
        c, a, b = e * S[0] - P[0], i * S[1] - P[1], j * S[2] - P[2]
    if DEEP:
        image = image * d + c
    return (image * h + a) * width + b, c, a, b


@triton.jit
def offset_of(
    tap, h, width, TAPS: tl.constexpr, D: tl.constexpr, TRANSPOSED: tl.constexpr
):  # fmt: skip
    """How far a tap is from the first one: in positions of the input, then in each dim."""
    c = tap // (TAPS[1] * TAPS[2]) * D[0]
    a = tap // TAPS[2] % TAPS[1] * D[1]
    b = tap % TAPS[2] * D[2]
    if TRANSPOSED:
        c, a, b = -c, -a, -b
    # 64 bits: a size of 1 is a constant of the compiler.
    return (c * tl.full((), h, tl.int64) + a) * width + b, c, a, b


@triton.jit
def _inside(place, size):
    """Whether a place is at least 0 and less than the size."""
    return tl.cast(place, tl.uint32) < tl.full((), size, tl.uint32)


@triton.jit
def exist(c, a, b, d, h, width, DEEP: tl.constexpr):
    """Whether positions of this depth, row and column are inside of the input."""
    found = _inside(a, h) & _inside(b, width)
    if DEEP:
        found = found & _inside(c, d)
    return found


@triton.jit
def starts_of_part(
    number, part, places, d, h, width, od, oh, ow, size, S: tl.constexpr, P: tl.constexpr,
    DEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """(the first positions of a part, how many it has, the offsets of their windows' first taps in
    an input with `size` elements for each position, their depths, rows and columns).
    """
    begin = number * part
    m, _, image, e, i, j = positions(begin, places, od, oh, ow, DEEP, BLOCK)
    first, c, a, b = starts(image, e, i, j, d, h, width, S, P, False, DEEP)
    return m, tl.minimum(part, places - begin), first * size, c, a, b


@triton.jit
def _moved(place, distance, end, whole):
    """(a place further along a dim, which begins again at its end; whether it did)."""
    place += distance
    over = place >= end
    return tl.where(over, place - whole, place), over


@triton.jit
def advanced(
    first, c, a, b, d, h, width, od, oh, ow, size, count,
    S: tl.constexpr, P: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """What `starts` gives for windows `count` positions of the output further. `first` is an
    offset in an input with `size` elements for each position.

    Of each window this only adds: nothing is divided, and nothing multiplied in 64 bits.
    """
    column = tl.full((), size, tl.int64)
    row = column * width
    plane = row * h
    # A row of the output is this long in the input, and so on.
    length, height, depth = ow * S[2], oh * S[1], od * S[0]
    columns, rows, planes = count % ow * S[2], count // ow % oh * S[1], count // (oh * ow)
    first += columns * column + rows * row
    b, over = _moved(b, columns, length - P[2], length)
    first += tl.where(over, S[1] * row - length * column, 0)
    a, over = _moved(a, rows + tl.where(over, S[1], 0), height - P[1], height)
    if DEEP:
        first += planes % od * S[0] * plane + planes // od * d * plane
        first += tl.where(over, S[0] * plane - height * row, 0)
        c, over = _moved(c, planes % od * S[0] + tl.where(over, S[0], 0), depth - P[0], depth)
        first += tl.where(over, d * plane - depth * plane, 0)
    else:
        first += planes * plane + tl.where(over, plane - height * row, 0)
    return first, c, a, b


@triton.jit
def reached(
    c, a, b, tap, d, h, width, size,
    TAPS: tl.constexpr, D: tl.constexpr, TRANSPOSED: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """(how far what a tap reads is from what the first tap reads, whether it exists), for windows
    with these depths, rows and columns of their first taps; a position has `size` elements.
    """
    further, to_c, to_a, to_b = offset_of(tap, h, width, TAPS, D, TRANSPOSED)
    return further * size, exist(c + to_c, a + to_a, b + to_b, d, h, width, DEEP)


@triton.jit
def results(
    m, image, e, i, j, size, y_image, y_depth, y_row, y_column,
    SPREAD: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """The offsets of positions of the output, with `size` elements each: SPREAD by these strides,
    or one behind the other.
    """
    if SPREAD:
        at = image * y_image + i.to(tl.int64) * y_row + j.to(tl.int64) * y_column
        return at + e.to(tl.int64) * y_depth if DEEP else at
    else:
        return m * size

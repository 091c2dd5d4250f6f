"""Windows of pools: the tile of positions and channels of a program, and the elements of a window.

Row-major order and channels-last are read as they lie. In row-major order every plane is one of
the batch, and there is one channel.
"""

from __future__ import annotations

from math import prod

import triton
import triton.language as tl
from torch import Tensor

from ..launch.jit_kernel import Kernel
from ..pointwise.channels_last import is_channels_last
from ..reduce.reduction_tiles import cdiv, power_of_2
from .conv_geometry import Ints, three

# Elements of a tile: of channels-last a thread has 16 bytes of bfloat16; of row-major order, where
# each element has a position of its own, more would spill.
TILE, TILE_OF_ROWS = 1024, 256


@triton.jit
def spot(positions, channels, d, h, w, BP: tl.constexpr, BC: tl.constexpr):
    """The elements of this program's tile: where they lie, which exist, and (BP, 1) of each their
    image, depth, height and width; and their channels.
    """
    begin = tl.program_id(0).to(tl.int64) * BP
    step = tl.arange(0, BP)[:, None]
    size = tl.full((), d, tl.int64) * h * w  # a size of 1 is a constant of the compiler
    inner = (begin % size).to(tl.int32) + step
    plane = size.to(tl.int32)
    image = begin // size + inner // plane
    inner %= plane
    c = tl.program_id(1) * BC + tl.arange(0, BC)[None, :]
    inside = (begin + step < positions) & (c < channels)
    at = lies(begin + step, c, channels, BC)
    return at, inside, image, inner // (h * w), inner // w % h, inner % w, c


@triton.jit
def lies(position, c, channels, BC: tl.constexpr):
    """Where the channels of a position lie."""
    return position + c if BC == 1 else position * channels + c


@triton.jit
def in_plane(image, place, c, channels, d, h, w, BC: tl.constexpr):
    """Where the channels of a place in the plane of an image lie."""
    return lies(image * (tl.full((), d, tl.int64) * h * w) + place, c, channels, BC)


@triton.jit
def tap_of(number, SIZES: tl.constexpr):
    """The position in depth, height and width of a number in a window of these sizes."""
    across: tl.constexpr = SIZES[1] * SIZES[2]
    return number // across, number // SIZES[2] % SIZES[1], number % SIZES[2]


@triton.jit
def window(o, size, out, K: tl.constexpr, S: tl.constexpr, P: tl.constexpr, ADAPT: tl.constexpr):
    """(begin, end, end with padding) of the window of an output."""
    if ADAPT:
        begin = (o.to(tl.int64) * size // out).to(tl.int32)
        end = (((o + 1).to(tl.int64) * size + out - 1) // out).to(tl.int32)
        return begin, end, end
    else:
        begin = o * S - P
        return begin, begin + K, tl.minimum(begin + K, size + P)


@triton.jit
def reach(o, size, out, S: tl.constexpr, P: tl.constexpr, ADAPT: tl.constexpr):
    """(begin of the window of an output, end of what it may reach)."""
    if ADAPT:
        begin, end, _ = window(o, size, out, 1, S, P, ADAPT)
        return begin, end
    else:
        return o * S - P, size


@triton.jit
def first_over(i, size, out, K: tl.constexpr, S: tl.constexpr, P: tl.constexpr,
                ADAPT: tl.constexpr):  # fmt: skip
    """The first output whose window may cover an element."""
    if ADAPT:
        return (i.to(tl.int64) * out // size).to(tl.int32)
    else:
        return tl.maximum(i + P - K + S, 0) // S


@triton.jit
def divisor(a0, a2, b0, b2, c0, c2, d, h, w, PAD: tl.constexpr, DIVISOR: tl.constexpr):
    """The divisor of the sum of a window."""
    if DIVISOR > 0:
        return tl.full(a0.shape, DIVISOR, tl.int32)
    elif PAD:
        return (a2 - a0) * (b2 - b0) * (c2 - c0)
    else:
        depth = tl.minimum(a2, d) - tl.maximum(a0, 0)
        height = tl.minimum(b2, h) - tl.maximum(b0, 0)
        return depth * height * (tl.minimum(c2, w) - tl.maximum(c0, 0))


def is_last(x: Tensor, planes: int) -> bool:
    """Whether the channels are last in memory."""
    return x.ndim == planes + 2 and is_channels_last(x)


def launch_pool(
    kernel: Kernel, pointers: tuple[Tensor, ...], planes: int, x: Ints, y: Ints,
    constants: tuple[object, ...], last: bool,
) -> None:  # fmt: skip
    """For each element of the last pointer; x and y are the shapes around the windows."""
    shape = pointers[-1].shape
    channels = shape[1] if last else 1
    positions = prod(shape) // max(channels, 1)
    block = min(power_of_2(channels), 64)
    rows = TILE // block if block > 1 else TILE_OF_ROWS
    dims = (*three(x[-planes:], 1), *three(y[-planes:], 1))
    grid = (cdiv(positions, rows), cdiv(channels, block))
    kernel.launch(grid, (*pointers, positions, channels, *dims), (*constants, rows, block))


# Of forms that are compiled ahead of time: the sizes, and the tiles of both orders of memory.
DIMS = ("i64?", "i32", *("i32?",) * 6)
TILES = ((TILE_OF_ROWS, 1), (16, 64))

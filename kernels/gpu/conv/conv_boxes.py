"""Convolutions whose windows are copied by TMA, for compute capability 9.0 and above.

A tile's positions of the output are a box of images, rows and columns. What a tap reads for it is
the same box of the input, moved by the tap, and TMA fills what is outside of the input with zeros.
So a step of the sum has no addresses and no masks, as one of a matrix product. Source of the
method: implicit GEMM, as in cuDNN (Chetlur et al., 2014), with a descriptor for the patches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product as combined
from math import prod

import torch
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case, tensors
from ..launch.configs import Config, Tuned, config, random_inputs
from ..launch.jit_kernel import INTERPRETED, Kernel
from ..launch.launch_trace import aligned
from ..matmul import gemm_config, gemm_tma
from ..matmul.gemm_config import Tile
from ..reduce.reduction_tiles import cdiv
from .conv_geometry import (
    IMAGES,
    Ints,
    Products,
    Sizes,
    Triple,
    Volumes,
    kind_of,
    of_images,
)

Box = tuple[int, int, int]  # images, rows and columns

_STEP = 64  # channels: 128 bytes, which TMA swizzles together
_LEAST = 128  # tiles, about one for each multiprocessor
_FEWEST = 64  # output channels: half of a smaller tile would be empty
_MAX_PADDED = 1.25  # positions of all boxes, at most, for each of the output
_ALIGNMENT = 16  # bytes, of each position's channels


@Kernel
def box_product(
    x, w, bias, y, images, h, width, oh, ow, y_image: tl.int64, y_row: tl.int64, y_column, channels,
    outs,
    TAPS: tl.constexpr, P: tl.constexpr, D: tl.constexpr, TRANSPOSED: tl.constexpr,
    BI: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The weight is [outs, taps, channels]; strides are 1."""
    COUNT: tl.constexpr = TAPS[1] * TAPS[2]
    row = tl.cast(channels, tl.int64) * width
    of_x = tl.make_tensor_descriptor(
        x, [images, h, width, channels], [row * h, row, channels, 1], [BI, BH, BW, BK]
    )
    of_w = tl.make_tensor_descriptor(w, [outs, COUNT * channels], [COUNT * channels, 1], [BN, BK])
    of_y = tl.make_tensor_descriptor(
        y, [images, oh, ow, outs], [y_image, y_row, y_column, 1], [BI, BH, BW, BN]
    )
    blocks, columns, rows = tl.cdiv(outs, BN), tl.cdiv(ow, BW), tl.cdiv(oh, BH)
    first_n = tl.program_id(0) % blocks * BN
    place = tl.program_id(0) // blocks
    j, i = place % columns * BW, place // columns % rows * BH
    image = place // columns // rows * BI
    total = tl.zeros((BN, BI * BH * BW), tl.float32)
    tap, begin = 0, 0
    # There are channels, but the compiler has to know: ptxas serializes wgmma where a loop may be
    # skipped.
    steps = tl.maximum(COUNT * tl.cdiv(channels, BK), 1)
    tl.assume(steps > 0)
    for _ in range(steps):
        if TRANSPOSED:
            a, b = i + P[1] - tap // TAPS[2] * D[1], j + P[2] - tap % TAPS[2] * D[2]
        else:
            a, b = i - P[1] + tap // TAPS[2] * D[1], j - P[2] + tap % TAPS[2] * D[2]
        xs = of_x.load([image, a, b, begin]).reshape(BI * BH * BW, BK)
        ws = of_w.load([first_n, tap * channels + begin])
        # As the first operand, the reshaped box would go to registers that the next one overwrites
        # while wgmma still reads them.
        total = tl.dot(ws, xs.T, total)
        begin += BK
        tap = tl.where(begin < channels, tap, tap + 1)
        begin = tl.where(begin < channels, begin, 0)
    if bias is not None:
        o = first_n + tl.arange(0, BN)
        total += tl.load(bias + o, mask=o < outs, other=0.0).to(tl.float32)[:, None]
    made = total.to(y.dtype.element_ty).T
    of_y.store([image, i, j, first_n], made.reshape(BI, BH, BW, BN))


@lru_cache(maxsize=4096)
def box_of(images: int, height: int, width: int, positions: int) -> Box:
    """The box of so many positions, a power of 2, whose tiles reach the least beyond the output.

    Of several the one with the longest rows.

    >>> box_of(256, 28, 28, 128)
    (8, 4, 4)
    >>> box_of(1, 32, 100, 128)
    (1, 32, 4)
    """
    sides = [1 << power for power in range(positions.bit_length())]
    boxes = [
        (positions // (rows * columns), rows, columns)
        for rows, columns in combined(sides, repeat=2)
        if rows * columns <= positions
    ]

    def cost(box: Box) -> tuple[int, int, int]:
        counts = [cdiv(size, side) for size, side in zip((images, height, width), box, strict=True)]
        return prod(counts), -box[2], -box[1]

    return min(boxes, key=cost)


def by_rule(p: Products) -> Tile:
    """The tile of a matrix product of these sizes that TMA copies."""
    tile = gemm_config.by_rule("half", p.m, p.n, p.k * p.taps)
    m, n = max(tile.m, 64), max(tile.n, 64)
    return tile._replace(m=m, n=n, k=_STEP, warps=8 if m * n > 64 * 128 else 4)


@lru_cache(maxsize=4096)
def tile_of(p: Products) -> Tile:
    """The tile from the table of configurations for this GPU, or else from the rule."""
    return Tile(**config("convolution_boxes", "half", p.shape_class, by_rule(p)._asdict()))


def _boxes(v: Volumes, box: Box) -> int:
    """How many boxes cover the output."""
    return prod(cdiv(size, side) for size, side in zip((v.images, *v.output[1:]), box, strict=True))


def suit(
    x: Tensor, w: Tensor, y: Tensor, y_strides: Ints, v: Volumes, p: Products, sizes: Sizes
) -> bool:
    """Whether to use TMA for channels-last x, the arranged weight, and y with these strides."""
    if INTERPRETED or kind_of(x.dtype) != "half" or p.flat or v.deep or p.times > 1:
        return False
    if sizes.stride != (1, 1, 1) or not p.k or p.k % _STEP or p.n < _FEWEST:
        return False
    even = not any(step * y.element_size() % _ALIGNMENT for step in (*y_strides, p.n))
    if not even or not all(aligned(each, _ALIGNMENT) for each in (x, w, y)):
        return False
    tile = tile_of(p)
    boxes = _boxes(v, box_of(v.images, *v.output[1:], tile.m))
    many = boxes * cdiv(p.n, tile.n) >= _LEAST and boxes * tile.m <= _MAX_PADDED * v.places
    return many and gemm_tma.processors(x.device.index) > 0


def convolve(
    x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, y_strides: Ints, v: Volumes, p: Products,
    taps: Triple, sizes: Sizes, transposed: bool, tile: Tile | None = None,
) -> None:  # fmt: skip
    """Compute y from channels-last x and w, which is [outs, taps, channels].

    `y_strides` are those of y's images, rows and columns; its channels are dense.
    """
    t = tile or tile_of(p)
    box = box_of(v.images, *v.output[1:], t.m)
    gemm_tma.give_scratch()
    box_product.launch(
        (_boxes(v, box) * cdiv(p.n, t.n),),
        (x, w, bias, y, v.images, *v.source[1:], *v.output[1:], *y_strides, p.k, p.n),
        (taps, sizes.padding, sizes.dilation, transposed, *box, t.n, t.k),
        warps=t.warps,
        stages=t.stages,
    )


def _allowed(dtype: torch.dtype, sizes: tuple[int, ...]) -> list[Config]:
    found = [by_rule(of_images(sizes))]
    for m, n in combined((64, 128, 256), (64, 128, 256)):
        if n < 2 * sizes[3] and m * n <= 128 * 256:
            groups = [warps for warps in (4, 8) if 64 * 64 <= m * n * 4 // warps <= 128 * 128]
            found += [Tile(m, n, _STEP, warps, stages) for warps in groups for stages in (3, 4)]
    return [tile._asdict() for tile in dict.fromkeys(found)]


def _call(chosen: Config, dtype: torch.dtype, sizes: tuple[int, ...]) -> Callable[[], Tensor]:
    images, side, channels, outs = sizes
    x, w = random_inputs(dtype, (images, side, side, channels), (outs, 9, channels))
    y = x.new_empty(images, side, side, outs)
    v = Volumes(images, (1, side, side), (1, side, side), False)
    ones = Sizes((1, 1, 1), (0, 1, 1), (1, 1, 1))

    def run() -> Tensor:
        strides = y.stride()[:3]
        convolve(
            x, w, None, y, strides, v, of_images(sizes), (1, 3, 3), ones, False, Tile(**chosen)
        )
        return y

    return run


_WHY = "older GPUs do not copy tiles by descriptors"


def _cases(
    _: str, sizes: tuple[int, ...], chosen: Config, transposed: bool = False, bias: bool = False
) -> list[Case]:
    """The compiled form of a tile for these images, in bfloat16."""
    t = Tile(**chosen)
    types = (
        *tensors("bf16", "x", "w"), "*bf16" if bias else None, *tensors("bf16", "y"),
        *("i32?",) * 5, "i64", "i64", "i32", "i32", "i32",
    )  # fmt: skip
    box = box_of(sizes[0], sizes[1], sizes[1], t.m)
    window = ((1, 3, 3), (0, 1, 1), (1, 1, 1), transposed)
    constants = (*window, *box, t.n, t.k)
    targets = ("sm_90", "sm_100")
    return [Case(box_product, types, constants, t.warps, t.stages, targets=targets, why=_WHY)]


TUNED = [
    Tuned(
        "convolution_boxes", (torch.bfloat16,),
        {of_images(each).shape_class: each for each in IMAGES},
        _allowed, _call, _cases, kind_of,
    )
]  # fmt: skip
CASES = [
    case
    for tile in (Tile(128, 256, 64, 8, 4), Tile(128, 128, 64, 8, 4), Tile(64, 64, 64, 4, 4))
    for case in (
        *_cases("half", IMAGES[-1], tile._asdict()),
        *_cases("half", IMAGES[0], tile._asdict(), True, True),
    )
]

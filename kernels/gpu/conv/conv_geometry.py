"""Sizes, tiles and input positions: what the kernels of convolutions share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch.configs import config
from ..launch.launch_trace import guarded
from ..matmul.gemm_config import Tile, shape_class
from ..reduce.reduction_tiles import power_of_2

Ints = tuple[int, ...]
Triple = tuple[int, int, int]

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# By the kind of a product: what a tensor's elements are for compiled forms, and its precision.
TYPES = {
    "half": ("bf16", "ieee"), "tf32": ("fp32", "tf32"), "ieee": ("fp32", "ieee"),
    "double": ("fp64", "ieee"),
}  # fmt: skip
LEAST = 16  # channels of a group from which the matrix units are used


class Sizes(NamedTuple):
    """stride, padding and dilation of depth, height and width."""

    stride: Triple
    padding: Triple
    dilation: Triple

    @classmethod
    def of(cls, stride: Ints, padding: Ints, dilation: Ints) -> Sizes:
        """The sizes of less dims are the last."""
        return cls(three(stride, 1), three(padding, 0), three(dilation, 1))


def three(sizes: Sequence[int], fill: int) -> Triple:
    """Sizes of one, two or three dims as three; missing ones are added in front."""
    depth, height, width = (*(fill,) * (3 - len(sizes)), *map(int, sizes))
    return depth, height, width


def blank(x: Tensor) -> Tensor:
    """x without data, to which torch's functions give the result's shape, or raise their errors."""
    return torch.empty(x.shape, dtype=x.dtype, device="meta")


def works(x: Tensor) -> bool:
    """Whether the kernels support this tensor."""
    return x.ndim in (3, 4, 5) and x.dtype in DTYPES


def as_volumes(x: Tensor) -> Tensor:
    """[N, C, L] or [N, C, H, W] as [N, C, D, H, W]."""
    for _ in range(5 - x.ndim):
        x = x.unsqueeze(2)
    return x


class Volumes(NamedTuple):
    """How many images there are, and the sizes of one and of its output.

    Where no window reaches from one depth to another, each depth is an image of its own.
    """

    images: int
    source: Triple
    output: Triple
    deep: bool

    @classmethod
    def of(
        cls, images: int, source: Sequence[int], output: Sequence[int], taps: Triple, sizes: Sizes
    ) -> Volumes:
        inner, outer = three(source, 1), three(output, 1)
        deep = (taps[0], sizes.stride[0], sizes.padding[0]) != (1, 1, 0) or inner[0] != outer[0]
        if not deep:
            images *= inner[0]
            inner, outer = (1, *inner[1:]), (1, *outer[1:])
        return cls(images, inner, outer, deep)

    @property
    def places(self) -> int:
        """All positions of the output."""
        return self.images * prod(self.output)


def kind_of(dtype: torch.dtype) -> str:
    """The kind of product; float32 depends on torch's tf32 flag for convolutions."""
    if dtype is torch.float32:
        return "tf32" if guarded(_allows_tf32) else "ieee"
    return "double" if dtype is torch.float64 else "half"


def _allows_tf32() -> bool:
    return torch.backends.cudnn.allow_tf32


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
def advanced(image, e, i, j, od, oh, ow, step, DEEP: tl.constexpr):
    """The images, depths, rows and columns of positions `step` further: without divisions of
    64 bits.
    """
    j += step % ow
    i += step // ow % oh
    i = tl.where(j >= ow, i + 1, i)
    j = tl.where(j >= ow, j - ow, j)
    whole = step // (oh * ow) + tl.where(i >= oh, 1, 0)  # planes
    i = tl.where(i >= oh, i - oh, i)
    if DEEP:
        e += whole % od
        image += whole // od + tl.where(e >= od, 1, 0)
        return image, tl.where(e >= od, e - od, e), i, j
    else:
        return image + whole, e, i, j


@triton.jit
def _source_of(
    o, tap, size, STRIDE: tl.constexpr, PAD: tl.constexpr, DILATION: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """(the input position that a tap reads for an output position, whether it exists)"""
    if TRANSPOSED:
        reached = o + PAD - tap * DILATION
        i = reached // STRIDE
        return i, (reached >= 0) & (reached % STRIDE == 0) & (i < size)
    else:
        i = o * STRIDE - PAD + tap * DILATION
        return i, (i >= 0) & (i < size)


@triton.jit
def sources(
    image, e, i, j, tap, d, h, width,
    TAPS: tl.constexpr, S: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
    TRANSPOSED: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """(the number of the input position that a tap reads for an output, whether it exists)"""
    a, ok = _source_of(i, tap // TAPS[2] % TAPS[1], h, S[1], P[1], D[1], TRANSPOSED)
    b, in_w = _source_of(j, tap % TAPS[2], width, S[2], P[2], D[2], TRANSPOSED)
    ok = ok & in_w
    place = a * width + b
    if DEEP:
        c, in_d = _source_of(e, tap // (TAPS[1] * TAPS[2]), d, S[0], P[0], D[0], TRANSPOSED)
        ok = ok & in_d
        return (image * d + c) * h * width + place, ok
    else:
        return image * h * width + place, ok


def by_rule(kind: str, places: int, outs: int, depth: int, flat: bool) -> Tile:
    """The rule's tile; a flat tile has one address per element."""
    m = 128 if places >= 4096 else 64 if places >= 64 else 16
    n = min(max(power_of_2(outs), 16), 128 if kind == "half" else 64)
    k = min(max(power_of_2(depth), 16), 64 if kind == "half" else 32)
    if flat:
        m, n, k = min(m, 64), min(n, 64), min(k, 32)
    if kind == "double":
        m, n, k = min(m, 32), min(n, 32), 16
    return Tile(m, n, k, 8 if m * n >= 128 * 128 else 4, 3)


@lru_cache(maxsize=4096)
def tile_of(kernel: str, kind: str, places: int, outs: int, depth: int, flat: bool) -> Tile:
    """The tile from the table, or else from the rule."""
    rule = by_rule(kind, places, outs, depth, flat)
    name = shape_class(places, outs, depth) + ("-flat" if flat else "")
    return Tile(**config(kernel, kind, name, rule._asdict()))


def tiles_allowed(kind: str, places: int, outs: int, depth: int) -> list[Tile]:
    """The rule's tile first, then the other tiles for the tuner to try."""
    rule = by_rule(kind, places, outs, depth, False)
    found = [rule]
    for m in (64, 128, 256):
        for n in (32, 64, 128, 256):
            if m < 2 * places and n < 2 * outs and m * n <= 128 * 256:
                steps = {max(rule.k // 2, 16), rule.k}
                found += [
                    Tile(m, n, k, warps, stages)
                    for k in sorted(steps)
                    for warps in (4, 8)
                    for stages in (2, 3, 4)
                ]
    return list(dict.fromkeys(found))

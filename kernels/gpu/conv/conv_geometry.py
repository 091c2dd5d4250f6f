"""Sizes and tiles of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from ..launch.configs import architecture, config
from ..launch.launch_trace import guarded
from ..matmul import gemm_config
from ..matmul.gemm_config import DEEP, Tile, shape_class
from ..reduce.reduction_tiles import power_of_2

Ints = tuple[int, ...]
Triple = tuple[int, int, int]

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# By the kind of a product: what a tensor's elements are for compiled forms, and its precision.
TYPES = {
    "half": ("bf16", "ieee"), "tf32": ("fp32", "tf32"), "ieee": ("fp32", "ieee"),
    "double": ("fp64", "ieee"),
}  # fmt: skip
_MANY_PLACES = 8192
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
        cls, images: int, source: Sequence[int], output: Sequence[int], taps: Triple, sizes: Sizes,
        apart: bool = False,
    ) -> Volumes:  # fmt: skip
        """With `apart` depths are no images."""
        inner, outer = three(source, 1), three(output, 1)
        flat = (taps[0], sizes.stride[0], sizes.padding[0]) == (1, 1, 0) and inner[0] == outer[0]
        deep = apart or not flat
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


class Products(NamedTuple):
    """A convolution as matrix products: their sizes (the sums have `taps` times k terms), and how
    many there are.

    The windows are the rows of the left operand, or `across` the columns of the right one. With
    `flat` each of their elements has an address of its own.
    """

    m: int
    n: int
    k: int
    taps: int = 1
    times: int = 1
    flat: bool = False
    across: bool = False

    @property
    def shape_class(self) -> str:
        return shape_class(self.m, self.n, self.k) + ("-flat" if self.flat else "")


def by_rule(kind: str, p: Products) -> Tile:
    """The tile that the model of matrix products finds, with steps along k inside of a tap.

    Of the largest tile the shorter side has the windows, which cost more. On older GPUs addresses
    take the registers that it needs.
    """
    large = architecture() in DEEP
    tile = gemm_config.by_rule(kind, p.m, p.n, p.k * p.taps, p.times, large)
    k = min(max(power_of_2(p.k), 16), tile.k)
    if p.flat:
        return Tile(min(tile.m, 64), min(tile.n, 64), min(k, 32), 8, 2)
    if p.across and tile.n > 128:
        tile = tile._replace(m=256 if p.m > 128 else 128, n=128)
    return tile._replace(k=k, stages=min(tile.stages, 3))


@lru_cache(maxsize=4096)
def tile_of(kernel: str, kind: str, p: Products) -> Tile:
    """The tile from the table, or else from the rule."""
    return Tile(**config(kernel, kind, p.shape_class, by_rule(kind, p)._asdict()))


def small_tile(
    places: int, outs: int, depthwise: bool, dtype: torch.dtype, least: int
) -> tuple[int, int, int]:
    """(positions, output channels, warps) of a tile where groups are small.

    A thread with several positions reads their weights, and computes addresses, only once. Without
    channels side by side, or for float64, it has no registers for that.
    """
    n = min(max(power_of_2(outs), 16), 64)
    many = depthwise and places >= _MANY_PLACES and dtype is not torch.float64
    return (128, n, 8) if many else (least, n, 4)


def tiles_allowed(kind: str, p: Products) -> list[Tile]:
    """The rule's tile first, then the other tiles for the tuner to try."""
    rule = by_rule(kind, p)
    found = [rule]
    for m in (64, 128, 256):
        for n in (32, 64, 128, 256):
            if m < 2 * p.m and n < 2 * p.n and m * n <= 128 * 256:
                steps = {max(rule.k // 2, 16), rule.k}
                found += [
                    Tile(m, n, k, warps, stages)
                    for k in sorted(steps)
                    for warps in (4, 8)
                    for stages in (2, 3, 4)
                ]
    return list(dict.fromkeys(found))


# What the rule chooses, by kind, and on new GPUs for large products.
TILES = (
    ("half", Tile(128, 128, 64, 8, 3)),
    ("half", Tile(64, 64, 64, 4, 3)),
    ("tf32", Tile(128, 128, 32, 8, 3)),
    ("ieee", Tile(128, 64, 16, 8, 3)),
    ("double", Tile(64, 64, 16, 4, 3)),
)
LARGE = Tile(128, 256, 64, 8, 3)

# What the tuner measures: images, side, channels and outs of a 3x3 convolution.
IMAGES = (
    (32, 56, 64, 64), (32, 28, 128, 128), (32, 14, 256, 256), (32, 7, 512, 512), (256, 28, 256, 256)
)  # fmt: skip


def of_images(sizes: tuple[int, ...]) -> Products:
    """The products of one of `IMAGES`."""
    images, side, channels, outs = sizes
    return Products(images * side * side, outs, channels, taps=9)

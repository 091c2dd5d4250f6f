"""Sizes, tiles and input positions: what the kernels of convolutions share."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch.configs import config
from ..launch.launch_trace import guarded
from ..matmul.gemm_config import Tile, shape_class
from ..pointwise.copy_kernels import contiguous
from ..reduce.reduction_tiles import power_of_2

Ints = tuple[int, ...]
Pair = tuple[int, int]

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# By the kind of a product: what a tensor's elements are for compiled forms, and its precision.
TYPES = {
    "half": ("bf16", "ieee"), "tf32": ("fp32", "tf32"), "ieee": ("fp32", "ieee"),
    "double": ("fp64", "ieee"),
}  # fmt: skip
LEAST = 16  # channels of a group from which the matrix units are used


class Sizes(NamedTuple):
    """stride, padding and dilation of the two dims."""

    stride: Pair
    padding: Pair
    dilation: Pair

    @classmethod
    def of(cls, stride: Ints, padding: Ints, dilation: Ints) -> Sizes:
        """The sizes of two dims; those of one dim are the last."""
        return cls(two(stride, 1), two(padding, 0), two(dilation, 1))


def two(sizes: Ints, fill: int) -> Pair:
    """Sizes of one or two dims as two; a missing one is added in front."""
    first, second = (*(fill,) * (2 - len(sizes)), *sizes)
    return first, second


def blank(x: Tensor) -> Tensor:
    """x without data, to which torch's functions give the result's shape, or raise their errors."""
    return torch.empty(x.shape, dtype=x.dtype, device="meta")


def works(x: Tensor) -> bool:
    """Whether the kernels support this tensor."""
    return x.ndim in (3, 4) and x.dtype in DTYPES


def as_planes(x: Tensor) -> Tensor:
    """[N, C, L] as [N, C, 1, L]."""
    return x if x.ndim == 4 else x.unsqueeze(2)


def channels_last(x: Tensor) -> Tensor:
    """Dense as [N, H, W, C]."""
    turned = x.permute(0, 2, 3, 1)
    return turned if turned.is_contiguous() else contiguous(turned)


def kind_of(dtype: torch.dtype) -> str:
    """The kind of product; float32 depends on torch's tf32 flag for convolutions."""
    if dtype is torch.float32:
        return "tf32" if guarded(_allows_tf32) else "ieee"
    return "double" if dtype is torch.float64 else "half"


def _allows_tf32() -> bool:
    return torch.backends.cudnn.allow_tf32


@triton.jit
def positions(first, places, oh, ow, BLOCK: tl.constexpr):
    """BLOCK positions of the output from `first` on, which exist, their image, row and column."""
    m = first + tl.arange(0, BLOCK)
    return m, m < places, m // (oh * ow), (m // ow % oh).to(tl.int32), (m % ow).to(tl.int32)


@triton.jit
def advanced(image, i, j, oh, ow, step):
    """The images, rows and columns of positions `step` further: without divisions of 64 bits."""
    j += step % ow
    i += step // ow % oh
    image += step // (oh * ow)
    i = tl.where(j >= ow, i + 1, i)
    j = tl.where(j >= ow, j - ow, j)
    image = tl.where(i >= oh, image + 1, image)
    return image, tl.where(i >= oh, i - oh, i), j


@triton.jit
def source_of(
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

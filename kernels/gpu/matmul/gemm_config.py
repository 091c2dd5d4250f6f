"""Tiles and split-k parts of matrix products: from the table, or by dtype and shape."""

from __future__ import annotations

from functools import lru_cache
from itertools import starmap
from typing import NamedTuple

import torch

from ..launch.configs import architecture, config
from ..launch.launch_trace import guarded
from .tile_cost import Product, count, cycles, longest, part_counts, processors

AMD = torch.version.hip is not None
_MIN_STEPS = 8  # that are worth a program of their own
_GAIN = 0.95  # of the time of one part at most
_NEAR = 1.01  # of the least time; among such numbers of parts the fewest are taken
_MAX_PROGRAMS = 8191  # of a sum in parts
DEEP = ("sm_90", "sm_100")  # whose shared memory holds four stages of the largest tile


class Tile(NamedTuple):
    """Rows and columns of a tile, the step along k, warps and pipeline stages.

    In a `specialized` program other warps copy the operands, where they are copied by TMA. So many
    `resident` programs share a multiprocessor, if it is not 0; see `Kernel.launch`.
    """

    m: int
    n: int
    k: int
    warps: int
    stages: int
    specialized: int = 0
    resident: int = 0


# From the fastest per element to the smallest. By how the sum is made: "half" and "tf32" on tensor
# cores, "ieee" and "double" by multiply-add, "whole" numbers by product and sum of whole tiles.
# Rows of (m, n, k, warps, stages).
_TILES = {
    kind: tuple(starmap(Tile, rows))
    for kind, rows in {
        "half": ((128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (64, 128, 64, 4, 4),
                 (64, 64, 64, 4, 4), (32, 64, 64, 4, 4), (16, 64, 128, 4, 3), (64, 16, 128, 4, 3),
                 (16, 16, 128, 4, 3)),
        "tf32": ((128, 128, 32, 8, 3), (64, 64, 32, 4, 4), (16, 64, 64, 4, 3), (64, 16, 64, 4, 3),
                 (16, 16, 64, 4, 3)),
        "ieee": ((128, 64, 16, 8, 3), (64, 64, 16, 4, 3), (32, 32, 32, 4, 3), (16, 32, 32, 4, 3),
                 (32, 16, 32, 4, 3), (16, 16, 32, 4, 3)),
        "double": ((64, 64, 16, 4, 3), (32, 32, 16, 4, 3), (16, 16, 16, 4, 3)),
        "whole": ((16, 16, 16, 4, 1),),
    }.items()
}  # fmt: skip
# 64 KiB of shared memory and no asynchronous copies: two stages, and no tile wider than 128.
_TILES_AMD = {
    kind: tuple(tile._replace(stages=min(tile.stages, 2)) for tile in tiles if tile.n <= 128)
    for kind, tiles in _TILES.items()
}


def kind_of(dtype: torch.dtype) -> str:
    """The kind of product of a dtype; float32 depends on torch's matmul precision."""
    if dtype in (torch.float16, torch.bfloat16):
        return "half"
    if dtype is torch.float32:
        # Both torch.set_float32_matmul_precision and allow_tf32 are seen here.
        precision = guarded(torch.get_float32_matmul_precision)
        return "ieee" if precision == "highest" else "tf32"
    return "double" if dtype is torch.float64 else "whole"


def _fits(size: int, least: int, step: int) -> bool:
    """Whether most of a step along a dim is inside of it."""
    return step == least or step < 2 * size


def shape_class(m: int, n: int, k: int, batches: int = 1, plain: bool = True) -> str:
    """The shape class of a table entry: sizes rounded up to a power of two.

    >>> shape_class(8192, 5000, 100)
    '8192x8192x128'
    """
    sizes = "x".join(str(1 << max(size - 1, 0).bit_length()) for size in (m, n, k))
    return sizes + ("-batched" if batches > 1 else "") + ("" if plain else "-finished")


@lru_cache(maxsize=4096)
def tile_of(kind: str, m: int, n: int, k: int, batches: int = 1, plain: bool = True) -> Tile:
    """The tile from the table of configurations for this GPU, or else from the rule.

    >>> tile_of("half", 8192, 8192, 8192)
    Tile(m=128, n=256, k=64, warps=8, stages=3, specialized=0, resident=0)
    """
    rule = by_rule(kind, m, n, k, batches, plain)
    name = shape_class(m, n, k, batches, plain)
    return Tile(**config("matmul", kind, name, rule._asdict()))


def by_rule(
    kind: str, m: int, n: int, k: int, batches: int = 1, plain: bool = True, among: int = 0
) -> Tile:
    """The tile with the least modeled time `among` so many processors, by default this GPU's.

    The epilogue of a product that is not `plain` needs registers; the largest tile has none left,
    unless its results are stored in parts (`gemm_tma`).
    """
    fit = [
        tile
        for tile in (_TILES_AMD if AMD else _TILES)[kind]
        if _fits(m, 16, tile.m) and _fits(n, 16, tile.n) and (plain or tile.n <= 128)
    ]
    # The small dim of a long, thin product decides; tiles that are square come before thin ones.
    broad = [tile for tile in fit if min(tile.m, tile.n) * 2 > min(m, n, 64)] or fit
    p = Product(m, n, k, batches, among or processors())
    short = [_shortened(tile, k) for tile in broad]
    chosen = min(short, key=lambda tile: cycles(p, kind, tile, _parts(p, kind, tile)))
    deep = chosen.stages == 3 and min(chosen.m, chosen.n) >= 128 and architecture() in DEEP
    return chosen._replace(stages=4) if deep else chosen


def _shortened(tile: Tile, k: int) -> Tile:
    """The tile with a step along k that is not mostly empty."""
    step = tile.k
    while step > 16 and step >= 2 * k:
        step //= 2
    return tile._replace(k=step)


def tiles_allowed(kind: str, m: int, n: int, k: int) -> list[Tile]:
    """The rule's tile first, then the other tiles for the tuner to try."""
    rule = by_rule(kind, m, n, k)
    found = [rule]
    for tile in (_TILES_AMD if AMD else _TILES)[kind]:
        if _fits(m, 16, tile.m) and _fits(n, 16, tile.n):
            step = min(tile.k, rule.k)
            for warps in sorted({4, 8, tile.warps}):
                for stages in (2,) if AMD else (2, 3, 4, 5):
                    found.append(tile._replace(k=step, warps=warps, stages=stages))
            # Triton makes specialized programs of four warps: two more groups of four multiply.
            if kind == "half" and tile.m == 128 and architecture() == "sm_90":
                found += [Tile(tile.m, tile.n, step, 4, stages, 1) for stages in (3, 4)]
    return list(dict.fromkeys(found))


@lru_cache(maxsize=4096)
def parts_of(
    kind: str, m: int, n: int, k: int, batches: int, tile: Tile, among: int = 0
) -> tuple[int, int]:
    """The number of split-k parts, and the terms of one.

    There is more than one part only if the result has few tiles and the sum is long, as for the
    gradient of a weight. The number depends on shape, tile and kind of GPU only, so sums have a
    fixed order.

    >>> parts_of("half", 64, 64, 65536, 1, Tile(64, 64, 64, 4, 4), among=132)
    (128, 512)
    """
    parts = _parts(Product(m, n, k, batches, among or processors()), kind, tile)
    return parts, longest(k, tile.k, parts)


def _parts(p: Product, kind: str, tile: Tile) -> int:
    """The number of parts with the least modeled time, if that is much less than of one part.

    Parts need memory, and are not copied by TMA: on an H200 that took 2 to 5% longer.
    """
    worth = p.k // (_MIN_STEPS * tile.k)
    fit = _MAX_PROGRAMS // (count(p.m, p.n, tile) * p.batches)
    tried = part_counts(p.k, tile.k, max(1, min(worth, fit)))
    time = {parts: cycles(p, kind, tile, parts) for parts in tried}
    least = min(time.values())
    parts = min(parts for parts, taken in time.items() if taken <= _NEAR * least)
    return parts if least < _GAIN * time[1] else 1

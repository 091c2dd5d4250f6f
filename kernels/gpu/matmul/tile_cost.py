"""The modeled time of a matrix product: waves of tiles over the multiprocessors of a GPU.

A wave takes as long as one of its tiles, also if there are not enough tiles for all processors: 144
tiles take as long as 264 on 132 processors. Smaller tiles or more parts of the sum fill the last
wave, but cost more for each element. The numbers are those of an H100; only their ratios matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import torch

# Multiply-adds of a processor in a cycle, by `gemm_config.kind_of`.
_RATE = {"half": 2048.0, "tf32": 1024.0, "ieee": 128.0, "double": 64.0, "whole": 16.0}
_COPY = 64  # multiply-adds that take as long as the copy of an element to shared memory
_STEP = 300.0  # cycles of a step along the sum at least: the latency of memory, overlapped
_TILE = 1500.0  # cycles of a tile besides its steps: the first copies, and the store
_BYTES = 14.0  # of memory that a processor reads or writes in a cycle
_LAUNCH = 3000.0  # cycles until the sum of the parts begins
_WITHOUT_GPU = 132


class Product(NamedTuple):
    """The sizes of a product, and the number of multiprocessors."""

    m: int
    n: int
    k: int
    batches: int
    processors: int


@cache
def processors() -> int:
    """The number of multiprocessors of this machine's GPUs, which are taken to be of one kind."""
    if not torch.cuda.is_available():
        return _WITHOUT_GPU
    return int(torch.cuda.get_device_properties(0).multi_processor_count)


def count(m: int, n: int, tile: tuple[int, ...]) -> int:
    """The number of tiles of an (m, n) result."""
    return -(-m // tile[0]) * -(-n // tile[1])


def waves(p: Product, tile: tuple[int, ...], parts: int = 1) -> int:
    """How many tiles a processor computes, at most."""
    return -(-count(p.m, p.n, tile) * p.batches * parts // p.processors)


def longest(k: int, step: int, parts: int) -> int:
    """The terms of each part of a sum but the last: whole steps. The last has what is left.

    >>> from onefold.kernels.gpu.matmul.tile_cost import longest
    >>> longest(8192, 64, 7)  # the last has 896 terms
    1216
    """
    return k if parts == 1 else -(-k // (step * parts)) * step


def part_counts(k: int, step: int, most: int) -> Iterator[int]:
    """Each number of parts up to `most` whose longest part is shorter than with fewer parts.

    With the other numbers of parts some would be empty, or all as long as with fewer.

    >>> from onefold.kernels.gpu.matmul.tile_cost import part_counts
    >>> list(part_counts(640, 64, 10))
    [1, 2, 3, 4, 5, 10]
    """
    steps, parts = -(-k // step), 1
    while parts <= most:
        yield parts
        length = -(-steps // parts)
        if length < 2:
            return
        parts = -(-steps // (length - 1))


def efficiency(p: Product, tile: tuple[int, ...], parts: int = 1) -> float:
    """The share of the processors' work that is part of the result.

    >>> from onefold.kernels.gpu.matmul.tile_cost import Product, efficiency
    >>> round(efficiency(Product(1536, 3072, 4096, 1, 132), (128, 256, 64)), 2)
    0.55
    >>> round(efficiency(Product(768, 768, 8192, 1, 132), (128, 256, 64), parts=7), 2)
    0.92
    """
    m, n, step = tile[:3]
    work = waves(p, tile, parts) * p.processors * m * n * longest(p.k, step, parts)
    return p.m * p.n * p.batches * p.k / work


def cycles(p: Product, kind: str, tile: tuple[int, ...], parts: int = 1) -> float:
    """The modeled time of the product with this tile (m, n, k), its sum in so many parts."""
    m, n, step = tile[:3]
    steps = -(-longest(p.k, step, parts) // step)
    of_step = max((m * n + _COPY * (m + n)) * step / _RATE[kind], _STEP)
    time = waves(p, tile, parts) * (steps * of_step + _TILE)
    if parts > 1:
        size = 8 if kind in ("double", "whole") else 4
        moved = p.m * p.n * p.batches * size * (2 * parts + 1)
        time += _LAUNCH + moved / (_BYTES * p.processors)
    return time

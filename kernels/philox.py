"""Philox4x32-10: random words that depend only on (seed, call, logical index), never on layout.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). One counter yields
a group of four 32-bit words:

    key     = (low32(seed),  high32(seed))
    counter = (low32(group), high32(group), low32(call), high32(call))

A narrow draw gives element e of the logical tensor word e & 3 of group e >> 2. A wide draw gives it
64 bits, words 2e and 2e + 1 of the same sequence, the first one low.

A rank asks for a *box*: `size` elements from `offset` on, inside the logical `shape`. The words are
made in whole groups and trimmed to the box, so that any cut of a tensor holds the same values.
numpy makes them on the CPU, chunk by chunk inside the cache, with as many threads as torch uses.
On GPUs the Triton kernels of `kernels/gpu/random/` make the same words.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints: TypeAlias = tuple[int, ...]
# A seed, or an int64 tensor of a seed and a call id, which is read in place of both.
Seed: TypeAlias = int | Tensor
Words: TypeAlias = NDArray[np.integer[Any]]  # unsigned
Tile: TypeAlias = tuple[int, int, int, int]  # first row, last row, first column, last column
Index = TypeVar("Index", int, NDArray[np.int64])
Transform = Callable[[Words], NDArray[np.generic]]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW32 = 0xFFFF_FFFF
_LOW64 = 0xFFFF_FFFF_FFFF_FFFF

# Groups made at once: their buffers, 10 words of 64 bits per group, stay inside a 1 MiB cache.
CPU_CHUNK = 8192
# Elements from which on several threads fill a tensor. One thread takes 2 ms for as many.
MIN_THREADED = 1 << 18


def signed(number: int) -> int:
    """A number modulo 2^64 as a signed 64-bit integer.

    >>> signed(2**64 - 1)
    -1
    """
    number &= _LOW64
    return number - (1 << 64 if number >> 63 else 0)


def _round_keys(seed: int) -> list[tuple[int, int]]:
    low, high = seed & _LOW32, seed >> 32 & _LOW32
    return [((low + r * _WEYL[0]) & _LOW32, (high + r * _WEYL[1]) & _LOW32) for r in range(_ROUNDS)]


def _scalar(value: int) -> NDArray[np.uint64]:
    """A 0-d array: numpy takes it a third faster than a scalar of its own."""
    return np.array(value & _LOW64, np.uint64)


_M0, _M1 = (_scalar(m) for m in _MULTIPLIERS)
_MASK, _SHIFT = _scalar(_LOW32), _scalar(32)


@lru_cache(maxsize=64)
def _high_keys(seed: int) -> list[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
    return [(_scalar(k0 << 32), _scalar(k1 << 32)) for k0, k1 in _round_keys(seed)]


class Philox:
    """The words of one (seed, call), in buffers for `chunk` groups.

    Two 64-bit lanes hold the counter, the word to be multiplied on top: x = c0:c1, y = c2:c3.
    With a = (x >> 32) m0 and b = (y >> 32) m1, a round is x' = b ^ (x << 32) ^ k0:0 and
    y' = a ^ (y << 32) ^ k1:0, ten passes instead of the sixteen that separate words take.
    """

    def __init__(self, seed: int, call: int, chunk: int) -> None:
        self.keys = _high_keys(seed)
        self.call = call & _LOW64
        self.chunk = chunk
        self.lanes = np.empty((2, chunk), np.uint64)
        self.products = np.empty((2, chunk), np.uint64)
        self.output = np.empty((chunk, 4), np.uint32)

    def words(self, groups: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Return the words of `groups` (ascending, at least one), four per group, in a buffer.

        The buffer is overwritten by the next call.
        Example: `Philox(0, 0, 8).words(np.arange(2, dtype=np.uint64))` has shape (8,).
        """
        n = len(groups)
        (x, y), (a, b) = self.lanes[:, :n], self.products[:, :n]
        return self._rounds(n, self._first_rounds(groups, x, y, a, b))

    def words_of_calls(
        self, groups: NDArray[np.uint64], calls: NDArray[np.uint64]
    ) -> NDArray[np.uint32]:
        """Return the words of each group and call, in a buffer as `words` does.

        Example: `Philox(0, 0, 8).words_of_calls(groups, calls)` with two groups and two calls has
        shape (8,).
        """
        n = len(groups)
        for lane, numbers in zip(self.lanes, (groups, calls), strict=True):
            np.left_shift(numbers, _SHIFT, out=lane[:n])
            np.bitwise_or(lane[:n], numbers >> _SHIFT, out=lane[:n])
        return self._rounds(n, 0)

    def _rounds(self, n: int, done: int) -> NDArray[np.uint32]:
        """The words of the first `n` counters, which have had so many rounds."""
        lanes, products = self.lanes[:, :n], self.products[:, :n]
        (x, y), (a, b) = lanes, products
        for k0, k1 in self.keys[done:]:
            np.right_shift(lanes, _SHIFT, out=products)
            np.multiply(a, _M0, out=a)
            np.multiply(b, _M1, out=b)
            np.left_shift(lanes, _SHIFT, out=lanes)
            np.bitwise_xor(x, k0, out=x)
            np.bitwise_xor(x, b, out=x)
            np.bitwise_xor(y, k1, out=y)
            np.bitwise_xor(y, a, out=y)
        words = self.output[:n]
        for lane, first in ((x, 0), (y, 2)):
            halves = lane.view(np.uint32)  # little-endian: the low half comes first
            words[:, first] = halves[1::2]
            words[:, first + 1] = halves[0::2]
        return words.reshape(-1)

    def _first_rounds(
        self, groups: NDArray[np.uint64], x: NDArray[np.uint64], y: NDArray[np.uint64],
        a: NDArray[np.uint64], b: NDArray[np.uint64],
    ) -> int:  # fmt: skip
        """Fill x and y and return how many rounds they have had.

        c2, c3 and nearly always c1 are the same in every group: a tenth of all passes saved.
        """
        (k0, k1), (next_k0, next_k1) = ((int(k0), int(k1)) for k0, k1 in self.keys[:2])
        np.bitwise_and(groups, _MASK, out=a)
        np.multiply(a, _M0, out=a)
        np.bitwise_xor(a, _scalar((self.call >> 32 << 32) ^ k1), out=y)
        mixed = (self.call & _LOW32) * _MULTIPLIERS[1] ^ k0
        c1 = int(groups[0]) >> 32
        if c1 != int(groups[-1]) >> 32:
            np.right_shift(groups, _SHIFT, out=x)
            np.left_shift(x, _SHIFT, out=x)
            np.bitwise_xor(x, _scalar(mixed), out=x)
            return 1
        mixed ^= c1 << 32
        np.right_shift(y, _SHIFT, out=b)
        np.multiply(b, _M1, out=b)
        np.bitwise_xor(b, _scalar(mixed << 32 ^ next_k0), out=x)
        np.left_shift(y, _SHIFT, out=y)
        np.bitwise_xor(y, _scalar((mixed >> 32) * _MULTIPLIERS[0] ^ next_k1), out=y)
        return 2


@dataclass(frozen=True, slots=True)
class Rows:
    """A box as `count` rows of `length` consecutive logical indices each.

    `start` is the logical index of the first row, `outer` the (size, stride) of the dims which
    number the rows, outermost first.
    """

    length: int
    count: int
    start: int
    outer: tuple[tuple[int, int], ...]

    @classmethod
    def of_box(cls, shape: Ints, offset: Ints, size: Ints) -> Rows:
        """Cut a box into the longest rows there are.

        Example: `Rows.of_box((4, 6), (1, 2), (2, 3))` is `Rows(3, 2, 8, ((2, 6),))`.
        """
        assert len(shape) == len(offset) == len(size), (shape, offset, size)
        for n, first, extent in zip(shape, offset, size, strict=True):
            assert 0 <= first <= first + extent <= n, (shape, offset, size)
        assert prod(shape) < 1 << 63, f"{shape} has no 63-bit logical index"
        strides = [prod(shape[dim + 1 :]) for dim in range(len(shape))]
        start = sum(first * stride for first, stride in zip(offset, strides, strict=True))
        inner = max(len(shape) - 1, 0)
        while inner > 0 and size[inner] == shape[inner]:
            inner -= 1
        outer = tuple((size[dim], strides[dim]) for dim in range(inner) if size[dim] != 1)
        return cls(prod(size[inner:]), prod(size[:inner]), start, outer)

    def starts(self, row: Index) -> Index:
        """Return the logical index at which each row of `row` begins."""
        start = row * 0 + self.start
        for size, stride in reversed(self.outer):
            start += row % size * stride
            row = row // size
        return start


def _tiles(rows: Rows, lanes: int, chunk: int) -> Iterator[Tile]:
    """Yield tiles of at most `chunk` groups each."""
    width = _groups_across(rows.length, lanes)
    row_step = max(1, chunk // width)
    column_step = rows.length if width <= chunk else (chunk - 1) * lanes
    row_cuts = range(0, rows.count, row_step)
    column_cuts = range(0, rows.length, column_step)
    for row, column in itertools.product(row_cuts, column_cuts):
        last_row = min(row + row_step, rows.count)
        yield row, last_row, column, min(column + column_step, rows.length)


def _groups_across(length: int, lanes: int) -> int:
    """How many groups `length` consecutive elements can touch, wherever they begin."""
    return (length + 2 * lanes - 2) // lanes


def fill(
    shape: Ints, offset: Ints, size: Ints, transform: Transform, *, seed: Seed, call: int,
    dtype: torch.dtype, device: torch.device | str = "cpu", wide: bool = False,
) -> Tensor:  # fmt: skip
    """Return the box of a logical random tensor whose elements are transform(words).

    `transform` maps a flat array of words (uint64 if `wide`, else uint32) to a flat array of
    values, one for one, and of words other than its own a value may depend only on its partner's,
    2i's on 2i + 1 and back. `seed` and `call` count modulo 2^64. Values are cast to `dtype` by
    rounding to nearest even. For another device they are made on the CPU and copied.

    Example: `fill((8,), (2,), (3,), lambda w: w >> 8, seed=0, call=0, dtype=torch.int64)`.
    """
    out = torch.empty(size, dtype=dtype, device="cpu")
    key: tuple[int, int] = tuple(seed.tolist()) if isinstance(seed, Tensor) else (seed, call)
    if out.numel():
        _fill(out, Rows.of_box(shape, offset, size), 2 if wide else 4, key, transform)
    return out.to(device)


def _fill(out: Tensor, rows: Rows, lanes: int, key: tuple[int, int], transform: Transform) -> None:
    chunk = min(CPU_CHUNK, rows.count * _groups_across(rows.length, lanes))
    table = out.view(rows.count, rows.length)
    tiles = list(_tiles(rows, lanes, chunk))

    def draw(some: Sequence[Tile]) -> None:
        philox = Philox(*key, chunk)
        for tile in some:
            _fill_tile(table, tile, rows, lanes, philox, transform)

    threads = min(_threads(out), len(tiles))
    if threads == 1:
        draw(tiles)
        return
    with ThreadPoolExecutor(threads) as pool:  # numpy computes without Python's lock
        for share in [pool.submit(draw, tiles[first::threads]) for first in range(threads)]:
            share.result()


def _threads(out: Tensor) -> int:
    """The number of threads that fill a tensor: torch's, or one where more would take longer."""
    # Tensors of inference mode can only be written by the thread in which it is on.
    return 1 if out.numel() < MIN_THREADED or out.is_inference() else torch.get_num_threads()


def _fill_tile(
    table: Tensor, tile: Tile, rows: Rows, lanes: int, philox: Philox, transform: Transform
) -> None:
    def draw(groups: NDArray[np.int64]) -> Tensor:
        words = philox.words(groups.view(np.uint64))
        return torch.from_numpy(transform(words.view(np.uint64) if lanes == 2 else words))

    first_row, last_row, first, last = tile
    out = table[first_row:last_row, first:last]
    width = _groups_across(last - first, lanes)
    if last_row - first_row == 1:
        group, skip = divmod(rows.starts(first_row) + first, lanes)
        values = draw(np.arange(group, group + width))
        out.copy_(values[None, skip : skip + last - first])
    else:
        index = rows.starts(np.arange(first_row, last_row)) + first
        groups = (index[:, None] // lanes + np.arange(width)).reshape(-1)
        _copy_rows(draw(groups).view(len(index), -1), index % lanes, lanes, out)


def _copy_rows(values: Tensor, skip: NDArray[np.int64], lanes: int, out: Tensor) -> None:
    """Copy each row of `values`, less its first `skip` elements, into `out`."""
    length = out.shape[1]
    for lane in range(lanes):
        chosen = torch.from_numpy(skip == lane)
        if bool(chosen.all()):
            out.copy_(values[:, lane : lane + length])
            return
        out[chosen] = values[chosen, lane : lane + length].to(out.dtype)

"""What forward and backward of attention share: who sees whom, which pairs are dropped, tiles."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..attention import WIDEST
from .tiles import power_of_2
from .words import words_of

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def described(x, step, count, D, ROWS: tl.constexpr, BD: tl.constexpr, TMA: tl.constexpr):
    """What `load_rows` takes: x, or with TMA what the hardware copies its rows by."""
    if TMA:
        return tl.make_tensor_descriptor(x, [count, D], [step, 1], [ROWS, BD])
    else:
        return x


@triton.jit
def load_rows(
    x, step, first, count, D, ROWS: tl.constexpr, BD: tl.constexpr, ALL: tl.constexpr,
    TMA: tl.constexpr = False,
):  # fmt: skip
    """ROWS rows from `first` on, zeros beyond row `count` (unless ALL are there) and column D."""
    if TMA:
        return x.load([first, 0])
    else:
        row = tl.arange(0, ROWS)[:, None]
        column = tl.arange(0, BD)[None, :]
        at = x + tl.cast(first, tl.int64) * step + (row * step + column)
        if BD == D:
            if ALL:
                return tl.load(at)
            else:
                return tl.load(at, mask=row < count - first, other=0.0)
        elif ALL:
            return tl.load(at, mask=column < D, other=0.0)
        else:
            return tl.load(at, mask=(row < count - first) & (column < D), other=0.0)


@triton.jit
def store_rows(x, step, first, count, D, value, ROWS: tl.constexpr, BD: tl.constexpr):
    """Write `load_rows` back."""
    row = tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BD)[None, :]
    at = x + tl.cast(first, tl.int64) * step + (row * step + column)
    tl.store(at, value.to(x.dtype.element_ty), mask=(row < count - first) & (column < D))


@triton.jit
def sequence(starts):
    """Where a sequence starts, and its length."""
    start, end = tl.load(starts).to(tl.int64), tl.load(starts + 1).to(tl.int64)
    return start, (end - start).to(tl.int32)


@triton.jit
def seen(i, j, rows, columns, first, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Whether query i, of logical index first + i, sees key j."""
    there = (i < rows) & (j < columns)
    if CAUSAL:
        there = there & (j <= i + first)
    if WINDOW:
        there = there & (i + first - j < window) & (j - i - first < window)
    return there


@triton.jit
def masked(scores, mask, i, j, i_step, j_step, there, MASK: tl.constexpr):
    """Scores, in base 2, with a mask added ("add") or -inf where it is False ("bool")."""
    if MASK != "":
        at = mask + i.to(tl.int64) * i_step + j.to(tl.int64) * j_step
        if MASK == "bool":
            scores = tl.where(tl.load(at, mask=there, other=0) != 0, scores, float("-inf"))
        else:
            scores += tl.load(at, mask=there, other=0.0).to(scores.dtype) * LOG2_E
    return scores


@triton.jit
def kept(row, first_j, seed, call, least, BN: tl.constexpr, QUADS: tl.constexpr):
    """Whether the pairs of queries and BN keys are kept; their words are those of `philox.py`.

    `row` is the logical index of each query's pair with key 0. Where all are multiples of 4
    (QUADS) one group of words serves four keys.
    """
    if QUADS:
        groups = (row[:, None] + first_j >> 2) + tl.arange(0, BN // 4)[None, :]
        a, b, c, d = words_of(groups, seed, call)
        words = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (row.shape[0], BN))
    else:
        e = row[:, None] + first_j + tl.arange(0, BN)[None, :]
        a, b, c, d = words_of(e >> 2, seed, call)
        words = tl.where(e & 2 == 0, tl.where(e & 1 == 0, a, b), tl.where(e & 1 == 0, c, d))
    return words.to(tl.int64) >= least


class Sizes(NamedTuple):
    """Queries and keys that one program takes at a time, its warps and its stages."""

    queries: int
    keys: int
    warps: int
    stages: int


# By the widest of the features, for 16-bit dtypes; float32 and float64 have less room.
_FORWARD = {64: Sizes(128, 64, 4, 3), 128: Sizes(128, 64, 8, 3), 256: Sizes(64, 32, 8, 2)}
_OF_QUERIES = {64: Sizes(128, 64, 8, 2), 128: Sizes(128, 64, 8, 2), 256: Sizes(32, 32, 4, 1)}
_OF_KEYS = {64: Sizes(32, 128, 8, 2), 128: Sizes(32, 64, 8, 2), 256: Sizes(32, 32, 8, 1)}
_TABLES = {"forward": _FORWARD, "queries": _OF_QUERIES, "keys": _OF_KEYS}
# What would spill registers there; by the work, the widest of the features, and whether it is plain
# (masks and dropout take registers).
_ELSEWHERE = {
    "sm_80": {
        ("forward", 64, False): Sizes(128, 32, 8, 3),
        ("queries", 64, False): Sizes(128, 32, 8, 2),
        ("queries", 128, True): Sizes(64, 64, 8, 2),
        ("queries", 128, False): Sizes(64, 32, 8, 2),
        ("keys", 64, False): Sizes(32, 32, 4, 2),
        ("keys", 128, False): Sizes(16, 64, 8, 1),
    },
    "sm_100": {
        ("keys", 128, True): Sizes(32, 64, 8, 1),
        ("keys", 128, False): Sizes(32, 32, 8, 1),
    },
    "gfx942": {
        ("queries", 128, True): Sizes(128, 32, 8, 1),
        ("queries", 128, False): Sizes(64, 32, 8, 1),
        ("keys", 256, True): Sizes(16, 64, 8, 1),
        ("keys", 256, False): Sizes(16, 32, 8, 1),
    },
}


@lru_cache(maxsize=4096)
def sizes_of(
    work: str, dtype: torch.dtype, features: int, queries: int, keys: int, plain: bool, arch: str
) -> Sizes:
    """The tile for "forward" or the gradients of "queries" or "keys", by dtype, shape and GPU."""
    bound = next(width for width in (64, 128, WIDEST) if features <= width)
    most = _TABLES[work][bound]
    if dtype is torch.float32:
        size = 32 if bound < WIDEST else 16
        most = Sizes(size, size, 8 if size == 32 else 4, 1)
    elif dtype is torch.float64:
        most = Sizes(16, 16, 4, 1)
    elif (work, bound, plain) in _ELSEWHERE.get(arch, {}):
        most = _ELSEWHERE[arch][work, bound, plain]
    elif not plain:
        most = most._replace(warps=8)
    if arch.startswith("gfx"):
        most = most._replace(stages=1)
    return Sizes(_within(most.queries, queries), _within(most.keys, keys), *most[2:])


def _within(size: int, most: int) -> int:
    return max(min(size, power_of_2(max(most, 1))), 16)

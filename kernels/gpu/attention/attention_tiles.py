"""Tiles, masks and dropout: what the forward and backward kernels of attention share."""

from __future__ import annotations

import triton
import triton.language as tl

from ..pointwise.special_functions import LOG2_E
from ..random.philox_kernels import words_of


@triton.jit
def program_of(blocks, heads):
    """(block, head, batch) of this program."""
    pid = tl.program_id(0)
    return pid % blocks, (pid // blocks % heads).to(tl.int64), (pid // blocks // heads).to(tl.int64)


@triton.jit
def described(x, step, count, D, ROWS: tl.constexpr, BD: tl.constexpr, TMA: tl.constexpr):
    """The first argument of `load_rows`: x, or with TMA a tensor descriptor of its rows."""
    if TMA:
        return tl.make_tensor_descriptor(x, [count, D], [step, 1], [ROWS, BD])
    else:
        return x


@triton.jit
def load_rows(
    x, step, first, count, D, ROWS: tl.constexpr, BD: tl.constexpr, ALL: tl.constexpr,
    TMA: tl.constexpr = False,
):  # fmt: skip
    """ROWS rows from `first` on, with zeros beyond row `count` (unless ALL exist) and column D."""
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
def of_heads(
    x, head, step, heads, rows, D, ROWS: tl.constexpr, BD: tl.constexpr, TMA: tl.constexpr
):
    """The first argument of `load_heads`: x, or with TMA a tensor descriptor of all heads."""
    if TMA:
        return tl.make_tensor_descriptor(x, [heads, rows, D], [head, step, 1], [1, ROWS, BD])
    else:
        return x


@triton.jit
def load_heads(
    x, head_step, step, head, first, count, D, ROWS: tl.constexpr, BD: tl.constexpr,
    TMA: tl.constexpr,
):  # fmt: skip
    """`load_rows` of one of the heads."""
    if TMA:
        return x.load([head, first, 0]).reshape(ROWS, BD)
    else:
        return load_rows(x + head.to(tl.int64) * head_step, step, first, count, D, ROWS, BD, False)


@triton.jit
def store_rows(
    x, step, first, count, D, value, ROWS: tl.constexpr, BD: tl.constexpr,
    TMA: tl.constexpr = False,
):  # fmt: skip
    """Write `load_rows` back."""
    if TMA:
        x.store([first, 0], value.to(x.dtype))
    else:
        row = tl.arange(0, ROWS)[:, None]
        column = tl.arange(0, BD)[None, :]
        at = x + tl.cast(first, tl.int64) * step + (row * step + column)
        tl.store(at, value.to(x.dtype.element_ty), mask=(row < count - first) & (column < D))


@triton.jit
def sequence(starts):
    """The start and the length of a sequence."""
    start, end = tl.load(starts).to(tl.int64), tl.load(starts + 1).to(tl.int64)
    return start, (end - start).to(tl.int32)


@triton.jit
def seen(i, j, rows, columns, first, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Whether query i, of logical index first + i, attends to key j."""
    there = (i < rows) & (j < columns)
    if CAUSAL:
        there = there & (j <= i + first)
    if WINDOW:
        there = there & (i + first - j < window) & (j - i - first < window)
    return there


@triton.jit
def masked(scores, mask, i, j, i_step, j_step, there, MASK: tl.constexpr):
    """Scores with a mask added ("add") or -inf where it is False ("bool")."""
    if MASK != "":
        at = mask + i.to(tl.int64) * i_step + j.to(tl.int64) * j_step
        if MASK == "bool":
            scores = tl.where(tl.load(at, mask=there, other=0) != 0, scores, float("-inf"))
        else:
            scores += tl.load(at, mask=there, other=0.0).to(scores.dtype)
    return scores


@triton.jit
def score_factor(scale, MASK: tl.constexpr):
    """What products are multiplied by, so that `exponential` of scores are the weights."""
    return scale if MASK == "add" else scale * LOG2_E


@triton.jit
def exponential(x, MASK: tl.constexpr):
    """2 to the power of x, or e beside an added mask, whose least number times log2(e) is -inf."""
    return tl.exp2(x * LOG2_E) if MASK == "add" else tl.exp2(x)


@triton.jit
def kept(row, first_j, seed, call, least, BN: tl.constexpr, QUADS: tl.constexpr):
    """The dropout mask of queries and BN keys, from the random words of `philox_kernels.py`.

    `row` is the logical index of each query's pair with key 0. If all are multiples of 4 (QUADS),
    one group of words is used for four keys.
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


@triton.jit
def logical_of(i, batch, head, first, columns, logical_batch, logical_head, logical_row):
    """The logical index of each query's pair with key 0."""
    row = (logical_batch + batch * logical_head + head) * logical_row
    return (row + first + i.to(tl.int64)) * columns


@triton.jit
def nonempty_end(low, high):
    """The end of a loop, moved so that the loop runs at least once, which the compiler is told.

    Accumulators of a loop that may be skipped are set to 0 in two places, and then ptxas serializes
    the wgmma instructions of the loop. A tile without pairs adds 0.
    """
    high = tl.maximum(high, low + 1)
    tl.assume(high > low)
    return high


@triton.jit
def last_key(i, columns, first, CAUSAL: tl.constexpr):
    """The last key that each query attends to."""
    last = i * 0 + (columns - 1)
    return tl.minimum(last, i + first) if CAUSAL else last


@triton.jit
def keys_of(
    i0, columns, first, window, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """The range of keys for BM queries from i0 on: from the first to the third result.

    Up to the second result, all of the queries attend to all of the keys.
    """
    low = i0 * 0
    high = columns + i0 * 0
    full = columns // BN * BN
    if CAUSAL:
        high = tl.minimum(high, i0 + BM + first)
        full = tl.minimum(full, tl.maximum(0, i0 + first + 1) // BN * BN)
    if WINDOW:
        low = tl.maximum(0, i0 + first - window + 1) // BN * BN
        high = tl.minimum(high, i0 + BM + first + window)
    if WINDOW or MASK != "":
        full = low
    return low, full, high


@triton.jit
def queries_of(
    j0, rows, first, window, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
):  # fmt: skip
    """The range of queries that attend to any of BN keys from j0 on; it begins with a tile."""
    low = j0 * 0
    high = rows + j0 * 0
    if CAUSAL:
        low = tl.maximum(0, j0 - first) // BM * BM
    if WINDOW:
        low = tl.maximum(low, tl.maximum(0, j0 - first - window + 1) // BM * BM)
        high = tl.minimum(high, tl.maximum(0, j0 + BN - 1 - first + window))
    return low, high

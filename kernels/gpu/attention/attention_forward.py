"""The forward pass of attention with an online softmax, without a matrix of scores.

Source: Dao, "FlashAttention-2" (2023). Scores are exponents of base 2, or of e with an added mask.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..launch.jit_kernel import Kernel
from ..pointwise.special_functions import LOG2_E
from ..random.philox_kernels import key_of
from .attention_tiles import (
    described,
    exponential,
    kept,
    keys_of,
    last_key,
    load_rows,
    logical_of,
    masked,
    nonempty_end,
    program_of,
    score_factor,
    seen,
    sequence,
    store_rows,
)


@triton.jit
def _over_keys(
    y, total, top, q, k, v, mask, i, logical, low, high, full, k_step, v_step, i_step, j_step,
    rows, columns, first, window, scale, least, seed, call,
    D: tl.constexpr, DV: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    MASK: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr, PRECISION: tl.constexpr,
    CHECK: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr,
    TMA: tl.constexpr, SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """Update the rows of y, their sums and their maxima by the keys from `low` to `high`.

    With CHECK 1 scores are masked, with 2 those of tiles from `full` on. The maximum is scaled, not
    each score: `scale` is positive.
    """
    last = last_key(i, columns, first, CAUSAL)
    for j0 in tl.range(low, high, BN, warp_specialize=SPECIALIZE):
        j = j0 + tl.arange(0, BN)
        keys = load_rows(k, k_step, j0, columns, D, BN, BD, CHECK == 0, TMA)
        scores = tl.dot(q, keys.T, input_precision=PRECISION, out_dtype=y.dtype)
        factor = scale
        if CHECK == 2:  # noqa: SIM102 - known when compiled; the next is not
            if j0 >= full:
                scores = tl.where(j[None, :] <= last[:, None], scores, float("-inf"))
        if CHECK == 1:
            there = seen(i[:, None], j[None, :], rows, columns, first, window, CAUSAL, WINDOW)
            if MASK != "":
                scores *= scale
                factor = 1.0
                scores = masked(scores, mask, i[:, None], j[None, :], i_step, j_step, there, MASK)
            scores = tl.where(there, scores, float("-inf"))
        risen = tl.maximum(top, tl.max(scores, 1) * factor)
        # A row that has seen no key yet has no top to take away.
        base = tl.where(risen == float("-inf"), 0.0, risen) if CHECK else risen
        p = exponential(scores * factor - base[:, None], MASK)
        shrink = exponential(top - base, MASK)
        total = total * shrink + tl.sum(p, 1)
        if DROP:
            p = tl.where(kept(logical, j0, seed, call, least, BN, QUADS), p, 0.0)
        values = load_rows(v, v_step, j0, columns, DV, BN, BV, CHECK == 0, TMA)
        p = p.to(values.dtype)
        y = y * shrink[:, None]
        y = tl.dot(p, values, y, input_precision=PRECISION, out_dtype=y.dtype)
        top = risen
    return y, total, top


@Kernel
def forward(
    q, k, v, mask, y, lse, q_starts, k_starts, drawn,
    q_batch, q_head, q_step, k_batch, k_head, k_step, v_batch, v_head, v_step,
    y_batch, y_head, y_step, m_batch, m_head, i_step, j_step,
    heads, group, rows, columns, pitch, first, window, scale: tl.float64,
    logical_batch, logical_head, logical_row,
    least: tl.int64, seed: tl.int64, call: tl.int64, rescale: tl.float64,
    D: tl.constexpr, DV: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    MASK: tl.constexpr, PACKED: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, TMA: tl.constexpr,
    SPECIALIZE: tl.constexpr, BRANCH: tl.constexpr,
):  # fmt: skip
    """Attention of BM queries of a head, by one program.

    The blocks of the last queries, which attend to the most keys, are started first. The seed and
    the call id of dropout are read from `drawn` where that is given.
    """
    seed, call = key_of(drawn, seed, call)
    WIDE: tl.constexpr = lse.dtype.element_ty
    blocks = tl.cdiv(rows, BM)
    block, head, batch = program_of(blocks, heads)
    block = blocks - 1 - block
    at_q, at_k = 0, 0
    lse += head * pitch
    if PACKED:  # sequences one after the other, each with its own length
        at_q, rows = sequence(q_starts + batch)
        at_k, columns = sequence(k_starts + batch)
        first = columns - rows  # the last query is at the place of the last key
        rows = tl.where(columns > 0, rows, 0)  # a tensor descriptor of no keys is not allowed
        lse += at_q
    else:
        lse += batch * heads * pitch
    q += batch * q_batch + head * q_head + at_q * q_step
    k += batch * k_batch + head // group * k_head + at_k * k_step
    v += batch * v_batch + head // group * v_head + at_k * v_step
    y += batch * y_batch + head * y_head + at_q * y_step
    if MASK != "":
        mask += batch * m_batch + head * m_head
    i0 = block * BM
    if i0 < rows:
        i = i0 + tl.arange(0, BM)
        logical = i.to(tl.int64)
        if DROP:
            logical = logical_of(
                i, batch, head, first, columns, logical_batch, logical_head, logical_row
            )
        low, full, high = keys_of(i0, columns, first, window, BM, BN, CAUSAL, WINDOW, MASK)
        of_q = described(q, q_step, rows, D, BM, BD, TMA)
        queries = load_rows(of_q, q_step, i0, rows, D, BM, BD, False, TMA)
        of_k = described(k, k_step, columns, D, BN, BD, TMA)
        of_v = described(v, v_step, columns, DV, BN, BV, TMA)
        sums = tl.zeros((BM,), WIDE)
        top = tl.full((BM,), float("-inf"), WIDE)
        out = tl.zeros((BM, BV), WIDE)
        factor = score_factor(scale, MASK).to(WIDE)
        FIRST: tl.constexpr = 1 if WINDOW or MASK != "" or SPECIALIZE else 2 if BRANCH else 0
        if FIRST:
            high = nonempty_end(low, high)
        for CHECK in tl.static_range(FIRST, 2 if FIRST == 0 else FIRST + 1):
            out, sums, top = _over_keys(
                out, sums, top, queries, of_k, of_v, mask, i, logical,
                full if CHECK != FIRST else low, full if CHECK == 0 else high, full,
                k_step, v_step, i_step, j_step, rows, columns, first, window, factor, least,
                seed, call, D, DV, CAUSAL, WINDOW, MASK, DROP, QUADS, PRECISION, CHECK, BN, BD, BV,
                TMA, SPECIALIZE,
            )  # fmt: skip
        out = out / tl.where(sums == 0.0, 1.0, sums)[:, None]  # zeros where no key is seen
        if DROP:
            out *= rescale.to(WIDE)
        store_rows(y, y_step, i0, rows, DV, out, BM, BV)
        if MASK == "add":
            logs = top + tl.log2(sums) / LOG2_E
        else:
            logs = (top + tl.log2(sums)) / LOG2_E
        tl.store(lse + i, logs, mask=i < rows)

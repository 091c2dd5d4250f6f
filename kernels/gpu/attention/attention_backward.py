"""The backward pass of attention. Scores are recomputed.

One kernel computes the gradient of the queries, another those of the keys and values. So each sum
is computed by one program, and the results are deterministic. Source: Dao, "FlashAttention-2"
(2023).
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..launch.jit_kernel import Kernel
from .attention_tiles import (
    LOG2_E,
    described,
    kept,
    keys_of,
    load_rows,
    logical_of,
    masked,
    program_of,
    seen,
    sequence,
    store_rows,
)


@Kernel
def row_sums(
    dy, y, sums, dy_batch, dy_head, dy_step, y_batch, y_head, y_step, heads, rows,
    DV: tl.constexpr, BM: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """sums[b, h, i] = sum over features of dy * y."""
    blocks = tl.cdiv(rows, BM)
    block, head, batch = program_of(blocks, heads)
    i0 = block * BM
    WIDE: tl.constexpr = sums.dtype.element_ty
    dy += batch * dy_batch + head * dy_head
    y += batch * y_batch + head * y_head
    a = load_rows(dy, dy_step, i0, rows, DV, BM, BV, False).to(WIDE)
    b = load_rows(y, y_step, i0, rows, DV, BM, BV, False).to(WIDE)
    i = i0 + tl.arange(0, BM)
    tl.store(sums + (batch * heads + head) * rows + i, tl.sum(a * b, 1), mask=i < rows)


@triton.jit
def _pairs(
    left, right, left_grad, right_grad, mask, logs, sums, i, j, logical, first_j, i_step, j_step,
    rows, columns, first, window, scale, rescale, least, seed, call,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, MASK: tl.constexpr, DROP: tl.constexpr,
    QUADS: tl.constexpr, PRECISION: tl.constexpr, CHECKED: tl.constexpr, BN: tl.constexpr,
    BY_KEY: tl.constexpr,
):  # fmt: skip
    """For each pair of a query and a key: its weight in y, and the gradient of its score.

    Rows are queries and dy, columns keys and values; with BY_KEY the other way round.
    """
    scores = tl.dot(left, right.T, input_precision=PRECISION, out_dtype=logs.dtype) * scale
    if CHECKED:
        there = seen(i, j, rows, columns, first, window, CAUSAL, WINDOW)
        scores = masked(scores, mask, i, j, i_step, j_step, there, MASK)
        scores = tl.where(there, scores, float("-inf"))
    p = tl.exp2(scores - logs)
    dp = tl.dot(left_grad, right_grad.T, input_precision=PRECISION, out_dtype=logs.dtype)
    weights = p
    if DROP:
        keep = kept(logical, first_j, seed, call, least, BN, QUADS)
        if BY_KEY:
            keep = keep.T
        weights = tl.where(keep, p * rescale, 0.0)
        dp = tl.where(keep, dp * rescale, 0.0)
    return weights, p * (dp - sums)


@triton.jit
def _load_logs(logs, sums, i, rows):
    """The logsumexp of rows in base 2; infinite for rows without keys, whose weights are 0."""
    kept = tl.load(logs + i, mask=i < rows, other=float("inf")) * LOG2_E
    kept = tl.where(kept == float("-inf"), float("inf"), kept)
    return kept, tl.load(sums + i, mask=i < rows, other=0.0)


@Kernel
def of_queries(
    dy, q, k, v, mask, logs, sums, dq, q_starts, k_starts,
    dy_batch, dy_head, dy_step, q_batch, q_head, q_step, k_batch, k_head, k_step,
    v_batch, v_head, v_step, m_batch, m_head, i_step, j_step, dq_batch, dq_head, dq_step,
    heads, group, rows, columns, pitch, first, window, scale: tl.float64,
    logical_batch, logical_head, logical_row,
    least: tl.int64, seed: tl.int64, call: tl.int64, rescale: tl.float64,
    D: tl.constexpr, DV: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    MASK: tl.constexpr, PACKED: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """The gradient of BM queries of a head: one program, over the keys that they attend to."""
    WIDE: tl.constexpr = logs.dtype.element_ty
    blocks = tl.cdiv(rows, BM)
    block, head, batch = program_of(blocks, heads)
    block = blocks - 1 - block
    at = (batch * heads + head) * pitch
    at_q, at_k = 0, 0
    if PACKED:
        at_q, rows = sequence(q_starts + batch)
        at_k, columns = sequence(k_starts + batch)
        first = columns - rows  # the last query is at the place of the last key
        at = head * pitch + at_q
    q += batch * q_batch + head * q_head + at_q * q_step
    dy += batch * dy_batch + head * dy_head + at_q * dy_step
    dq += batch * dq_batch + head * dq_head + at_q * dq_step
    k += batch * k_batch + head // group * k_head + at_k * k_step
    v += batch * v_batch + head // group * v_head + at_k * v_step
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
        queries = load_rows(q, q_step, i0, rows, D, BM, BD, False)
        grads = load_rows(dy, dy_step, i0, rows, DV, BM, BV, False)
        own_logs, own_sums = _load_logs(logs + at, sums + at, i, rows)
        of_k = described(k, k_step, columns, D, BN, BD, TMA)
        of_v = described(v, v_step, columns, DV, BN, BV, TMA)
        factor = (scale * LOG2_E).to(WIDE)
        kept_by = rescale.to(WIDE)
        total = tl.zeros((BM, BD), WIDE)
        for CHECKED in tl.static_range(2):
            for j0 in range(full if CHECKED else low, high if CHECKED else full, BN):
                j = j0 + tl.arange(0, BN)
                keys = load_rows(of_k, k_step, j0, columns, D, BN, BD, CHECKED == 0, TMA)
                values = load_rows(of_v, v_step, j0, columns, DV, BN, BV, CHECKED == 0, TMA)
                _, ds = _pairs(
                    queries, keys, grads, values, mask, own_logs[:, None], own_sums[:, None],
                    i[:, None], j[None, :], logical, j0, i_step, j_step, rows, columns, first,
                    window, factor, kept_by, least, seed, call,
                    CAUSAL, WINDOW, MASK, DROP, QUADS, PRECISION, CHECKED == 1, BN, False,
                )  # fmt: skip
                total = tl.dot(
                    ds.to(keys.dtype), keys, total, input_precision=PRECISION, out_dtype=WIDE
                )
        store_rows(dq, dq_step, i0, rows, D, total * scale.to(WIDE), BM, BD)


@Kernel
def of_keys(
    dy, q, k, v, mask, logs, sums, dk, dv, q_starts, k_starts,
    dy_batch, dy_head, dy_step, q_batch, q_head, q_step, k_batch, k_head, k_step,
    v_batch, v_head, v_step, m_batch, m_head, i_step, j_step,
    dk_batch, dk_head, dk_step, dv_batch, dv_head, dv_step,
    heads, group, rows, columns, pitch, first, window, scale: tl.float64,
    logical_batch, logical_head, logical_row,
    least: tl.int64, seed: tl.int64, call: tl.int64, rescale: tl.float64,
    D: tl.constexpr, DV: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    MASK: tl.constexpr, PACKED: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """The gradients of BN keys of a head: one program, over the queries that attend to them."""
    WIDE: tl.constexpr = logs.dtype.element_ty
    blocks = tl.cdiv(columns, BN)
    block, own, batch = program_of(blocks, heads // group)
    j0 = block * BN
    at = batch * heads * pitch
    at_k = 0
    if PACKED:
        at, rows = sequence(q_starts + batch)
        at_k, columns = sequence(k_starts + batch)
        first = columns - rows
        q += at * q_step
        dy += at * dy_step
    k += batch * k_batch + own * k_head + at_k * k_step
    v += batch * v_batch + own * v_head + at_k * v_step
    dk += batch * dk_batch + own * dk_head + at_k * dk_step
    dv += batch * dv_batch + own * dv_head + at_k * dv_step
    if j0 < columns:
        j = j0 + tl.arange(0, BN)
        low = j0 * 0
        high = rows + j0 * 0
        full = low  # from here on, all queries see all keys
        if CAUSAL:
            low = tl.maximum(0, j0 - first) // BM * BM
            full = tl.minimum(high, tl.cdiv(tl.maximum(0, j0 + BN - 1 - first), BM) * BM)
        if WINDOW:
            low = tl.maximum(low, tl.maximum(0, j0 - first - window + 1) // BM * BM)
            high = tl.minimum(high, tl.maximum(0, j0 + BN - 1 - first + window))
        if WINDOW or MASK != "":
            full = high
        keys = load_rows(k, k_step, j0, columns, D, BN, BD, False)
        values = load_rows(v, v_step, j0, columns, DV, BN, BV, False)
        factor = (scale * LOG2_E).to(WIDE)
        kept_by = rescale.to(WIDE)
        total_k = tl.zeros((BN, BD), WIDE)
        total_v = tl.zeros((BN, BV), WIDE)
        for member in range(group):
            head = own * group + member
            of_q = q + batch * q_batch + head * q_head
            of_dy = dy + batch * dy_batch + head * dy_head
            of_logs = logs + at + head * pitch
            of_sums = sums + at + head * pitch
            of_mask = mask + (batch * m_batch + head * m_head) if MASK != "" else mask
            for CHECKED in tl.static_range(2):
                for i0 in range(low if CHECKED else full, full if CHECKED else high, BM):
                    i = i0 + tl.arange(0, BM)
                    queries = load_rows(of_q, q_step, i0, rows, D, BM, BD, False)
                    grads = load_rows(of_dy, dy_step, i0, rows, DV, BM, BV, False)
                    own_logs, own_sums = _load_logs(of_logs, of_sums, i, rows)
                    logical = i.to(tl.int64)
                    if DROP:
                        logical = logical_of(
                            i, batch, head, first, columns, logical_batch, logical_head,
                            logical_row,
                        )  # fmt: skip
                    p, ds = _pairs(
                        keys, queries, values, grads, of_mask, own_logs[None, :],
                        own_sums[None, :], i[None, :], j[:, None], logical, j0, i_step, j_step,
                        rows, columns, first, window, factor, kept_by, least, seed, call,
                        CAUSAL, WINDOW, MASK, DROP, QUADS, PRECISION, CHECKED == 1, BN, True,
                    )  # fmt: skip
                    total_v = tl.dot(
                        p.to(grads.dtype), grads, total_v, input_precision=PRECISION, out_dtype=WIDE
                    )
                    total_k = tl.dot(
                        ds.to(queries.dtype), queries, total_k, input_precision=PRECISION,
                        out_dtype=WIDE,
                    )  # fmt: skip
        store_rows(dk, dk_step, j0, columns, D, total_k * scale.to(WIDE), BN, BD)
        store_rows(dv, dv_step, j0, columns, DV, total_v, BN, BV)

"""The backward pass of attention. Scores are recomputed.

One kernel computes the gradient of the queries, another those of the keys and values. So each sum
is computed by one program, and the results are deterministic. Source: Dao, "FlashAttention-2"
(2023).
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
    load_heads,
    load_rows,
    logical_of,
    masked,
    nonempty_end,
    of_heads,
    program_of,
    queries_of,
    score_factor,
    seen,
    sequence,
    store_rows,
)


@triton.jit
def _weights(
    left, right, mask, lse, i, j, logical, first_j, i_step, j_step,
    rows, columns, first, window, scale, least, seed, call, partly, last,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, MASK: tl.constexpr, DROP: tl.constexpr,
    QUADS: tl.constexpr, PRECISION: tl.constexpr, CHECK: tl.constexpr, BN: tl.constexpr,
    BY_KEY: tl.constexpr,
):  # fmt: skip
    """For each pair of a query and a key: its weight before dropout, and whether it is kept.

    Rows are queries, columns keys; with BY_KEY the other way round. All tiles are masked with CHECK
    1; with 2 a tile that is `partly` seen, by the `last` key of each query.
    """
    scores = tl.dot(left, right.T, input_precision=PRECISION, out_dtype=lse.dtype) * scale
    if CHECK == 1:
        there = seen(i, j, rows, columns, first, window, CAUSAL, WINDOW)
        scores = masked(scores, mask, i, j, i_step, j_step, there, MASK)
        scores = tl.where(there, scores, float("-inf"))
    p = exponential(scores - lse, MASK)
    if MASK == "add":
        # For rows that are masked by a large number, as -1e9, the lse is off by more than 100.
        p = tl.minimum(p, 1.0, propagate_nan=tl.PropagateNan.ALL)
    if CHECK == 2:  # noqa: SIM102 - known when compiled; the next is not
        if partly:
            p = tl.where(j <= last, p, 0.0)
    keep = True
    if DROP:
        keep = kept(logical, first_j, seed, call, least, BN, QUADS)
        if BY_KEY:
            keep = keep.T
    return p, keep


@triton.jit
def _score_grads(
    p, keep, left_grad, right_grad, sums, rescale, DROP: tl.constexpr, PRECISION: tl.constexpr
):
    """For each pair: the gradient of its score, from those of the outputs and the values."""
    dp = tl.dot(left_grad, right_grad.T, input_precision=PRECISION, out_dtype=sums.dtype)
    if DROP:
        dp = tl.where(keep, dp * rescale, 0.0)
    return p * (dp - sums)


@triton.jit
def _sums(
    dy, y, lse, exponents, sums, dy_step, y_step, i0, rows,
    MASK: tl.constexpr, DV: tl.constexpr, BM: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """The logsumexp of rows in the base of scores (infinite without keys), and sums of dy * y.

    Both are also stored. The stores keep Triton from sharing these loads with the loop, which would
    take more registers.
    """
    WIDE: tl.constexpr = lse.dtype.element_ty
    i = i0 + tl.arange(0, BM)
    outputs = load_rows(y, y_step, i0, rows, DV, BM, BV, False).to(WIDE)
    total = tl.sum(load_rows(dy, dy_step, i0, rows, DV, BM, BV, False) * outputs, 1)
    log = tl.load(lse + i, mask=i < rows, other=0.0)
    log = tl.where(log == float("-inf"), float("inf"), log if MASK == "add" else log * LOG2_E)
    tl.store(sums + i, total, mask=i < rows)
    tl.store(exponents + i, log, mask=i < rows)
    if dy.dtype.element_ty == WIDE:
        # Read back: otherwise products without tensor cores take the layout of this sum, and twice
        # the registers.
        tl.debug_barrier()
        total = tl.load(sums + i, mask=i < rows, other=0.0)
    return log, total


@Kernel
def of_queries(
    dy, q, k, v, mask, y, lse, exponents, sums, dq, q_starts, k_starts, drawn,
    dy_batch, dy_head, dy_step, q_batch, q_head, q_step, k_batch, k_head, k_step,
    v_batch, v_head, v_step, m_batch, m_head, i_step, j_step, y_batch, y_head, y_step,
    dq_batch, dq_head, dq_step,
    heads, group, rows, columns, pitch, first, window, scale: tl.float64,
    logical_batch, logical_head, logical_row,
    least: tl.int64, seed: tl.int64, call: tl.int64, rescale: tl.float64,
    D: tl.constexpr, DV: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    MASK: tl.constexpr, PACKED: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, TMA: tl.constexpr,
    SPECIALIZE: tl.constexpr, BRANCH: tl.constexpr,
):  # fmt: skip
    """The gradient of BM queries of a head: one program, over the keys that they attend to.

    It writes `exponents` and `sums` for `of_keys`; see `_sums`.
    """
    seed, call = key_of(drawn, seed, call)
    WIDE: tl.constexpr = lse.dtype.element_ty
    blocks = tl.cdiv(rows, BM)
    block, head, batch = program_of(blocks, heads)
    block = blocks - 1 - block
    at = (batch * heads + head) * pitch
    at_q, at_k = 0, 0
    if PACKED:
        at_q, rows = sequence(q_starts + batch)
        at_k, columns = sequence(k_starts + batch)
        first = columns - rows  # the last query is at the place of the last key
        rows = tl.where(columns > 0, rows, 0)  # as in `forward`
        at = head * pitch + at_q
    q += batch * q_batch + head * q_head + at_q * q_step
    dy += batch * dy_batch + head * dy_head + at_q * dy_step
    y += batch * y_batch + head * y_head + at_q * y_step
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
        own_lse, own_sums = _sums(
            dy, y, lse + at, exponents + at, sums + at, dy_step, y_step, i0, rows, MASK, DV, BM, BV,
        )  # fmt: skip
        low, full, high = keys_of(i0, columns, first, window, BM, BN, CAUSAL, WINDOW, MASK)
        of_q = described(q, q_step, rows, D, BM, BD, TMA)
        of_dy = described(dy, dy_step, rows, DV, BM, BV, TMA)
        queries = load_rows(of_q, q_step, i0, rows, D, BM, BD, False, TMA)
        grads = load_rows(of_dy, dy_step, i0, rows, DV, BM, BV, False, TMA)
        of_k = described(k, k_step, columns, D, BN, BD, TMA)
        of_v = described(v, v_step, columns, DV, BN, BV, TMA)
        factor = score_factor(scale, MASK).to(WIDE)
        kept_by = rescale.to(WIDE)
        total = tl.zeros((BM, BD), WIDE)
        last = last_key(i, columns, first, CAUSAL)
        FIRST: tl.constexpr = 1 if WINDOW or MASK != "" or SPECIALIZE else 2 if BRANCH else 0
        if FIRST:
            high = nonempty_end(low, high)
        for CHECK in tl.static_range(FIRST, 2 if FIRST == 0 else FIRST + 1):
            for j0 in tl.range(
                full if CHECK != FIRST else low, full if CHECK == 0 else high, BN,
                warp_specialize=SPECIALIZE,
            ):  # fmt: skip
                j = j0 + tl.arange(0, BN)
                keys = load_rows(of_k, k_step, j0, columns, D, BN, BD, CHECK == 0, TMA)
                values = load_rows(of_v, v_step, j0, columns, DV, BN, BV, CHECK == 0, TMA)
                p, keep = _weights(
                    queries, keys, mask, own_lse[:, None], i[:, None], j[None, :], logical, j0,
                    i_step, j_step, rows, columns, first, window, factor, least, seed, call,
                    j0 >= full, last[:, None],
                    CAUSAL, WINDOW, MASK, DROP, QUADS, PRECISION, CHECK, BN, False,
                )  # fmt: skip
                ds = _score_grads(
                    p, keep, grads, values, own_sums[:, None], kept_by, DROP, PRECISION
                )
                total = tl.dot(
                    ds.to(keys.dtype), keys, total, input_precision=PRECISION, out_dtype=WIDE
                )
        store_rows(dq, dq_step, i0, rows, D, total * scale.to(WIDE), BM, BD)


@Kernel
def of_keys(
    dy, q, k, v, mask, exponents, sums, dk, dv, q_starts, k_starts, drawn,
    dy_batch, dy_head, dy_step, q_batch, q_head, q_step, k_batch, k_head, k_step,
    v_batch, v_head, v_step, m_batch, m_head, i_step, j_step,
    dk_batch, dk_head, dk_step, dv_batch, dv_head, dv_step,
    heads, group, rows, columns, pitch, first, window, scale: tl.float64,
    logical_batch, logical_head, logical_row,
    least: tl.int64, seed: tl.int64, call: tl.int64, rescale: tl.float64,
    D: tl.constexpr, DV: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    MASK: tl.constexpr, PACKED: tl.constexpr, DROP: tl.constexpr, QUADS: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, TMA: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """The gradients of BN keys of a head: one program, over the queries that attend to them."""
    seed, call = key_of(drawn, seed, call)
    WIDE: tl.constexpr = exponents.dtype.element_ty
    blocks = tl.cdiv(columns, BN)
    block, own, batch = program_of(blocks, heads // group)
    j0 = block * BN
    at = batch * heads * pitch
    at_k = 0
    if PACKED:
        at, rows = sequence(q_starts + batch)
        at_k, columns = sequence(k_starts + batch)
        # A tensor descriptor of no queries is not allowed.
        first, columns = columns - rows, tl.where(rows > 0, columns, 0)
        q += at * q_step
        dy += at * dy_step
    k += batch * k_batch + own * k_head + at_k * k_step
    v += batch * v_batch + own * v_head + at_k * v_step
    if j0 < columns:
        j = j0 + tl.arange(0, BN)
        low, high = queries_of(j0, rows, first, window, BM, BN, CAUSAL, WINDOW)
        of_k = described(k, k_step, columns, D, BN, BD, TMA)
        of_v = described(v, v_step, columns, DV, BN, BV, TMA)
        keys = load_rows(of_k, k_step, j0, columns, D, BN, BD, False, TMA)
        values = load_rows(of_v, v_step, j0, columns, DV, BN, BV, False, TMA)
        factor = score_factor(scale, MASK).to(WIDE)
        kept_by = rescale.to(WIDE)
        total_k = tl.zeros((BN, BD), WIDE)
        total_v = tl.zeros((BN, BV), WIDE)
        per_head = tl.cdiv(tl.maximum(high - low, 0), BM)
        q += batch * q_batch
        dy += batch * dy_batch
        of_q = of_heads(q, q_head, q_step, heads, rows, D, BM, BD, TMA)
        of_dy = of_heads(dy, dy_head, dy_step, heads, rows, DV, BM, BV, TMA)
        CHECK: tl.constexpr = 1 if WINDOW or MASK != "" or SPECIALIZE else 2 if CAUSAL else 0
        head, i0 = (own * group).to(tl.int32), low
        # One loop over the heads and their queries, so that copies run ahead across heads.
        for _ in tl.range(nonempty_end(0, group * per_head), warp_specialize=SPECIALIZE):
            i = i0 + tl.arange(0, BM)
            queries = load_heads(of_q, q_head, q_step, head, i0, rows, D, BM, BD, TMA)
            grads = load_heads(of_dy, dy_head, dy_step, head, i0, rows, DV, BM, BV, TMA)
            own_rows = at + head.to(tl.int64) * pitch + i0
            row = tl.arange(0, BM)
            # What `of_queries` wrote. Queries outside are 0, with any numbers.
            own_lse = tl.load(exponents + own_rows + row, mask=row < rows - i0, other=0.0)
            own_sums = tl.load(sums + own_rows + row, mask=row < rows - i0, other=0.0)
            logical = i.to(tl.int64)
            of_mask = mask
            if MASK != "":
                of_mask += batch * m_batch + head.to(tl.int64) * m_head
            if DROP:
                logical = logical_of(
                    i, batch, head, first, columns, logical_batch, logical_head, logical_row
                )
            p, keep = _weights(
                keys, queries, of_mask, own_lse[None, :], i[None, :], j[:, None], logical, j0,
                i_step, j_step, rows, columns, first, window, factor, least, seed, call,
                i0 + first < j0 + BN - 1, (i + first)[None, :],
                CAUSAL, WINDOW, MASK, DROP, QUADS, PRECISION, CHECK, BN, True,
            )  # fmt: skip
            weights = tl.where(keep, p * kept_by, 0.0) if DROP else p
            total_v = tl.dot(
                weights.to(grads.dtype), grads, total_v, input_precision=PRECISION, out_dtype=WIDE
            )
            ds = _score_grads(p, keep, values, grads, own_sums[None, :], kept_by, DROP, PRECISION)
            total_k = tl.dot(
                ds.to(queries.dtype), queries, total_k, input_precision=PRECISION, out_dtype=WIDE
            )
            i0 += BM
            ended = i0 >= high
            i0 = tl.where(ended, low, i0)
            head = tl.where(ended, head + 1, head)
        dk += batch * dk_batch + own * dk_head + at_k * dk_step
        dv += batch * dv_batch + own * dv_head + at_k * dv_step
        # Written once, which is not worth the time to make a tensor descriptor.
        store_rows(dv, dv_step, j0, columns, DV, total_v, BN, BV)
        store_rows(dk, dk_step, j0, columns, D, total_k * scale.to(WIDE), BN, BD)

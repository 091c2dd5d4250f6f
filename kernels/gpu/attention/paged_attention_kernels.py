"""Attention to keys and values in pages of a cache.

A program has the queries of all heads that share a head of the cache, and a part of the keys where
there are few programs otherwise; the parts are joined by their logarithms of sums. Source: Dao et
al., "Flash-Decoding for long-context inference" (2023).
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import paged_attention_ref as reference
from ...attention_ref import WIDEST
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..matmul.gemm_config import kind_of
from ..pointwise.special_functions import LOG2_E
from ..reduce.reduction_tiles import cdiv, power_of_2
from .attention_kernels import dense, padded

# Left to torch: heads of more than WIDEST features.

_ENOUGH = 256  # programs fill the chip
_LEAST = 256  # keys of a part
_MOST = 64  # parts


@triton.jit
def _rows(cache, page, place, head, block_step, step, head_step, there, D: tl.constexpr,
          BD: tl.constexpr):  # fmt: skip
    """The rows of the cache at these places of their pages."""
    column = tl.arange(0, BD)[None, :]
    at = page * block_step + place * step + head * head_step
    return tl.load(cache + at[:, None] + column, mask=there[:, None] & (column < D), other=0.0)


@Kernel
def _paged(
    q, keys, values, table, lens, y, lse,
    q_batch, q_head, q_step, k_block, k_step, k_head, v_block, v_step, v_head, t_batch,
    y_part: tl.int64, y_batch, y_head, y_step,
    heads, group, queries, length, first, part, scale: tl.float64,
    SIZE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, PRECISION: tl.constexpr,
    PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Rows are the queries of the heads of a group, one head after the other."""
    WIDE: tl.constexpr = tl.float64 if q.dtype.element_ty == tl.float64 else tl.float32
    blocks = tl.cdiv(group * queries, BM)
    program = tl.program_id(0)
    block = program % blocks
    head = (program // blocks % heads).to(tl.int64)
    batch = (program // blocks // heads).to(tl.int64)
    split = tl.program_id(1)
    row = block * BM + tl.arange(0, BM)
    inside = row < group * queries
    own_head = head * group + row // queries
    query = row % queries
    column = tl.arange(0, BD)[None, :]
    at = batch * q_batch + own_head * q_head + query.to(tl.int64) * q_step
    rows = tl.load(q + at[:, None] + column, mask=inside[:, None] & (column < D), other=0.0)
    context = tl.load(lens + batch).to(tl.int32)
    last = context - length + first + query  # the last key that a query sees
    table += batch * t_batch
    factor = (scale * LOG2_E).to(WIDE)
    total = tl.zeros((BM,), WIDE)
    top = tl.full((BM,), float("-inf"), WIDE)
    out = tl.zeros((BM, BV), WIDE)
    begin = split * part
    for j0 in range(begin, tl.minimum(begin + part, context), BN):
        j = j0 + tl.arange(0, BN)
        there = j < context
        page = tl.load(table + j // SIZE, mask=there, other=0).to(tl.int64)
        k = _rows(keys, page, j % SIZE, head, k_block, k_step, k_head, there, D, BD)
        scores = tl.dot(rows, k.T, input_precision=PRECISION, out_dtype=WIDE) * factor
        seen = there[None, :] & (j[None, :] <= last[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        risen = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(risen == float("-inf"), 0.0, risen)
        p = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(top - base)
        total = total * shrink + tl.sum(p, 1)
        v = _rows(values, page, j % SIZE, head, v_block, v_step, v_head, there, DV, BV)
        out = out * shrink[:, None]
        out = tl.dot(p.to(v.dtype), v, out, input_precision=PRECISION, out_dtype=WIDE)
        top = risen
    out = out / tl.where(total == 0.0, 1.0, total)[:, None]  # zeros where no key is seen
    column = tl.arange(0, BV)[None, :]
    at = split * y_part + batch * y_batch + own_head * y_head + query * y_step
    mask = inside[:, None] & (column < DV)
    tl.store(y + at[:, None] + column, out.to(y.dtype.element_ty), mask=mask)
    if PARTS > 1:
        at = (batch * PARTS + split) * heads * group * queries + own_head * queries + query
        tl.store(lse + at, top + tl.log2(total), mask=inside)


@Kernel
def _joined(
    parts, lse, y, rows, y_batch, y_head, y_step, queries, part: tl.int64,
    PARTS: tl.constexpr, DV: tl.constexpr, BP: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """One row of the result from its parts; `rows` are those of a sequence."""
    WIDE: tl.constexpr = lse.dtype.element_ty
    batch = (tl.program_id(0) // rows).to(tl.int64)
    row = tl.program_id(0) % rows
    split = tl.arange(0, BP)
    column = tl.arange(0, BV)
    log = tl.load(lse + (batch * PARTS + split) * rows + row, mask=split < PARTS,
                  other=float("-inf"))  # fmt: skip
    top = tl.max(log, 0)
    weight = tl.exp2(log - tl.where(top == float("-inf"), 0.0, top))
    at = split[:, None] * part + (batch * rows + row) * DV + column[None, :]
    mask = (split < PARTS)[:, None] & (column < DV)[None, :]
    v = tl.load(parts + at, mask=mask, other=0.0)
    total = tl.sum(weight, 0)
    out = tl.sum(v * weight[:, None], 0) / tl.where(total == 0.0, tl.full((), 1, WIDE), total)
    to = y + batch * y_batch + row // queries * y_head + row % queries * y_step + column
    tl.store(to, out.to(y.dtype.element_ty), mask=column < DV)


@lru_cache(maxsize=4096)
def _sizes(rows: int, features: int, kind: str, keys: int, programs: int) -> tuple[int, ...]:
    """Rows and keys of a tile, and the keys of a part; all by the shape alone."""
    if kind == "half":
        most, bn = (64, 64) if features <= 64 else (32, 64) if features <= 128 else (32, 32)
    elif kind == "double":
        most, bn = 16, 32 if features <= 64 else 16
    else:
        most, bn = (32, 32) if features <= 128 else (16, 16)
    bm = min(max(power_of_2(rows), 16), most)
    parts = min(cdiv(_ENOUGH, programs * cdiv(rows, bm)), max(keys // _LEAST, 1), _MOST)
    return bm, bn, cdiv(cdiv(keys, parts), bn) * bn


def paged_attention(
    q: Tensor, key_cache: Tensor, value_cache: Tensor, block_table: Tensor, context_lens: Tensor,
    scale: float, length: int, first: int,
) -> Tensor:  # fmt: skip
    d, dv = q.shape[-1], value_cache.shape[-1]
    if max(d, dv) > WIDEST or 0 in (q.numel(), key_cache.numel(), value_cache.numel()):
        return reference.paged_attention(
            q, key_cache, value_cache, block_table, context_lens, scale, length, first
        )
    (batch, all_heads, queries, _), (_, size, heads, _) = q.shape, key_cache.shape
    group, keys = all_heads // heads, block_table.shape[1] * size
    kind = kind_of(q.dtype)
    bm, bn, part = _sizes(group * queries, max(d, dv), kind, max(keys, 1), batch * heads)
    parts = max(cdiv(keys, part), 1)
    y = torch.empty((batch, all_heads, queries, dv), dtype=q.dtype, device=q.device)
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    made, lse = y, None
    if parts > 1:
        made = torch.empty((parts, *y.shape), dtype=wide, device=q.device)
        lse = torch.empty((batch, parts, all_heads, queries), dtype=wide, device=q.device)
    q, k, v = dense(q), dense(key_cache), dense(value_cache)
    _paged.launch(
        (cdiv(group * queries, bm) * batch * heads, parts),
        (
            q, k, v, block_table.contiguous(), context_lens.contiguous(), made, lse,
            *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], block_table.shape[1],
            made.stride(0) if parts > 1 else 0, *y.stride()[:3],
            heads, group, queries, length, first, part, scale,
        ),
        (
            size, d, dv, "tf32" if kind == "tf32" else "ieee", parts, bm, bn, padded(d), padded(dv),
        ),
    )  # fmt: skip
    if lse is not None:
        rows = all_heads * queries
        _joined.launch(
            (batch * rows,),
            (made, lse, y, rows, *y.stride()[:3], queries, made.stride(0)),
            (parts, dv, power_of_2(parts), padded(dv)),
        )
    return y


def _case(dtype: str, bm: int, bn: int, d: int, parts: int) -> Case:
    made = "*fp32" if parts > 1 else f"*{dtype}"  # of parts, and of one
    pointers = (f"*{dtype}",) * 3 + ("*i32", "*i32", made, "*fp32" if parts > 1 else None)
    steps = ("i32",) * 9 + ("i32?", "i64?") + ("i32",) * 3
    numbers = (*("i32?",) * 5, "i32", "fp64")
    return Case(_paged, (*pointers, *steps, *numbers), (16, d, d, "ieee", parts, bm, bn, d, d))


CASES = [
    _case("bf16", 16, 64, 128, 1),
    _case("bf16", 16, 64, 128, 8),
    _case("bf16", 64, 64, 64, 1),
    _case("bf16", 32, 64, 128, 1),
    _case("bf16", 32, 32, 256, 1),
    _case("fp32", 32, 32, 128, 1),
    _case("fp32", 16, 16, 256, 1),
    _case("fp64", 16, 16, 128, 1),
    Case(
        _joined,
        ("*fp32", "*fp32", "*bf16", "i32", "i32", "i32", "i32", "i32?", "i64?"),
        (8, 128, 8, 128),
    ),
]

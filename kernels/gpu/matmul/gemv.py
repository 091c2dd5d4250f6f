"""Products of a matrix and a vector, and sums along a dim of a matrix, at memory speed."""

from __future__ import annotations

from functools import lru_cache

import torch
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..reduce.reduction_tiles import cdiv, power_of_2
from .gemm import left_out, sum_parts
from .gemm_operands import dense

_PROGRAMS = 512  # that keep a device busy
_LEAST = 4  # steps that are worth a program


@Kernel
def _by_vector(
    x, vector, y, rows, k, step, vector_step, parts, span,
    T: tl.constexpr, VECTOR: tl.constexpr, ROWS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    first = (tl.program_id(0) // parts).to(tl.int64) * ROWS
    part = tl.program_id(0) % parts
    start = part.to(tl.int64) * span
    row = (first + tl.arange(0, ROWS))[:, None]
    inside = row < rows
    WIDE: tl.constexpr = y.dtype.element_ty
    total = tl.zeros((ROWS, BK), tl.float32 if WIDE.is_fp16() or WIDE.is_bf16() else WIDE)
    for done in range(start, tl.minimum(start + span, k), BK):
        at = done + tl.arange(0, BK)[None, :]
        there = inside & (at < k)
        u = tl.load(x + (at * step + row if T else row * step + at), mask=there, other=0)
        u = u.to(total.dtype)
        if VECTOR:
            u *= tl.load(vector + at * vector_step, mask=at < k, other=0).to(total.dtype)
        total += u
    sums = tl.sum(total, 1, keep_dims=True)
    tl.store(y + part.to(tl.int64) * rows + row, sums.to(y.dtype.element_ty), mask=inside)


@lru_cache(maxsize=1024)
def _form(rows: int, k: int, columns: bool) -> tuple[int, int, int, int]:
    """Rows and terms of a block, the parts of each sum and the terms of a part, by shape only."""
    wide, deep = (64, 32) if columns else (4, 512)
    wide = min(wide, max(power_of_2(rows), 1))
    deep = min(deep, max(power_of_2(k), 16))
    parts = min(_PROGRAMS // cdiv(rows, wide), k // (deep * _LEAST))
    if parts < 2:
        return wide, deep, 1, max(k, 1)
    span = cdiv(k, parts * deep) * deep
    return wide, deep, cdiv(k, span), span


def by_vector(x: Tensor, vector: Tensor | None) -> Tensor:
    """The (rows,) sums of x[r, k] * vector[k], or of x[r, k] without a vector."""
    if vector is not None and (left_out(x) or x.dtype is not vector.dtype):
        return torch.mv(x, vector)
    rows, k = x.shape
    y = torch.empty(rows, dtype=x.dtype, device=x.device)
    if rows == 0:
        return y
    x, columns, step = dense(x)
    wide, deep, parts, span = _form(rows, k, columns)
    partial = y
    if parts > 1:
        dtype = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
        partial = torch.empty((parts, rows), dtype=dtype, device=x.device)
    _by_vector.launch(
        (cdiv(rows, wide) * parts,),
        (x, vector, partial, rows, k, step, 0 if vector is None else vector.stride(0), parts, span),
        (columns, vector is not None, wide, deep),
    )
    if parts > 1:
        sum_parts(partial, y, 1, rows)
    return y


CASES = [
    Case(
        _by_vector,
        (f"*{dtype}", f"*{dtype}" if vector else None, "*fp32", *("i32",) * 3, "i32?", "i32?",
         "i32"),
        (columns, vector, *((64, 32) if columns else (4, 512)))
    )
    for dtype in ("bf16", "fp32")
    for columns, vector in ((False, True), (True, True), (True, False))
]  # fmt: skip

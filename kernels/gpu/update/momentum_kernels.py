"""Momentum that accumulates steps instead of gradients, for many tensors in one launch."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ... import momentum_ref as reference
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from .pointer_table import BLOCK, DTYPES, address_of, table_of, work_of
from .update_common import dense, gradient_of, keep, numbers_on, tensor_of

Tensors = list[Tensor]


@triton.jit
def _momentum_block(
    param, grad, buffer, at, mask, factors, scale, rate, SCALED: tl.constexpr, WIDE: tl.constexpr
):
    p = tl.load(param + at, mask=mask).to(WIDE)
    moved = tl.load(factors).to(WIDE) * tl.load(buffer + at, mask=mask).to(WIDE)
    moved = moved - rate * gradient_of(grad, at, mask, scale, SCALED, WIDE)
    keep(buffer, at, mask, moved)
    keep(param, at, mask, p + moved - rate * tl.load(factors + 1).to(WIDE) * p)


@Kernel
def _momentum(
    table, factors, rates, scale, found_inf, start: tl.int64,
    DTYPE: tl.constexpr, SCALED: tl.constexpr, CHECKED: tl.constexpr, ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    if CHECKED:  # noqa: SIM102 - a constant, then what is read
        if tl.load(found_inf) != 0.0:
            return
    WIDE: tl.constexpr = tl.float64 if DTYPE == tl.float64 else tl.float32
    row, at, there, whole = work_of(table, start, 3, BLOCK)
    param = address_of(row, 0, DTYPE, ALIGNED)
    grad = address_of(row, 1, DTYPE, ALIGNED)
    buffer = address_of(row, 2, DTYPE, ALIGNED)
    rate = tl.load(rates + tensor_of(table, start)).to(WIDE)
    if whole:
        _momentum_block(param, grad, buffer, at, None, factors, scale, rate, SCALED, WIDE)
    else:
        _momentum_block(param, grad, buffer, at, there, factors, scale, rate, SCALED, WIDE)


def momentum(
    params: Tensors,
    grads: Tensors,
    momentum_buffers: Tensors,
    rates: Tensor,
    *,
    beta: float,
    weight_decay: float,
    scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    dtype = params[0].dtype
    if dtype not in DTYPES:
        reference.momentum(
            params, grads, momentum_buffers, rates, beta=beta, weight_decay=weight_decay,
            scale=scale, found_inf=found_inf,
        )  # fmt: skip
        return
    factors = numbers_on(params[0].device, beta, weight_decay)
    given = dense(grads)
    table = table_of(params, given, momentum_buffers)
    _momentum.launch(
        (table.programs,),
        (table.data, factors, rates, scale, found_inf, table.start),
        (DTYPES[dtype], scale is not None, found_inf is not None, table.aligned, BLOCK),
        warps=8,
    )


CASES = [
    Case(
        _momentum, ("*i64", "*fp64", "*fp64", "*fp32", "*fp32", "i64?"),
        (dtype, True, True, True, BLOCK), warps=8,
    )
    for dtype in (tl.float32, tl.bfloat16)
]  # fmt: skip

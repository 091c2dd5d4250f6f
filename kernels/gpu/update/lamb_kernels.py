"""LAMB updates of many tensors: one launch for the directions, one for the steps along them."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ... import lamb_ref as reference
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from .adam_kernels import moments
from .pointer_table import BLOCK, DTYPES, address_of, table_of, work_of
from .update_common import corrections, dense, gradient_of, keep, numbers_on, tensor_of

Tensors = list[Tensor]


@triton.jit
def _direction_block(
    param, grad, average, square, direction, at, mask, factors, scale,
    SCALED: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    g = gradient_of(grad, at, mask, scale, SCALED, WIDE)
    m, v = moments(average, square, at, mask, g, factors, factors + 1, factors + 2, WIDE)
    root = tl.sqrt(v) * tl.load(factors + 3).to(WIDE) + tl.load(factors + 4).to(WIDE)
    p = tl.load(param + at, mask=mask).to(WIDE)
    decay = tl.load(factors + 6).to(WIDE) * p
    keep(direction, at, mask, tl.load(factors + 5).to(WIDE) * m / root + decay)


@Kernel
def _directions(
    table, factors, scale, found_inf, start: tl.int64,
    DTYPE: tl.constexpr, SCALED: tl.constexpr, CHECKED: tl.constexpr, ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    if CHECKED:  # noqa: SIM102 - a constant, then what is read
        if tl.load(found_inf) != 0.0:
            return
    WIDE: tl.constexpr = tl.float64 if DTYPE == tl.float64 else tl.float32
    row, at, there, whole = work_of(table, start, 5, BLOCK)
    param = address_of(row, 0, DTYPE, ALIGNED)
    grad = address_of(row, 1, DTYPE, ALIGNED)
    average = address_of(row, 2, DTYPE, ALIGNED)
    square = address_of(row, 3, DTYPE, ALIGNED)
    direction = address_of(row, 4, DTYPE, ALIGNED)
    if whole:
        _direction_block(
            param, grad, average, square, direction, at, None, factors, scale, SCALED, WIDE
        )
    else:
        _direction_block(
            param, grad, average, square, direction, at, there, factors, scale, SCALED, WIDE
        )


def directions(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    found: Tensors,
    *,
    step: int | Tensor | None,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    dtype = params[0].dtype
    if dtype not in DTYPES:
        reference.directions(
            params, grads, exp_avgs, exp_avg_sqs, found, step=step, betas=betas, eps=eps,
            weight_decay=weight_decay, scale=scale, found_inf=found_inf,
        )  # fmt: skip
        return
    first, second = betas
    larger, root = corrections(step, betas)
    factors = numbers_on(
        params[0].device, 1.0 - first, second, 1.0 - second, root, eps, larger, weight_decay
    )
    given = dense(grads)
    table = table_of(params, given, exp_avgs, exp_avg_sqs, found)
    _directions.launch(
        (table.programs,),
        (table.data, factors, scale, found_inf, table.start),
        (DTYPES[dtype], scale is not None, found_inf is not None, table.aligned, BLOCK),
        warps=8,
    )


@Kernel
def _move(
    table, rates, found_inf, start: tl.int64,
    DTYPE: tl.constexpr, CHECKED: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    if CHECKED:  # noqa: SIM102 - a constant, then what is read
        if tl.load(found_inf) != 0.0:
            return
    WIDE: tl.constexpr = tl.float64 if DTYPE == tl.float64 else tl.float32
    row, at, there, whole = work_of(table, start, 2, BLOCK)
    param = address_of(row, 0, DTYPE, ALIGNED)
    direction = address_of(row, 1, DTYPE, ALIGNED)
    rate = tl.load(rates + tensor_of(table, start)).to(WIDE)
    if whole:
        _move_block(param, direction, at, None, rate, WIDE)
    else:
        _move_block(param, direction, at, there, rate, WIDE)


@triton.jit
def _move_block(param, direction, at, mask, rate, WIDE: tl.constexpr):
    p = tl.load(param + at, mask=mask).to(WIDE)
    keep(param, at, mask, p - rate * tl.load(direction + at, mask=mask).to(WIDE))


def move(
    params: Tensors, found: Tensors, rates: Tensor, *, found_inf: Tensor | None = None
) -> None:
    dtype = params[0].dtype
    if dtype not in DTYPES:
        reference.move(params, found, rates, found_inf=found_inf)
        return
    table = table_of(params, found)
    _move.launch(
        (table.programs,),
        (table.data, rates, found_inf, table.start),
        (DTYPES[dtype], found_inf is not None, table.aligned, BLOCK),
        warps=8,
    )


CASES = [
    case
    for dtype in (tl.float32, tl.bfloat16)
    for case in (
        Case(
            _directions, ("*i64", "*fp64", "*fp32", "*fp32", "i64?"),
            (dtype, True, True, True, BLOCK), warps=8,
        ),
        Case(_move, ("*i64", "*fp64", "*fp32", "i64?"), (dtype, True, True, BLOCK), warps=8),
    )
]  # fmt: skip

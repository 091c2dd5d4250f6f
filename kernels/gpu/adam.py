"""Adam's update of many tensors in one launch."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .. import adam as reference
from .cases import Case
from .launch import Kernel
from .tables import BLOCK, DTYPES, address_of, table_of, work_of
from .updates import corrections, dense, gradient_of, keep, numbers_on

Tensors = list[Tensor]


@triton.jit
def moments(average, square, at, mask, g, first, second, rest, WIDE: tl.constexpr):
    """Both moments of a block, with this step's gradient in them; written."""
    m = tl.load(average + at, mask=mask).to(WIDE)
    m = m + tl.load(first).to(WIDE) * (g - m)
    v = tl.load(square + at, mask=mask).to(WIDE)
    v = tl.load(second).to(WIDE) * v + tl.load(rest).to(WIDE) * g * g
    keep(average, at, mask, m)
    keep(square, at, mask, v)
    return m, v


@triton.jit
def _adam_block(
    param, grad, average, square, largest, at, mask, factors, scale,
    AMSGRAD: tl.constexpr, MAXIMIZE: tl.constexpr, SCALED: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    p = tl.load(param + at, mask=mask).to(WIDE)
    g = gradient_of(grad, at, mask, scale, SCALED, WIDE)
    if MAXIMIZE:
        g = -g
    g = g + tl.load(factors).to(WIDE) * p
    m, v = moments(average, square, at, mask, g, factors + 1, factors + 2, factors + 3, WIDE)
    if AMSGRAD:
        v = tl.maximum(
            v, tl.load(largest + at, mask=mask).to(WIDE), propagate_nan=tl.PropagateNan.ALL
        )
        keep(largest, at, mask, v)
    root = tl.sqrt(v) * tl.load(factors + 4).to(WIDE) + tl.load(factors + 5).to(WIDE)
    keep(param, at, mask, p - tl.load(factors + 6).to(WIDE) * m / root)


@Kernel
def _adam(
    table, factors, scale, found_inf, start: tl.int64,
    DTYPE: tl.constexpr, AMSGRAD: tl.constexpr, MAXIMIZE: tl.constexpr, SCALED: tl.constexpr,
    CHECKED: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    if CHECKED:  # noqa: SIM102 - a constant, then what is read
        if tl.load(found_inf) != 0.0:
            return
    LISTS: tl.constexpr = 5 if AMSGRAD else 4
    WIDE: tl.constexpr = tl.float64 if DTYPE == tl.float64 else tl.float32
    row, at, there, whole = work_of(table, start, LISTS, BLOCK)
    param = address_of(row, 0, DTYPE, ALIGNED)
    grad = address_of(row, 1, DTYPE, ALIGNED)
    average = address_of(row, 2, DTYPE, ALIGNED)
    square = address_of(row, 3, DTYPE, ALIGNED)
    largest = address_of(row, LISTS - 1, DTYPE, ALIGNED)
    if whole:
        _adam_block(
            param, grad, average, square, largest, at, None, factors, scale,
            AMSGRAD, MAXIMIZE, SCALED, WIDE,
        )  # fmt: skip
    else:
        _adam_block(
            param, grad, average, square, largest, at, there, factors, scale,
            AMSGRAD, MAXIMIZE, SCALED, WIDE,
        )  # fmt: skip


def adam(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors | None = None,
    *,
    step: int | Tensor | None,
    lr: float | Tensor,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    maximize: bool,
    scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    dtype = params[0].dtype
    if dtype not in DTYPES:
        reference.adam(
            params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, step=step, lr=lr, betas=betas,
            eps=eps, weight_decay=weight_decay, maximize=maximize, scale=scale,
            found_inf=found_inf,
        )  # fmt: skip
        return
    first, second = betas
    larger, root = corrections(step, betas)
    factors = numbers_on(
        params[0].device, weight_decay, 1.0 - first, second, 1.0 - second, root, eps, lr * larger
    )
    more = [] if max_exp_avg_sqs is None else [max_exp_avg_sqs]
    given = dense(grads)
    table = table_of(params, given, exp_avgs, exp_avg_sqs, *more)
    _adam.launch(
        (table.programs,),
        (table.data, factors, scale, found_inf, table.start),
        (
            DTYPES[dtype], bool(more), maximize, scale is not None, found_inf is not None,
            table.aligned, BLOCK,
        ),
        warps=8,
    )  # fmt: skip


CASES = [
    Case(
        _adam, ("*i64", "*fp64", "*fp32", "*fp32", "i64?"),
        (dtype, largest, False, True, True, True, BLOCK), warps=8,
    )
    for dtype, largest in ((tl.float32, False), (tl.bfloat16, True))
]  # fmt: skip

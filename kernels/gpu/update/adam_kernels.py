"""Adam and AdamW updates of many tensors in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from ... import adam_ref as reference
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from .pointer_table import BLOCK, DTYPES, address_of, table_of, work_of
from .update_common import corrections, dense, gradient_of, keep, numbers_on

Tensors = list[Tensor]


@triton.jit
def moments(average, square, at, mask, g, first, second, rest, WIDE: tl.constexpr):
    """Update and store both moments of a block."""
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
    COUPLED: tl.constexpr, AMSGRAD: tl.constexpr, MAXIMIZE: tl.constexpr, SCALED: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    p = tl.load(param + at, mask=mask).to(WIDE)
    g = gradient_of(grad, at, mask, scale, SCALED, WIDE)
    if MAXIMIZE:
        g = -g
    if COUPLED:
        g = g + tl.load(factors).to(WIDE) * p
    else:
        p = p * tl.load(factors).to(WIDE)
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
    DTYPE: tl.constexpr, COUPLED: tl.constexpr, AMSGRAD: tl.constexpr, MAXIMIZE: tl.constexpr,
    SCALED: tl.constexpr, CHECKED: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
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
            COUPLED, AMSGRAD, MAXIMIZE, SCALED, WIDE,
        )  # fmt: skip
    else:
        _adam_block(
            param, grad, average, square, largest, at, there, factors, scale,
            COUPLED, AMSGRAD, MAXIMIZE, SCALED, WIDE,
        )  # fmt: skip


def update(
    lists: Sequence[Tensors | None],
    decay: float | Tensor,
    coupled: bool,
    *,
    step: int | Tensor | None,
    lr: float | Tensor,
    betas: tuple[float, float],
    eps: float,
    maximize: bool,
    scale: Tensor | None,
    found_inf: Tensor | None,
) -> None:
    """Update lists of parameters with gradients, both moments and, for amsgrad, their maxima.

    With `coupled`, `decay` times the parameter is added to its gradient; otherwise the parameter is
    multiplied by it.
    """
    params, grads, *states = [some for some in lists if some is not None]
    first, second = betas
    larger, root = corrections(step, betas)
    device = params[0].device
    factors = numbers_on(device, decay, 1.0 - first, second, 1.0 - second, root, eps, lr * larger)
    given = dense(grads)
    table = table_of(params, given, *states)
    _adam.launch(
        (table.programs,),
        (table.data, factors, scale, found_inf, table.start),
        (
            DTYPES[params[0].dtype], coupled, len(states) > 2, maximize, scale is not None,
            found_inf is not None, table.aligned, BLOCK,
        ),
        warps=8,
    )  # fmt: skip


def adam(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors | None = None,
    *,
    weight_decay: float,
    **numbers: Any,
) -> None:
    lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs)
    if params[0].dtype not in DTYPES:
        reference.adam(*lists, weight_decay=weight_decay, **numbers)
        return
    update(lists, weight_decay, True, **{"scale": None, "found_inf": None, **numbers})


CASES = [
    Case(
        _adam, ("*i64", "*fp64", "*fp32", "*fp32", "i64?"),
        (dtype, coupled, largest, False, True, True, aligned, BLOCK), warps=8,
    )
    for dtype, coupled, largest, aligned in (
        (tl.float32, True, False, True), (tl.bfloat16, True, True, True),
        (tl.float32, False, False, True), (tl.bfloat16, False, False, True),
        (tl.float32, False, True, False),
    )
]  # fmt: skip

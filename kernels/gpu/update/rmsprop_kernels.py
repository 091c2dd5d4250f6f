"""RMSprop updates of many tensors in one launch."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ... import rmsprop_ref as reference
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from .pointer_table import BLOCK, DTYPES, address_of, table_of, work_of
from .update_common import dense, gradient_of, keep, numbers_on

Tensors = list[Tensor]


@triton.jit
def _rmsprop_block(
    param, grad, average, mean, buffer, at, mask, factors, scale,
    CENTERED: tl.constexpr, MOMENTUM: tl.constexpr, IN_ROOT: tl.constexpr,
    MAXIMIZE: tl.constexpr, SCALED: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    p = tl.load(param + at, mask=mask).to(WIDE)
    g = gradient_of(grad, at, mask, scale, SCALED, WIDE)
    if MAXIMIZE:
        g = -g
    g = g + tl.load(factors + 1).to(WIDE) * p
    rest = tl.load(factors + 3).to(WIDE)
    v = tl.load(factors + 2).to(WIDE) * tl.load(average + at, mask=mask).to(WIDE) + rest * g * g
    keep(average, at, mask, v)
    if CENTERED:
        m = tl.load(mean + at, mask=mask).to(WIDE)
        m = m + rest * (g - m)
        keep(mean, at, mask, m)
        v = v - m * m
    eps = tl.load(factors + 4).to(WIDE)
    moved = g / (tl.sqrt(v + eps) if IN_ROOT else tl.sqrt(v) + eps)
    if MOMENTUM:
        moved = tl.load(factors + 5).to(WIDE) * tl.load(buffer + at, mask=mask).to(WIDE) + moved
        keep(buffer, at, mask, moved)
    keep(param, at, mask, p - tl.load(factors).to(WIDE) * moved)


@Kernel
def _rmsprop(
    table, factors, scale, found_inf, start: tl.int64,
    DTYPE: tl.constexpr, CENTERED: tl.constexpr, MOMENTUM: tl.constexpr, IN_ROOT: tl.constexpr,
    MAXIMIZE: tl.constexpr, SCALED: tl.constexpr, CHECKED: tl.constexpr, ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    if CHECKED:  # noqa: SIM102 - a constant, then what is read
        if tl.load(found_inf) != 0.0:
            return
    LISTS: tl.constexpr = 3 + CENTERED + MOMENTUM
    WIDE: tl.constexpr = tl.float64 if DTYPE == tl.float64 else tl.float32
    row, at, there, whole = work_of(table, start, LISTS, BLOCK)
    param = address_of(row, 0, DTYPE, ALIGNED)
    grad = address_of(row, 1, DTYPE, ALIGNED)
    average = address_of(row, 2, DTYPE, ALIGNED)
    mean = address_of(row, 2 + CENTERED, DTYPE, ALIGNED)
    buffer = address_of(row, LISTS - 1, DTYPE, ALIGNED)
    if whole:
        _rmsprop_block(
            param, grad, average, mean, buffer, at, None, factors, scale,
            CENTERED, MOMENTUM, IN_ROOT, MAXIMIZE, SCALED, WIDE,
        )  # fmt: skip
    else:
        _rmsprop_block(
            param, grad, average, mean, buffer, at, there, factors, scale,
            CENTERED, MOMENTUM, IN_ROOT, MAXIMIZE, SCALED, WIDE,
        )  # fmt: skip


def rmsprop(
    params: Tensors,
    grads: Tensors,
    square_avgs: Tensors,
    grad_avgs: Tensors | None,
    momentum_buffers: Tensors | None,
    *,
    lr: float | Tensor,
    alpha: float,
    eps: float,
    eps_in_root: bool,
    weight_decay: float,
    momentum: float,
    maximize: bool,
    scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    dtype = params[0].dtype
    if dtype not in DTYPES:
        reference.rmsprop(
            params, grads, square_avgs, grad_avgs, momentum_buffers, lr=lr, alpha=alpha, eps=eps,
            eps_in_root=eps_in_root, weight_decay=weight_decay, momentum=momentum,
            maximize=maximize, scale=scale, found_inf=found_inf,
        )  # fmt: skip
        return
    factors = numbers_on(params[0].device, lr, weight_decay, alpha, 1.0 - alpha, eps, momentum)
    given = dense(grads)
    more = [column for column in (grad_avgs, momentum_buffers) if column is not None]
    table = table_of(params, given, square_avgs, *more)
    _rmsprop.launch(
        (table.programs,),
        (table.data, factors, scale, found_inf, table.start),
        (
            DTYPES[dtype], grad_avgs is not None, momentum_buffers is not None, eps_in_root,
            maximize, scale is not None, found_inf is not None, table.aligned, BLOCK,
        ),
        warps=8,
    )  # fmt: skip


CASES = [
    Case(
        _rmsprop, ("*i64", "*fp64", "*fp32", "*fp32", "i64?"),
        (dtype, whole, whole, not whole, False, True, True, True, BLOCK), warps=8,
    )
    for dtype, whole in ((tl.float32, False), (tl.bfloat16, True))
]  # fmt: skip

"""Optimizer updates of many tensors in one launch. A program finds its block in a pointer table.

Numbers that change from step to step are read from the device in float64. So a captured CUDA graph
stays valid and nothing is recompiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import optim_ref as reference
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from .adam_kernels import update
from .pointer_table import BLOCK, DTYPES, address_of, table_of, work_of
from .update_common import dense, gradient_of, keep, numbers_on

TORCH = {"complex gradients and parameters": "Triton has no complex numbers"}

Tensors = list[Tensor]


def adamw(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors | None = None,
    *,
    lr: float | Tensor,
    weight_decay: float,
    **numbers: Any,
) -> None:
    lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs)
    if params[0].dtype not in DTYPES:
        reference.adamw(*lists, lr=lr, weight_decay=weight_decay, **numbers)
        return
    given = {"scale": None, "found_inf": None, **numbers}
    update(lists, 1.0 - lr * weight_decay, False, lr=lr, **given)


@triton.jit
def _sgd_block(
    param, grad, buffer, at, mask, factors, scale,
    MOMENTUM: tl.constexpr, NESTEROV: tl.constexpr, FIRST: tl.constexpr,
    MAXIMIZE: tl.constexpr, SCALED: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    g = gradient_of(grad, at, mask, scale, SCALED, WIDE)
    if MAXIMIZE:
        g = -g
    p = tl.load(param + at, mask=mask).to(WIDE)
    g = g + tl.load(factors + 1).to(WIDE) * p
    if MOMENTUM:
        b = g
        if not FIRST:
            b = tl.load(buffer + at, mask=mask).to(WIDE)
            b = tl.load(factors + 2).to(WIDE) * b + tl.load(factors + 3).to(WIDE) * g
        keep(buffer, at, mask, b)
        g = g + tl.load(factors + 2).to(WIDE) * b if NESTEROV else b
    keep(param, at, mask, p - tl.load(factors).to(WIDE) * g)


@Kernel
def _sgd(
    table, factors, scale, found_inf, start: tl.int64,
    DTYPE: tl.constexpr, MOMENTUM: tl.constexpr, NESTEROV: tl.constexpr, FIRST: tl.constexpr,
    MAXIMIZE: tl.constexpr, SCALED: tl.constexpr, CHECKED: tl.constexpr, ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    if CHECKED:  # noqa: SIM102 - a constant, then what is read
        if tl.load(found_inf) != 0.0:
            return
    LISTS: tl.constexpr = 3 if MOMENTUM else 2
    WIDE: tl.constexpr = tl.float64 if DTYPE == tl.float64 else tl.float32
    row, at, there, whole = work_of(table, start, LISTS, BLOCK)
    param = address_of(row, 0, DTYPE, ALIGNED)
    grad = address_of(row, 1, DTYPE, ALIGNED)
    buffer = address_of(row, LISTS - 1, DTYPE, ALIGNED)
    if whole:
        _sgd_block(
            param, grad, buffer, at, None, factors, scale,
            MOMENTUM, NESTEROV, FIRST, MAXIMIZE, SCALED, WIDE,
        )  # fmt: skip
    else:
        _sgd_block(
            param, grad, buffer, at, there, factors, scale,
            MOMENTUM, NESTEROV, FIRST, MAXIMIZE, SCALED, WIDE,
        )  # fmt: skip


def sgd(
    params: Tensors,
    grads: Tensors,
    momentum_buffers: Tensors,
    *,
    lr: float | Tensor,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first_step: bool,
    scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    dtype = params[0].dtype
    if dtype not in DTYPES:
        reference.sgd(
            params, grads, momentum_buffers, lr=lr, momentum=momentum, dampening=dampening,
            weight_decay=weight_decay, nesterov=nesterov, maximize=maximize,
            first_step=first_step, scale=scale, found_inf=found_inf,
        )  # fmt: skip
        return
    factors = numbers_on(params[0].device, lr, weight_decay, momentum, 1.0 - dampening)
    more = [momentum_buffers] if momentum else []
    given = dense(grads)
    table = table_of(params, given, *more)
    _sgd.launch(
        (table.programs,),
        (table.data, factors, scale, found_inf, table.start),
        (
            DTYPES[dtype], bool(momentum), nesterov, first_step, maximize, scale is not None,
            found_inf is not None, table.aligned, BLOCK,
        ),
        warps=8,
    )  # fmt: skip


# Norms of many tensors.


@triton.jit
def _power(x, p, ORDER: tl.constexpr):
    x = tl.abs(x)
    if ORDER == 2.0:
        return x * x
    elif ORDER == 0.0:  # any other
        return tl.where(x == 0.0, 0.0, tl.exp2(p * tl.log2(tl.where(x == 0.0, 1.0, x))))
    else:
        return x


@Kernel
def _block_powers(
    table, powers, p, scale, start: tl.int64,
    DTYPE: tl.constexpr, ORDER: tl.constexpr, SCALED: tl.constexpr, ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum of the powers of a block, or its largest absolute value."""
    row, at, there, whole = work_of(table, start, 1, BLOCK)
    x = address_of(row, 0, DTYPE, ALIGNED)
    if whole:
        v = tl.load(x + at)
    else:
        v = tl.load(x + at, mask=there, other=0.0)
    v = v.to(powers.dtype.element_ty)
    if SCALED:
        v = v * tl.load(scale).to(v.dtype)
    v = _power(v, p, ORDER)
    if ORDER == float("inf"):  # a maximum loses NaN, a sum does not
        nan = tl.sum((v != v).to(tl.int32)) > 0
        total = tl.where(nan, float("nan"), tl.max(v))
    else:
        total = tl.sum(v)
    tl.store(powers + tl.program_id(0), total)


@Kernel
def _tensor_powers(table, powers, found, ORDER: tl.constexpr, BLOCK: tl.constexpr,
                   STEP: tl.constexpr):  # fmt: skip
    """The blocks of a tensor combined, in order and in float64."""
    row = table + tl.program_id(0) * 3
    count = (tl.load(row + 1) + BLOCK - 1) // BLOCK
    mine = powers + tl.load(row + 2)
    at = tl.arange(0, STEP)
    total = tl.zeros((STEP,), tl.float64)
    for begin in range(0, count, STEP):
        v = tl.load(mine + begin + at, mask=begin + at < count, other=0.0).to(tl.float64)
        if ORDER == float("inf"):
            total = tl.where((v > total) | (v != v), v, total)
        else:
            total += v
    if ORDER == float("inf"):
        nan = tl.sum((total != total).to(tl.int32)) > 0
        tl.store(found + tl.program_id(0), tl.where(nan, float("nan"), tl.max(total)))
    else:
        tl.store(found + tl.program_id(0), tl.sum(total))


def powers(parts: Sequence[Tensor], p: float, scale: Tensor | None = None) -> Tensor:
    dtype = parts[0].dtype
    if dtype not in DTYPES or any(part.dtype is not dtype for part in parts):
        return reference.powers(parts, p, scale)
    given = dense(parts)
    table = table_of(given)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    device = parts[0].device
    blocks = torch.empty(table.programs, dtype=wide, device=device)
    found = torch.empty(len(parts), dtype=torch.float64, device=device)
    order = p if p in (1.0, 2.0, float("inf")) else 0.0
    _block_powers.launch(
        (table.programs,),
        (table.data, blocks, float(p), scale, table.start),
        (DTYPES[dtype], order, scale is not None, table.aligned, BLOCK),
        warps=8,
    )
    _tensor_powers.launch((len(parts),), (table.data, blocks, found), (order, BLOCK, 1024))
    return found


def not_finite(parts: Sequence[Tensor]) -> Tensor:
    dtype = parts[0].dtype
    if dtype not in DTYPES or any(part.dtype is not dtype for part in parts):
        return reference.not_finite(parts)
    return powers(parts, float("inf")).isfinite().logical_not().double()


# Many tensors as one.


@Kernel
def _flatten(table, y, start: tl.int64, WORD: tl.constexpr, ALIGNED: tl.constexpr,
             BLOCK: tl.constexpr):  # fmt: skip
    row, at, there, whole = work_of(table, start, 2, BLOCK)
    x = address_of(row, 0, WORD, ALIGNED)
    y = address_of(row, 1, WORD, ALIGNED)
    if whole:
        tl.store(y + at, tl.load(x + at))
    else:
        tl.store(y + at, tl.load(x + at, mask=there), mask=there)


_WORDS = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}


def flatten(parts: Sequence[Tensor]) -> Tensor:
    dtype = parts[0].dtype
    if dtype.itemsize not in _WORDS or any(part.dtype is not dtype for part in parts):
        return reference.flatten(parts)
    sizes = [part.numel() for part in parts]
    y = torch.empty(sum(sizes), dtype=dtype, device=parts[0].device)
    given = dense(parts)
    table = table_of(given, y.split(sizes))
    word = _WORDS[dtype.itemsize]
    _flatten.launch(
        (table.programs,), (table.data, y, table.start), (word, table.aligned, BLOCK), warps=8
    )
    return y


_TABLE = ("*i64", "*fp64", "*fp32", "*fp32", "i64?")

CASES = [
    *[
        Case(_sgd, _TABLE, (dtype, True, True, False, False, True, True, True, BLOCK), warps=8)
        for dtype in (tl.float32, tl.bfloat16)
    ],
    Case(
        _block_powers, ("*i64", "*fp32", "fp32", "*fp32", "i64?"),
        (tl.bfloat16, 2.0, True, True, BLOCK), warps=8,
    ),
    Case(_tensor_powers, ("*i64", "*fp32", "*fp64"), (2.0, BLOCK, 1024)),
    Case(_flatten, ("*i64", "*bf16", "i64?"), (tl.int16, True, BLOCK), warps=8),
]  # fmt: skip

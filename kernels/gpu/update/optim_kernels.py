"""Norms and copies of many tensors, in one launch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import optim_ref as reference
from ...memory_format_ref import dense
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from .pointer_table import BLOCK, DTYPES, address_of, table_of, work_of

Tensors = list[Tensor]


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
    given = [*map(dense, parts)]  # kept until the launch, which only gets addresses
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


# Copies of many tensors.


@Kernel
def _copy_each(table, start: tl.int64, SOURCE: tl.constexpr, TARGET: tl.constexpr,
               ALIGNED: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row, at, there, whole = work_of(table, start, 2, BLOCK)
    x = address_of(row, 0, SOURCE, ALIGNED)
    y = address_of(row, 1, TARGET, ALIGNED)
    if whole:
        tl.store(y + at, tl.load(x + at).to(TARGET))
    else:
        tl.store(y + at, tl.load(x + at, mask=there).to(TARGET), mask=there)


_WORDS = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}


def _copy(
    parts: Sequence[Tensor], targets: Sequence[Tensor], source: tl.dtype, target: tl.dtype
) -> None:
    """Copy dense tensors element by element, in the order in memory."""
    table = table_of(parts, targets)
    _copy_each.launch(
        (table.programs,),
        (table.data, table.start),
        (source, target, table.aligned, BLOCK),
        warps=8,
    )


def flatten(parts: Sequence[Tensor]) -> Tensor:
    dtype = parts[0].dtype
    if dtype.itemsize not in _WORDS or any(part.dtype is not dtype for part in parts):
        return reference.flatten(parts)
    sizes = [part.numel() for part in parts]
    y = torch.empty(sum(sizes), dtype=dtype, device=parts[0].device)
    word = _WORDS[dtype.itemsize]
    given = [part.contiguous() for part in parts]  # kept until the launch
    _copy(given, y.split(sizes), word, word)
    return y


def cast_each(parts: Sequence[Tensor], dtype: torch.dtype) -> Tensors:
    source = parts[0].dtype
    known = source in DTYPES and dtype in DTYPES
    if not known or any(part.dtype is not source for part in parts):
        return reference.cast_each(parts, dtype)
    given = [*map(dense, parts)]  # kept until the launch
    made = [torch.empty_like(part, dtype=dtype) for part in given]
    _copy(given, made, DTYPES[source], DTYPES[dtype])
    return made


CASES = [
    Case(
        _block_powers, ("*i64", "*fp32", "fp32", "*fp32", "i64?"),
        (tl.bfloat16, 2.0, True, True, BLOCK), warps=8,
    ),
    Case(_tensor_powers, ("*i64", "*fp32", "*fp64"), (2.0, BLOCK, 1024)),
    Case(_copy_each, ("*i64", "i64?"), (tl.int16, tl.int16, True, BLOCK), warps=8),
    Case(_copy_each, ("*i64", "i64?"), (tl.float32, tl.bfloat16, True, BLOCK), warps=8),
]  # fmt: skip

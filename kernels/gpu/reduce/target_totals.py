"""Totals of targets: what all of them weigh, what all classes weigh, and the mean of the losses."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...cross_entropy_ref import Classes
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from .reduction_tiles import TRITON, cdiv
from .row_configs import dense_or_none

_BLOCK = 1024
_ALONE = 16 * _BLOCK  # targets that one program adds up sooner than several and one more launch
_CHUNK = 4 * _BLOCK  # of each of several programs


@triton.jit
def _weights(
    target, weight, at, mask, classes, ignored, WEIGHTED: tl.constexpr, WIDE: tl.constexpr
):
    """What each target weighs; those that are ignored, or no class, weigh nothing."""
    wanted = tl.load(target + at, mask=mask, other=ignored).to(tl.int64)
    valid = mask & (wanted != ignored)
    if WEIGHTED:
        known = valid & (wanted >= 0) & (wanted < classes)
        v = tl.load(weight + tl.where(known, wanted, 0), mask=known, other=0.0).to(WIDE)
    else:
        v = valid.to(WIDE)
    return v


@Kernel
def _part_totals(
    target, weight, loss, parts, rows: tl.int64, classes, ignored,
    WEIGHTED: tl.constexpr, WIDE: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The same of a chunk of the targets: its weight in the first row of `parts`, its losses."""
    number = tl.program_id(0).to(tl.int64)
    mass = tl.zeros((BLOCK,), WIDE)
    lost = tl.zeros((BLOCK,), WIDE)
    for start in tl.static_range(0, CHUNK, BLOCK):
        at = number * CHUNK + start + tl.arange(0, BLOCK)
        mask = at < rows
        mass += _weights(target, weight, at, mask, classes, ignored, WEIGHTED, WIDE)
        if loss is not None:
            lost += tl.load(loss + at, mask=mask, other=0.0).to(WIDE)
    tl.store(parts + number, tl.sum(mass))
    tl.store(parts + tl.num_programs(0) + number, tl.sum(lost))


@Kernel
def _totals(
    target, weight, loss, parts, y, sums, rows, classes, ignored,
    WEIGHTED: tl.constexpr, MEAN: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """By one program, of `rows` targets, or of so many `parts`."""
    at = tl.arange(0, BLOCK)
    mass = tl.zeros((BLOCK,), WIDE)
    every = tl.zeros((BLOCK,), WIDE)
    lost = tl.zeros((BLOCK,), WIDE)
    for start in range(0, rows, BLOCK):
        r = start + at
        mask = r < rows
        if parts is not None:
            mass += tl.load(parts + r, mask=mask, other=0.0)
            lost += tl.load(parts + rows + r, mask=mask, other=0.0)
        else:
            mass += _weights(target, weight, r, mask, classes, ignored, WEIGHTED, WIDE)
            if MEAN:
                lost += tl.load(loss + r, mask=mask, other=0.0).to(WIDE)
    if MEAN:
        tl.store(y, (tl.sum(lost) / tl.sum(mass)).to(y.dtype.element_ty))
    else:
        if WEIGHTED:
            for start in range(0, classes, BLOCK):
                r = start + at
                every += tl.load(weight + r, mask=r < classes, other=0.0).to(WIDE)
        tl.store(sums, tl.sum(mass))
        tl.store(sums + 1, tl.sum(every))


def run_totals(
    target: Tensor, weight: Tensor | None, loss: Tensor | None, y: Tensor, classes: Classes,
    wide: torch.dtype,
) -> None:  # fmt: skip
    """Write the mean of the losses to `y`; without them the two weights, of targets and classes."""
    target, weight = target.contiguous(), dense_or_none(weight)
    rows, number = target.numel(), 0 if weight is None else weight.shape[0]
    weighted, numbers = weight is not None, (number, classes.ignore_index)
    parts = None
    if rows > _ALONE:
        chunks = cdiv(rows, _CHUNK)
        parts = torch.empty((2, chunks), dtype=wide, device=target.device)
        constants = (weighted, TRITON[wide], _CHUNK, _BLOCK)
        _part_totals.launch((chunks,), (target, weight, loss, parts, rows, *numbers), constants)
        rows = chunks
    _totals.launch(
        (1,),
        (target, weight, loss, parts, y, y, rows, *numbers),
        (weighted, loss is not None, TRITON[wide], _BLOCK),
    )


CASES = [
    Case(
        _totals,
        ("*i64", None, "*fp32", parts, "*bf16", "*bf16", "i32", "i32", "i32?"),
        (False, True, tl.float32, _BLOCK),
    )
    for parts in (None, "*fp32")
]
CASES += [
    Case(
        _part_totals,
        ("*i64", None, "*fp32", "*fp32", "i64?", "i32", "i32?"),
        (False, tl.float32, _CHUNK, _BLOCK),
    )
]

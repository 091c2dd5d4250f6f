"""layer_norm and rms_norm: one program for each row, statistics in float32 and in two passes."""

from __future__ import annotations

from math import prod

import torch
import triton.language as tl
from torch import Tensor

from .cases import Case, tensors
from .launch import Kernel
from .rows import as_rows, block_of, warps_of

Shape = tuple[int, ...]


@Kernel
def _norm(
    x, weight, bias, y, mean, rstd, columns, eps: tl.float64,
    CENTRED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, KEPT: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0)
    v = v.to(tl.float64) if v.dtype == tl.float64 else v.to(tl.float32)
    if CENTRED:
        average = tl.sum(v) / columns
        v = tl.where(inside, v - average, 0.0)
    r = 1.0 / tl.sqrt(tl.sum(v * v) / columns + eps.to(v.dtype))
    v = v * r
    if WEIGHT:
        v *= tl.load(weight + at, mask=inside, other=0.0)
    if BIAS:
        v += tl.load(bias + at, mask=inside, other=0.0)
    tl.store(y + row * columns + at, v.to(y.dtype.element_ty), mask=inside)
    if KEPT:
        tl.store(mean + row, average)
        tl.store(rstd + row, r)


def _run(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Shape, eps: float,
    centred: bool, kept: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    rows = as_rows(x, len(shape))
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    lead = x.shape[: x.ndim - len(shape)]
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    statistics = (*lead, *(1,) * len(shape)) if kept else (0,)
    mean, rstd = (torch.empty(statistics, dtype=wide, device=x.device) for _ in range(2))
    columns = prod(shape)
    block = block_of(columns)
    _norm.launch(
        (rows.shape[0] if columns else 0,),
        (rows, _dense(weight), _dense(bias), y, mean, rstd, columns, eps),
        (centred, weight is not None, bias is not None, kept, block),
        warps=warps_of(block),
    )
    return y, mean, rstd


def _dense(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Shape, eps: float
) -> Tensor:
    return _run(x, weight, bias, shape, eps, True)[0]


def rms_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Shape, eps: float
) -> Tensor:
    return _run(x, weight, bias, shape, eps, False)[0]


def layer_norm_kept(
    x: Tensor, weight: Tensor, bias: Tensor, shape: Shape, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _run(x, weight, bias, shape, eps, True, kept=True)


CASES = [
    Case(
        _norm,
        (*tensors(dtype, "x", "weight", "bias", "y"), *tensors("fp32", "mean", "rstd"),
         "i32", "fp64"),
        (centred, True, centred, centred, block),
        warps=warps_of(block),
    )
    for dtype in ("bf16", "fp32")
    for centred in (True, False)
    for block in (1024, 4096, 16384)
]  # fmt: skip

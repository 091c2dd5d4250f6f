"""layer_norm and rms_norm: one program for one or a few rows.

The statistics are computed in two passes, or by Welford's algorithm. Rows of up to 32768 elements
stay in registers; wider ones are read twice. Products and sums are not contracted to fma, so that a
norm with chains before and after it (`norm_chain_kernels.py`) has the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import norm_ref as torchs
from ..launch.aot_cases import Case
from ..launch.configs import Config
from ..launch.jit_kernel import Kernel
from .norm_grad_kernels import (
    SIZES,
    layer_norm_grad,
    layer_norm_input_grad,
    layer_norm_with_stats_grad,
    layer_norm_with_stats_input_grad,
    rms_norm_grad,
    rms_norm_input_grad,
    squares_of,
)
from .reduction_tiles import TRITON, first_of, holding, wide_of
from .row_configs import Form, Shared, as_rows, dense_or_none
from .variance_kernels import welford

Shape = tuple[int, ...]
__all__ = [
    "layer_norm_grad",
    "layer_norm_input_grad",
    "layer_norm_with_stats_grad",
    "layer_norm_with_stats_input_grad",
    "rms_norm_grad",
    "rms_norm_input_grad",
]


@triton.jit
def normalized(
    v, mask, n, eps, CENTERED: tl.constexpr, EXACT: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """Whole rows of deviation 1, their mean, and the reciprocals of their deviations.

    `EXACT` are values that are not narrower than the sums: those would be less exact than the mean
    is anyway.
    """
    average = tl.zeros((v.shape[0],), WIDE)
    if CENTERED:
        average = tl.sum(v, 1) / n
        v = tl.where(mask, v - average[:, None], 0.0)
        if EXACT:
            rest = tl.sum(v, 1) / n
            average += rest
            v = tl.where(mask, v - rest[:, None], 0.0)
    r = 1.0 / tl.sqrt(tl.sum(v * v, 1) / n + eps.to(WIDE))
    return v * r[:, None], average, r


@triton.jit
def scaled(v, weight, bias, r, inside, WEIGHT: tl.constexpr, BIAS: tl.constexpr):
    if WEIGHT:
        v *= tl.load(weight + r, mask=inside, other=0.0).to(v.dtype)[None, :]
    if BIAS:
        v += tl.load(bias + r, mask=inside, other=0.0).to(v.dtype)[None, :]
    return v


@Kernel
def _norm(
    x, weight, bias, y, mean, rstd, rows, n, eps: tl.float64,
    CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, KEPT: tl.constexpr,
    ONE: tl.constexpr, WIDE: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    row, first, inside = first_of(rows, n, 1, True, BK)
    at = tl.arange(0, BR)
    if ONE:
        mask = inside[:, None] & (at < n)[None, :]
        v = tl.load(x + first[:, None] + at[None, :], mask=mask, other=0.0).to(WIDE)
        v, average, r = normalized(v, mask, n, eps, CENTERED, x.dtype.element_ty == WIDE, WIDE)
        v = scaled(v, weight, bias, at, at < n, WEIGHT, BIAS)
        tl.store(y + first[:, None] + at[None, :], v.to(y.dtype.element_ty), mask=mask)
    else:
        average = tl.zeros((BK,), WIDE)
        if CENTERED:
            _, average, squares = welford(x, first, 0, n, n, 1, inside, WIDE, BK, BR)
        else:
            squares = squares_of(x, first, n, inside, WIDE, BK, BR)
        r = 1.0 / tl.sqrt(squares / n + eps.to(WIDE))
        for start in range(0, n, BR):
            c = start + at
            mask = inside[:, None] & (c < n)[None, :]
            where = first[:, None] + c[None, :]
            v = tl.load(x + where, mask=mask, other=0.0).to(WIDE)
            v = (v - average[:, None]) * r[:, None]
            v = scaled(v, weight, bias, c, c < n, WEIGHT, BIAS)
            tl.store(y + where, v.to(y.dtype.element_ty), mask=mask)
    if KEPT:
        tl.store(mean + row, average, mask=inside)
        tl.store(rstd + row, r, mask=inside)


SHARED = Shared("norm", lambda dtype, outer, n, inner: holding(outer, n, inner, 32768))


def _run(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Shape, eps: float,
    centered: bool, kept: bool = False, config: Config | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    rows = as_rows(x, len(shape))
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    lead = x.shape[: x.ndim - len(shape)]
    wide = wide_of(x.dtype)
    mean: Tensor | None = None
    rstd: Tensor | None = None
    if kept:
        statistics = (*lead, *(1,) * len(shape))
        mean, rstd = (torch.empty(statistics, dtype=wide, device=x.device) for _ in range(2))
    columns = prod(shape)
    t = SHARED.of(x.dtype, rows.shape[0], columns, 1, config)
    one = t.block >= columns
    _norm.launch(
        t.grid,
        (rows, dense_or_none(weight), dense_or_none(bias), y, mean, rstd, len(rows), columns, eps),
        (centered, weight is not None, bias is not None, kept, one, TRITON[wide], t.kept_block,
         t.block),
        warps=t.warps,
        fused=False,
    )  # fmt: skip
    return y, mean, rstd


def layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Shape, eps: float
) -> Tensor:
    if x.numel() == 0:
        return torchs.layer_norm(x, weight, bias, shape, eps)
    return _run(x, weight, bias, shape, eps, True)[0]


def rms_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Shape, eps: float
) -> Tensor:
    if x.numel() == 0:
        return torchs.rms_norm(x, weight, bias, shape, eps)
    return _run(x, weight, bias, shape, eps, False)[0]


def layer_norm_with_stats(
    x: Tensor, weight: Tensor, bias: Tensor, shape: Shape, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    if x.numel() == 0:
        return torchs.layer_norm_with_stats(x, weight, bias, shape, eps)
    y, mean, rstd = _run(x, weight, bias, shape, eps, True, kept=True)
    assert mean is not None and rstd is not None
    return y, mean, rstd


def _tuned(x: Tensor, config: Config) -> Callable[[], Tensor]:
    rows = x.squeeze(2)
    weight, bias = rows[:2].contiguous()
    return lambda: _run(rows, weight, bias, weight.shape, 1e-5, True, config=config)[0]


def _case(x: str, centered: bool, one: bool, kept: int, block: int, warps: int) -> Case:
    types = (*(x,) * 4, "*fp32", "*fp32")
    constants = (centered, True, centered, centered, one, tl.float32, kept, block)
    return Case(_norm, types, constants, warps, fused=False)


def _cases(x: str, n: int, form: Form, warps: int) -> list[Case]:
    _, kept, block = form
    return [_case(x, centered, block >= n, kept, block, warps) for centered in (True, False)]


TUNED = [SHARED.tuned(SIZES, _tuned, _cases)]
CASES = [
    _case(dtype, centered, one, kept, block, min(max(kept * block // 1024, 1), 16))
    for dtype in ("*bf16", "*fp32")
    for centered in (True, False)
    for one, kept, block in ((True, 8, 256), (True, 1, 4096), (True, 1, 32768), (False, 1, 8192))
    if dtype == "*bf16" or block == 4096
]  # fmt: skip

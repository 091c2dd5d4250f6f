"""Gradients of layer_norm and rms_norm.

A number of programs that depends only on the shape walks over the rows. Each keeps its sums for
weight and bias in registers. The sums are then reduced in order. Rows that do not fit into
registers use two kernels: one for x, row by row, and one that walks down the columns for weight and
bias.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import norm_ref as torchs
from ..launch.aot_cases import Case
from ..launch.configs import Config
from ..launch.jit_kernel import Kernel
from .reduction_tiles import TRITON, Tiles, cdiv, first_of, power_of_2, tiles, wide_of
from .reductions import reduce_dims
from .row_configs import Form, Shared, as_rows
from .variance_kernels import welford

Shape = tuple[int, ...]
WIDEST = 8192  # columns of which x, dy, weight and the two sums fit in the registers of 16 warps
PROGRAMS = 528  # of at most four warps; half as many of more
_RESIDENT = 4  # on each multiprocessor of an H200, so that all work at once; half as many likewise


@triton.jit
def squares_of(
    x, first, n, inside, WIDE: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr
):  # fmt: skip
    """The sum of the squares of rows."""
    at = tl.arange(0, BR)
    total = tl.zeros((BK, BR), WIDE)
    for start in range(0, n, BR):
        mask = inside[:, None] & (start + at < n)[None, :]
        v = tl.load(x + first[:, None] + (start + at)[None, :], mask=mask, other=0.0).to(WIDE)
        total += v * v
    return tl.sum(total, 1)


@triton.jit
def unit_of(
    u, mean, rstd, row, inside, mask, n, eps,
    CENTERED: tl.constexpr, KEPT: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Whole rows of deviation 1, and the reciprocals of their deviations, which may be kept."""
    if KEPT:
        if CENTERED:
            u -= tl.load(mean + row, mask=inside, other=0.0).to(WIDE)[:, None]
        r = tl.load(rstd + row, mask=inside, other=0.0).to(WIDE)
    else:
        if CENTERED:
            u -= (tl.sum(u, 1) / n)[:, None]
        squares = tl.where(mask, u * u, 0.0)
        r = 1.0 / tl.sqrt(tl.sum(squares, 1) / n + eps.to(WIDE))
    return tl.where(mask, u * r[:, None], 0.0), r


@triton.jit
def slope_of(g, u, w, r, n, CENTERED: tl.constexpr):
    """The gradient of rows, from that of what the norm gave."""
    g_w = g * w
    slope = g_w - u * (tl.sum(g_w * u, 1) / n)[:, None]
    if CENTERED:
        slope -= (tl.sum(g_w, 1) / n)[:, None]
    return slope * r[:, None]


@triton.jit
def store_sums(sums, dw, db, n, at, CENTERED: tl.constexpr):
    """Store a program's sums for weight and bias as its row of (programs, 2 or 1, n)."""
    parts = 2 if CENTERED else 1
    out = sums + tl.program_id(0).to(tl.int64) * n * parts + at
    tl.store(out, tl.sum(dw, 0), mask=at < n)
    if CENTERED:
        tl.store(out + n, tl.sum(db, 0), mask=at < n)


@Kernel
def _norm_grad(
    dy, x, weight, mean, rstd, dx, sums, rows, n, eps: tl.float64,
    CENTERED: tl.constexpr, KEPT: tl.constexpr, WEIGHT: tl.constexpr, WIDE: tl.constexpr,
    BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    at = tl.arange(0, BR)
    exists = (at < n)[None, :]
    w = tl.full((1, BR), 1.0, WIDE)
    if WEIGHT:
        w = tl.load(weight + at, mask=at < n, other=0.0).to(WIDE)[None, :]
    dw = tl.zeros((BK, BR), WIDE)
    db = tl.zeros((BK, BR), WIDE)
    # The next rows are copied to shared memory while these are worked on.
    NARROW: tl.constexpr = x.dtype.element_ty.primitive_bitwidth <= 16
    STAGES: tl.constexpr = 3 if NARROW else 2 if WIDE == tl.float32 else 1
    for start in tl.range(tl.program_id(0) * BK, rows, tl.num_programs(0) * BK, num_stages=STAGES):
        row = start + tl.arange(0, BK)
        inside = row < rows
        mask = inside[:, None] & exists
        where = row.to(tl.int64)[:, None] * n + at[None, :]
        u = tl.load(x + where, mask=mask, other=0.0).to(WIDE)
        g = tl.load(dy + where, mask=mask, other=0.0).to(WIDE)
        u, r = unit_of(u, mean, rstd, row, inside, mask, n, eps, CENTERED, KEPT, WIDE)
        if sums is not None:
            dw += g * u
            if CENTERED:
                db += g
        tl.store(dx + where, slope_of(g, u, w, r, n, CENTERED).to(dx.dtype.element_ty), mask=mask)
    if sums is not None:
        store_sums(sums, dw, db, n, at, CENTERED)


@Kernel
def _norm_grad_wide(
    dy, x, weight, mean, rstd, dx, rows, n, eps: tl.float64,
    CENTERED: tl.constexpr, KEPT: tl.constexpr, WEIGHT: tl.constexpr, WIDE: tl.constexpr,
    BR: tl.constexpr,
):  # fmt: skip
    row, first, inside = first_of(rows, n, 1, True, 1)
    at = tl.arange(0, BR)
    average = tl.zeros((1,), WIDE)
    if KEPT:
        if CENTERED:
            average = tl.load(mean + row).to(WIDE)
        r = tl.load(rstd + row).to(WIDE)
    else:
        if CENTERED:
            _, average, squares = welford(x, first, 0, n, n, 1, inside, WIDE, 1, BR)
            tl.store(mean + row, average)
        else:
            squares = squares_of(x, first, n, inside, WIDE, 1, BR)
        r = 1.0 / tl.sqrt(squares / n + eps.to(WIDE))
        tl.store(rstd + row, r)
    along = tl.zeros((1, BR), WIDE)
    level = tl.zeros((1, BR), WIDE)
    for start in range(0, n, BR):
        c = (start + at)[None, :]
        where = first[:, None] + c
        v = tl.load(x + where, mask=c < n, other=0.0).to(WIDE)
        g = tl.load(dy + where, mask=c < n, other=0.0).to(WIDE)
        if WEIGHT:
            g *= tl.load(weight + c, mask=c < n, other=0.0).to(WIDE)
        along += g * (v - average[:, None]) * r[:, None]
        level += g
    slope = (tl.sum(along, 1) / n)[:, None]
    offset = (tl.sum(level, 1) / n)[:, None]
    for start in range(0, n, BR):
        c = (start + at)[None, :]
        where = first[:, None] + c
        u = (tl.load(x + where, mask=c < n, other=0.0).to(WIDE) - average[:, None]) * r[:, None]
        g = tl.load(dy + where, mask=c < n, other=0.0).to(WIDE)
        if WEIGHT:
            g *= tl.load(weight + c, mask=c < n, other=0.0).to(WIDE)
        g -= u * slope
        if CENTERED:
            g -= offset
        tl.store(dx + where, (g * r[:, None]).to(dx.dtype.element_ty), mask=c < n)


@Kernel
def _weight_grad(
    dy, x, mean, rstd, sums, rows, n, chunk,
    CENTERED: tl.constexpr, WIDE: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    column, first, inside = first_of(n, rows, n, False, BK)
    split = tl.program_id(1).to(tl.int64)
    dw = tl.zeros((BK, BR), WIDE)
    db = tl.zeros((BK, BR), WIDE)
    for start in range(0, chunk, BR):
        row = split * chunk + start + tl.arange(0, BR)
        exists = row < rows
        mask = inside[:, None] & exists[None, :]
        where = first[:, None] + row[None, :] * n
        u = tl.load(x + where, mask=mask, other=0.0).to(WIDE)
        g = tl.load(dy + where, mask=mask, other=0.0).to(WIDE)
        if CENTERED:
            u -= tl.load(mean + row, mask=exists, other=0.0).to(WIDE)[None, :]
            db += g
        dw += g * (u * tl.load(rstd + row, mask=exists, other=0.0).to(WIDE)[None, :])
    parts = 2 if CENTERED else 1
    out = sums + split * n * parts + column
    tl.store(out, tl.sum(dw, 1), mask=inside)
    if CENTERED:
        tl.store(out + n, tl.sum(db, 1), mask=inside)


def _rule(dtype: torch.dtype, outer: int, n: int, inner: int) -> Tiles:
    block = power_of_2(n)
    tile = 2048 if block <= 1024 else 4096
    several = max(min(tile // block, power_of_2(cdiv(outer, PROGRAMS))), 1)
    return Tiles(outer, n, inner, True, several, block, 1, block, _warps(several * block))


def programs_of(t: Tiles) -> int:
    """How many programs walk over the rows: by the shape alone, so that sums have one order."""
    return min(t.programs, PROGRAMS if t.warps <= 4 else PROGRAMS // 2)


def resident_of(t: Tiles, wide: torch.dtype) -> int:
    """How many of them are to share a multiprocessor; 0 where they need too many registers."""
    if wide is torch.float64 or t.warps > 8:
        return 0
    return _RESIDENT if t.warps <= 4 else _RESIDENT // 2


SHARED = Shared("norm_grad", _rule, whole=True)


def _run(
    dy: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor | None, rstd: Tensor | None,
    shape: Shape, eps: float, centered: bool, config: Config | None = None, only_x: bool = False,
) -> list[Tensor]:  # fmt: skip
    """The gradient of x, and unless `only_x` those of weight and bias."""
    x, dy = as_rows(x, len(shape)), as_rows(dy, len(shape))
    rows, n = x.shape
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    wide = wide_of(x.dtype)
    w = None if weight is None else weight.contiguous()
    of_weight = x.dtype if weight is None else weight.dtype
    kept = rstd is not None
    if n > WIDEST:
        if rstd is None:
            mean, rstd = (torch.empty(rows, dtype=wide, device=x.device) for _ in range(2))
        assert rstd is not None
        sums = _run_wide(dy, x, w, mean, rstd, dx, eps, (centered, kept), only_x)
    else:
        t = SHARED.of(x.dtype, rows, n, 1, config)
        programs = programs_of(t)
        sums = None
        if not only_x:
            sums = torch.empty((programs, 2 if centered else 1, n), dtype=wide, device=x.device)
        _norm_grad.launch(
            (programs,),
            (dy, x, w, mean, rstd, dx, sums, rows, n, eps),
            (centered, kept, w is not None, TRITON[wide], t.kept_block, t.block),
            warps=t.warps,
            fused=False,
            resident=resident_of(t, wide),
        )
    if sums is None:
        return [dx]
    return [dx, *reduce_dims(sums, (0,), False, "sum", of_weight, wide)]


def _run_wide(
    dy: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor | None, rstd: Tensor, dx: Tensor,
    eps: float, form: tuple[bool, bool], only_x: bool,
) -> Tensor | None:  # fmt: skip
    rows, n = x.shape
    wide = wide_of(x.dtype)
    _norm_grad_wide.launch(
        (rows,),
        (dy, x, weight, mean, rstd, dx, rows, n, eps),
        (*form, weight is not None, TRITON[wide], 4096),
        warps=8,
    )
    if only_x:
        return None
    t = tiles(1, rows, n)
    sums = torch.empty((t.splits, 2 if form[0] else 1, n), dtype=wide, device=x.device)
    _weight_grad.launch(
        t.grid,
        (dy, x, mean, rstd, sums, rows, n, t.chunk),
        (form[0], TRITON[wide], t.kept_block, t.block),
    )
    return sums


def _warps(tile: int) -> int:
    """16 elements for each thread: there are five tiles."""
    return min(max(tile // 512, 1), 16)


def layer_norm_grad(
    dy: Tensor, x: Tensor, weight: Tensor | None, shape: Shape, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    if x.numel() == 0:
        return torchs.layer_norm_grad(dy, x, weight, shape, eps)
    dx, dw, db = _run(dy, x, weight, None, None, shape, eps, True)
    return dx.view(x.shape), dw.view(shape), db.view(shape)


def layer_norm_with_stats_grad(
    dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, shape: Shape
) -> tuple[Tensor, Tensor, Tensor]:
    if x.numel() == 0:
        return torchs.layer_norm_with_stats_grad(dy, x, weight, mean, rstd, shape)
    statistics = mean.contiguous(), rstd.contiguous()
    dx, dw, db = _run(dy, x, weight, *statistics, shape, 0.0, True)
    return dx.view(x.shape), dw.view(shape), db.view(shape)


def rms_norm_grad(
    dy: Tensor, x: Tensor, weight: Tensor | None, shape: Shape, eps: float
) -> tuple[Tensor, Tensor]:
    if x.numel() == 0:
        return torchs.rms_norm_grad(dy, x, weight, shape, eps)
    dx, dw = _run(dy, x, weight, None, None, shape, eps, False)
    return dx.view(x.shape), dw.view(shape)


def _of_input(
    dy: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor | None, rstd: Tensor | None,
    shape: Shape, eps: float, centered: bool,
) -> Tensor:  # fmt: skip
    return _run(dy, x, weight, mean, rstd, shape, eps, centered, only_x=True)[0].view(x.shape)


def layer_norm_input_grad(
    dy: Tensor, x: Tensor, weight: Tensor | None, shape: Shape, eps: float
) -> Tensor:
    if x.numel() == 0:
        return torchs.layer_norm_input_grad(dy, x, weight, shape, eps)
    return _of_input(dy, x, weight, None, None, shape, eps, True)


def layer_norm_with_stats_input_grad(
    dy: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, rstd: Tensor, shape: Shape
) -> Tensor:
    if x.numel() == 0:
        return torchs.layer_norm_with_stats_input_grad(dy, x, weight, mean, rstd, shape)
    statistics = mean.contiguous(), rstd.contiguous()
    return _of_input(dy, x, weight, *statistics, shape, 0.0, True)


def rms_norm_input_grad(
    dy: Tensor, x: Tensor, weight: Tensor | None, shape: Shape, eps: float
) -> Tensor:
    if x.numel() == 0:
        return torchs.rms_norm_input_grad(dy, x, weight, shape, eps)
    return _of_input(dy, x, weight, None, None, shape, eps, False)


def _tuned(x: Tensor, config: Config) -> Callable[[], Tensor]:
    dy, weight = x.squeeze(2), x[0, :, 0].contiguous()
    return lambda: _run(dy, dy, weight, None, None, weight.shape, 1e-5, True, config)[1]


SIZES = ((8192, 1024, 1), (8192, 4096, 1), (8192, 8192, 1))
_BF16 = ("*bf16",) * 3


def _case(x: str, centered: bool, kept: bool, several: int, block: int, warps: int) -> Case:
    types = (x, x, x, "*fp32", "*fp32", x, "*fp32")
    constants = (centered, kept, True, tl.float32, several, block)
    return Case(_norm_grad, types, constants, warps, fused=False)


def _cases(x: str, n: int, form: Form, warps: int) -> list[Case]:
    return [_case(x, centered, centered, *form[1:], warps) for centered in (True, False)]


TUNED = [SHARED.tuned(SIZES, _tuned, _cases)]
CASES = [
    _case("*bf16", centered, kept, several, block, _warps(several * block))
    for centered, kept, several, block in (
        (True, True, 16, 256), (True, True, 1, 4096), (True, False, 1, 8192),
        (False, False, 1, 4096)
    )
]  # fmt: skip
_WIDE = (*_BF16, "*fp32", "*fp32", "*bf16")
CASES += [
    Case(_norm_grad_wide, _WIDE, (centered, False, True, tl.float32, 4096), warps=8)
    for centered in (True, False)
]
CASES += [
    Case(
        _norm_grad, (*_BF16, *(("*fp32",) * 2 if centered else (None, None)), "*bf16", None),
        (centered, centered, True, tl.float32, 1, 4096), _warps(4096), fused=False,
    )
    for centered in (True, False)
]  # fmt: skip
CASES += [Case(_weight_grad, (*_BF16[:2], *("*fp32",) * 3), (True, tl.float32, 128, 32))]

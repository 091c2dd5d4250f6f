"""softmax, log_softmax and their gradients. Wide rows take two passes.

The first pass over a wide row computes maximum and sum together: the sum is rescaled when the
maximum rises. The second pass writes the result.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import softmax_ref as torchs
from ..launch.aot_cases import Case
from ..launch.configs import Config
from ..launch.jit_kernel import Kernel
from ..pointwise.copy_kernels import copy_into
from .reduction_tiles import NUMBERS, TRITON, Tiles, first_of, holding, one_group, wide_of
from .row_configs import Shared

TORCH = {
    "complex numbers and integers": "torch has the errors",
    "no elements": "nothing to do",
}


@triton.jit
def base(top):
    """What exponents are taken below: the greatest number, or 0 where that is infinite."""
    return tl.where(tl.abs(top) == float("inf"), 0.0, top)


@triton.jit
def risen(total, before, after):
    """A sum of exponentials below one maximum, as one below a greater one."""
    return total * tl.exp(tl.where(before == float("-inf"), 0.0, base(before) - base(after)))


@triton.jit
def passed(x, first, n, step, inside, WIDE: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr):
    """The maximum over n elements, and the sum of exponentials below it (see `base`)."""
    at = tl.arange(0, BR)
    top = tl.full((BK,), float("-inf"), WIDE)
    total = tl.zeros((BK, BR), WIDE)
    # While a block is worked on, the next ones are copied to shared memory.
    STAGES: tl.constexpr = 3 if x.dtype.element_ty.primitive_bitwidth <= 16 else 2
    for start in tl.range(0, n, BR, num_stages=STAGES):
        r = (start + at)[None, :]
        mask = inside[:, None] & (r < n)
        where = first[:, None] + r.to(tl.int64) * step
        v = tl.load(x + where, mask=mask, other=float("-inf")).to(WIDE)
        higher = tl.maximum(top, tl.max(v, 1))
        total = risen(total, top[:, None], higher[:, None])
        total += tl.where(mask, tl.exp(v - base(higher)[:, None]), 0.0)
        top = higher
    return top, tl.sum(total, 1)


@Kernel
def _softmax(
    x, y, kept, n, inner,
    LOG: tl.constexpr, ONE: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr,
    BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    _, first, inside = first_of(kept, n, inner, ROWS, BK)
    step = 1 if ROWS else inner
    at = tl.arange(0, BR)
    if ONE:
        mask = inside[:, None] & (at < n)[None, :]
        where = first[:, None] + at[None, :].to(tl.int64) * step
        v = tl.load(x + where, mask=mask, other=float("-inf")).to(WIDE)
        v -= tl.max(v, 1)[:, None]
        e = tl.where(mask, tl.exp(v), 0.0)
        total = tl.sum(e, 1)[:, None]
        v = v - tl.log(total) if LOG else e / total
        tl.store(y + where, v.to(y.dtype.element_ty), mask=mask)
    else:
        top, total = passed(x, first, n, step, inside, WIDE, BK, BR)
        top, total = top[:, None], total[:, None]
        total += top - top  # an infinite maximum makes all of the row nan, as in torch
        for start in range(0, n, BR):
            r = (start + at)[None, :]
            mask = inside[:, None] & (r < n)
            where = first[:, None] + r.to(tl.int64) * step
            v = tl.load(x + where, mask=mask, other=float("-inf")).to(WIDE) - top
            v = v - tl.log(total) if LOG else tl.exp(v) / total
            tl.store(y + where, v.to(y.dtype.element_ty), mask=mask)


@Kernel
def _softmax_grad(
    dy, y, dx, kept, n, inner,
    LOG: tl.constexpr, ONE: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr,
    BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    _, first, inside = first_of(kept, n, inner, ROWS, BK)
    step = 1 if ROWS else inner
    at = tl.arange(0, BR)
    if ONE:
        mask = inside[:, None] & (at < n)[None, :]
        where = first[:, None] + at[None, :].to(tl.int64) * step
        g = tl.load(dy + where, mask=mask, other=0.0).to(WIDE)
        v = tl.load(y + where, mask=mask, other=0.0).to(WIDE)
        total = tl.sum(g if LOG else g * v, 1)[:, None]
        d = g - tl.exp(v) * total if LOG else v * (g - total)
        tl.store(dx + where, d.to(dx.dtype.element_ty), mask=mask)
    else:
        each = tl.zeros((BK, BR), WIDE)
        for start in range(0, n, BR):
            r = (start + at)[None, :]
            mask = inside[:, None] & (r < n)
            where = first[:, None] + r.to(tl.int64) * step
            g = tl.load(dy + where, mask=mask, other=0.0).to(WIDE)
            if not LOG:
                g *= tl.load(y + where, mask=mask, other=0.0).to(WIDE)
            each += g
        total = tl.sum(each, 1)[:, None]
        for start in range(0, n, BR):
            r = (start + at)[None, :]
            mask = inside[:, None] & (r < n)
            where = first[:, None] + r.to(tl.int64) * step
            g = tl.load(dy + where, mask=mask, other=0.0).to(WIDE)
            v = tl.load(y + where, mask=mask, other=0.0).to(WIDE)
            d = g - tl.exp(v) * total if LOG else v * (g - total)
            tl.store(dx + where, d.to(dx.dtype.element_ty), mask=mask)


def _rule(dtype: torch.dtype, outer: int, n: int, inner: int) -> tuple[Tiles, int]:
    t = holding(outer, n, inner, 32768)
    return t, t.warps


def _grad_rule(dtype: torch.dtype, outer: int, n: int, inner: int) -> tuple[Tiles, int]:
    t = holding(outer, n, inner, 16384)
    return t, t.warps


_SHARED, _GRAD_SHARED = Shared("softmax", _rule), Shared("softmax_grad", _grad_rule)


def _run(
    x: Tensor, dim: int, dtype: torch.dtype | None, log: bool, config: Config | None = None
) -> Tensor:
    dtype = dtype or x.dtype
    if not x.numel() or not dtype.is_floating_point or x.dtype not in NUMBERS:
        return (torchs.log_softmax if log else torchs.softmax)(x, dim, dtype)
    if not x.dtype.is_floating_point:
        given, x = x, torch.empty(x.shape, dtype=dtype, device=x.device)
        copy_into(x, given)
    dense, outer, n, inner = one_group(x, (dim % x.ndim,) if x.ndim else ())
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    t, warps = _SHARED.of(dtype, outer, n, inner, config)
    _softmax.launch(
        t.grid,
        (dense, y, t.kept, n, inner),
        (log, t.block >= n, TRITON[wide_of(dtype)], t.rows, t.kept_block, t.block),
        warps=warps,
    )
    return y


def softmax(x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    return _run(x, dim, dtype, False)


def log_softmax(x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    return _run(x, dim, dtype, True)


def _run_grad(dy: Tensor, y: Tensor, dim: int, log: bool, config: Config | None = None) -> Tensor:
    if not y.numel() or y.dtype not in NUMBERS or dy.shape != y.shape:
        return (torchs.log_softmax_grad if log else torchs.softmax_grad)(dy, y, dim)
    dims = (dim % y.ndim,) if y.ndim else ()
    dense, outer, n, inner = one_group(y, dims)
    dx = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    t, warps = _GRAD_SHARED.of(y.dtype, outer, n, inner, config)
    _softmax_grad.launch(
        t.grid,
        (dy.contiguous(), dense, dx, t.kept, n, inner),
        (log, t.block >= n, TRITON[wide_of(y.dtype)], t.rows, t.kept_block, t.block),
        warps=warps,
    )
    return dx


def softmax_grad(dy: Tensor, y: Tensor, dim: int) -> Tensor:
    return _run_grad(dy, y, dim, False)


def log_softmax_grad(dy: Tensor, y: Tensor, dim: int) -> Tensor:
    return _run_grad(dy, y, dim, True)


_SIZES = (
    (8192, 1024, 1), (8192, 4096, 1), (4096, 16384, 1), (2048, 131072, 1), (1024, 64, 1024),
)  # fmt: skip


def _cases(
    kernel: Kernel, pointers: int, dtype: str, sizes: tuple[int, ...], chosen: Config
) -> list[Case]:
    _, n, inner = sizes
    kept, block = chosen["kept"], chosen["block"]
    tile = (block >= n, tl.float32, inner == 1, kept, block)
    types = (*(f"*{dtype}",) * pointers, "i32", "i32", "i32")
    return [Case(kernel, types, (log, *tile), chosen["warps"]) for log in (False, True)]


TUNED = [
    _SHARED.tuned(
        _SIZES,
        lambda x, config: lambda: _run(x, 1, None, False, config),
        partial(_cases, _softmax, 2),
    ),
    _GRAD_SHARED.tuned(
        _SIZES,
        lambda x, config: lambda: _run_grad(x, x, 1, False, config),
        partial(_cases, _softmax_grad, 3),
    ),
]
_FORMS = ((True, True, 1, 4096), (True, True, 1, 32768), (False, True, 1, 8192))
_COLUMNS = ((True, False, 16, 256), (False, False, 16, 1024))
CASES = [
    Case(
        _softmax,
        (f"*{dtype}", f"*{dtype}", "i32", "i32", "i32"),
        (log, one, tl.float32, rows, kept, block),
        warps=min(max(kept * block // 1024, 1), 16),
    )
    for dtype in ("bf16", "fp32")
    for log, (one, rows, kept, block) in zip((False, True, False), _FORMS, strict=True)
]
CASES += [
    Case(
        _softmax_grad,
        ("*bf16", "*bf16", "*bf16", "i32", "i32", "i32"),
        (False, one, tl.float32, rows, kept, block),
        warps=min(max(kept * block // 1024, 1), 16),
    )
    for one, rows, kept, block in (_FORMS[0], (True, True, 1, 16384), _FORMS[2], *_COLUMNS)
]

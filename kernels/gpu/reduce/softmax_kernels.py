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
from ..pointwise.special_functions import LOG2_E
from .reduction_tiles import NUMBERS, TRITON, block_at, first_of, holding, one_group, wide_of
from .row_configs import Form, Shared

# Left to torch: the errors for complex numbers and integers.


@triton.jit
def exp(x):
    """e to the power of x. In float32 denormal results are 0: to keep them takes three of five
    instructions.
    """
    if x.dtype == tl.float32:
        return tl.exp2(x * LOG2_E)
    return tl.exp(x)


@triton.jit
def base(top):
    """What exponents are taken below: the greatest number, or 0 where that is infinite."""
    return tl.where(tl.abs(top) == float("inf"), 0.0, top)


@triton.jit
def risen(total, before, after):
    """A sum of exponentials below one maximum, as one below a greater one.

    The minimum is for infinite maxima: a sum that is 0 stays 0.
    """
    return total * exp(tl.minimum(base(before) - base(after), 0.0))


@triton.jit
def _joined(v, top, total):
    """The maximum, and the sums of exponentials below it, with more elements."""
    higher = tl.maximum(top, tl.max(v, 1))
    total = risen(total, top[:, None], higher[:, None])
    return higher, total + exp(v - base(higher)[:, None])


@triton.jit
def passed(
    x, first, n, step, inside, WIDE: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
    REREAD: tl.constexpr = False,
):  # fmt: skip
    """The maximum over n elements, and the sum of exponentials below it (see `base`).

    With REREAD a second pass follows, for which the elements should stay in the L2 cache.
    """
    top = tl.full((BK,), float("-inf"), WIDE)
    total = tl.zeros((BK, BR), WIDE)
    # Asynchronous copies of the next blocks take no eviction policy.
    COPIED: tl.constexpr = 3 if x.dtype.element_ty.primitive_bitwidth <= 16 else 2
    STAGES: tl.constexpr = 1 if REREAD else COPIED
    EVICTION: tl.constexpr = "evict_last" if REREAD else ""
    whole = n // BR * BR
    for start in tl.range(0, whole, BR, num_stages=STAGES):
        where, _ = block_at(first, inside, start, n, step, BR)
        v = tl.load(x + where, mask=inside[:, None], other=0.0, eviction_policy=EVICTION)
        top, total = _joined(v.to(WIDE), top, total)
    if whole < n:
        where, mask = block_at(first, inside, whole, n, step, BR)
        v = tl.load(x + where, mask=mask, other=float("-inf"), eviction_policy=EVICTION)
        top, total = _joined(v.to(WIDE), top, total)
    return top, tl.sum(total, 1)


@Kernel
def _softmax(
    x, y, kept, n, inner,
    LOG: tl.constexpr, ONE: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr,
    BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    _, first, inside = first_of(kept, n, inner, ROWS, BK)
    step = 1 if ROWS else inner
    if ONE:
        where, mask = block_at(first, inside, 0, n, step, BR)
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
            where, mask = block_at(first, inside, start, n, step, BR)
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
    if ONE:
        where, mask = block_at(first, inside, 0, n, step, BR)
        g = tl.load(dy + where, mask=mask, other=0.0).to(WIDE)
        v = tl.load(y + where, mask=mask, other=0.0).to(WIDE)
        total = tl.sum(g if LOG else g * v, 1)[:, None]
        d = g - tl.exp(v) * total if LOG else v * (g - total)
        tl.store(dx + where, d.to(dx.dtype.element_ty), mask=mask)
    else:
        each = tl.zeros((BK, BR), WIDE)
        for start in range(0, n, BR):
            where, mask = block_at(first, inside, start, n, step, BR)
            g = tl.load(dy + where, mask=mask, other=0.0).to(WIDE)
            if not LOG:
                g *= tl.load(y + where, mask=mask, other=0.0).to(WIDE)
            each += g
        total = tl.sum(each, 1)[:, None]
        for start in range(0, n, BR):
            where, mask = block_at(first, inside, start, n, step, BR)
            g = tl.load(dy + where, mask=mask, other=0.0).to(WIDE)
            v = tl.load(y + where, mask=mask, other=0.0).to(WIDE)
            d = g - tl.exp(v) * total if LOG else v * (g - total)
            tl.store(dx + where, d.to(dx.dtype.element_ty), mask=mask)


_SHARED = Shared("softmax", lambda dtype, outer, n, inner: holding(outer, n, inner, 32768))
_GRAD_SHARED = Shared(
    "softmax_grad", lambda dtype, outer, n, inner: holding(outer, n, inner, 16384)
)


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
    t = _SHARED.of(dtype, outer, n, inner, config)
    t.launch(_softmax, (dense, y), (), (log, t.block >= n, TRITON[wide_of(dtype)]))
    return y


def _run_grad(dy: Tensor, y: Tensor, dim: int, log: bool, config: Config | None = None) -> Tensor:
    if not y.numel() or y.dtype not in NUMBERS or dy.shape != y.shape:
        return (torchs.log_softmax_grad if log else torchs.softmax_grad)(dy, y, dim)
    dims = (dim % y.ndim,) if y.ndim else ()
    dense, outer, n, inner = one_group(y, dims)
    dx = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    t = _GRAD_SHARED.of(y.dtype, outer, n, inner, config)
    constants = (log, t.block >= n, TRITON[wide_of(y.dtype)])
    t.launch(_softmax_grad, (dy.contiguous(), dense, dx), (), constants)
    return dx


softmax, log_softmax = partial(_run, log=False), partial(_run, log=True)
softmax_grad, log_softmax_grad = partial(_run_grad, log=False), partial(_run_grad, log=True)

_SIZES = (
    (8192, 1024, 1), (8192, 4096, 1), (4096, 16384, 1), (2048, 131072, 1), (1024, 64, 1024),
)  # fmt: skip


def _case(kernel: Kernel, x: str, pointers: int, log: bool, *tile: int, warps: int = 0) -> Case:
    """`tile`: whether it holds all of a row, whether it has rows, then its sizes."""
    one, rows, kept, block = tile
    warps = warps or min(max(kept * block // 1024, 1), 16)
    return Case(kernel, (x,) * pointers, (log, one, tl.float32, rows, kept, block), warps)


def _cases(kernel: Kernel, pointers: int, x: str, n: int, form: Form, warps: int) -> list[Case]:
    whole = form[2] >= n
    return [_case(kernel, x, pointers, log, whole, *form, warps=warps) for log in (False, True)]


TUNED = [
    _SHARED.tuned(
        _SIZES, lambda x, to: lambda: _run(x, 1, None, False, to), partial(_cases, _softmax, 2)
    ),
    _GRAD_SHARED.tuned(
        _SIZES,
        lambda x, to: lambda: _run_grad(x, x, 1, False, to),
        partial(_cases, _softmax_grad, 3),
    ),
]
_FORMS = ((True, True, 1, 4096), (True, True, 1, 32768), (False, True, 1, 8192))
_COLUMNS = ((True, False, 16, 256), (False, False, 16, 1024))
CASES = [
    _case(_softmax, x, 2, log, *form)
    for x in ("*bf16", "*fp32")
    for log, form in zip((False, True, False), _FORMS, strict=True)
]
CASES += [
    _case(_softmax_grad, "*bf16", 3, False, *form)
    for form in (_FORMS[0], (True, True, 1, 16384), _FORMS[2], *_COLUMNS)
]

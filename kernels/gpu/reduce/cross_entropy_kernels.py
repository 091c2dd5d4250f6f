"""Cross entropy: one pass for the logsumexp. The backward pass makes the softmax from it, in one.

Nothing of the size of the logits is saved. Where the logsumexp was not kept, backward reads the
logits twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import triton.language as tl
from torch import Tensor

from ... import cross_entropy_ref as torchs
from ...cross_entropy_ref import Classes, check_targets
from ..launch.aot_cases import TARGETS, Case
from ..launch.configs import Config, architecture
from ..launch.jit_kernel import Kernel
from .logits_grad import below, logits_grad, share_of
from .reduction_tiles import (
    NUMBERS,
    TRITON,
    Tiles,
    cdiv,
    first_of,
    one_group,
    power_of_2,
    tiles,
    wide_of,
)
from .reductions import reduce_dims
from .row_configs import Shared, dense_or_none
from .target_totals import run_totals

# Left to torch: the loss of nothing, and the errors for logits that are not floating. Targets that
# are no class are looked for on the CPU only: on the GPU the host would wait for it.


# Columns of a block of 2 bytes each, and its warps: the fastest for 50304 classes on an H200.
_WIDEST, _WARPS = 4096, 4
_TUNED_ON = ("sm_90",)
_SHORT = 44 << 10  # bytes; shorter rows are still in its L2 cache in the second pass


@Kernel
def _cross_entropy(
    x, target, weight, lse, y, found, kept, n, inner, offset, total, ignored,
    LSE: tl.constexpr, WEIGHTED: tl.constexpr, SMOOTHING: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """`found` is where the logarithms of the sums of exponentials are wanted, too."""
    index, first, inside = first_of(kept, n, inner, ROWS, BK)
    step = 1 if ROWS else inner
    wanted = tl.load(target + index, mask=inside, other=ignored).to(tl.int64)
    local = wanted - offset
    here = inside & (wanted != ignored) & (local >= 0) & (local < n)
    own = tl.load(x + first + tl.where(here, local, 0) * step, mask=here, other=0.0).to(WIDE)
    a, b = below(x, lse, first, index, n, step, inside, LSE, WIDE, BK, BR)
    if found is not None:
        tl.store(found + index, a + b, mask=inside)
    loss = ((a - own) + b) * (1.0 - SMOOTHING)
    if WEIGHTED:
        loss *= tl.load(weight + tl.where(here, wanted, 0), mask=here, other=0.0).to(WIDE)
    loss = tl.where(here, loss, 0.0)
    if SMOOTHING != 0.0:
        each = tl.zeros((BK, BR), WIDE)
        at = tl.arange(0, BR)
        for start in range(0, n, BR):
            r = start + at
            mask = inside[:, None] & (r < n)[None, :]
            where = first[:, None] + r[None, :].to(tl.int64) * step
            v = tl.load(x + where, mask=mask, other=0.0).to(WIDE)
            v = (a[:, None] - v) + b[:, None]
            if WEIGHTED:
                v *= tl.load(weight + offset + r, mask=r < n, other=0.0).to(WIDE)[None, :]
            each += tl.where(mask, v, 0.0)
        smooth = tl.sum(each, 1) * share_of(SMOOTHING, total, WIDE, BK)
        loss += tl.where(wanted != ignored, smooth, 0.0)
    tl.store(y + index, loss.to(y.dtype.element_ty), mask=inside)


@Kernel
def _target_weights(
    target, weight, sums, y, rows, weights, total, ignored,
    WEIGHTED: tl.constexpr, SMOOTHING: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < rows
    wanted = tl.load(target + index, mask=inside, other=ignored).to(tl.int64)
    valid = wanted != ignored
    v = valid.to(WIDE)
    if WEIGHTED:
        known = valid & (wanted >= 0) & (wanted < weights)
        v = tl.load(weight + tl.where(known, wanted, 0), mask=known, other=0.0).to(WIDE)
        if SMOOTHING != 0.0:
            share = share_of(SMOOTHING, total, WIDE, BLOCK) * tl.load(sums + 1)
            v = tl.where(valid, v * (1.0 - SMOOTHING) + share, 0.0)
    tl.store(y + index, v.to(y.dtype.element_ty), mask=inside)


def _suits(x: Tensor) -> bool:
    return x.numel() > 0 and x.dtype in NUMBERS and x.dtype.is_floating_point


def _rule(dtype: torch.dtype, outer: int, n: int, inner: int) -> Tiles:
    widest = _WIDEST // (dtype.itemsize // 2)
    t = tiles(outer, n, inner, False, widest)
    return replace(t, warps=_WARPS if t.block == widest else t.fitting_warps)


def _rule_of_both(dtype: torch.dtype, outer: int, n: int, inner: int) -> Tiles:
    """Each row is read twice. Larger programs leave fewer rows in flight, for the L2 cache."""
    rule = _rule(dtype, outer, n, inner)
    if architecture() not in _TUNED_ON or not rule.rows or n * dtype.itemsize <= _SHORT:
        return rule
    block = min(2 * _WIDEST // (dtype.itemsize // 2), power_of_2(n))
    return replace(rule, kept_block=1, block=block, chunk=cdiv(n, block) * block, warps=2 * _WARPS)


_SHARED, _GRAD_SHARED = Shared("cross_entropy", _rule), Shared("cross_entropy_grad", _rule)
_BOTH_SHARED = Shared("cross_entropy_and_grad", _rule_of_both)


def _sizes(x: Tensor) -> tuple[Tensor, int, int, int]:
    """Dense memory of the logits as (outer, classes, inner), and these three sizes."""
    return one_group(x, (1 if x.ndim > 1 else 0,))


def _length(x: Tensor | None) -> int:
    return 0 if x is None else x.shape[0]


def _losses(
    x: Tensor, target: Tensor, weight: Tensor | None, lse: Tensor | None, classes: Classes,
    form: str, dtype: torch.dtype, found: Tensor | None = None, like: torch.dtype | None = None,
    config: Config | None = None,
) -> Tensor:  # fmt: skip
    """The loss of each target, added up in blocks as for logits of the dtype `like`."""
    check_targets(target, classes)
    dense, outer, n, inner = _sizes(x)
    t = _SHARED.of(like or x.dtype, outer, n, inner, config)
    y = torch.empty(target.shape, dtype=dtype, device=x.device)
    pointers = (
        dense, target.contiguous(), dense_or_none(weight), dense_or_none(lse), y, found
    )  # fmt: skip
    constants = (form, weight is not None, float(classes.smoothing), TRITON[wide_of(x.dtype)])
    t.launch(_cross_entropy, pointers, _numbers(classes), constants)
    return y


def _numbers(classes: Classes) -> tuple[int, int, int]:
    return classes.first, classes.total, classes.ignore_index


def _sums(
    target: Tensor, weight: Tensor | None, classes: Classes, wide: torch.dtype, mean: bool
) -> Tensor | None:
    """What all targets and all classes weigh, where something needs it."""
    if not mean and (weight is None or classes.smoothing == 0.0):
        return None
    sums = torch.empty(2, dtype=wide, device=target.device)
    run_totals(target, weight, None, sums, classes, wide)
    return sums


def cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, lse: Tensor | None, classes: Classes
) -> Tensor:
    if not _suits(x):
        return torchs.cross_entropy(x, target, weight, lse, classes)
    form = "none" if lse is None else "given"
    return _losses(x, target, weight, lse, classes, form, (x if lse is None else lse).dtype)


def whole_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, log_input: bool, reduction: str,
    ignore_index: int, smoothing: float, dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    if not _fits(x, target):
        attrs = (log_input, reduction, ignore_index, smoothing, dtype)
        return torchs.whole_cross_entropy(x, target, weight, *attrs)
    return _whole(x, target, weight, log_input, reduction, ignore_index, smoothing, dtype, None)


def whole_cross_entropy_with_lse(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int,
    smoothing: float, dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    attrs = (reduction, ignore_index, smoothing, dtype)
    if not _fits(x, target):
        return torchs.whole_cross_entropy_with_lse(x, target, weight, *attrs)
    found = torch.empty(target.shape, dtype=wide_of(x.dtype), device=x.device)
    return _whole(x, target, weight, False, *attrs, found), found


def _fits(x: Tensor, target: Tensor) -> bool:
    dim = 1 if x.ndim > 1 else 0
    alike = target.shape == x.shape[:dim] + x.shape[dim + 1 :]
    return alike and _suits(x) and not target.dtype.is_floating_point


def _whole(
    x: Tensor, target: Tensor, weight: Tensor | None, log_input: bool, reduction: str,
    ignore_index: int, smoothing: float, dtype: torch.dtype | None, found: Tensor | None,
) -> Tensor:  # fmt: skip
    """The loss; where `found` is given, the logarithms of the sums are written there."""
    classes = Classes(0, x.shape[1 if x.ndim > 1 else 0], ignore_index, smoothing)
    form = "none" if log_input else "found"
    wide, dtype = wide_of(x.dtype), dtype or x.dtype
    of_each = dtype if reduction == "none" else wide
    each = _losses(x, target, weight, None, classes, form, of_each, found, dtype)
    return _reduced(each, target, weight, classes, reduction, dtype)


def _reduced(
    each: Tensor, target: Tensor, weight: Tensor | None, classes: Classes, reduction: str,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """The sum or the mean of the losses, or what they are."""
    if reduction == "none":
        return each
    if reduction == "sum":
        return reduce_dims(each, tuple(range(each.ndim)), False, "sum", dtype, each.dtype)
    y = torch.empty((), dtype=dtype, device=each.device)
    run_totals(target, weight, each, y, classes, each.dtype)
    return y


def whole_cross_entropy_and_grad(
    dy: Tensor | None, x: Tensor, target: Tensor, reduction: str, ignore_index: int,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if not _fits(x, target):
        return torchs.whole_cross_entropy_and_grad(dy, x, target, reduction, ignore_index, dtype)
    classes = Classes(0, x.shape[1 if x.ndim > 1 else 0], ignore_index, 0.0)
    check_targets(target, classes)
    wide, of_loss = wide_of(x.dtype), dtype or x.dtype
    each = of_loss if reduction == "none" else wide
    losses = torch.empty(target.shape, dtype=each, device=x.device)
    # Sums of exponentials are added up in the blocks of the loss alone.
    _, outer, n, inner = _sizes(x)
    t = _SHARED.of(of_loss, outer, n, inner)
    dx = _grad(dy, x, target, None, None, classes, "once", reduction == "mean", losses, t=t)
    return _reduced(losses, target, None, classes, reduction, of_loss), dx


def _grad(
    dy: Tensor | None, x: Tensor, target: Tensor, weight: Tensor | None, lse: Tensor | None,
    classes: Classes, form: str, mean: bool, losses: Tensor | None = None,
    config: Config | None = None, t: Tiles | None = None, out: Tensor | None = None,
    count: Tensor | None = None,
) -> Tensor:  # fmt: skip
    dense, outer, n, inner = _sizes(x)
    t = t or _GRAD_SHARED.of(x.dtype, outer, n, inner, config)
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    wide = wide_of(x.dtype)
    sums = _sums(target, weight, classes, wide, mean) if count is None else count
    pointers = (
        dense, dense_or_none(dy), target.contiguous(), dense_or_none(weight), dense_or_none(lse),
        sums, dx, losses,
    )  # fmt: skip
    smoothing, each = float(classes.smoothing), dy is not None and dy.ndim > 0
    constants = (form, weight is not None, smoothing, each, mean, TRITON[wide])
    t.launch(logits_grad, pointers, _numbers(classes), constants)
    return dx


def cross_entropy_grad(
    dy: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, lse: Tensor | None,
    classes: Classes,
) -> Tensor:  # fmt: skip
    if not _suits(x):
        return torchs.cross_entropy_grad(dy, x, target, weight, lse, classes)
    form = "none" if lse is None else "given"
    return _grad(dy, x, target, weight, lse, classes, form, False)


def whole_cross_entropy_grad(
    dy: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, log_input: bool, reduction: str,
    ignore_index: int, smoothing: float, lse: Tensor | None = None,
) -> Tensor:  # fmt: skip
    if not _suits(x):
        attrs = (log_input, reduction, ignore_index, smoothing, lse)
        return torchs.whole_cross_entropy_grad(dy, x, target, weight, *attrs)
    classes = Classes(0, x.shape[1 if x.ndim > 1 else 0], ignore_index, smoothing)
    form = "none" if log_input else "found" if lse is None else "given"
    return _grad(dy, x, target, weight, lse, classes, form, reduction == "mean")


def row_losses(x: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    """The loss of each row of logits, unrounded."""
    classes = Classes(0, x.shape[1], ignore_index, 0.0)
    return _losses(x, target, None, None, classes, "found", wide_of(x.dtype))


def row_losses_and_grad(
    x: Tensor, target: Tensor, count: Tensor | None, ignore_index: int,
    config: Config | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The loss of each row of logits, unrounded, and the gradient of their sum.

    That is divided by a count, if there is one. It is written over the logits, which are in the
    cache, so it takes no room there.
    """
    classes = Classes(0, x.shape[1], ignore_index, 0.0)
    check_targets(target, classes)
    losses = torch.empty(target.shape, dtype=wide_of(x.dtype), device=x.device)
    rows, n = x.shape
    t = _BOTH_SHARED.of(x.dtype, rows, n, 1, config)
    given = (None, x, target, None, None, classes, "found", count is not None, losses)
    return losses, _grad(*given, t=t, out=x, count=count)


def target_weights(
    target: Tensor, weight: Tensor | None, classes: Classes, dtype: torch.dtype
) -> Tensor:
    if target.numel() == 0 or target.device.type == "meta":
        return torchs.target_weights(target, weight, classes, dtype)
    wide = wide_of(dtype)
    y = torch.empty(target.shape, dtype=dtype, device=target.device)
    sums = _sums(target, weight, classes, wide, mean=False)
    _target_weights.launch(
        (-(-target.numel() // 1024),),
        (target.contiguous(), dense_or_none(weight), sums, y, target.numel(), _length(weight),
         classes.total, classes.ignore_index),
        (weight is not None, float(classes.smoothing), TRITON[wide], 1024),
    )  # fmt: skip
    return y


def _call(x: Tensor) -> tuple[Tensor, Tensor, Classes]:
    """Logits, targets and classes for the tuner."""
    rows = x.squeeze(2)
    n = rows.shape[1]
    return rows, torch.arange(rows.shape[0], device=x.device) % n, Classes(0, n, -100, 0.0)


def _tuned(x: Tensor, config: Config) -> Callable[[], Tensor]:
    rows, target, classes = _call(x)
    return lambda: _losses(rows, target, None, None, classes, "found", rows.dtype, config=config)


def _tuned_grad(x: Tensor, config: Config) -> Callable[[], Tensor]:
    rows, target, classes = _call(x)
    given = (None, rows, target, None, None, classes)
    return lambda: _grad(*given, "found", False, config=config)


_SIZES = ((8192, 1024, 1), (8192, 32768, 1), (2048, 131072, 1))
_CHUNKS = ((16384, 50304, 1), (8192, 128256, 1))  # of the loss of GPT-2's and a Llama's last layer
_NUMBERS = ("i32",) * 5 + ("i32?",)


def _tuned_both(x: Tensor, config: Config) -> Callable[[], Tensor]:
    rows, target, _ = _call(x)
    count = torch.full((), rows.shape[0], device=x.device)
    return lambda: row_losses_and_grad(rows, target, count, -100, config)[1]


def _case(x: str, *tile: int, warps: int) -> Case:
    types = (x, "*i64", None, None, "*fp32", "*fp32", *_NUMBERS)
    return Case(_cross_entropy, types, ("found", False, 0.0, tl.float32, *tile), warps)


def _grad_case(x: str, *tile: int, warps: int) -> Case:
    types = (x, "*fp32", "*i64", None, None, "*fp32", x, None, *_NUMBERS)
    constants = ("found", False, 0.0, False, True, tl.float32)
    return Case(logits_grad, types, (*constants, *tile), warps)


def _both_case(x: str, *tile: int, warps: int, targets: tuple[str, ...] = TARGETS) -> Case:
    types = (x, None, "*i64", None, None, "*i64", x, "*fp32", *_NUMBERS)
    constants = ("found", False, 0.0, False, True, tl.float32, *tile)
    why = "" if targets == TARGETS else "by the size of the cache there"
    return Case(logits_grad, types, constants, warps, targets=targets, why=why)


TUNED = [
    _SHARED.tuned(_SIZES, _tuned, lambda x, n, form, warps: [_case(x, *form, warps=warps)]),
    _GRAD_SHARED.tuned(
        _SIZES, _tuned_grad, lambda x, n, form, warps: [_grad_case(x, *form, warps=warps)]
    ),
    _BOTH_SHARED.tuned(
        (*_SIZES, *_CHUNKS),
        _tuned_both,
        lambda x, n, form, warps: [_both_case(x, *form, warps=warps)],
    ),
]
_HALF = (tl.float32, True, 1, _WIDEST // 2)
CASES = [
    case("*bf16", *tile, warps=warps)
    for case in (_case, _grad_case)
    for *tile, warps in ((True, 1, _WIDEST, _WARPS), (True, 4, 1024, 4), (False, 128, 32, 4))
]
_TARGETS = ("*i64", "*fp32", "*fp32", "*fp32", "i32", "i32", "i32", "i32?")
_PART = ("*fp32", "*i64", *("*fp32",) * 3, None, *_NUMBERS)
_GIVEN = (*("*fp32",) * 2, "*i64", *("*fp32",) * 4, None, *_NUMBERS)
_ONCE = ("*bf16", None, "*i64", None, None, "*fp32", "*bf16", "*fp32", *_NUMBERS)
CASES += [
    Case(_target_weights, _TARGETS, (True, 0.1, tl.float32, 1024)),
    Case(_cross_entropy, _PART, ("given", True, 0.1, *_HALF), 8),
    Case(logits_grad, _GIVEN, ("given", True, 0.1, True, False, *_HALF), 8),
    *[
        _both_case("*bf16", True, 1, block, warps=warps, targets=targets)
        for block, warps, targets in (
            (_WIDEST, _WARPS, TARGETS),
            (2 * _WIDEST, 2 * _WARPS, _TUNED_ON),
        )
    ],
    Case(logits_grad, _ONCE, ("once", False, 0.0, False, True, *_HALF), 8),
]

"""Sums, products and extrema over any dims, also of a function of the elements.

Where few elements are kept, chunks are reduced first, and then their results in order. Only the
shape and its tile determine the size of a chunk. So the bits are the same in every run and on every
rank; see `configs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import ceil, inf

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.configs import Config, architecture
from ..launch.jit_kernel import Kernel
from ..pointwise.prologue import MAX_INPUTS, Prologue, function_of, gelu_and_sum
from .reduction_tiles import (
    TRITON,
    Tiles,
    cdiv,
    first_of,
    from_memory_order,
    groups,
    in_order,
    is_nan,
    joined,
    memory_order,
    narrow,
    reduced_shape,
    tiles,
    times,
    triple,
    wide_of,
)
from .row_configs import Shared


@triton.jit
def mapped(v, center, MAP: tl.constexpr, ORDER: tl.constexpr):
    """A function of each element, of which the sum is taken."""
    if MAP == "abs":
        return tl.abs(v)
    elif MAP == "square":
        return v * v
    elif MAP == "apart":
        return (v - center) * (v - center)
    elif MAP == "power":
        return tl.exp2(ORDER * tl.log2(tl.abs(v)))
    else:
        return v


@triton.jit
def finished(v, count, FINISH: tl.constexpr, ORDER: tl.constexpr):
    """A function of the whole result: ORDER is less than the count by, or the order of a root."""
    if FINISH == "mean":
        return v / (tl.full(v.shape, count, v.dtype) - ORDER)
    elif FINISH == "sqrt":
        return tl.sqrt(v)
    elif FINISH == "root":
        return tl.exp2(tl.log2(v) / ORDER)
    else:
        return v


@triton.jit
def pointers(x, at, EACH: tl.constexpr):
    """Pointers to a tile, of which a thread gets at most EACH neighbors, if that is not 0.

    By default it gets 16 bytes of the narrowest tensor of a kernel, and sums over a row have an
    order that depends on it.
    """
    if EACH:
        return tl.max_contiguous(x + at, [1, EACH])
    else:
        return x + at


@triton.jit
def chained(v, x1, x2, x3, at, mask, CHAIN: tl.constexpr, EACH: tl.constexpr = 0):
    """A function of v and of the elements of the others; of those not there it uses nothing."""
    v1, v2, v3 = v, v, v
    if x1 is not None:
        v1 = tl.load(pointers(x1, at, EACH), mask=mask, other=0)
    if x2 is not None:
        v2 = tl.load(pointers(x2, at, EACH), mask=mask, other=0)
    if x3 is not None:
        v3 = tl.load(pointers(x3, at, EACH), mask=mask, other=0)
    return CHAIN(v, v1, v2, v3)


@Kernel
def _reduce(
    x, x1, x2, x3, whole, center, y, kept, n, inner, chunk, count,
    CHAIN: tl.constexpr, KIND: tl.constexpr, MAP: tl.constexpr, FINISH: tl.constexpr,
    ORDER: tl.constexpr, WIDE: tl.constexpr, NEUTRAL: tl.constexpr,
    ROWS: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    index, first, inside = first_of(kept, n, inner, ROWS, BK)
    split = tl.program_id(1).to(tl.int64)
    begin = split * chunk
    step = 1 if ROWS else inner
    first = (first + begin * step)[:, None]
    x += first
    at = tl.arange(0, BR)
    average = tl.zeros((BK, 1), WIDE)
    if MAP == "apart":
        average = tl.load(center + index, mask=inside, other=0).to(WIDE)[:, None]
    total = tl.full((BK, BR), NEUTRAL, WIDE)
    # Along columns the next elements are copied to shared memory while these are worked on.
    SUMS: tl.constexpr = KIND == "sum" and WIDE == tl.float32 and not ROWS
    STAGES: tl.constexpr = (3 if CHAIN is None else 2) if SUMS else 1
    for start in tl.range(0, chunk, BR, num_stages=STAGES):
        r = start + at
        mask = inside[:, None] & (begin + r < n)[None, :]
        place = r[None, :].to(tl.int64) * step
        v = tl.load(x + place, mask=mask, other=0)
        if CHAIN is not None:
            v = chained(v, x1, x2, x3, first + place, mask, CHAIN)
            if whole is not None:
                tl.store(whole + (first + place), v, mask=mask)
        if MAP == "nonzero":
            v = (v != 0).to(WIDE)
        v = mapped(v.to(WIDE), average, MAP, ORDER)
        # What is not there was loaded as 0. Where that adds 0, selecting would only take registers.
        if MAP == "apart" or KIND != "sum" or CHAIN is not None or MAP == "power":
            v = tl.where(mask, v, NEUTRAL)
        if KIND == "sum":
            total += v
        elif KIND == "prod":
            total *= v
        elif KIND == "max":
            total = tl.where((v > total) | is_nan(v), v, total)
        else:
            total = tl.where((v < total) | is_nan(v), v, total)
    if KIND == "sum":
        result = tl.sum(total, 1)
    elif KIND == "prod":
        result = tl.reduce(total, 1, times)
    else:
        broken = is_nan(total)
        numbers = tl.where(broken, NEUTRAL, total)
        result = tl.max(numbers, 1) if KIND == "max" else tl.min(numbers, 1)
        if total.dtype.is_floating():
            result = tl.where(tl.max(broken.to(tl.int32), 1) > 0, float("nan"), result)
    result = finished(result, count, FINISH, ORDER)
    tl.store(y + split * kept + index, result.to(y.dtype.element_ty), mask=inside)


_NEUTRAL: dict[str, float] = {"sum": 0, "prod": 1, "max": -inf, "min": inf}


def neutral(kind: str, wide: torch.dtype) -> float:
    """What changes no result of this kind."""
    if kind in ("sum", "prod") or wide.is_floating_point:
        return _NEUTRAL[kind]
    info = torch.iinfo(wide)
    return info.min if kind == "max" else info.max


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """What numbers of this dtype are summed in."""
    return wide_of(dtype) if dtype.is_floating_point else torch.int64


def _launch(
    x: Tensor | Prologue, center: Tensor | None, y: Tensor, t: Tiles, count: int,
    constants: tuple[object, ...],
) -> None:  # fmt: skip
    tensors = x.tensors if isinstance(x, Prologue) else (x,)
    absent = (None,) * (MAX_INPUTS - len(tensors))
    chain, whole = (x.function, x.whole) if isinstance(x, Prologue) else (None, None)
    pointers = (*tensors, *absent, whole, center, y)
    t.launch(_reduce, pointers, (t.chunk, count), (chain, *constants), fused=chain is None)


def reduce_dims(
    x: Tensor | Prologue,
    dims: tuple[int, ...],
    keepdim: bool,
    kind: str,
    dtype: torch.dtype,
    wide: torch.dtype | None = None,
    map: str = "none",
    finish: str = "none",
    count: int = 1,
    order: float = 0,
    center: Tensor | None = None,
) -> Tensor:
    """x folded over the dims: worked on as `wide`, given as `dtype`.

    What is dense is read as it lies. Several groups of dims are folded one after the other, the
    last first. `center` has an element for each that the first one of these keeps.
    """
    wide = wide or wide_of(dtype)
    lies = x.order if isinstance(x, Prologue) else memory_order(tuple(x.shape), x.stride())
    if lies is not None and center is None:
        x = x.in_memory_order() if isinstance(x, Prologue) else x.permute(lies)
        places = in_order(lies, dims)
        y = reduce_dims(x, places, True, kind, dtype, wide, map, finish, count, order)
        return from_memory_order(y, lies, dims, keepdim)
    result = torch.empty(reduced_shape(x.shape, dims, keepdim), dtype=dtype, device=x.device)
    x = x.contiguous()
    worked = (order, TRITON[wide], neutral(kind, wide))
    *before, last = _steps(tuple(x.shape), dims, x.dtype, wide)
    for t in before:
        y = torch.empty((t.splits, t.kept), dtype=wide, device=x.device)
        _launch(x, center, y, t, count, (kind, map, "none", *worked))
        x, center, map = y, None, "none"
    _launch(x, center, result, last, count, (kind, map, finish, *worked))
    return result


@lru_cache(maxsize=4096)
def _steps(
    shape: tuple[int, ...], dims: tuple[int, ...], dtype: torch.dtype, wide: torch.dtype
) -> tuple[Tiles, ...]:
    """The tiles of one launch after the other: for each group of dims, and for what it is split."""
    found = groups(shape, dims)
    steps: list[Tiles] = []
    while True:
        last = max((i for i, (_, reduced) in enumerate(found) if reduced), default=len(found))
        several = any(reduced for _, reduced in found[:last])
        alone = [(size, reduced and i == last) for i, (size, reduced) in enumerate(found)]
        t = SHARED.of(wide if steps else dtype, *triple(alone))
        steps.append(t)
        if t.splits == 1 and not several:
            return tuple(steps)
        found = joined([(t.splits, True), *found[:last], *found[last + 1 :]])


def divisor(freedom: float) -> tuple[int, float]:
    """A number as an integer and what it is too much: kernels take integers exactly."""
    count = ceil(freedom)
    return count, count - freedom


_TUNED_ON = ("sm_90",)
_SHORT = 1024  # terms of columns that are summed in one launch
_AT_ONCE = 528  # programs, which all work at once on an H100: there are four on a processor


def _rule(dtype: torch.dtype, outer: int, n: int, inner: int) -> Tiles:
    t = tiles(outer, n, inner)
    if t.rows:
        return t
    if t.splits > 1 and n <= _SHORT:  # as the sums that other programs have left
        return narrow(outer, n, inner)
    # A thread holds many: with half as many threads, chains on them would spill on some GPUs.
    warps = 4 if t.kept_block * t.block <= 2048 else 8
    if t.splits > 1:
        if architecture() in _TUNED_ON and dtype.itemsize == 2 and t.kept_block == 128:
            t, warps = replace(t, kept_block=64, block=64), 4  # 4 to 12% faster on an H200
        steps = cdiv(cdiv(n, _AT_ONCE // t.programs), t.block)
        chunk = max(steps, 4) * t.block
        t = replace(t, splits=cdiv(n, chunk), chunk=chunk)
    return replace(t, warps=warps)


SHARED = Shared("fold", _rule)
_SUM = ("sum", "none", "none", 0, tl.float32, 0)


def _sums(x: Tensor, chosen: Config) -> Callable[[], Tensor]:
    outer, n, inner = x.shape
    t = SHARED.of(x.dtype, outer, n, inner, chosen)
    y = torch.empty((t.splits, t.kept), dtype=torch.float32, device=x.device)

    def run() -> Tensor:
        _launch(x, None, y, t, 1, _SUM)
        return reduce_dims(y, (0,), False, "sum", torch.float32)

    return run


def _case(
    x: str, y: str, constants: tuple[object, ...], tile: tuple[bool, int, int], warps: int = 4
) -> Case:
    return Case(_reduce, (x, *(None,) * 5, y), (None, *constants, *tile), warps)


TUNED = [
    SHARED.tuned(
        ((16384, 8192, 1), (1024, 1024, 1), (1, 16384, 8192), (1, 65536, 1024), (1, 1 << 26, 1)),
        _sums,
        lambda x, n, form, warps: [_case(x, "*fp32", _SUM, form, warps)],
    )
]
_ROWS, _COLUMNS, _NARROW = (True, 2, 2048), (False, 128, 32), (False, 16, 256)
_SQUARE, _WHY = (False, 64, 64), "the fastest on an H200"
CASES = [
    _case(kind, "*fp32", _SUM, tile, warps)
    for kind in ("*bf16", "*fp32")
    for tile, warps in ((_ROWS, 4), (_COLUMNS, 8), (_NARROW, 8))
]
CASES += [replace(_case("*bf16", "*fp32", _SUM, _SQUARE), targets=_TUNED_ON, why=_WHY)]
# Rows of partial sums, whose number is no multiple of 16, as in the backward pass of norms.
_PARTIAL = ("*fp32", *(None,) * 5, "*fp32", "i32", "i32?")
CASES += [Case(_reduce, _PARTIAL, (None, *_SUM, *tile), 8) for tile in (_COLUMNS, _NARROW)]
_CHAIN = function_of(gelu_and_sum(torch.bfloat16), ())  # as in a backward pass, with its bias
_CHAINED = (*("*bf16",) * 2, None, None, "*bf16", None, "*fp32")
CASES += [
    Case(_reduce, _CHAINED, (_CHAIN, *_SUM, *tile), warps, fused=False)
    for tile, warps in ((_ROWS, 4), (_COLUMNS, 8), (_NARROW, 8))
]
CASES += [
    Case(_reduce, _CHAINED, (_CHAIN, *_SUM, *_SQUARE), fused=False, targets=_TUNED_ON, why=_WHY)
]
CASES += [
    _case("*bf16", "*bf16", ("max", "none", "none", 0, tl.float32, -inf), _ROWS),
    _case("*i32", "*i64", ("sum", "none", "none", 0, tl.int64, 0), _ROWS),
    _case("*bf16", "*bf16", ("prod", "none", "none", 0, tl.float32, 1), _COLUMNS, 8),
]

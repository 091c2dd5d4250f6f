"""Random tensors and dropout. Each thread generates whole groups of Philox words.

The bits are those of the torch reference, on every device and for every split of the tensor.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import random_ref as reference
from ...philox import Rows
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..launch.symbolic_numbers import through
from ..pointwise.copy_kernels import contiguous, copy_into
from ..sort.radix_sort import radix_sort
from .philox_kernels import (
    as_bits,
    box_muller,
    erfinv,
    interleaved,
    number_of,
    signed,
    unit,
    words_of,
)

Ints = tuple[int, ...]

_GROUPS = 256  # of one program
_FULL_RANGE = 1 << 64  # values that 64 bits can choose from
_EDGE = tl.constexpr(1.0 - 2.0**-24)
_SQRT_TWO = tl.constexpr(2.0**0.5)


@triton.jit
def _clamped(x, low, high):
    return tl.minimum(tl.maximum(x, low), high)


@triton.jit
def _value(word, a, b, c, d, e, f, KIND: tl.constexpr, REAL: tl.constexpr):
    """The value of one word. The numbers a to f are explained at the launch of each kind."""
    if KIND == "bits":
        return word.to(tl.int64)
    elif KIND == "chance":
        return word.to(tl.float64)
    elif KIND == "wide":
        return word.to(tl.int64, bitcast=True)
    elif KIND == "keep":
        return word.to(tl.int64) >= a
    elif KIND == "bernoulli":
        return word.to(tl.int64) < a
    elif KIND == "mask":
        return tl.where(word.to(tl.int64) >= a, number_of(b, REAL), 0.0)
    elif KIND == "uniform":
        x = unit(word, REAL) * number_of(a, REAL) + number_of(b, REAL)
        return _clamped(x, number_of(c, REAL), number_of(d, REAL))
    elif KIND == "trunc_normal":
        x = unit(word, tl.float32) * number_of(a, tl.float32) + number_of(b, tl.float32)
        z = erfinv(_clamped(x, -_EDGE, _EDGE)) * _SQRT_TWO
        z = z * number_of(e, tl.float32) + number_of(f, tl.float32)
        return _clamped(z, number_of(c, tl.float32), number_of(d, tl.float32))
    elif KIND == "randint":
        factor = tl.cast(a, tl.int64).to(tl.uint64, bitcast=True)
        return tl.umulhi(word, factor + tl.zeros_like(word)).to(tl.int64, bitcast=True) + b
    else:
        return word.to(tl.int64, bitcast=True) + b


@triton.jit
def _pair(even, odd, a, b, c, d, e, f, KIND: tl.constexpr, REAL: tl.constexpr):
    """The values of two words; a pair of normals needs both."""
    if KIND == "normal":
        first, second = box_muller(even, odd, REAL)
        std = number_of(a, REAL)
        mean = number_of(b, REAL)
        return first * std + mean, second * std + mean
    else:
        return (
            _value(even, a, b, c, d, e, f, KIND, REAL),
            _value(odd, a, b, c, d, e, f, KIND, REAL),
        )


@triton.jit
def _cast(v, TO: tl.constexpr):
    if TO == tl.int1:
        return v != 0
    elif v.dtype.is_int() and TO.primitive_bitwidth == 16 and TO.is_floating():
        return v.to(tl.float32).to(TO)
    else:
        return v.to(TO)


@triton.jit
def _finish(
    v, x, at, mask, KIND: tl.constexpr, OUT: tl.constexpr, REAL: tl.constexpr, TIMES: tl.constexpr
):
    """The value in the result's type; for dropout, rounded and then multiplied by the input."""
    if KIND == "chance":
        chance = tl.load(x + at, mask=mask).to(tl.float64)
        v = v < tl.floor(chance * 4294967296.0)
    v = _cast(v, OUT)
    if TIMES:
        v = (v.to(REAL) * tl.load(x + at, mask=mask).to(REAL)).to(OUT)
    return v


@Kernel
def _fill(
    out, x, rows, width, size0, size1,
    seed: tl.int64, call: tl.int64, start: tl.int64, length: tl.int64,
    stride0: tl.int64, stride1: tl.int64, stride2: tl.int64,
    a: tl.int64, b: tl.int64, c: tl.int64, d: tl.int64, e: tl.int64, f: tl.int64,
    KIND: tl.constexpr, DOUBLE: tl.constexpr, WIDE: tl.constexpr, ONE_ROW: tl.constexpr,
    WHOLE: tl.constexpr, TIMES: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Rows of `length` elements; each row spans `width` groups.

    Row i0 + size0 * (i1 + size1 * i2) begins at start + i0 * stride0 + i1 * stride1 + i2 * stride2.
    WHOLE: there is one row, which begins with a group.
    """
    OUT: tl.constexpr = out.dtype.element_ty
    REAL: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    LANES: tl.constexpr = 2 if WIDE else 4
    TILE: tl.constexpr = GROUPS * LANES
    slot = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    if ONE_ROW:
        group = start // LANES + slot
    else:
        row = slot // width
        i1 = row // size0
        begin = start + row % size0 * stride0 + i1 % size1 * stride1 + i1 // size1 * stride2
        group = begin // LANES + slot % width
    w0, w1, w2, w3 = words_of(group, seed, call)
    if WIDE:
        low = w0.to(tl.uint64) | (w1.to(tl.uint64) << 32)
        high = w2.to(tl.uint64) | (w3.to(tl.uint64) << 32)
        v0, v1 = _pair(low, high, a, b, c, d, e, f, KIND, REAL)
        v = tl.interleave(v0, v1)
    else:
        v0, v1 = _pair(w0, w1, a, b, c, d, e, f, KIND, REAL)
        v2, v3 = _pair(w2, w3, a, b, c, d, e, f, KIND, REAL)
        v = interleaved(v0, v1, v2, v3)
    if ONE_ROW:
        at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
        if not WHOLE:
            at -= start % LANES
        inside = (at >= 0) & (at < length)
    else:
        column = (slot % width * LANES - begin % LANES)[:, None] + tl.arange(0, LANES)[None, :]
        inside = (column >= 0) & (column < length) & (row < rows)[:, None]
        at = tl.reshape(row[:, None] * length + column, (TILE,))
        inside = tl.reshape(inside, (TILE,))
    if WHOLE and (tl.program_id(0).to(tl.int64) + 1) * TILE <= length:  # 16 bytes at once
        tl.store(out + at, _finish(v, x, at, None, KIND, OUT, REAL, TIMES))
    else:
        made = _finish(v, x, at, inside, KIND, OUT, REAL, TIMES)
        tl.store(out + at, made, mask=inside)


def _run(
    kind: str,
    out: Tensor,
    shape: Ints,
    offset: Ints,
    draw: dict[str, Any],
    numbers: tuple[int, ...] = (),
    wide: bool = False,
    x: Tensor | None = None,
) -> Tensor:
    """Fill `out` with the box of its size from `offset` on.

    x has the same shape: the input of dropout, or the probability of each element.
    """
    if out.numel() == 0:
        return out
    rows = Rows.of_box(shape, offset, tuple(out.shape))
    lanes = 2 if wide else 4
    six = (*numbers, *(0,) * 6)[:6]
    double = out.dtype is torch.float64 and kind != "trunc_normal"
    seed, call = (through(signed, draw[name]) for name in ("seed", "call"))

    def fill(table: Tensor, given: Tensor, start: int, outer: Any) -> None:
        if len(outer) > 3:  # more dims than the kernel takes: one launch for each place in one
            (count, stride), *rest = outer
            for i, (part, source) in enumerate(
                zip(table.chunk(count), given.chunk(count), strict=True)
            ):
                fill(part, source, start + i * stride, rest)
            return
        count, length = table.shape
        one_row = count == 1
        whole = one_row and start % lanes == 0
        width = (length + start % lanes + lanes - 1) // lanes
        if not one_row:
            width = (length + 2 * lanes - 2) // lanes
        (size0, stride0), (size1, stride1), (_, stride2) = (*reversed(outer), *[(1, 0)] * 3)[:3]
        _fill.launch(
            (-(-count * width // _GROUPS),),
            (table, given, count, width, size0, size1, seed, call, start, length,
             stride0, stride1, stride2, *six),
            (kind, double, wide, one_row, whole, kind == "mask" and x is not None, _GROUPS),
            fused=False,
        )  # fmt: skip

    table = out.view(rows.count, rows.length)
    fill(table, table if x is None else x.view(table.shape), rows.start, rows.outer)
    return out


def _made(size: Ints, dtype: torch.dtype, draw: dict[str, Any]) -> Tensor:
    return torch.empty(size, dtype=dtype, device=draw.get("device", "cpu"))


def bits(shape: Ints, offset: Ints, size: Ints, **draw: Any) -> Tensor:
    return _run("bits", _made(size, torch.int64, draw), shape, offset, draw)


def uniform(
    shape: Ints, offset: Ints, size: Ints, *, low: float = 0.0, high: float = 1.0,
    dtype: torch.dtype = torch.float32, **draw: Any,
) -> Tensor:  # fmt: skip
    reference.real_of(dtype, "uniform")
    first, last = reference.uniform_bounds(low, high, dtype)
    numbers = tuple(map(as_bits, (high - low, low, first, last)))
    out = _made(size, dtype, draw)
    return _run("uniform", out, shape, offset, draw, numbers, dtype is torch.float64)


def normal(
    shape: Ints, offset: Ints, size: Ints, *, mean: float = 0.0, std: float = 1.0,
    dtype: torch.dtype = torch.float32, **draw: Any,
) -> Tensor:  # fmt: skip
    reference.real_of(dtype, "normal")
    reference.check_std(std)
    out, numbers = _made(size, dtype, draw), (as_bits(std), as_bits(mean))
    return _run("normal", out, shape, offset, draw, numbers, dtype is torch.float64)


def trunc_normal(
    shape: Ints, offset: Ints, size: Ints, *, mean: float = 0.0, std: float = 1.0,
    low: float = -2.0, high: float = 2.0, dtype: torch.dtype = torch.float32, **draw: Any,
) -> Tensor:  # fmt: skip
    above, below, first, last = reference.trunc_bounds(mean, std, low, high, dtype)
    numbers = tuple(map(as_bits, (above - below, below, first, last, std, mean)))
    return _run("trunc_normal", _made(size, dtype, draw), shape, offset, draw, numbers)


def randint(
    shape: Ints, offset: Ints, size: Ints, *, low: int, high: int,
    dtype: torch.dtype = torch.int64, **draw: Any,
) -> Tensor:  # fmt: skip
    reference.check_range(low, high, dtype)
    kind = "any integer" if high - low == _FULL_RANGE else "randint"
    out, numbers = _made(size, dtype, draw), (signed(high - low), low)
    return _run(kind, out, shape, offset, draw, numbers, wide=True)


def keep_mask(shape: Ints, offset: Ints, size: Ints, *, p: float, **draw: Any) -> Tensor:
    numbers = (reference.drop_threshold(p, "keep_mask"),)
    return _run("keep", _made(size, torch.bool, draw), shape, offset, draw, numbers)


def _scale(p: float) -> int:
    return as_bits(1.0 / (1.0 - p) if p < 1.0 else 0.0)


def dropout_mask(
    shape: Ints, offset: Ints, size: Ints, *, p: float, dtype: torch.dtype = torch.float32,
    **draw: Any,
) -> Tensor:  # fmt: skip
    reference.real_of(dtype, "dropout_mask")
    numbers = (reference.drop_threshold(p, "dropout_mask"), _scale(p))
    return _run("mask", _made(size, dtype, draw), shape, offset, draw, numbers)


def dropout(x: Tensor, shape: Ints, offset: Ints, *, p: float, seed: int, call: int) -> Tensor:
    reference.real_of(x.dtype, "dropout")
    numbers = (reference.drop_threshold(p, "dropout"), _scale(p))
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    draw = {"seed": seed, "call": call}
    return _run("mask", y, shape, offset, draw, numbers, x=x.contiguous())


def bernoulli(
    shape: Ints, offset: Ints, size: Ints, *, p: float | Tensor,
    dtype: torch.dtype = torch.float32, **draw: Any,
) -> Tensor:  # fmt: skip
    if isinstance(p, Tensor):
        chances = contiguous(p.expand(size))
        return _run("chance", _made(size, dtype, draw), shape, offset, draw, x=chances)
    numbers = (reference.drop_threshold(p, "bernoulli"),)
    return _run("bernoulli", _made(size, dtype, draw), shape, offset, draw, numbers)


def randperm(n: int, *, dtype: torch.dtype = torch.int64, **draw: Any) -> Tensor:
    reference.check_count(n)
    keys = _run("wide", _made((n,), torch.int64, draw), (n,), (0,), draw, wide=True)
    if n == 0:
        return keys.to(dtype)
    order = radix_sort(keys)[1]
    if order.dtype is dtype:
        return order
    y = _made((n,), dtype, draw)
    copy_into(y, order)
    return y


def _case(dtype: str, kind: str, wide: bool, whole: bool, times: bool = False) -> Case:
    pointers = (f"*{dtype}", f"*{dtype}", *("i32",) * 4)
    constants = (kind, dtype == "fp64", wide, True, whole, times, _GROUPS)
    return Case(_fill, (*pointers, *("i64?",) * 13), constants, fused=False)


CASES = [
    _case("fp32", "uniform", wide=False, whole=True),
    _case("fp32", "normal", wide=False, whole=True),
    _case("fp64", "normal", wide=True, whole=True),
    _case("fp32", "trunc_normal", wide=False, whole=True),
    _case("i64", "randint", wide=True, whole=True),
    _case("bf16", "mask", wide=False, whole=True, times=True),
    _case("bf16", "mask", wide=False, whole=False, times=True),
    _case("fp32", "chance", wide=False, whole=True),
]

"""Random tensors and dropout. Each thread generates whole groups of Philox words.

The bits are those of the torch reference, on every device and for every split of the tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import unwrap

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import random_ref as reference
from ...philox import Ints, Rows, Seed, signed
from ...random_ref import Fill, Plan
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..launch.symbolic_numbers import runtime_scalars, through
from ..pointwise.copy_kernels import copy_into
from ..pointwise.scalar_functions import cast
from ..sort.radix_sort import radix_sort
from .philox_kernels import (
    as_bits,
    box_muller,
    erfinv,
    exponential_of,
    interleaved,
    key_of,
    number_of,
    unit,
    words_of,
)

GROUPS = 256  # of one program
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
    elif KIND == "wide":
        return word.to(tl.int64, bitcast=True)
    elif KIND == "keep":
        return word.to(tl.int64) >= a
    elif KIND == "mask":
        return tl.where(word.to(tl.int64) >= a, number_of(b, REAL), 0.0)
    elif KIND == "uniform":
        x = unit(word, REAL) * number_of(a, REAL) + number_of(b, REAL)
        return _clamped(x, number_of(c, REAL), number_of(d, REAL))
    elif KIND == "exponential":
        return exponential_of(word, REAL) * number_of(a, REAL)
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
def _finish(
    v, x, x1, x2, at, mask,
    OUT: tl.constexpr, REAL: tl.constexpr, TIMES: tl.constexpr, CHAIN: tl.constexpr,
):  # fmt: skip
    """The value in the result's type; for dropout, rounded and then multiplied by the input.

    CHAIN is a function of what dropout gives, and of elements of two tensors.
    """
    v = cast(v, OUT)
    if TIMES:
        v = (v.to(REAL) * tl.load(x + at, mask=mask).to(REAL)).to(OUT)
    if CHAIN is not None:
        v1, v2 = v, v  # for what is not there, and not used
        if x1 is not None:
            v1 = tl.load(x1 + at, mask=mask)
        if x2 is not None:
            v2 = tl.load(x2 + at, mask=mask)
        v = CHAIN(v, v1, v2, v)
    return v


@Kernel
def _fill(
    out, x, x1, x2, drawn, rows, width, size0, size1,
    seed: tl.int64, call: tl.int64, start: tl.int64, length: tl.int64,
    stride0: tl.int64, stride1: tl.int64, stride2: tl.int64,
    a: tl.int64, b: tl.int64, c: tl.int64, d: tl.int64, e: tl.int64, f: tl.int64,
    KIND: tl.constexpr, DOUBLE: tl.constexpr, WIDE: tl.constexpr, ONE_ROW: tl.constexpr,
    WHOLE: tl.constexpr, TIMES: tl.constexpr, CHAIN: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Rows of `length` elements; each row spans `width` groups.

    Row i0 + size0 * (i1 + size1 * i2) begins at start + i0 * stride0 + i1 * stride1 + i2 * stride2.
    WHOLE: there is one row, which begins with a group. The seed and the call id are read from
    `drawn` where that is given.
    """
    OUT: tl.constexpr = out.dtype.element_ty if CHAIN is None else x.dtype.element_ty
    REAL: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    LANES: tl.constexpr = 2 if WIDE else 4
    TILE: tl.constexpr = GROUPS * LANES
    seed, call = key_of(drawn, seed, call)
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
        tl.store(out + at, _finish(v, x, x1, x2, at, None, OUT, REAL, TIMES, CHAIN))
    else:
        made = _finish(v, x, x1, x2, at, inside, OUT, REAL, TIMES, CHAIN)
        tl.store(out + at, made, mask=inside)


def fill_box(
    plan: Plan, out: Tensor, shape: Ints, offset: Ints, seed: Seed, call: int,
    x: Tensor | None = None, extra: Sequence[Tensor] = (), chain: object = None,
) -> Tensor:  # fmt: skip
    """Fill `out` with the box of its size from `offset` on; x, of its shape, is dropout's input.

    `chain` is a function of Triton of what dropout gives, and of up to two tensors besides it.
    """
    if out.numel() == 0:
        return out
    rows = Rows.of_box(shape, offset, tuple(out.shape))
    lanes = 2 if plan.wide else 4
    numbers = [signed(n) if isinstance(n, int) else as_bits(n) for n in plan.numbers]
    six = (*numbers, *(0,) * 6)[:6]
    real = out if x is None else x
    double = real.dtype is torch.float64 and plan.kind != "trunc_normal"
    drawn = None
    if isinstance(seed, Tensor):
        drawn, seed, call = seed, 0, 0
    seed, call = through(signed, seed), through(signed, call)

    def fill(tables: Sequence[Tensor], start: int, outer: Sequence[tuple[int, int]]) -> None:
        if len(outer) > 3:  # more dims than the kernel takes: one launch for each place in one
            (count, stride), *rest = outer
            for i, parts in enumerate(zip(*[t.chunk(count) for t in tables], strict=True)):
                fill(parts, start + i * stride, rest)
            return
        count, length = tables[0].shape
        one_row = count == 1
        whole = one_row and start % lanes == 0
        width = (length + start % lanes + lanes - 1) // lanes
        if not one_row:
            width = (length + 2 * lanes - 2) // lanes
        (size0, stride0), (size1, stride1), (_, stride2) = (*reversed(outer), *[(1, 0)] * 3)[:3]
        _fill.launch(
            (-(-count * width // GROUPS),),
            (*tables, *[None] * (4 - len(tables)), drawn, count, width, size0, size1,
             seed, call, start, length, stride0, stride1, stride2, *six),
            (plan.kind, double, plan.wide, one_row, whole, x is not None, chain, GROUPS),
            fused=False,
        )  # fmt: skip

    tables = [each.view(rows.count, rows.length) for each in (out, real, *extra)]
    fill(tables, rows.start, rows.outer)
    return out


def _by_triton(reference: Fill) -> Fill:
    """The same boxes as the reference, whose plan it takes."""
    plan = unwrap(reference)

    @runtime_scalars("seed", "call")
    def run(
        shape: Ints, offset: Ints, size: Ints, *, seed: Seed, call: int,
        device: torch.device | str = "cpu", **options: object,
    ) -> Tensor:  # fmt: skip
        planned: Plan = plan(**options)
        out = torch.empty(size, dtype=planned.dtype, device=device)
        return fill_box(planned, out, shape, offset, seed, call)

    return run


bits = _by_triton(reference.bits)
uniform = _by_triton(reference.uniform)
normal = _by_triton(reference.normal)
exponential = _by_triton(reference.exponential)
trunc_normal = _by_triton(reference.trunc_normal)
randint = _by_triton(reference.randint)
keep_mask = _by_triton(reference.keep_mask)
dropout_mask = _by_triton(reference.dropout_mask)
words_of_64_bits = _by_triton(reference.words_of_64_bits)


@runtime_scalars("seed", "call")
def dropout(x: Tensor, shape: Ints, offset: Ints, *, p: float, seed: Seed, call: int) -> Tensor:
    plan: Plan = unwrap(reference.dropout_mask)(p=p, dtype=x.dtype)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return fill_box(plan, y, shape, offset, seed, call, x.contiguous())


@runtime_scalars("seed", "call")
def randperm(
    n: int, *, seed: int, call: int, dtype: torch.dtype = torch.int64,
    device: torch.device | str = "cpu",
) -> Tensor:  # fmt: skip
    reference.check_count(n)
    keys = words_of_64_bits((n,), (0,), (n,), seed=seed, call=call, device=device)
    if n == 0:
        return keys.to(dtype)
    order = radix_sort(keys)[1]
    if order.dtype is dtype:
        return order
    y = torch.empty(n, dtype=dtype, device=device)
    copy_into(y, order)
    return y


def _case(
    dtype: str, kind: str, wide: bool, whole: bool, times: bool = False, drawn: bool = False
) -> Case:
    pointers = (f"*{dtype}", f"*{dtype}", None, None, "*i64" if drawn else None)
    constants = (kind, dtype == "fp64", wide, True, whole, times, None, GROUPS)
    return Case(_fill, pointers, constants, fused=False)


CASES = [
    _case("fp32", "uniform", wide=False, whole=True),
    _case("fp32", "normal", wide=False, whole=True),
    _case("fp64", "normal", wide=True, whole=True),
    _case("fp32", "trunc_normal", wide=False, whole=True),
    _case("i64", "randint", wide=True, whole=True),
    _case("bf16", "mask", wide=False, whole=True, times=True),
    _case("bf16", "mask", wide=False, whole=False, times=True),
    _case("bf16", "mask", wide=False, whole=True, times=True, drawn=True),
]

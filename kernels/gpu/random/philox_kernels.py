"""Philox random words and their transforms in Triton, with the bits of the torch reference.

The reference is `kernels/random_transforms.py`. Kernels that use this module are launched with
`fused=False`, so that every operation rounds.
"""

from __future__ import annotations

from struct import pack, unpack

import triton
import triton.language as tl

from ...random_transforms import DOUBLE, ERFINV_CENTER, ERFINV_TAIL, MINUS_TWO_LOG_TWO, SINGLE
from ..pointwise.special_functions import sqrt

_LOG = tl.constexpr(SINGLE.log)
_SIN = tl.constexpr(SINGLE.sin)
_COS = tl.constexpr(SINGLE.cos)
_DOUBLE_LOG = tl.constexpr(DOUBLE.log)
_DOUBLE_SIN = tl.constexpr(DOUBLE.sin)
_DOUBLE_COS = tl.constexpr(DOUBLE.cos)
_SQRT_HALF = tl.constexpr(SINGLE.sqrt_half)
_RAISED = tl.constexpr(SINGLE.one - SINGLE.sqrt_half)
_DOUBLE_SQRT_HALF = tl.constexpr(DOUBLE.sqrt_half)
_DOUBLE_RAISED = tl.constexpr(DOUBLE.one - DOUBLE.sqrt_half)
_CENTER = tl.constexpr(ERFINV_CENTER)
_TAIL = tl.constexpr(ERFINV_TAIL)
_LOG_TWO = tl.constexpr(MINUS_TWO_LOG_TWO)


def as_bits(number: float) -> int:
    """The bit pattern of a float64 as an integer, because Triton passes floats as float32."""
    found: int = unpack("q", pack("d", number))[0]
    return found


@triton.jit
def number_of(bits, REAL: tl.constexpr):
    """The inverse of `as_bits`, rounded to a type."""
    return tl.cast(bits, tl.int64).to(tl.float64, bitcast=True).to(REAL)


@triton.jit
def key_of(drawn, seed, call):
    """The seed and the call id of a draw, read from memory where `drawn` is given."""
    if drawn is not None:
        return tl.load(drawn), tl.load(drawn + 1)
    return seed, call


@triton.jit
def words_of(groups, seed, call):
    """The four words of each group."""
    groups = groups.to(tl.uint64)
    seed = tl.cast(seed, tl.int64).to(tl.uint64, bitcast=True)
    call = tl.cast(call, tl.int64).to(tl.uint64, bitcast=True)
    c0 = groups.to(tl.uint32)
    c1 = (groups >> 32).to(tl.uint32)
    c2 = call.to(tl.uint32) + tl.zeros_like(c0)
    c3 = (call >> 32).to(tl.uint32) + tl.zeros_like(c0)
    return tl.philox_impl(c0, c1, c2, c3, seed.to(tl.uint32), (seed >> 32).to(tl.uint32))


@triton.jit
def unit(word, REAL: tl.constexpr):
    """A multiple of 2^-24 (2^-53) in [0, 1)."""
    if REAL == tl.float64:
        return (word >> 11).to(tl.float64) * (2.0**-53)
    else:
        return (word >> 8).to(tl.float32) * (2.0**-24)


@triton.jit
def _polynomial(x, COEFFICIENTS: tl.constexpr, COUNT: tl.constexpr):
    y = x * COEFFICIENTS[0] + COEFFICIENTS[1]
    for i in tl.static_range(2, COUNT):
        y = y * x + COEFFICIENTS[i]
    return y


@triton.jit
def _minus_two_log(u):
    if u.dtype == tl.float64:
        pattern = u.to(tl.int64, bitcast=True) + _DOUBLE_RAISED
        exponent = (pattern >> 52) - 1023
        pattern = (pattern & ((1 << 52) - 1)) + _DOUBLE_SQRT_HALF
        f = pattern.to(tl.float64, bitcast=True) - 1.0
        result = _polynomial(f, _DOUBLE_LOG, len(_DOUBLE_LOG.value))
    else:
        pattern = u.to(tl.int32, bitcast=True) + _RAISED
        exponent = (pattern >> 23) - 127
        pattern = (pattern & ((1 << 23) - 1)) + _SQRT_HALF
        f = pattern.to(tl.float32, bitcast=True) - 1.0
        result = _polynomial(f, _LOG, len(_LOG.value))
    return result * f + exponent.to(u.dtype) * _LOG_TWO


@triton.jit
def box_muller(even, odd, REAL: tl.constexpr):
    """The two normals of two words."""
    if REAL == tl.float64:
        u = (even >> 11).to(REAL) * (2.0**-53) + 0.5 * 2.0**-53
        t = (odd.to(tl.int64, bitcast=True) >> 11).to(REAL) * (2.0**-53)
        square = t * t
        sin = _polynomial(square, _DOUBLE_SIN, len(_DOUBLE_SIN.value)) * t
        cos = _polynomial(square, _DOUBLE_COS, len(_DOUBLE_COS.value))
    else:
        u = even.to(REAL) * (2.0**-32) + 0.5 * 2.0**-32
        t = (odd.to(tl.int32, bitcast=True) >> 8).to(REAL) * (2.0**-24)
        square = t * t
        sin = _polynomial(square, _SIN, len(_SIN.value)) * t
        cos = _polynomial(square, _COS, len(_COS.value))
    radius = sqrt(_minus_two_log(u))
    return (1.0 - sin * sin) * radius, cos * sin * radius


@triton.jit
def exponential_of(word, REAL: tl.constexpr):
    """-log(1 - u) for `unit` u, above 0."""
    STEP: tl.constexpr = 2.0**-54 if REAL == tl.float64 else 2.0**-25
    return tl.maximum(_minus_two_log(1.0 - unit(word, REAL)) * 0.5, STEP)


@triton.jit
def erfinv(x):
    """The inverse of erf, of float32."""
    w = _minus_two_log((1.0 - x) * (x + 1.0)) * 0.5
    center = _polynomial(w - 2.5, _CENTER, len(_CENTER.value))
    tail = _polynomial(sqrt(w) - 3.0, _TAIL, len(_TAIL.value))
    return tl.where(w < 5.0, center, tail) * x


@triton.jit
def interleaved(a, b, c, d):
    """a[0], b[0], c[0], d[0], a[1], ..."""
    return tl.interleave(tl.interleave(a, c), tl.interleave(b, d))

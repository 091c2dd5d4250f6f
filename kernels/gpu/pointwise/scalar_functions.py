"""Scalar functions of pointwise kernels: arithmetic, comparisons, logic and bits.

Semantics are torch's. Arguments have the type of the computation: float32 for half types, int32 for
bools.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from .triton_functions import scalar, written


@scalar("c")
def isnan(x):
    return x != x


@triton.jit
def cast(x, kind: tl.constexpr):
    """As torch converts: small integers by way of int32, half types by way of float32."""
    if x.dtype == kind:
        return x
    if kind == tl.int1:
        return x != 0
    if x.dtype.is_floating() and kind.is_int() and kind.primitive_bitwidth < 32:
        return x.to(tl.int32).to(kind)
    if kind.is_floating() and kind.primitive_bitwidth == 16:
        return x.to(tl.float32).to(kind)
    if x.dtype.is_floating() and x.dtype.primitive_bitwidth == 16:
        return x.to(tl.float32).to(kind)
    return x.to(kind)


# Arithmetic.


@scalar("r")
def neg(x):
    """Triton computes -x as 0 - x, which of 0 is 0 and not -0."""
    if x.dtype.is_floating():
        return x * -1.0
    return -x


@scalar("rr")
def div(a, b):
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    return a / b


@scalar("rr")
def div_number(x, NUMBER: tl.constexpr):
    """Divided by a number that the code has."""
    return div(x, tl.full((), NUMBER, x.dtype))


@scalar("rr")
def div_trunc(a, b):
    if a.dtype.is_floating():
        return libdevice.trunc(div(a, b))
    else:
        return a // b


@scalar("rr")
def div_floor(a, b):
    if a.dtype.is_floating():
        rest = libdevice.fmod(a, b)
        quotient = div(a - rest, b)
        quotient = tl.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
        low = tl.floor(quotient)
        low = tl.where(quotient - low > 0.5, low + 1, low)
        exact = div(a, b)
        return tl.where(
            b == 0, exact, tl.where(quotient == 0, libdevice.copysign(quotient, exact), low)
        )
    else:
        quotient = a // b
        if a.dtype.is_int_signed():
            quotient -= ((a - quotient * b != 0) & ((a < 0) != (b < 0))).to(a.dtype)
        return quotient


@scalar("rr")
def fmod(a, b):
    if a.dtype.is_floating():
        return libdevice.fmod(a, b)
    return a % b


@scalar("rr")
def remainder(a, b):
    rest = fmod(a, b)
    return tl.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


@scalar("rr")
def pow(a, b):
    if a.dtype.is_floating():
        return libdevice.pow(a, b)
    else:  # without it, Triton compiles the power of integers for floats
        return _integer_power(a, b)


@triton.jit
def _integer_power(a, b):
    """By squaring; a negative exponent gives 0 unless the base is 1 or -1."""
    result = a * 0 + b * 0 + 1
    base = a + b * 0
    rest = b + a * 0
    for _ in range(a.dtype.primitive_bitwidth):
        result = tl.where((rest & 1) != 0, result * base, result)
        base = base * base
        rest = rest >> 1
    if a.dtype.is_int_signed():
        odd = (b & 1) != 0
        of_unit = tl.where(a == 1, 1, tl.where(a + 1 == 0, tl.where(odd, -1, 1), 0)).to(a.dtype)
        result = tl.where(b < 0, of_unit, result)
    return result


@scalar("rrr")
def lerp(a, b, weight):
    apart = b - a
    near = (weight < 0.5) & (weight > -0.5)
    return tl.where(near, a + weight * apart, b - apart * (1 - weight))


# Order.


@triton.jit
def isclose(a, b, rtol, atol, EQUAL_NAN: tl.constexpr):
    close = a == b
    if EQUAL_NAN:
        close = close | (isnan(a) & isnan(b))
    error = tl.abs(a - b)
    return close | ((error <= atol + tl.abs(rtol * b)) & (error < float("inf")))


@scalar("cccc")
def isclose_nan(a, b, rtol, atol):
    return isclose(a, b, rtol, atol, True)


@scalar("cccc")
def isclose_number(a, b, rtol, atol):
    return isclose(a, b, rtol, atol, False)


@scalar("rr")
def maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@scalar("rr")
def minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


# Predicates and logic.


@scalar("c")
def signbit(x):
    if x.dtype == tl.float32:
        return x.to(tl.int32, bitcast=True) < 0
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True) < 0
    return x < 0


@scalar("rrrr")
def nan_to_num(x, nan, high, low):
    number = tl.where(x == float("inf"), high, tl.where(x == float("-inf"), low, x))
    return tl.where(isnan(x), nan, number)


# Bits.


@scalar("rr")
def bitwise_left_shift(a, b):
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < bits)
    return tl.where(inside, a << tl.where(inside, b, 0), 0)


@scalar("rr")
def bitwise_right_shift(a, b):
    """Beyond the width of the type only the sign is left."""
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    if a.dtype.is_int_signed():
        return a >> tl.where((b >= 0) & (b < bits), b, bits - 1)
    return tl.where((b >= 0) & (b < bits), a >> tl.where(b < bits, b, 0), 0)


# Functions of one line.

for _signature, _takes, _value in (
    # Arithmetic.
    ("copy(x)", "s", "x"),
    ("add(a, b)", "rr", "a + b"),
    ("sub(a, b)", "rr", "a - b"),
    ("rsub(a, b)", "rr", "b - a"),
    ("mul(a, b)", "rr", "a * b"),
    ("reciprocal(x)", "r", "div(tl.full((), 1, x.dtype), x)"),
    ("number_div(n, x)", "rr", "reciprocal(x) * n"),  # as torch divides a number by a tensor
    ("square(x)", "r", "x * x"),
    ("cube(x)", "r", "x * x * x"),
    ("inverse_square(x)", "r", "reciprocal(x * x)"),
    ("abs_pow(a, b)", "rr", "pow(tl.abs(a), b)"),
    ("addcmul(x, a, b)", "rrr", "x + a * b"),
    ("addcdiv(x, a, b)", "rrr", "x + div(a, b)"),
    # Order.
    ("eq(a, b)", "cc", "a == b"),
    ("ne(a, b)", "cc", "a != b"),
    ("lt(a, b)", "cc", "a < b"),
    ("le(a, b)", "cc", "a <= b"),
    ("gt(a, b)", "cc", "a > b"),
    ("ge(a, b)", "cc", "a >= b"),
    ("fmax(a, b)", "rr", "tl.maximum(a, b)"),
    ("fmin(a, b)", "rr", "tl.minimum(a, b)"),
    ("clamp(x, low, high)", "rrr", "minimum(maximum(x, low), high)"),
    ("where(condition, a, b)", "orr", "tl.where(condition != 0, a, b)"),
    ("abs(x)", "r", "tl.abs(x)"),
    ("sign(x)", "r", "(x > 0).to(x.dtype) - (x < 0).to(x.dtype)"),
    ("heaviside(x, at_zero)", "rr", "tl.where(x == 0, at_zero, (x > 0).to(x.dtype))"),
    ("copysign(a, b)", "rr", "libdevice.copysign(a, b)"),
    # Predicates and logic.
    ("isinf(x)", "c", 'tl.abs(x) == float("inf")'),
    ("isposinf(x)", "c", 'x == float("inf")'),
    ("isneginf(x)", "c", 'x == float("-inf")'),
    ("isfinite(x)", "c", 'tl.abs(x) < float("inf")'),
    ("logical_not(x)", "o", "x == 0"),
    ("logical_and(a, b)", "oo", "(a != 0) & (b != 0)"),
    ("logical_or(a, b)", "oo", "(a != 0) | (b != 0)"),
    ("logical_xor(a, b)", "oo", "(a != 0) != (b != 0)"),
    # Bits.
    ("bitwise_not(x)", "r", "-x - 1"),
    ("bitwise_and(a, b)", "rr", "a & b"),
    ("bitwise_or(a, b)", "rr", "a | b"),
    ("bitwise_xor(a, b)", "rr", "a ^ b"),
    # Rounding.
    ("floor(x)", "r", "tl.floor(x)"),
    ("ceil(x)", "r", "tl.ceil(x)"),
    ("trunc(x)", "r", "libdevice.trunc(x)"),
    ("frac(x)", "r", "x - libdevice.trunc(x)"),
    ("round(x)", "r", "libdevice.rint(x)"),  # halves go to the even neighbor
    ("round_scaled(x, scale)", "rr", "div(libdevice.rint(x * scale), scale)"),
    ("round_coarse(x, scale)", "rr", "libdevice.rint(div(x, scale)) * scale"),
):
    written(_signature, _takes, _value)

"""Scalar functions of pointwise kernels: arithmetic, order, logic and bits, as torch defines them.

Arguments come in the type of the work: float32 for half types, int32 for bools.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
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


@triton.jit
def copy(x):
    return x


# Arithmetic.


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def sub(a, b):
    return a - b


@triton.jit
def rsub(a, b):
    return b - a


@triton.jit
def mul(a, b):
    return a * b


@triton.jit
def neg(x):
    return -x


@triton.jit
def div(a, b):
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    return a / b


@triton.jit
def reciprocal(x):
    return div(x * 0 + 1, x)


@triton.jit
def number_div(n, x):
    """As torch divides a number by a tensor: times the reciprocal."""
    return reciprocal(x) * n


@triton.jit
def div_trunc(a, b):
    if a.dtype.is_floating():
        return libdevice.trunc(div(a, b))
    else:
        return a // b


@triton.jit
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


@triton.jit
def fmod(a, b):
    if a.dtype.is_floating():
        return libdevice.fmod(a, b)
    return a % b


@triton.jit
def remainder(a, b):
    rest = fmod(a, b)
    return tl.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


@triton.jit
def square(x):
    return x * x


@triton.jit
def cube(x):
    return x * x * x


@triton.jit
def inverse_square(x):
    return reciprocal(x * x)


@triton.jit
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


@triton.jit
def abs_pow(a, b):
    return pow(tl.abs(a), b)


@triton.jit
def addcmul(x, a, b):
    return x + a * b


@triton.jit
def addcdiv(x, a, b):
    return x + div(a, b)


@triton.jit
def lerp(a, b, weight):
    apart = b - a
    near = (weight < 0.5) & (weight > -0.5)
    return tl.where(near, a + weight * apart, b - apart * (1 - weight))


# Order.


@triton.jit
def eq(a, b):
    return a == b


@triton.jit
def ne(a, b):
    return a != b


@triton.jit
def lt(a, b):
    return a < b


@triton.jit
def le(a, b):
    return a <= b


@triton.jit
def gt(a, b):
    return a > b


@triton.jit
def ge(a, b):
    return a >= b


@triton.jit
def isclose(a, b, rtol, atol, EQUAL_NAN: tl.constexpr):
    close = a == b
    if EQUAL_NAN:
        close = close | (isnan(a) & isnan(b))
    error = tl.abs(a - b)
    return close | ((error <= atol + tl.abs(rtol * b)) & (error < float("inf")))


@triton.jit
def isclose_nan(a, b, rtol, atol):
    return isclose(a, b, rtol, atol, True)


@triton.jit
def isclose_number(a, b, rtol, atol):
    return isclose(a, b, rtol, atol, False)


@triton.jit
def maximum(a, b):
    return tl.where((a > b) | isnan(a), a, b)


@triton.jit
def minimum(a, b):
    return tl.where((a < b) | isnan(a), a, b)


@triton.jit
def fmax(a, b):
    return tl.where((a >= b) | isnan(b), a, b)


@triton.jit
def fmin(a, b):
    return tl.where((a <= b) | isnan(b), a, b)


@triton.jit
def clamp(x, low, high):
    return minimum(maximum(x, low), high)


@triton.jit
def clamp_open(dy, x, low, high):
    """The gradient of clamp: none on the bounds."""
    return tl.where((x <= low) | (x >= high), 0, dy)


@triton.jit
def where(condition, a, b):
    return tl.where(condition != 0, a, b)


@triton.jit
def abs(x):
    return tl.abs(x)


@triton.jit
def sign(x):
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def heaviside(x, at_zero):
    return tl.where(x == 0, at_zero, (x > 0).to(x.dtype))


@triton.jit
def copysign(a, b):
    return libdevice.copysign(a, b)


# Predicates and logic.


@triton.jit
def isinf(x):
    return tl.abs(x) == float("inf")


@triton.jit
def isposinf(x):
    return x == float("inf")


@triton.jit
def isneginf(x):
    return x == float("-inf")


@triton.jit
def isfinite(x):
    return tl.abs(x) < float("inf")


@triton.jit
def signbit(x):
    if x.dtype == tl.float32:
        return x.to(tl.int32, bitcast=True) < 0
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True) < 0
    return x < 0


@triton.jit
def logical_not(x):
    return x == 0


@triton.jit
def logical_and(a, b):
    return (a != 0) & (b != 0)


@triton.jit
def logical_or(a, b):
    return (a != 0) | (b != 0)


@triton.jit
def logical_xor(a, b):
    return (a != 0) != (b != 0)


@triton.jit
def nan_to_num(x, nan, high, low):
    x = tl.where(isnan(x), nan, x)
    return tl.where(x == float("inf"), high, tl.where(x == float("-inf"), low, x))


# Bits.


@triton.jit
def bitwise_not(x):
    return -x - 1


@triton.jit
def bitwise_and(a, b):
    return a & b


@triton.jit
def bitwise_or(a, b):
    return a | b


@triton.jit
def bitwise_xor(a, b):
    return a ^ b


@triton.jit
def bitwise_left_shift(a, b):
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < bits)
    return tl.where(inside, a << tl.where(inside, b, 0), 0)


@triton.jit
def bitwise_right_shift(a, b):
    """Beyond the width of the type only the sign is left."""
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    if a.dtype.is_int_signed():
        return a >> tl.where((b >= 0) & (b < bits), b, bits - 1)
    return tl.where((b >= 0) & (b < bits), a >> tl.where(b < bits, b, 0), 0)


# Rounding.


@triton.jit
def floor(x):
    return tl.floor(x)


@triton.jit
def ceil(x):
    return tl.ceil(x)


@triton.jit
def trunc(x):
    return libdevice.trunc(x)


@triton.jit
def round(x):
    """Halves go to the even neighbour."""
    return libdevice.rint(x)


@triton.jit
def round_scaled(x, scale):
    return div(libdevice.rint(x * scale), scale)


@triton.jit
def round_coarse(x, scale):
    return libdevice.rint(div(x, scale)) * scale


@triton.jit
def frac(x):
    return x - libdevice.trunc(x)


# The end of a reduction: the lanes of each row.


@triton.jit
def sum_of_row(x):
    return tl.sum(x, axis=1)


@triton.jit
def max_of_row(x):
    """nan where there is one, which tl.max overlooks."""
    found = tl.max(x, axis=1)
    if x.dtype.is_floating():
        found = tl.where(tl.max(isnan(x).to(tl.int32), axis=1) != 0, float("nan"), found)
    return found


@triton.jit
def min_of_row(x):
    found = tl.min(x, axis=1)
    if x.dtype.is_floating():
        found = tl.where(tl.max(isnan(x).to(tl.int32), axis=1) != 0, float("nan"), found)
    return found

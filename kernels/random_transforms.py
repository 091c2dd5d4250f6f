"""Random words to real numbers and integers, with the same bits in numpy and in Triton.

The only operations are +, -, *, conversions and a correctly rounded square root. Each of them
rounds. So the result does not depend on a library's log, sin or cos. An implementation that
contracts a * b + c to fma gives other bits.

Words are uint32, wide ones uint64. `kernels/gpu/random/philox_kernels.py` is the same in Triton.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .philox import Words

Reals: TypeAlias = NDArray[np.floating[Any]]

_LOW32 = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Real:
    """How numbers of one floating type are made from words of `bits` bits.

    The tables are minimax polynomials, highest power first: `log` is -2 log(1 + f) / f for f in
    [sqrt(1/2) - 1, sqrt(2) - 1], `sin` is sqrt(2) sin(pi t) / t and `cos` is sqrt(2) cos(pi t),
    both in t * t, for t in [-1/2, 1/2].
    """

    floating: type[np.floating[Any]]
    integer: type[np.signedinteger[Any]]
    bits: int
    digits: int  # of the significand, the leading one included
    log_digits: int  # of a word that the logarithm sees; they bound the tail
    one: int  # the bit patterns of 1 and of sqrt(1/2)
    sqrt_half: int
    log: tuple[float, ...]
    sin: tuple[float, ...]
    cos: tuple[float, ...]


# fmt: off
SINGLE = Real(
    np.float32, np.int32, bits=32, digits=24, log_digits=32, one=0x3F800000, sqrt_half=0x3F3504F3,
    log=(-0.17835775, 0.28700405, -0.29753911, 0.3313127, -0.39930797, 0.5000349, -0.6666772,
         1.0, -2.0),
    sin=(0.10982699, -0.8461129, 3.6063545, -7.3082457, 4.442883),
    cos=(0.31069818, -1.883563, 5.739461, -6.978851, 1.4142135),
)
DOUBLE = Real(
    np.float64, np.int64, bits=64, digits=53, log_digits=53, one=0x3FF0000000000000,
    sqrt_half=0x3FE6A09E667F3BCD,
    log=(0.04994325798091772, -0.11574456767752937, 0.12571684718915246, -0.10769546253195289,
         0.10631544466571934, -0.11643719843625647, 0.12544104503477685, -0.1334985387116229,
         0.14283546429933663, -0.1538342853324215, 0.16666717670566772, -0.18181868250731742,
         0.19999999877118876, -0.22222220970471293, 0.2499999998131525, -0.28571428589003023,
         0.33333333333657333, -0.39999999999879715, 0.4999999999999848, -0.6666666666666694,
         1.0, -2.0),
    sin=(-3.1514041337867814e-08, 1.1240932983304066e-06, -3.0992844259476915e-05,
         0.000659451726212476, -0.010423363401120118, 0.11617182693842973, -0.8474880248145861,
         3.6064765714707043, -7.308249499995439, 4.442882938158366),
    cos=(4.9502036806199615e-09, -1.9619077242984183e-07, 6.085430163678957e-06,
         -0.00014798062105010645, 0.002728830157153491, -0.03649645580637759, 0.33280776909535265,
         -1.8883467170460115, 5.739885734946737, -6.978864199638879, 1.4142135623730951),
)
# erfinv(x) = x * p(w), w = -log((1 - x)(1 + x)): in w - 2.5 for w < 5, else in sqrt(w) - 3.
# Source: M. Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011).
ERFINV_CENTER = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                  -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
ERFINV_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)
# fmt: on
MINUS_TWO_LOG_TWO = -1.3862943611198906


def unit(words: Words, real: Real) -> Reals:
    """Return multiples of 2^-digits in [0, 1), exact.

    Example: `unit(np.array([1 << 31], np.uint32), SINGLE)` is `[0.5]`.
    """
    u = _top_bits(words, real, real.digits).astype(real.floating)
    u *= 2.0**-real.digits
    return u


def box_muller(words: Words, real: Real) -> Reals:
    """Return standard normals; words 2i and 2i + 1 give normals 2i and 2i + 1.

    r = sqrt(-2 log u), z = (r cos 2 pi t, r sin 2 pi t), u from the first word in (0, 1], t from
    the second in [-1/2, 1/2). With s, c = sqrt(2) (sin, cos)(pi t): cos 2 pi t = 1 - s s and
    sin 2 pi t = s c, so no quadrants are told apart.

    Example: `box_muller(np.zeros(2, np.uint32), SINGLE)` is `[6.76..., 0.0]`.
    """
    u = _top_bits(words[0::2], real, real.log_digits).astype(real.floating)
    u *= 2.0**-real.log_digits
    u += 0.5 * 2.0**-real.log_digits
    radius = np.sqrt(_minus_two_log(u, real))
    t = (words[1::2].view(real.integer) >> real.bits - real.digits).astype(real.floating)
    t *= 2.0**-real.digits
    square = t * t
    sin = _polynomial(square, real.sin)
    sin *= t
    sin_twice = _polynomial(square, real.cos)
    sin_twice *= sin
    sin_twice *= radius
    sin *= sin
    return np.stack(((1.0 - sin) * radius, sin_twice), axis=1).reshape(-1)


def exponential_of(words: Words, real: Real) -> Reals:
    """Return -log(1 - u) > 0 for `unit` u; the smallest is half of a step of u.

    Example: `exponential_of(np.array([1 << 31], np.uint32), SINGLE)` is `[0.693...]`.
    """
    v = 1.0 - unit(words, real)
    result = _minus_two_log(v, real)
    result *= 0.5
    return np.maximum(result, 0.5 * 2.0**-real.digits, out=result)


def erfinv(x: Reals) -> Reals:
    """Return the inverse of erf for float32 |x| <= 1 - 2^-24, to 4e-7 relative.

    Example: `erfinv(np.zeros(1, np.float32))` is `[0.0]`.
    """
    w = _minus_two_log((1.0 - x) * (x + 1.0), SINGLE)
    w *= 0.5
    center = _polynomial(w - 2.5, ERFINV_CENTER)
    tail = _polynomial(np.sqrt(w) - 3.0, ERFINV_TAIL)
    p = np.where(w < 5.0, center, tail)
    p *= x
    return p


def high_product(words: Words, factor: int) -> Words:
    """Return the high 64 bits of the 128-bit product of wide words and `factor` <= 2^64.

    Example: `high_product(np.array([1 << 63], np.uint64), 10)` is `[5]`.
    """
    low, high = words & _LOW32, words >> 32
    factor_low, factor_high = factor & _LOW32, factor >> 32
    middle = low * factor_low
    middle >>= 32
    middle += high * factor_low
    result = middle >> 32
    if factor_high:
        middle &= _LOW32
        middle += low * factor_high
        middle >>= 32
        result += high * factor_high
        result += middle
    return result


def _top_bits(words: Words, real: Real, digits: int) -> Words:
    """The first `digits` bits of each word, as an unsigned number."""
    return words if digits == real.bits else words >> real.bits - digits


def _polynomial(x: Reals, coefficients: tuple[float, ...]) -> Reals:
    y = x * coefficients[0]
    y += coefficients[1]
    for coefficient in coefficients[2:]:
        y *= x
        y += coefficient
    return y


def _minus_two_log(u: Reals, real: Real) -> Reals:
    """-2 log(u) for normal u in (0, 1]; zero at 1 and never negative."""
    # u = 2^e (1 + f), 1 + f in [sqrt(1/2), sqrt(2)): adding 1 - sqrt(1/2) to the bit pattern
    # carries into the exponent exactly when the significand is at or above sqrt(2).
    fraction = real.digits - 1
    raised = real.one - real.sqrt_half
    pattern = u.view(real.integer) + raised
    exponent = (pattern >> fraction) - (real.one >> fraction)
    pattern &= (1 << fraction) - 1
    pattern += real.sqrt_half
    f = pattern.view(real.floating)
    f -= 1.0
    result = _polynomial(f, real.log)
    result *= f
    high = exponent.astype(real.floating)
    high *= MINUS_TWO_LOG_TWO
    result += high
    return result

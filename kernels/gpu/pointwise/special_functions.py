"""Scalar functions of pointwise kernels: the smooth functions that torch has too.

Arguments are float32 or float64. Formulas and branches are those of torch.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from .scalar_functions import isnan, maximum
from .triton_functions import scalar, written

_PI = tl.constexpr(3.141592653589793)
_LOG_TWO = tl.constexpr(0.6931471805599453)
LOG2_E = tl.constexpr(1.4426950408889634)

for _name in "exp2 log log2 rsqrt sin cos".split():
    written(f"{_name}(x)", "r", f"tl.{_name}(x)")
# Triton's own exp rounds x * log2(e), which of large numbers costs five bits.
for _name in """exp expm1 log10 log1p tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc
        erfinv lgamma""".split():
    written(f"{_name}(x)", "r", f"libdevice.{_name}(x)")
for _name in ("atan2", "hypot"):
    written(f"{_name}(a, b)", "rr", f"libdevice.{_name}(a, b)")
written("xlogy(a, b)", "rr", "tl.where(isnan(b), b, tl.where(a == 0, 0, a * tl.log(b)))")


@scalar("r")
def sqrt(x):
    if x.dtype == tl.float32:
        return tl.sqrt_rn(x)
    return tl.sqrt(x)


@scalar("rr")
def fast_divide(a, b):
    """a / b; in float32 within two units in the last place, and 0 where b is greater than 2^126.

    An exact division has branches, which take longer than all else in a function like sigmoid.
    """
    if b.dtype == tl.float32:
        return libdevice.fast_dividef(a, b)
    return a / b


@scalar("r")
def sigmoid(x):
    return fast_divide(1.0, 1.0 + tl.exp2(x * -LOG2_E))


@triton.jit
def _log_of_sum(a, b, apart):
    """The greater one, and how much the logarithm of the sum is apart from it."""
    return tl.where((a == b) & (tl.abs(a) == float("inf")), a, maximum(a, b) + apart)


@scalar("rr")
def logaddexp(a, b):
    return _log_of_sum(a, b, libdevice.log1p(tl.exp(-tl.abs(a - b))))


@scalar("rr")
def logaddexp2(a, b):
    return _log_of_sum(a, b, libdevice.log1p(tl.exp2(-tl.abs(a - b))) / _LOG_TWO)


@scalar("r")
def angle(x):
    """Of real numbers: 0 or pi."""
    return tl.where(isnan(x), x, tl.where(x < 0, tl.full((), _PI, x.dtype), 0))

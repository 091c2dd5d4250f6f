"""Powers: pow, square and float_power, of tensors and Python numbers."""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from typing import Any

import torch

from ..dispatcher import binary, with_number
from ..meta import Meta
from ..tensor import Tensor
from .arithmetic import mul, sub
from .cast import cast
from .compare import eq, ge, logical_and
from .pointwise import Elementwise, as_operands, conj_of, mixed, register_elementwise
from .reduce import constant_like, sum_to
from .unary import log, real
from .where import where

Needs = Sequence[object]


def _pow_base(dy: Tensor, x: Tensor, exponent: Any) -> Tensor:
    """dy * exponent * x ** (exponent - 1), and 0 where the exponent is 0."""
    slope = mul(pow(x, sub(exponent, 1)), exponent)
    return mul(dy, conj_of(where(eq(exponent, 0), 0.0, slope)))


def _pow_exponent(dy: Tensor, y: Tensor, x: Any, exponent: Tensor) -> Tensor:
    """dy * y * log(x), and 0 where x is 0 and the exponent is not negative."""
    if isinstance(x, Tensor):
        flat = logical_and(eq(x, 0), ge(real(exponent), 0))
        return mul(dy, conj_of(where(flat, 0.0, mul(y, log(x)))))
    if x == 0:
        return mul(dy, where(ge(real(exponent), 0), 0.0, mul(y, -math.inf)))
    return mul(dy, conj_of(mul(y, _log(x))))


def _log(x: Any) -> Any:
    if isinstance(x, complex):
        return cmath.log(x)
    return math.log(x) if x > 0 else math.nan


def _pow_vjp(needs: Needs, dy: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Any:
    return (
        needs[0] and sum_to(_pow_base(dy, a, b), a.meta),
        needs[1] and sum_to(_pow_exponent(dy, y, a, b), b.meta),
    )


def _pow_number_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor, n: Any) -> tuple[Tensor]:
    if n == 2:
        slope = mul(x, 2)
    elif n == 0:
        return (sum_to(constant_like(dy, 0), x.meta),)
    else:
        slope = mul(_pow_number(x, n - 1), n)
    return (sum_to(mul(dy, conj_of(slope)), x.meta),)


def _number_pow_vjp(needs: Needs, dy: Tensor, y: Tensor, n: Any, x: Tensor) -> Any:
    return None, sum_to(_pow_exponent(dy, y, n, x), x.meta)


_pow = binary(Elementwise("pow", torch.pow, _pow_vjp, saves_output=True))
_pow_number = with_number(Elementwise("pow", torch.pow, _pow_number_vjp), False)
_number_pow = with_number(Elementwise("pow", torch.pow, _number_pow_vjp, saves_output=True), True)
pow = register_elementwise(mixed("pow", _pow, _pow_number, _number_pow))


@register_elementwise
def float_power(input: Any, exponent: Any) -> Tensor:
    """`input ** exponent` in float64, or complex128 where one of them is complex."""
    input, exponent = as_operands("float_power", input, exponent)
    pair = [_in_double(operand) for operand in (input, exponent)]
    return pow(*pair)


def _in_double(operand: Any) -> Any:
    if isinstance(operand, Tensor):
        double = torch.complex128 if operand.meta.dtype.is_complex else torch.float64
        return cast(operand, double)
    return operand if isinstance(operand, complex) else float(operand)

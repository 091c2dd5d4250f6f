"""Elementwise functions of two or three tensors: powers, lerp, addcmul, atan2, logaddexp, xlogy."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable

import torch

from ..argument_types import Number, NumberLike
from ..dispatcher import binary, number_first, ternary
from ..meta import Meta
from ..names import register_as
from ..op import Gradients, Kernel, Needs
from ..out_tensors import give_to
from ..sbp import Sbp, broadcast, partial_sum
from ..signature import Signature
from ..tensor import Tensor
from .activation import sigmoid
from .arithmetic import div, mul, neg, sub
from .cast import cast
from .compare import eq, ge, le, logical_and
from .elementwise import (
    Gradient,
    derived,
    mixed,
    operator,
    same,
    settings_of,
    with_number,
    zero,
)
from .like import constant_like
from .pointwise import (
    Elementwise,
    Entry,
    Operand,
    as_operands,
    common_dtype,
    conj_of,
    is_divisor_in,
    is_finite_in,
    register_elementwise,
)
from .reduce import sum_to
from .unary import log, real, reciprocal, square
from .where import or_zero, where

_P, _B = partial_sum, broadcast


def _passing(*inputs: Sbp) -> Signature:
    return Signature(inputs, (_P,))


# Combinations of three.


def _addcdiv_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta, a: Tensor, b: Tensor) -> Gradients:
    for_x = needs[0] and sum_to(dy, x)
    if not needs[1] and not needs[2]:
        return (for_x,)
    share = div(dy, conj_of(b))
    for_b = needs[2] and sum_to(neg(mul(share, conj_of(div(a, b)))), b.meta)
    return for_x, needs[1] and sum_to(share, a.meta), for_b


_addcmul = ternary(
    derived(
        "addcmul",
        torch.addcmul,
        (same, lambda dy, b: mul(dy, conj_of(b)), lambda dy, a: mul(dy, conj_of(a))),
        ("x", "a", "b"),
        passes=(_passing(_P, _P, _B), _passing(_P, _B, _P)),
    )
)
_addcdiv = ternary(Elementwise("addcdiv", torch.addcdiv, _addcdiv_vjp, saves=((), (2,), (1, 2))))


def _scaled(name: str, entry: Entry, doc: str) -> Entry:
    """The function of an op whose second tensor is scaled by `value`."""
    kernel: Kernel = getattr(torch, name)

    def call(
        input: Tensor,
        tensor1: Tensor,
        tensor2: Tensor,
        *,
        value: NumberLike = 1,
        out: Tensor | None = None,
    ) -> Tensor:
        if out is not None:
            return give_to(out, call(input, tensor1, tensor2, value=value))
        if value != 1:
            # In the dtype of the result: a number would widen integers, and narrow tensors round.
            dtype = common_dtype(kernel, input.meta, tensor1.meta, tensor2.meta)
            whole = not (dtype.is_floating_point or dtype.is_complex)
            # Not part of a plan's key, since it changes from step to step in optimizers.
            tensor1 = mul(cast(tensor1, dtype), int(value.real) if whole else value)
        return entry(input, tensor1, tensor2)

    return register_as(name, call, doc)


addcmul = _scaled("addcmul", _addcmul, "`input + value * tensor1 * tensor2`.")
addcdiv = _scaled("addcdiv", _addcdiv, "`input + value * tensor1 / tensor2`.")


_lerp = ternary(
    derived(
        "lerp",
        torch.lerp,
        (
            lambda dy, weight: mul(dy, sub(1, conj_of(weight))),
            lambda dy, weight: mul(dy, conj_of(weight)),
            lambda dy, a, b: mul(dy, conj_of(sub(b, a))),
        ),
        ("a", "b", "weight"),
        passes=(_passing(_P, _P, _B),),
    )
)
_lerp_number = binary(
    derived(
        "lerp",
        torch.lerp,
        (lambda dy, weight: dy * (1 - weight), lambda dy, weight: dy * weight),
        ("a", "b"),
        ("weight",),
        linear="all",
        linear_if=is_finite_in,
    ).taking(settings_of(["weight"]))
)


@register_elementwise
def lerp(input: Tensor, end: Tensor, weight: Operand, *, out: Tensor | None = None) -> Tensor:
    """`input + weight * (end - input)`; the weight is a tensor or a number."""
    if out is not None:
        return give_to(out, lerp(input, end, weight))
    if isinstance(weight, Tensor):
        return _lerp(input, end, weight)
    return _lerp_number(input, end, weight)


# Smooth functions of two.


def _pair(
    kernel: Kernel, gradient_a: Gradient, gradient_b: Gradient
) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of two tensors of torch, with its gradients for them."""
    op = derived(kernel.__name__, kernel, (gradient_a, gradient_b), ("a", "b"))
    return register_elementwise(binary(op, out=True))


def _atan2_vjp(needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Gradients:
    length = square(a) + square(b)
    scale = or_zero(length, reciprocal(length))
    return (
        needs[0] and sum_to(mul(dy, mul(b, scale)), a.meta),
        needs[1] and sum_to(mul(dy, neg(mul(a, scale))), b.meta),
    )


def _share(dy: Tensor, a: Tensor, b: Tensor, base: float) -> Tensor:
    """dy / (1 + base ** (b - a)) by the logarithm of base, and 0 where both are -inf."""
    share = sigmoid(mul(sub(a, b), base))
    nothing = logical_and(eq(a, -math.inf), eq(b, -math.inf))  # a - b is nan there
    return mul(dy, conj_of(where(nothing, 0.0, share)))


atan2 = register_elementwise(binary(Elementwise("atan2", torch.atan2, _atan2_vjp), out=True))
hypot = _pair(torch.hypot, lambda dy, y, a: mul(dy, div(a, y)), lambda dy, y, b: mul(dy, div(b, y)))
logaddexp = _pair(
    torch.logaddexp, lambda dy, a, b: _share(dy, a, b, 1), lambda dy, a, b: _share(dy, b, a, 1)
)
logaddexp2 = _pair(
    torch.logaddexp2,
    lambda dy, a, b: _share(dy, a, b, math.log(2)),
    lambda dy, a, b: _share(dy, b, a, math.log(2)),
)
heaviside = register_elementwise(
    binary(Elementwise("heaviside", torch.heaviside), "values", out=True)
)
copysign = register_elementwise(
    operator("copysign", torch.copysign, (lambda dy, y, a: mul(dy, or_zero(a, div(y, a))), zero))
)


def _times_log(dy: Tensor, a: Tensor, b: Tensor | float) -> Tensor:
    """dy * log(b), and 0 where a is 0 and b has no logarithm."""
    product = xlogy(dy, b)
    if not isinstance(b, Tensor):
        return product if b > 0 else where(eq(a, 0), 0.0, product)
    return where(logical_and(eq(a, 0), le(b, 0)), 0.0, product)


def _has_logarithm(number: Number, dtype: torch.dtype) -> bool:
    """Whether a number has a finite logarithm; if not, 0 log(number) counts as 0."""
    return (
        not isinstance(number, complex)
        and number > 0
        and is_finite_in(number, dtype)
        and (isinstance(number, int) or is_divisor_in(number, dtype))
    )


xlogy = register_elementwise(
    operator(
        "xlogy",
        torch.xlogy,
        (_times_log, lambda dy, a, b: mul(dy, div(a, b))),
        first=torch.xlogy,
        linear_last="0",
        linear_if=_has_logarithm,
    )
)


def _base(dy: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """dy * b * a ** (b - 1), and 0 where the exponent b is 0."""
    slope = mul(pow(a, sub(b, 1)), b)
    return mul(dy, conj_of(where(eq(b, 0), 0.0, slope)))


def _base_of_number(dy: Tensor, a: Tensor, b: Number) -> Tensor:
    if b == 0:
        return constant_like(dy, 0)
    slope = mul(a, 2) if b == 2 else mul(_pow_number(a, b - 1), b)
    return mul(dy, conj_of(slope))


def _exponent(dy: Tensor, y: Tensor, a: Tensor | Number, b: Tensor) -> Tensor:
    """dy * y * log(a), and 0 where a is 0 and the exponent is not negative."""
    if isinstance(a, Tensor):
        flat = logical_and(eq(a, 0), ge(real(b), 0))
        return mul(dy, conj_of(where(flat, 0.0, mul(y, log(a)))))
    if a == 0:
        return mul(dy, where(ge(real(b), 0), 0.0, mul(y, -math.inf)))
    return mul(dy, conj_of(mul(y, _log(a))))


def _log(x: Number) -> Number:
    if isinstance(x, complex):
        return cmath.log(x)
    return math.log(x) if x > 0 else math.nan


_pow_number = with_number("pow", torch.pow, _base_of_number)
pow = register_elementwise(
    mixed(
        "pow",
        binary(derived("pow", torch.pow, (_base, _exponent), ("a", "b"))),
        _pow_number,
        number_first(derived("pow", torch.pow, (None, _exponent), ("a#", "b"))),
        second="exponent",
    )
)


@register_elementwise
def float_power(input: Operand, exponent: Operand, *, out: Tensor | None = None) -> Tensor:
    """`input ** exponent` in float64, or complex128 where one of them is complex."""
    if out is not None:
        return give_to(out, float_power(input, exponent))
    input, exponent = as_operands("float_power", input, exponent)
    return pow(_in_double(input), _in_double(exponent))


def _in_double(operand: Operand) -> Operand:
    if isinstance(operand, Tensor):
        double = torch.complex128 if operand.meta.dtype.is_complex else torch.float64
        return cast(operand, double)
    return operand if isinstance(operand, complex) else float(operand)

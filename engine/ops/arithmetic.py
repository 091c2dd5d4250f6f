"""Arithmetic on two tensors, or a tensor and a Python number: add, sub, mul, div and remainders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...errors import OnefoldRuntimeError, OnefoldValueError, user_line
from ...kernels import pointwise_ref as kernels
from ..dispatcher import binary, unary, with_number
from ..meta import Meta
from ..op import Kernel
from ..tensor import Tensor
from ..views import FunctionStep, link
from .pointwise import (
    DECREASING,
    INCREASING,
    NUMBERS,
    Elementwise,
    Entry,
    NumberPredicate,
    as_operands,
    conj_of,
    is_divisor_in,
    is_finite_in,
    mixed,
    register_elementwise,
)
from .reduce import constant_like, sum_to, without_partials

Needs = Sequence[object]


def _number_last(name: str, kernel: Kernel, vjp: Any, **how: Any) -> Entry:
    return with_number(Elementwise(name, kernel, vjp, **how), False)


def _number_first(name: str, kernel: Kernel, vjp: Any, **how: Any) -> Entry:
    return with_number(Elementwise(name, kernel, vjp, **how), True)


def without_partials_unless(linear_if: NumberPredicate) -> Callable[[Tensor, Any], Tensor]:
    """The function that reduces the partial axes of a tensor which a number does not suit."""
    return lambda x, number: x if linear_if(number, x.meta.dtype) else without_partials(x)


def _number_mul(number: Any, x: Tensor) -> Any:
    return _mul_number(_settled_factor(x, number) if x.meta.partial else x, number)


# Negation.


def _neg_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta) -> tuple[Tensor]:
    return (neg(dy),)


neg: Entry = register_elementwise(
    unary(Elementwise("neg", torch.neg, _neg_vjp, linear="0", passes=DECREASING, saves=()))
)
register_elementwise(neg, "negative")


# Addition and subtraction.


def _add_vjp(needs: Needs, dy: Tensor, y: Meta, a: Meta, b: Meta) -> Any:
    return needs[0] and sum_to(dy, a), needs[1] and sum_to(dy, b)


def _add_number_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta, n: Any) -> tuple[Tensor]:
    return (sum_to(dy, x),)


def _sub_vjp(needs: Needs, dy: Tensor, y: Meta, a: Meta, b: Meta) -> Any:
    return needs[0] and sum_to(dy, a), needs[1] and neg(sum_to(dy, b))


def _rsub_number_vjp(needs: Needs, dy: Tensor, y: Meta, n: Any, x: Meta) -> tuple[None, Tensor]:
    return None, neg(sum_to(dy, x))


ADD = Elementwise("add", torch.add, _add_vjp, linear="all", saves=())
SUB = Elementwise("sub", torch.sub, _sub_vjp, linear="all", saves=())
_add: Entry = binary(ADD)
_add_number = _number_last("add", torch.add, _add_number_vjp, saves=())
_sub: Entry = binary(SUB)
_sub_number = _number_last("sub", torch.sub, _add_number_vjp, saves=())
_rsub_number = _number_first("rsub", kernels.rsub, _rsub_number_vjp, saves=())


@register_elementwise
def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """`input + alpha * other`; either may be a Python number.

    Two partial sums are added without communication.
    """
    if alpha != 1:
        other = _scaled("add", input, other, alpha)
    if isinstance(other, Tensor):
        if isinstance(input, Tensor):
            return _add(input, other)
        if isinstance(input, NUMBERS):
            return _add_number(other, input)
    elif isinstance(input, Tensor) and isinstance(other, NUMBERS):
        return _add_number(input, other)
    return add(*as_operands("add", input, other))


@register_elementwise
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """`input - alpha * other`; either may be a Python number."""
    if alpha != 1:
        other = _scaled("sub", input, other, alpha)
    if isinstance(other, Tensor):
        if isinstance(input, Tensor):
            return _sub(input, other)
        if isinstance(input, NUMBERS):
            return _rsub_number(input, other)
    elif isinstance(input, Tensor) and isinstance(other, NUMBERS):
        return _sub_number(input, other)
    return sub(*as_operands("sub", input, other))


register_elementwise(sub, "subtract")


@register_elementwise
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """`other - alpha * input`."""
    return sub(other, input, alpha=alpha)


def _scaled(name: str, input: Any, other: Any, alpha: Any) -> Any:
    operands = [x for x in (input, other) if isinstance(x, Tensor)]
    if isinstance(alpha, (float, complex)) and not any(x.meta.is_floating for x in operands):
        raise OnefoldRuntimeError(
            f"{name}: for integral input tensors, argument alpha must not be a floating point "
            f"number, but is {alpha!r}. Called at {user_line()}"
        )
    return mul(other, alpha) if isinstance(other, Tensor) else other * alpha


# Multiplication and division.


def _mul_vjp(needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Any:
    if dy.meta.dtype.is_complex:
        a, b = conj_of(a), conj_of(b)
    return (
        needs[0] and sum_to(_mul(dy, b), a.meta),
        needs[1] and sum_to(_mul(dy, a), b.meta),
    )


def _mul_number_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta, n: Any) -> tuple[Tensor]:
    return (sum_to(mul(dy, _conj(n)), x),)


def _conj(number: Any) -> Any:
    return number.conjugate() if isinstance(number, complex) else number


def _div_vjp(needs: Needs, dy: Tensor, y: Tensor, a: Meta, b: Tensor) -> Any:
    if dy.meta.dtype.is_complex:
        y, b = conj_of(y), conj_of(b)
    share = _div(dy, b)
    return (
        needs[0] and sum_to(share, a),
        needs[1] and sum_to(neg(_mul(share, y)), b.meta),
    )


def _div_number_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta, n: Any) -> tuple[Tensor]:
    return (sum_to(true_divide(dy, _conj(n)), x),)


def _rdiv_number_vjp(needs: Needs, dy: Tensor, y: Tensor, n: Any, x: Tensor) -> Any:
    if dy.meta.dtype.is_complex:
        y, x = conj_of(y), conj_of(x)
    return None, sum_to(neg(_mul(_div(dy, x), y)), x.meta)


_mul = binary(Elementwise("mul", torch.mul, _mul_vjp, linear="each"))
_mul_number = _number_last(
    "mul", torch.mul, _mul_number_vjp, linear="0", linear_if=is_finite_in, saves=()
)
_settled_factor = without_partials_unless(is_finite_in)
mul = register_elementwise(mixed("mul", _mul, _mul_number, _number_mul, _settled_factor))
register_elementwise(mul, "multiply")

# Not linear in a partial numerator: the divisor may be 0, and the addends of 0 are not.
_div = binary(Elementwise("div", torch.div, _div_vjp, saves=(1,), saves_output=True))
_div_number = _number_last(
    "div", torch.div, _div_number_vjp, linear="0", linear_if=is_divisor_in, saves=()
)
# As torch does: its own division of a number by a tensor multiplies by the reciprocal.
_rdiv_number = _number_first("div", kernels.number_div, _rdiv_number_vjp, saves_output=True)
true_divide = register_elementwise(
    mixed("true_divide", _div, _div_number, _rdiv_number, without_partials_unless(is_divisor_in)),
)
# For a divisor that is 0 only where all addends of the numerator are: a count, a sum of weights.
div_by_count = binary(
    Elementwise("div", torch.div, _div_vjp, linear="0", saves=(1,), saves_output=True)
)


@register_elementwise
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """`input / other`; `rounding_mode` "trunc" or "floor" rounds, and keeps integers integers.

    Raises OnefoldValueError for another rounding mode.
    """
    if rounding_mode is None:
        return true_divide(input, other)
    if rounding_mode == "floor":
        return _div_floor(input, other)
    if rounding_mode == "trunc":
        return _div_trunc(input, other)
    raise OnefoldValueError(
        "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
        f"{rounding_mode!r}. Called at {user_line()}"
    )


register_elementwise(div, "divide")


# Rounded division: its gradient is zero.


def zeros_vjp(needs: Needs, dy: Tensor, y: Meta, *args: Any) -> tuple[Any, ...]:
    """Zero for each input that is a tensor."""
    metas = (arg for arg in args if isinstance(arg, Meta))
    return tuple(sum_to(constant_like(dy, 0), meta) for meta in metas)


def _zeros_second(needs: Needs, dy: Tensor, y: Meta, n: Any, x: Meta) -> tuple[None, Tensor]:
    return None, sum_to(constant_like(dy, 0), x)


def _zero_gradient(
    name: str, kernel: Kernel, vjp: Any = zeros_vjp, vjp_first: Any = _zeros_second
) -> Callable[[Any, Any], Tensor]:
    return mixed(
        name,
        binary(Elementwise(name, kernel, vjp, saves=())),
        _number_last(name, kernel, vjp, saves=()),
        _number_first(name, kernels.number_first(kernel), vjp_first, saves=()),
    )


_div_floor = _zero_gradient("div", kernels.div_floor)
_div_trunc = _zero_gradient("div", kernels.div_trunc)
floor_divide = register_elementwise(_zero_gradient("floor_divide", torch.floor_divide, None, None))


# Remainders: x - q * other, with q rounded, so the gradient takes q for a constant.


def _remainder_family(
    name: str, kernel: Kernel, quotient: Callable[[Any, Any], Tensor]
) -> Callable[[Any, Any], Tensor]:
    def both(needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Any:
        return (
            needs[0] and sum_to(dy, a.meta),
            needs[1] and sum_to(neg(_mul(dy, quotient(a, b))), b.meta),
        )

    def last(needs: Needs, dy: Tensor, y: Meta, x: Meta, n: Any) -> tuple[Tensor]:
        return (sum_to(dy, x),)

    def first(needs: Needs, dy: Tensor, y: Meta, n: Any, x: Tensor) -> tuple[None, Tensor]:
        return None, sum_to(neg(_mul(dy, quotient(n, x))), x.meta)

    return mixed(
        name,
        binary(Elementwise(name, kernel, both)),
        _number_last(name, kernel, last, saves=()),
        _number_first(name, kernels.number_first(kernel), first),
    )


remainder = register_elementwise(_remainder_family("remainder", torch.remainder, _div_floor))
fmod = register_elementwise(_remainder_family("fmod", torch.fmod, _div_trunc))


def _same_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta) -> tuple[Tensor]:
    return (dy,)


_positive: Entry = unary(
    Elementwise("positive", kernels.positive, _same_vjp, linear="0", passes=INCREASING, saves=())
)
_POSITIVE = FunctionStep("positive", _positive, lambda x, value: value, kernels.positive)


@register_elementwise
def positive(input: Tensor) -> Tensor:
    """The tensor, as a view; raises OnefoldRuntimeError for bool."""
    return link(_positive(input), input, _POSITIVE)

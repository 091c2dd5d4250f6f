"""Elementwise functions of two or three tensors: lerp, addcmul, atan2, logaddexp, xlogy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...kernels import pointwise_ref as kernels
from ..dispatcher import binary, ternary, with_number
from ..meta import Meta
from ..op import Kernel
from ..sbp import Sbp, broadcast, partial_sum
from ..signature import Signature
from ..tensor import Tensor
from .arithmetic import div, mul, neg, sub, without_partials_unless
from .compare import eq, le, logical_and
from .pointwise import (
    Elementwise,
    Entry,
    conj_of,
    is_divisor_in,
    is_finite_in,
    mixed,
    register_elementwise,
)
from .reduce import constant_like, sum_to
from .unary import exp, reciprocal, square
from .where import or_zero, where

Needs = Sequence[object]


def _passing(*inputs: Sbp) -> Signature:
    return Signature(inputs, (partial_sum,))


# Combinations of three.


def _addcmul_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta, a: Tensor, b: Tensor) -> Any:
    return (
        needs[0] and sum_to(dy, x),
        needs[1] and sum_to(mul(dy, conj_of(b)), a.meta),
        needs[2] and sum_to(mul(dy, conj_of(a)), b.meta),
    )


def _addcdiv_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta, a: Tensor, b: Tensor) -> Any:
    share = div(dy, conj_of(b))
    return (
        needs[0] and sum_to(dy, x),
        needs[1] and sum_to(share, a.meta),
        needs[2] and sum_to(neg(mul(share, conj_of(div(a, b)))), b.meta),
    )


def _lerp_vjp(needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor, weight: Tensor) -> Any:
    factor = conj_of(weight)
    return (
        needs[0] and sum_to(mul(dy, sub(1, factor)), a.meta),
        needs[1] and sum_to(mul(dy, factor), b.meta),
        needs[2] and sum_to(mul(dy, conj_of(sub(b, a))), weight.meta),
    )


def _lerp_number_vjp(
    needs: Needs, dy: Tensor, y: Meta, a: Meta, b: Meta, weight: float
) -> tuple[Any, Any]:
    return (
        needs[0] and sum_to(mul(dy, 1 - weight), a),
        needs[1] and sum_to(mul(dy, weight), b),
    )


_P, _B = partial_sum, broadcast
_addcmul: Entry = ternary(
    Elementwise(
        "addcmul",
        torch.addcmul,
        _addcmul_vjp,
        passes=(_passing(_P, _P, _B), _passing(_P, _B, _P)),
        saves=(1, 2),
    )
)
_addcdiv: Entry = ternary(Elementwise("addcdiv", torch.addcdiv, _addcdiv_vjp, saves=(1, 2)))
_lerp: Entry = ternary(Elementwise("lerp", torch.lerp, _lerp_vjp, passes=(_passing(_P, _P, _B),)))
_lerp_number: Entry = binary(
    Elementwise(
        "lerp", torch.lerp, _lerp_number_vjp, linear="all", linear_if=is_finite_in, saves=()
    )
)


@register_elementwise
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """`input + value * tensor1 * tensor2`."""
    # The value changes from step to step in optimizers, so it must not be part of a plan's key.
    scaled = tensor1 if value == 1 else mul(tensor1, value)
    return _addcmul(input, scaled, tensor2)


@register_elementwise
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """`input + value * tensor1 / tensor2`."""
    scaled = tensor1 if value == 1 else mul(tensor1, value)
    return _addcdiv(input, scaled, tensor2)


@register_elementwise
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """`input + weight * (end - input)`; the weight is a tensor or a number."""
    if isinstance(weight, Tensor):
        return _lerp(input, end, weight)
    return _lerp_number(input, end, weight)


# Smooth functions of two.


def _pair(name: str, kernel: Kernel, slopes: Callable[..., tuple[Any, Any]]) -> Entry:
    """A function of two tensors; `slopes(needs, y, a, b)` are its derivatives."""

    def vjp(needs: Needs, dy: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Any:
        for_a, for_b = slopes(needs, y, a, b)
        return (
            needs[0] and sum_to(mul(dy, for_a), a.meta),
            needs[1] and sum_to(mul(dy, for_b), b.meta),
        )

    return binary(Elementwise(name, kernel, vjp, saves_output=True))


def _atan2_slopes(needs: Needs, y: Tensor, a: Tensor, b: Tensor) -> tuple[Any, Any]:
    length = square(a) + square(b)
    scale = or_zero(length, reciprocal(length))
    return needs[0] and mul(b, scale), needs[1] and neg(mul(a, scale))


def _hypot_slopes(needs: Needs, y: Tensor, a: Tensor, b: Tensor) -> tuple[Any, Any]:
    return needs[0] and div(a, y), needs[1] and div(b, y)


def _logaddexp_slopes(needs: Needs, y: Tensor, a: Tensor, b: Tensor) -> tuple[Any, Any]:
    return needs[0] and _share(a, y, 1.0), needs[1] and _share(b, y, 1.0)


def _logaddexp2_slopes(needs: Needs, y: Tensor, a: Tensor, b: Tensor) -> tuple[Any, Any]:
    base = math.log(2)
    return needs[0] and _share(a, y, base), needs[1] and _share(b, y, base)


def _share(a: Tensor, y: Tensor, base: float) -> Tensor:
    """exp(a - y), and 0 where both are -inf (their difference is no number)."""
    return where(eq(y, -math.inf), 0.0, exp(mul(sub(a, y), base)))


def _copysign_slopes(needs: Needs, y: Tensor, a: Tensor, b: Tensor) -> tuple[Any, Any]:
    return or_zero(a, div(y, a)), needs[1] and constant_like(y, 0)


atan2 = register_elementwise(_pair("atan2", torch.atan2, _atan2_slopes))
register_elementwise(atan2, "arctan2")
hypot = register_elementwise(_pair("hypot", torch.hypot, _hypot_slopes))
logaddexp = register_elementwise(_pair("logaddexp", torch.logaddexp, _logaddexp_slopes))
logaddexp2 = register_elementwise(_pair("logaddexp2", torch.logaddexp2, _logaddexp2_slopes))
heaviside = register_elementwise(binary(Elementwise("heaviside", torch.heaviside)))


def _copysign_number_vjp(needs: Needs, dy: Tensor, y: Tensor, x: Tensor, n: float) -> Any:
    return (sum_to(mul(dy, or_zero(x, div(y, x))), x.meta),)


def _copysign_first_vjp(needs: Needs, dy: Tensor, y: Meta, n: float, x: Meta) -> Any:
    return None, sum_to(constant_like(dy, 0), x)


copysign = register_elementwise(
    mixed(
        "copysign",
        _pair("copysign", torch.copysign, _copysign_slopes),
        with_number(
            Elementwise("copysign", torch.copysign, _copysign_number_vjp, saves_output=True), False
        ),
        with_number(
            Elementwise(
                "copysign",
                kernels.number_first(torch.copysign),
                _copysign_first_vjp,
                saves=(),
            ),
            True,
        ),
    ),
)


def _xlogy_vjp(needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Any:
    return (
        needs[0] and sum_to(_times_log(dy, a, b), a.meta),
        needs[1] and sum_to(mul(dy, div(a, b)), b.meta),
    )


def _xlogy_number_vjp(needs: Needs, dy: Tensor, y: Meta, a: Tensor, n: float) -> Any:
    return (sum_to(_times_log(dy, a, n), a.meta),)


def _number_xlogy_vjp(needs: Needs, dy: Tensor, y: Meta, n: float, b: Tensor) -> Any:
    return None, sum_to(mul(dy, div(n, b)), b.meta)


def _times_log(dy: Tensor, a: Tensor, b: Any) -> Tensor:
    """dy * log(b), and 0 where a is 0 and b has no logarithm."""
    product = xlogy(dy, b)
    if not isinstance(b, Tensor):
        return product if b > 0 else where(eq(a, 0), 0.0, product)
    return where(logical_and(eq(a, 0), le(b, 0)), 0.0, product)


def _has_logarithm(number: Any, dtype: torch.dtype) -> bool:
    """Whether a number has a finite one: where not, 0 log(number) is 0 and its addends are not."""
    return (
        number > 0
        and is_finite_in(number, dtype)
        and (isinstance(number, int) or is_divisor_in(number, dtype))
    )


xlogy = register_elementwise(
    mixed(
        "xlogy",
        binary(Elementwise("xlogy", torch.xlogy, _xlogy_vjp)),
        with_number(
            Elementwise(
                "xlogy", torch.xlogy, _xlogy_number_vjp, linear="0", linear_if=_has_logarithm
            ),
            False,
        ),
        with_number(Elementwise("xlogy", torch.xlogy, _number_xlogy_vjp), True),
        without_partials_unless(_has_logarithm),
    ),
)

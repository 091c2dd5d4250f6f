"""Arithmetic on two tensors, or a tensor and a Python number, also in place."""

from __future__ import annotations

import torch

from ...errors import (
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
    kind_of,
    user_line,
)
from ...kernels import pointwise_ref as kernels
from .. import interpreter
from ..argument_errors import checks_own_arguments
from ..argument_types import Number, NumberLike
from ..autograd_tape import Node
from ..dispatcher import binary, number_first, unary
from ..inplace import assign_result
from ..meta import Meta
from ..names import register_as
from ..op import Gradients, Kernel, Needs, Op
from ..out_tensors import give_to
from ..tensor import Tensor
from ..view_memory import forget_output
from ..views import FunctionStep, link
from .cast import cast
from .elementwise import (
    Operator,
    derived,
    mixed,
    operator,
    same,
    torch_function,
    with_number,
    without_partials_unless,
    zero,
)
from .pointwise import (
    DECREASING,
    INCREASING,
    NUMBERS,
    Elementwise,
    Operand,
    common_dtype,
    conj_of,
    is_divisor_in,
    is_finite_in,
    register_elementwise,
    with_operands,
)
from .reduce import sum_to

neg = torch_function(torch.neg, lambda dy: -dy, linear="0", passes=DECREASING)


# Addition and subtraction.


def _sub_vjp(needs: Needs, dy: Tensor, y: Meta, a: Meta, b: Meta) -> Gradients:
    return needs[0] and sum_to(dy, a), needs[1] and neg(sum_to(dy, b))


def _rsub_number_vjp(needs: Needs, dy: Tensor, y: Meta, n: Number, x: Meta) -> Gradients:
    return None, neg(sum_to(dy, x))


ADD = derived("add", torch.add, (same, same), ("a", "b"), linear="all")
SUB = Elementwise("sub", torch.sub, _sub_vjp, linear="all", saves=())
_add, _add_number = binary(ADD), with_number("add", torch.add, same)
_sub, _sub_number = binary(SUB), with_number("sub", torch.sub, same)
_rsub_number = number_first(Elementwise("rsub", kernels.rsub, _rsub_number_vjp, saves=()))


@register_elementwise
def add(
    input: Operand, other: Operand, *, alpha: NumberLike = 1, out: Tensor | None = None
) -> Tensor:
    """`input + alpha * other`; either may be a Python number.

    Two partial sums are added without communication.
    """
    if out is not None:
        return give_to(out, add(input, other, alpha=alpha))
    if alpha != 1:
        other = _scaled("add", input, other, alpha)
    if isinstance(other, Tensor):
        if isinstance(input, Tensor):
            return _add(input, other)
        if isinstance(input, NUMBERS):
            return _add_number(other, input)
    elif isinstance(input, Tensor) and isinstance(other, NUMBERS):
        return _add_number(input, other)
    return with_operands(add, "add", input, other)


def plus(a: Tensor | None, b: Tensor) -> Tensor:
    """`a + b`, or `b` where there is no `a`."""
    return b if a is None else add(a, b)


@register_elementwise
def sub(
    input: Operand, other: Operand, *, alpha: NumberLike = 1, out: Tensor | None = None
) -> Tensor:
    """`input - alpha * other`; either may be a Python number."""
    if out is not None:
        return give_to(out, sub(input, other, alpha=alpha))
    if alpha != 1:
        other = _scaled("sub", input, other, alpha)
    if isinstance(other, Tensor):
        if isinstance(input, Tensor):
            return _sub(input, other)
        if isinstance(input, NUMBERS):
            return _rsub_number(input, other)
    elif isinstance(input, Tensor) and isinstance(other, NUMBERS):
        return _sub_number(input, other)
    return with_operands(sub, "sub", input, other)


def _scaled(name: str, input: Operand, other: Operand, alpha: NumberLike) -> Operand:
    operands = [x for x in (input, other) if isinstance(x, Tensor)]
    if isinstance(alpha, (float, complex)) and not any(x.meta.is_floating for x in operands):
        raise OnefoldRuntimeError(
            f"{name}: for integral input tensors, argument alpha must not be a floating point "
            f"number, but is {alpha!r}. Called at {user_line()}"
        )
    if not isinstance(other, Tensor):
        return other * alpha
    if isinstance(input, Tensor):  # else a number would widen integers to the default dtype
        other = cast(other, common_dtype(torch.add, input.meta, other.meta))
    return mul(other, alpha)


@register_elementwise
def rsub(input: Operand, other: Operand, *, alpha: NumberLike = 1) -> Tensor:
    """`other - alpha * input`."""
    return sub(other, input, alpha=alpha)


# Multiplication and division.


def _mul_vjp(needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Gradients:
    if dy.meta.dtype.is_complex:
        a, b = conj_of(a), conj_of(b)
    return needs[0] and sum_to(_mul(dy, b), a.meta), needs[1] and sum_to(_mul(dy, a), b.meta)


def _div_vjp(needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Gradients:
    if dy.meta.dtype.is_complex:
        a, b = conj_of(a), conj_of(b)
    share = _div(dy, b)
    # From both inputs rather than the result, which a program may then change in place.
    for_b = needs[1] and sum_to(neg(_mul(share, _div(a, b))), b.meta)
    return needs[0] and sum_to(share, a.meta), for_b


def _rdiv_number_vjp(needs: Needs, dy: Tensor, y: Meta, n: Number, x: Tensor) -> Gradients:
    if dy.meta.dtype.is_complex:
        n, x = n.conjugate(), conj_of(x)
    return None, sum_to(neg(_mul(_div(dy, x), _rdiv_number(n, x))), x.meta)


def _number_mul(number: Number, x: Tensor) -> Tensor:
    if x.meta.partial:
        x = without_partials_unless(is_finite_in, x, number)
    return _mul_number(x, number)


_mul = binary(Elementwise("mul", torch.mul, _mul_vjp, linear="each", saves=((1,), (0,))))
_mul_number = with_number("mul", torch.mul, lambda dy, b: mul(dy, b.conjugate()), "0", is_finite_in)
mul: Operator = register_elementwise(mixed("mul", _mul, _mul_number, _number_mul, is_finite_in))

# Not linear in a partial numerator: the divisor may be 0, and the addends of 0 are not.
_DIV_SAVES = ((1,), (0, 1))
_div = binary(Elementwise("div", torch.div, _div_vjp, saves=_DIV_SAVES))
_div_number = with_number(
    "div", torch.div, lambda dy, b: true_divide(dy, b.conjugate()), "0", is_divisor_in
)
# As torch does: its own division of a number by a tensor multiplies by the reciprocal.
_rdiv_number = number_first(Elementwise("div", kernels.number_div, _rdiv_number_vjp))
true_divide: Operator = register_elementwise(
    mixed("true_divide", _div, _div_number, _rdiv_number, is_divisor_in)
)
# For a divisor that is 0 only where all addends of the numerator are: a count, a sum of weights.
div_by_count = binary(Elementwise("div", torch.div, _div_vjp, linear="0", saves=_DIV_SAVES))


@register_elementwise
def div(
    input: Operand, other: Operand, *, rounding_mode: str | None = None, out: Tensor | None = None
) -> Tensor:
    """`input / other`; `rounding_mode` "trunc" or "floor" rounds, and keeps integers integers.

    Raises OnefoldValueError for another rounding mode.
    """
    if out is not None:
        return give_to(out, div(input, other, rounding_mode=rounding_mode))
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


# Rounded division: its gradient is zero.
_div_floor = operator("div", kernels.div_floor, (zero, zero))
_div_trunc = operator("div", kernels.div_trunc, (zero, zero))
floor_divide = register_elementwise(operator("floor_divide", torch.floor_divide))


def _remainder(name: str, kernel: Kernel, quotient: Operator) -> Operator:
    """x - q * other, with the quotient q rounded, so the gradient takes q for a constant."""
    gradients = (same, lambda dy, a, b: neg(_mul(dy, quotient(a, b))))
    return register_elementwise(operator(name, kernel, gradients))


remainder = _remainder("remainder", torch.remainder, _div_floor)
fmod = _remainder("fmod", torch.fmod, _div_trunc)

_positive = unary(
    derived("positive", kernels.positive, (same,), ("x",), linear="0", passes=INCREASING)
)
_POSITIVE = FunctionStep("positive", _positive, lambda x, value: value, kernels.positive)


@register_elementwise
def positive(input: Tensor) -> Tensor:
    """The tensor, as a view; raises OnefoldRuntimeError for bool."""
    return link(_positive(input), input, _POSITIVE)


# In place, in the tensor's own memory where no other tensor shares it.


def _register_inplace(name: str, linear: Op | None = None) -> None:
    """`name_`; of an op whose vjp needs no values (`linear`) also while the tape records."""
    kernel = getattr(torch.Tensor, f"{name}_")
    get_current, is_grad_enabled = interpreter.get_current, interpreter.is_grad_enabled
    sequence, new = interpreter.sequence, object.__new__

    def call(self: Tensor, other: Operand, **options: object) -> Tensor:
        try:
            meta = self.meta
        except AttributeError:
            raise OnefoldTypeError(f"{name}_ changes a Tensor, but got {kind_of(self)}") from None
        if meta.shardwise and not self.shared and get_current() is None and not options:
            if type(other) is Tensor and other.meta is meta:
                before, given = self.node, other.node
                if before is None and given is None:
                    kernel(self.shards[0], other.shards[0])
                    interpreter.last_change = self.version = next(sequence)
                    return self
                if linear is not None and (before is None or not before.is_leaf):
                    kernel(self.shards[0], other.shards[0])
                    interpreter.last_change = self.version = next(sequence)
                    if is_grad_enabled():
                        if before is not None:
                            forget_output(before)
                        # `Node.__init__` written out (0.15 us); it keeps no tensor to be packed.
                        self.node = node = new(Node)
                        node.seq = next(sequence)
                        node.op = linear
                        node.parents = (before, given)
                        node.args = (meta, meta)
                        node.out = None
                        node.meta = meta
                    return self
            elif type(other) is float and self.node is None:
                kernel(self.shards[0], other)
                interpreter.last_change = self.version = next(sequence)
                return self
        return assign_result(self, name, other, **options)

    register_as(f"{name}_", checks_own_arguments(call), f"`{name}` in place; see `onefold.{name}`.")


_register_inplace("add", ADD)
_register_inplace("sub", SUB)
_register_inplace("mul")
_register_inplace("div")

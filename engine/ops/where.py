"""Selection element by element: where, masked_fill, clamp, maximum and minimum."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, overload

import torch

from ...errors import OnefoldTypeError, OnefoldValueError
from ...kernels import pointwise_ref as kernels
from ..argument_types import NumberLike
from ..dispatcher import binary, ternary
from ..meta import Meta
from ..names import register_function
from ..op import Gradients, Kernel, Needs, Op
from ..out_tensors import give_to
from ..sbp import broadcast, partial_max, partial_min, partial_sum
from ..signature import Axis, Rule, Signature, pointwise_of
from ..tensor import Tensor
from .arithmetic import mul
from .cast import cast
from .compare import eq, ge, gt, le, logical_and, logical_or, lt, ne
from .elementwise import Operator, derived, same, with_settings
from .index_parsing import nonzero
from .pointwise import (
    INCREASING,
    NUMBERS,
    Elementwise,
    Exact,
    Operand,
    exact,
    fitting,
    idempotent,
    infer_pointwise,
    register_elementwise,
)
from .reduce import sum_to
from .result_shapes import COMMON, broadcast_shape, holds

_where = ternary(
    derived(
        "where",
        torch.where,
        (
            None,
            lambda dy, condition: where(condition, dy, 0),
            lambda dy, condition: where(condition, 0, dy),
        ),
        ("condition", "a", "b"),
        passes=tuple(
            Signature((broadcast, partial, partial), (partial,))
            for partial in (partial_sum, partial_max, partial_min)
        ),
    )
)


class NumberAttributes(NamedTuple):
    """The number."""

    number: Exact


class WhereNumber(Op):
    """A tensor where a condition holds, or does not (`otherwise`), and a number elsewhere.

    `place` is that of the condition among the two tensors.
    """

    attributes = NumberAttributes
    order = "expanded"

    def __init__(self, name: str, kernel: Kernel, otherwise: bool, place: int = 0) -> None:
        super().__init__(name, kernel)
        self.otherwise = otherwise
        self.place = place
        self.saves = (place,)

    def deduce(self, a: Meta, b: Meta, attrs: NumberAttributes) -> Meta | None:
        condition, x = (b, a) if self.place else (a, b)
        ordinary = condition.dtype is torch.bool and x.dtype in COMMON
        shape = broadcast_shape(a.shape, b.shape)
        if not ordinary or shape is None:
            return None
        if self.place:  # where the dtype is that of x: what does not fit in it, the kernel refuses
            return x.like(shape) if holds(x.dtype, attrs.number[0]) else None
        return infer_pointwise(self.kernel, (a, b, *attrs))

    def rule(self, axis: Axis, a: Meta, b: Meta, attrs: NumberAttributes) -> Rule:
        number = attrs.number[0]
        # Sums only when the sum of many such numbers is that number: 0, the infinities and nan.
        sums = number == 0 or (isinstance(number, float) and not math.isfinite(number))
        passed = [
            Signature((partial, broadcast) if self.place else (broadcast, partial), (partial,))
            for partial in (partial_max, partial_min, *[partial_sum] * sums)
        ]
        return fitting((*pointwise_of([a, b]), *passed), [a, b])

    def vjp(
        self,
        needs: Needs,
        dy: Tensor,
        y: Meta,
        a: Tensor | Meta,
        b: Tensor | Meta,
        attrs: NumberAttributes,
    ) -> Gradients:
        condition, x = (b, a) if self.place else (a, b)
        assert isinstance(condition, Tensor)
        assert isinstance(x, Meta)
        kept = _where_first if self.otherwise else _where_last
        grad = sum_to(kept(condition, dy, exact(0)), x)
        return (grad, None) if self.place else (None, grad)


_where_last = binary(WhereNumber("where", kernels.where_last, otherwise=False))
_where_first = binary(WhereNumber("where", kernels.where_first, otherwise=True))
_masked_fill = binary(WhereNumber("masked_fill", kernels.masked_fill, otherwise=True, place=1))


_where_numbers = with_settings("where", kernels.where_numbers, "input other")


@overload
def where(
    condition: Tensor, *, size: int | None = None, fill_value: int = -1
) -> tuple[Tensor, ...]: ...


@overload
def where(
    condition: Tensor, input: Operand, other: Operand, *, out: Tensor | None = None
) -> Tensor: ...


@register_function
def where(
    condition: Tensor,
    input: Operand | None = None,
    other: Operand | None = None,
    *,
    size: int | None = None,
    fill_value: int = -1,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """`input` where the condition holds, else `other`; both may be Python numbers.

    With the condition alone, the indices at which it holds, as `nonzero(as_tuple=True)` gives them,
    `size` of them if that is given.
    """
    if out is not None:
        if input is None or other is None:
            raise OnefoldTypeError("where: out= needs both input and other")
        return give_to(out, where(condition, input, other))
    if isinstance(input, Tensor):
        if isinstance(other, Tensor):
            return _where(condition, input, other)
        if isinstance(other, NUMBERS):
            return _where_last(condition, input, exact(other))
    elif isinstance(input, NUMBERS):
        if isinstance(other, Tensor):
            return _where_first(condition, other, exact(input))
        if isinstance(other, NUMBERS):
            return _where_numbers(condition, exact(input), exact(other))
    if input is None and other is None:
        return nonzero(condition, as_tuple=True, size=size, fill_value=fill_value)
    return _where(condition, input, other)  # type: ignore[arg-type]  # which tells the error


def or_zero(x: Tensor, slope: Tensor) -> Tensor:
    """A slope that is undefined where x is 0, with 0 there."""
    return where(eq(x, 0), 0.0, slope)


@register_elementwise
def masked_fill(input: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """`input` with `value` (a number or a 0-d tensor) where `mask` is True.

    Raises OnefoldValueError when `value` is a tensor with dims.
    """
    if not isinstance(value, Tensor):
        return _masked_fill(input, mask, exact(value))
    if value.ndim:
        raise OnefoldValueError(
            "masked_fill only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s). Use where(mask, value, input) for a tensor of values."
        )
    return _where(mask, cast(value, input.dtype), input)


# Extrema of two tensors.

Binary: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def _maximum(kernel: Kernel, loses: Operator, passes: tuple[Signature, ...]) -> Binary:
    """The gradient goes to the selected operand, half to each where they are equal."""

    def vjp(needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Gradients:
        shared = where(eq(a, b), mul(dy, 0.5), dy)
        return (
            needs[0] and sum_to(masked_fill(shared, loses(a, b), 0), a.meta),
            needs[1] and sum_to(masked_fill(shared, loses(b, a), 0), b.meta),
        )

    return binary(Elementwise(kernel.__name__, kernel, vjp, passes=passes), out=True)


def _choice(kernel: Kernel, takes_first: Operator, passes: tuple[Signature, ...] = ()) -> Binary:
    """The gradient goes to the first operand where it is selected, else to the second."""

    def vjp(needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Gradients:
        first = takes_first(a, b)
        return (
            needs[0] and sum_to(where(first, dy, 0), a.meta),
            needs[1] and sum_to(where(first, 0, dy), b.meta),
        )

    return binary(Elementwise(kernel.__name__, kernel, vjp, passes=passes), out=True)


maximum = register_elementwise(_maximum(torch.maximum, lt, idempotent(partial_max)))
minimum = register_elementwise(_maximum(torch.minimum, gt, idempotent(partial_min)))
# These take a number rather than nan; of equal operands the first.
fmax = register_elementwise(_choice(torch.fmax, lambda a, b: logical_or(ge(a, b), ne(b, b))))
fmin = register_elementwise(_choice(torch.fmin, lambda a, b: logical_or(le(a, b), ne(b, b))))
_clamp_min = _choice(torch.clamp_min, ge, idempotent(partial_max))
_clamp_max = _choice(torch.clamp_max, le, idempotent(partial_min))


# clamp.


Limit: TypeAlias = NumberLike | None


def _clamp_gradient(dy: Tensor, x: Tensor, low: Limit, high: Limit) -> Tensor:
    inside = [ge(x, low)] if low is not None else []
    inside += [le(x, high)] if high is not None else []
    return where(logical_and(*inside) if len(inside) == 2 else inside[0], dy, 0)


# The bounds, and their types: an integer is clamped otherwise by 1 than by 1.0.
_clamp = with_settings(
    "clamp", kernels.clamp, "low high low_type high_type", _clamp_gradient, passes=INCREASING
)


_at_least = with_settings(
    "clamp", kernels.clamp, "low high low_type high_type", same, passes=INCREASING
)


def at_least(x: Tensor, least: float) -> Tensor:
    """`x`, but at least this number, with the gradient of `x`: as torch, which writes the bound."""
    return _at_least(x, least, None, float, type(None))


def _blank(meta: Meta) -> torch.Tensor:
    return torch.empty((0,) if meta.shape else (), dtype=meta.dtype, device="meta")


ClampBound: TypeAlias = Meta | Limit


@lru_cache(maxsize=4096, typed=True)
def _clamped_dtype(x: Meta, *bounds: ClampBound) -> torch.dtype:
    """The dtype to which torch promotes all three together; in pairs it may be another."""
    metas = [bound for bound in bounds if isinstance(bound, Meta)]
    # Beside a number, a tensor without dims counts as a number.
    as_numbers = len(metas) == 1 and None not in bounds and not metas[0].shape

    def stand_in(bound: ClampBound) -> Any:
        if isinstance(bound, Meta):
            return torch.ones((), dtype=bound.dtype).item() if as_numbers else _blank(bound)
        return bound if as_numbers or bound is None else torch.tensor(bound, device="meta")

    return torch.clamp(_blank(x), *map(stand_in, bounds)).dtype


@register_elementwise
def clamp(
    input: Tensor,
    min: Operand | None = None,
    max: Operand | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """`input` limited to [min, max]: numbers, tensors, or None for no limit.

    Where min > max the result is max. Raises OnefoldValueError when both are None.
    """
    if out is not None:
        return give_to(out, clamp(input, min, max))
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        bounds = [bound.meta if isinstance(bound, Tensor) else bound for bound in (min, max)]
        dtype = _clamped_dtype(input.meta, *bounds)
        return cast(clamp_max(clamp_min(cast(input, dtype), min), max), dtype)
    if min is None and max is None:
        raise OnefoldValueError("clamp: at least one of 'min' or 'max' must not be None")
    return _clamp(input, min, max, type(min), type(max))


@register_elementwise
def clamp_min(input: Tensor, min: Operand | None, *, out: Tensor | None = None) -> Tensor:
    """`input`, but at least `min`."""
    if out is not None:
        return give_to(out, clamp_min(input, min))
    if isinstance(min, Tensor):
        return _clamp_min(input, min)
    return input if min is None else _clamp(input, min, None, type(min), None)


@register_elementwise
def clamp_max(input: Tensor, max: Operand | None, *, out: Tensor | None = None) -> Tensor:
    """`input`, but at most `max`."""
    if out is not None:
        return give_to(out, clamp_max(input, max))
    if isinstance(max, Tensor):
        return _clamp_max(input, max)
    return input if max is None else _clamp(input, None, max, None, type(max))

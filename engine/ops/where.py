"""Selection element by element: where, masked_fill, clamp, maximum and minimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, overload

import torch

from ...errors import OnefoldValueError
from ...kernels import pointwise_ref as kernels
from ..dispatcher import binary, ternary, unary
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Op
from ..sbp import Sbp, broadcast, partial_max, partial_min, partial_sum
from ..signature import Axis, Rule, Signature, pointwise_of
from ..tensor import Tensor
from .arithmetic import mul
from .cast import cast
from .compare import eq, ge, gt, le, logical_and, logical_or, lt, ne
from .index_parsing import nonzero
from .pointwise import (
    INCREASING,
    NUMBERS,
    Elementwise,
    Entry,
    exact,
    fitting,
    idempotent,
    register_elementwise,
)
from .reduce import sum_to

Needs = Sequence[object]
Comparison = Callable[[Any, Any], Tensor]
Exact = tuple[Any, ...]  # a number as an attribute; see `pointwise.exact`


# where and masked_fill.


def _where_vjp(needs: Needs, dy: Tensor, y: Meta, condition: Tensor, a: Meta, b: Meta) -> Any:
    return (
        None,
        needs[1] and sum_to(where(condition, dy, 0), a),
        needs[2] and sum_to(where(condition, 0, dy), b),
    )


_where: Entry = ternary(
    Elementwise(
        "where",
        torch.where,
        _where_vjp,
        passes=tuple(
            Signature((broadcast, partial, partial), (partial,))
            for partial in (partial_sum, partial_max, partial_min)
        ),
        saves=(0,),
    )
)


def _partials_beside(number: Any) -> list[Sbp]:
    """The partial layouts that a choice between them and a number keeps.

    Sums only when the sum of many such numbers is that number: 0, the infinities and nan.
    """
    if number == 0 or (isinstance(number, float) and not math.isfinite(number)):
        return [partial_max, partial_min, partial_sum]
    return [partial_max, partial_min]


class NumberAttributes(NamedTuple):
    """The number."""

    number: Exact


class WhereNumber(Op):
    """`where` with one tensor and one number, which stands first or last."""

    name = "where"
    attributes = NumberAttributes
    saves = (0,)

    def __init__(self, first: bool) -> None:
        self.first = first  # whether the number is taken where the condition holds
        self.kernel = kernels.where_first if first else kernels.where_last  # type: ignore[method-assign]

    def rule(self, axis: Axis, condition: Meta, x: Meta, attrs: NumberAttributes) -> Rule:
        passed = [Signature((broadcast, p), (p,)) for p in _partials_beside(attrs.number[0])]
        return fitting((*pointwise_of([condition, x]), *passed), [condition, x])

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, condition: Tensor, x: Meta, attrs: NumberAttributes
    ) -> Any:
        kept = where(condition, 0, dy) if self.first else where(condition, dy, 0)
        return None, sum_to(kept, x)


_where_last = binary(WhereNumber(False))
_where_first = binary(WhereNumber(True))
_where_numbers = unary(Elementwise("where", kernels.where_numbers))


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...


@overload
def where(condition: Tensor, input: Any, other: Any) -> Tensor: ...


@register_function
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """`input` where the condition holds, else `other`; both may be Python numbers.

    With the condition alone, the indices at which it holds, as `nonzero(as_tuple=True)` gives them.
    """
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
        return nonzero(condition, as_tuple=True)
    return _where(condition, input, other)


def or_zero(x: Tensor, slope: Tensor) -> Tensor:
    """A slope that has no value where x is 0: it counts as 0 there."""
    return where(eq(x, 0), 0.0, slope)


class MaskedFill(Op):
    """x with a number at the places of a mask; the dtype stays that of x."""

    name = "masked_fill"
    attributes = NumberAttributes
    saves = (1,)
    kernel = staticmethod(kernels.masked_fill)

    def rule(self, axis: Axis, x: Meta, mask: Meta, attrs: NumberAttributes) -> Rule:
        passed = [Signature((p, broadcast), (p,)) for p in _partials_beside(attrs.number[0])]
        return fitting((*pointwise_of([x, mask]), *passed), [x, mask])

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Meta, mask: Tensor, attrs: NumberAttributes
    ) -> Any:
        return sum_to(_masked_fill(dy, mask, exact(0)), x), None


_masked_fill: Entry = binary(MaskedFill())


@register_elementwise
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
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


def _extremum(name: str, kernel: Kernel, loses: Comparison, passes: tuple[Signature, ...]) -> Entry:
    """The gradient goes to the operand that is taken, half to each where they are equal."""

    def vjp(needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Any:
        shared = where(eq(a, b), mul(dy, 0.5), dy)
        return (
            needs[0] and sum_to(masked_fill(shared, loses(a, b), 0), a.meta),
            needs[1] and sum_to(masked_fill(shared, loses(b, a), 0), b.meta),
        )

    return register_elementwise(binary(Elementwise(name, kernel, vjp, passes=passes)))


maximum = _extremum("maximum", torch.maximum, lt, idempotent(partial_max))
minimum = _extremum("minimum", torch.minimum, gt, idempotent(partial_min))


def _number_extremum(name: str, kernel: Kernel, taken: Comparison) -> Entry:
    """As maximum and minimum, but a number wins over nan; equal operands count for the first."""

    def vjp(needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Any:
        first = logical_or(taken(a, b), ne(b, b))
        return (
            needs[0] and sum_to(where(first, dy, 0), a.meta),
            needs[1] and sum_to(where(first, 0, dy), b.meta),
        )

    return register_elementwise(binary(Elementwise(name, kernel, vjp)))


fmax = _number_extremum("fmax", torch.fmax, ge)
fmin = _number_extremum("fmin", torch.fmin, le)


# clamp.


def _inside(x: Tensor, low: Any, high: Any) -> Tensor:
    if low is None:
        return le(x, high)
    if high is None:
        return ge(x, low)
    return logical_and(ge(x, low), le(x, high))


def _clamp_vjp(
    needs: Needs, dy: Tensor, y: Meta, x: Tensor, low: Any, high: Any, *kinds: type
) -> tuple[Tensor]:
    return (where(_inside(x, low, high), dy, 0),)


# The bounds' types are part of the key, since an integer is clamped otherwise by 1 than by 1.0.
_clamp: Entry = unary(
    Elementwise(
        "clamp",
        kernels.clamp,
        _clamp_vjp,
        passes=INCREASING,
    )
)


def _clamp_min_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor, bound: Tensor) -> Any:
    kept = ge(x, bound)
    return (
        needs[0] and sum_to(where(kept, dy, 0), x.meta),
        needs[1] and sum_to(where(kept, 0, dy), bound.meta),
    )


def _clamp_max_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor, bound: Tensor) -> Any:
    kept = le(x, bound)
    return (
        needs[0] and sum_to(where(kept, dy, 0), x.meta),
        needs[1] and sum_to(where(kept, 0, dy), bound.meta),
    )


_clamp_min: Entry = binary(
    Elementwise("clamp_min", torch.clamp_min, _clamp_min_vjp, passes=idempotent(partial_max))
)
_clamp_max: Entry = binary(
    Elementwise("clamp_max", torch.clamp_max, _clamp_max_vjp, passes=idempotent(partial_min))
)


def _blank(meta: Meta) -> torch.Tensor:
    return torch.empty((0,) if meta.shape else (), dtype=meta.dtype, device="meta")


@lru_cache(maxsize=4096, typed=True)
def _clamped_dtype(x: Meta, *bounds: Any) -> torch.dtype:
    """What torch promotes all three to together: one after the other may give another dtype."""
    metas = [bound for bound in bounds if isinstance(bound, Meta)]
    # Beside a number, a tensor without dims counts as a number.
    as_numbers = len(metas) == 1 and None not in bounds and not metas[0].shape

    def stand_in(bound: Any) -> Any:
        if isinstance(bound, Meta):
            return torch.ones((), dtype=bound.dtype).item() if as_numbers else _blank(bound)
        return bound if as_numbers or bound is None else torch.tensor(bound, device="meta")

    return torch.clamp(_blank(x), *map(stand_in, bounds)).dtype


@register_elementwise
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """`input` limited to [min, max]: numbers, tensors, or None for no limit.

    Where min > max the result is max. Raises OnefoldValueError when both are None.
    """
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        bounds = [bound.meta if isinstance(bound, Tensor) else bound for bound in (min, max)]
        dtype = _clamped_dtype(input.meta, *bounds)
        return cast(clamp_max(clamp_min(cast(input, dtype), min), max), dtype)
    if min is None and max is None:
        raise OnefoldValueError("clamp: at least one of 'min' or 'max' must not be None")
    return _clamp(input, min, max, type(min), type(max))


register_elementwise(clamp, "clip")


@register_elementwise
def clamp_min(input: Tensor, min: Any) -> Tensor:
    """`input`, but at least `min`."""
    if isinstance(min, Tensor):
        return _clamp_min(input, min)
    return input if min is None else _clamp(input, min, None, type(min), None)


@register_elementwise
def clamp_max(input: Tensor, max: Any) -> Tensor:
    """`input`, but at most `max`."""
    if isinstance(max, Tensor):
        return _clamp_max(input, max)
    return input if max is None else _clamp(input, None, max, None, type(max))

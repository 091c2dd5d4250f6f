"""Casts between dtypes, and clone."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...kernels import pointwise_ref as kernels
from ..argument_types import NumberLike
from ..dispatcher import unary
from ..meta import Meta
from ..names import register_as, register_function
from ..op import Gradients, Needs, Op
from ..sbp import partial_sum
from ..signature import Axis, Rule, Signature, pointwise_of
from ..tensor import Tensor
from .memory_formats import in_format
from .pointwise import INCREASING, Elementwise
from .result_shapes import REALS

_PLAIN = REALS | {torch.bool}


def is_widening(source: torch.dtype, target: torch.dtype) -> bool:
    """Whether a cast is exact, so that a sum of casts is the cast of the sum.

    The real part of a complex number counts as kept.

    >>> is_widening(torch.bfloat16, torch.float32), is_widening(torch.float16, torch.bfloat16)
    (True, False)
    """
    if not _has_sums(source) or not _has_sums(target):
        return False
    if source.is_complex and target.is_floating_point:
        source = source.to_real()
    exact = [not (dtype.is_floating_point or dtype.is_complex) for dtype in (source, target)]
    return exact[0] == exact[1] and torch.promote_types(source, target) == target


def _has_sums(dtype: torch.dtype) -> bool:
    """Whether the dtype can be summed: not bool and float8."""
    return dtype is not torch.bool and not (dtype.is_floating_point and dtype.itemsize == 1)


class CastAttributes(NamedTuple):
    """The target dtype."""

    dtype: torch.dtype


class Cast(Op):
    """The same values in another dtype."""

    name = "cast"
    attributes = CastAttributes
    order = "row-major"
    saves = ()
    kernel = staticmethod(kernels.cast)

    def deduce(self, x: Meta, attrs: CastAttributes) -> Meta | None:
        return x.like(dtype=attrs.dtype) if x.dtype in _PLAIN and attrs.dtype in _PLAIN else None

    def rule(self, axis: Axis, x: Meta, attrs: CastAttributes) -> Rule:
        dtype = attrs.dtype
        found = [*pointwise_of([x])]
        if is_widening(x.dtype, dtype):
            found.append(Signature((partial_sum,), (partial_sum,)))
        floats = x.dtype.is_floating_point and dtype.is_floating_point
        if floats and 1 not in (x.dtype.itemsize, dtype.itemsize):  # float8 has no order
            found += INCREASING
        return found

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta, attrs: CastAttributes) -> Gradients:
        return (cast(dy, x.dtype),)


_cast = unary(Cast())


@register_function
def cast(input: Tensor, dtype: torch.dtype) -> Tensor:
    """`input` in `dtype`; the same tensor if it has that dtype already.

    Complex values become real ones by their real part.
    """
    if input.meta.dtype is dtype:
        return input
    return _cast(input, dtype)


def widened(x: Tensor) -> Tensor:
    """`x` in the dtype of its statistics: float32 if it has half precision.

    Squares and exponentials of halves overflow, and addends that are rounded before they are
    summed over ranks lose what they cancel to.
    """
    return cast(x, torch.float32) if is_half(x.meta.dtype) else x


def narrowed(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A result computed from `widened` tensors, in their original half precision `dtype`."""
    return cast(x, dtype) if is_half(dtype) else x


def is_half(dtype: torch.dtype) -> bool:
    """Whether it is float16 or bfloat16."""
    return dtype is torch.float16 or dtype is torch.bfloat16


@register_function
def type_as(input: Tensor, other: Tensor) -> Tensor:
    """`input` in the dtype of `other`."""
    return cast(input, other.meta.dtype)


def _register_caster(name: str, dtype: torch.dtype) -> None:
    def call(input: Tensor, memory_format: torch.memory_format | None = None) -> Tensor:
        y = cast(input, dtype)
        return y if memory_format in (None, torch.preserve_format) else in_format(y, memory_format)

    register_as(name, call, f"`input` as {dtype}; the same tensor when it is that already.")


CASTS = {
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "float": torch.float32,
    "double": torch.float64,
    "bool": torch.bool,
    "byte": torch.uint8,
    "char": torch.int8,
    "short": torch.int16,
    "int": torch.int32,
    "long": torch.int64,
    "chalf": torch.complex32,
    "cfloat": torch.complex64,
    "cdouble": torch.complex128,
}
for _name, _dtype in CASTS.items():
    _register_caster(_name, _dtype)


def _clone_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta) -> Gradients:
    return (dy,)


_clone = unary(
    Elementwise("clone", torch.clone, _clone_vjp, linear="0", passes=INCREASING, saves=())
)


@register_function
def clone(input: Tensor, *, memory_format: torch.memory_format | None = None) -> Tensor:
    """A copy of `input` with memory of its own, in its memory format or another one.

    Gradients flow through. Raises OnefoldRuntimeError for a format of another number of dims.
    """
    if memory_format is None or memory_format is torch.preserve_format:
        return _clone(input)
    return in_format(input, memory_format)


def factor_of(value: NumberLike, *tensors: Tensor) -> NumberLike:
    """The factor of a product that is added, which torch makes an integer beside integers only."""
    inexact = any(x.dtype.is_floating_point or x.dtype.is_complex for x in tensors)
    return int(value) if isinstance(value, float) and not inexact else value

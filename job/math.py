"""Math ops on blobs: elementwise ops, reductions and matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from ..engine.argument_types import Number
from ..engine.names import names
from ..engine.ops.argreduce import argmax as argmax_op
from ..engine.ops.cast import cast
from ..engine.ops.sorting import topk
from ..engine.ops.where import clamp
from ..engine.tensor import Tensor
from .blob import Blob, each


class Unary(Protocol):
    """An op on each element."""

    def __call__(self, x: Blob, name: str | None = None) -> Blob: ...


class Binary(Protocol):
    """An op on each pair of elements, of blobs or numbers."""

    def __call__(self, x: Blob | Number, y: Blob | Number, name: str | None = None) -> Blob: ...


def unary(name: str, doc: str = "") -> Unary:
    """The engine's op of this name on blobs."""
    op = getattr(names, name)

    def call(x: Blob, name: str | None = None) -> Blob:
        found: Blob = each(op, x)
        return found

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc or f"{name} of each element."
    return call


def _binary(name: str, op_name: str = "") -> Binary:
    op = getattr(names, op_name or name)

    def call(x: Blob | Number, y: Blob | Number, name: str | None = None) -> Blob:
        found: Blob = each(op, x, y)
        return found

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{op_name or name} of each pair of elements."
    return call


abs, acos, acosh, asin, asinh = map(unary, "abs acos acosh asin asinh".split())
atan, atanh, ceil, cos, cosh = map(unary, "atan atanh ceil cos cosh".split())
erf, erfc, exp, expm1, floor = map(unary, "erf erfc exp expm1 floor".split())
lgamma, log, log1p, reciprocal = map(unary, "lgamma log log1p reciprocal".split())
round, rsqrt, sigmoid, sign, sin = map(unary, "round rsqrt sigmoid sign sin".split())
sinh, softplus, sqrt, square, tan = map(unary, "sinh softplus sqrt square tan".split())
tanh, relu, gelu = map(unary, "tanh relu gelu".split())
negative = unary("negative")
add, subtract, multiply, divide = map(_binary, "add subtract multiply divide".split())
maximum, minimum = map(_binary, "maximum minimum".split())
mod, pow, atan2 = _binary("mod", "fmod"), _binary("pow"), _binary("atan2")
equal, not_equal = _binary("equal", "eq"), _binary("not_equal", "ne")
less, less_equal = map(_binary, "less less_equal".split())
greater, greater_equal = map(_binary, "greater greater_equal".split())
logical_and = _binary("logical_and")


def add_n(inputs: Sequence[Blob], name: str | None = None) -> Blob:
    """The sum of several blobs."""
    total = inputs[0]
    for more in inputs[1:]:
        total = total + more
    return total


class Reduction(Protocol):
    """An op over some dims, or all."""

    def __call__(
        self,
        input_tensor: Blob,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        name: str | None = None,
    ) -> Blob: ...


def _reduction(name: str, op_name: str) -> Reduction:
    op = getattr(names, op_name)

    def over(x: Tensor, dims: tuple[int, ...], keepdims: bool) -> Tensor:
        found: Tensor = op(x, dims, keepdims) if dims else x
        return found

    def call(
        input_tensor: Blob,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        name: str | None = None,
    ) -> Blob:
        if axis is None:
            axis = tuple(range(len(input_tensor.shape)))
        dims = (axis,) if isinstance(axis, int) else tuple(axis)
        return each(over, input_tensor, dims, keepdims)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{op_name} over some dims, or all."
    return call


reduce_sum, reduce_mean = _reduction("reduce_sum", "sum"), _reduction("reduce_mean", "mean")
reduce_max, reduce_min = _reduction("reduce_max", "amax"), _reduction("reduce_min", "amin")


def reduce_variance(
    input_tensor: Blob,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Blob:
    """The variance over some dims, or all, of the population."""
    mean = reduce_mean(input_tensor, axis, True)
    return reduce_mean(square(input_tensor - mean), axis, keepdims)


def clip_by_value(
    values: Blob,
    min_value: Number | None = None,
    max_value: Number | None = None,
    name: str | None = None,
) -> Blob:
    """Each element, brought between two numbers."""
    return each(clamp, values, min_value, max_value)


def argmax(input: Blob, axis: int = -1, name: str | None = None) -> Blob:
    """The place of the largest along a dim, as int32."""
    return each(lambda x: cast(argmax_op(x, axis), torch.int32), input)


def top_k(input: Blob, k: int = 1, sorted: bool = True, name: str | None = None) -> Blob:
    """The places of the k largest along the last dim, as int32."""
    return each(lambda x: cast(topk(x, k)[1], torch.int32), input)

"""Math ops on blobs: elementwise ops, reductions and matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..engine.names import names
from ..engine.ops.argreduce import argmax as argmax_op
from ..engine.ops.arithmetic import add as add_op
from ..engine.ops.cast import cast
from ..engine.ops.sorting import topk
from ..engine.ops.where import clamp
from .blob import Blob, each


def _unary(name: str) -> Callable[..., Blob]:
    op = getattr(names, name)

    def call(x: Blob, name: str | None = None) -> Blob:
        return each(op, x)  # type: ignore[no-any-return]

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{name} of each element."
    return call


def _binary(name: str, op_name: str = "") -> Callable[..., Blob]:
    op = getattr(names, op_name or name)

    def call(x: Any, y: Any, name: str | None = None) -> Blob:
        return each(op, x, y)  # type: ignore[no-any-return]

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{op_name or name} of each pair of elements."
    return call


abs, acos, acosh, asin, asinh = map(_unary, "abs acos acosh asin asinh".split())
atan, atanh, ceil, cos, cosh = map(_unary, "atan atanh ceil cos cosh".split())
erf, erfc, exp, expm1, floor = map(_unary, "erf erfc exp expm1 floor".split())
lgamma, log, log1p, reciprocal = map(_unary, "lgamma log log1p reciprocal".split())
round, rsqrt, sigmoid, sign, sin = map(_unary, "round rsqrt sigmoid sign sin".split())
sinh, softplus, sqrt, square, tan = map(_unary, "sinh softplus sqrt square tan".split())
tanh, relu, gelu = map(_unary, "tanh relu gelu".split())
negative = _unary("negative")
subtract, multiply, divide = map(_binary, "subtract multiply divide".split())
maximum, minimum = map(_binary, "maximum minimum".split())
mod, pow, atan2 = _binary("mod", "fmod"), _binary("pow"), _binary("atan2")
equal, not_equal = _binary("equal", "eq"), _binary("not_equal", "ne")
less, less_equal = map(_binary, "less less_equal".split())
greater, greater_equal = map(_binary, "greater greater_equal".split())
logical_and = _binary("logical_and")


def add(x: Any, y: Any, name: str | None = None) -> Blob:
    """The sum of each pair of elements."""
    return each(add_op, x, y)


def add_n(inputs: Sequence[Blob], name: str | None = None) -> Blob:
    """The sum of several blobs."""
    total = inputs[0]
    for more in inputs[1:]:
        total = total + more
    return total


def _reduction(name: str, op_name: str) -> Callable[..., Blob]:
    op = getattr(names, op_name)

    def call(
        input_tensor: Blob,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        name: str | None = None,
    ) -> Blob:
        if axis is None:
            axis = tuple(range(len(input_tensor.shape)))
        dims = (axis,) if isinstance(axis, int) else tuple(axis)
        return each(_over, op, input_tensor, dims, keepdims)  # type: ignore[no-any-return]

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{op_name} over some dims, or all."
    return call


def _over(op: Callable[..., Any], x: Any, dims: tuple[int, ...], keepdims: bool) -> Any:
    return op(x, dims, keepdims) if dims else x


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
    values: Blob, min_value: Any = None, max_value: Any = None, name: str | None = None
) -> Blob:
    """Each element, brought between two numbers."""
    return each(clamp, values, min_value, max_value)


def argmax(input: Blob, axis: int = -1, name: str | None = None) -> Blob:
    """The place of the largest along a dim, as int32."""
    return each(lambda x: cast(argmax_op(x, axis), torch.int32), input)


def top_k(input: Blob, k: int = 1, sorted: bool = True, name: str | None = None) -> Blob:
    """The places of the k largest along the last dim, as int32."""
    return each(lambda x: cast(topk(x, k)[1], torch.int32), input)

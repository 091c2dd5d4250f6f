"""Evaluates expressions over torch tensors, with a plan for each combination of layouts.

A plan holds the handle of the compiled kernel, the grid and the constant numbers. Products and sums
are not contracted to fma, so that a chain of functions has the same bits as its functions one by
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from .codegen import generate
from .expression import Expression
from .strided_layout import broadcast_strides, dense_strides, layout_of, order_of

_WARPS = 4
Launch = Callable[[Sequence[Any]], None]


class TooLarge(Exception):
    """A tensor has more rows than a kernel can count."""


def plan(
    expression: Expression,
    shape: Sequence[int],
    inputs: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    order: Sequence[int],
    itemsize: int,
) -> Launch:
    """The launch of an expression over tensors of a shape with these strides, by dim of the shape.

    It takes the tensors among the inputs, the outputs, then the numbers. `inputs` has strides for
    each tensor and index among the inputs. Raises TooLarge.
    """
    reduced = bool(expression.reduction)
    if 0 in shape:
        assert not reduced or prod(shape[:-1]) == 0, "a reduction over no elements"
        return lambda args: None
    layout = layout_of(shape, [*inputs, *outputs], order, itemsize, reduced)
    if layout is None:
        raise TooLarge
    kernel = generate(expression, layout.pattern)
    numbers = (*layout.sizes, *layout.strides)
    count = len(expression.outputs) + sum(given.kind == "tensor" for given in expression.inputs)
    return kernel.prepared((layout.programs,), numbers, layout.tile, count, _WARPS, fused=False)


def evaluate(expression: Expression, *args: Any) -> tuple[Tensor, ...]:
    """What an expression gives for its inputs, without a plan being kept: one tensor per output.

    A reduction leaves out the last dim. `args` has a tensor or a number for each input.

    Example: `evaluate(expression, x, 2.0)[0]`.
    """
    pairs = list(zip(expression.inputs, args, strict=True))
    tensors = [x for given, x in pairs if given.kind == "tensor"]
    numbers = [x for given, x in pairs if given.kind == "number"]
    shape = torch.broadcast_shapes(*[x.shape for x in tensors])
    strides = [broadcast_strides(x, shape) for x in tensors]
    order = order_of(shape, strides)
    kept: Sequence[int] = shape
    if expression.reduction:
        order = [dim for dim in order if dim != len(shape) - 1] + [len(shape) - 1]
        kept = shape[:-1]
    steps = dense_strides(kept, [dim for dim in order if dim < len(kept)])
    dtypes = [expression.dtype(value) for value in expression.outputs]
    outputs = [
        torch.empty_strided(kept, steps, dtype=dtype, device=tensors[0].device) for dtype in dtypes
    ]
    written = [(*steps, 0)[: len(shape)] for _ in outputs]
    itemsize = max(x.itemsize for x in (*tensors, *outputs))
    launch = plan(expression, shape, strides, written, order, itemsize)
    launch((*tensors, *outputs, *numbers))
    return tuple(outputs)

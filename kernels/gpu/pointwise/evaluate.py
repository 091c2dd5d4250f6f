"""Plans of expressions: for each combination of layouts, the launch of the generated kernel.

A plan holds the handle of the compiled kernel, the grid and the constant numbers. Products and sums
are not contracted to fma, so that a chain of functions has the same bits as its functions one by
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...common_shapes import broadcast_shapes
from .codegen import generate
from .expression import Expression
from .strided_layout import Ints, broadcast_strides, dense_strides, layout_of, order_of

_WARPS = 4
# Of what ptxas spills registers for otherwise: sin has another way for large numbers.
_MORE_WARPS = {"sin": 8, "absolute_error": 8}
Launch = Callable[[Sequence[Tensor | float]], None]


def plan(
    expression: Expression,
    shape: Sequence[int],
    inputs: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    order: Sequence[int] | None = None,
) -> Launch | None:
    """The launch of an expression over tensors of a shape with these strides, by dim of the shape.

    It takes the tensors among the inputs, the outputs, then the numbers. `inputs` has strides for
    each tensor and index among the inputs; `order` is by default that of the outputs' dims in
    memory. None if a tensor has more rows than a kernel can count.
    """
    if 0 in shape:
        return lambda args: None
    order = order_of(shape, outputs) if order is None else order
    dtypes = [given.dtype for given in expression.inputs if given.kind == "tensor"]
    dtypes += [expression.dtype(value) for value in expression.outputs]
    itemsize = max(dtype.itemsize for dtype in dtypes)
    layout = layout_of(shape, [*inputs, *outputs], order, itemsize)
    if layout is None:
        return None
    numbers = (*layout.sizes, *layout.strides)
    kernel, count = generate(expression, layout.pattern), len(dtypes)
    return kernel.prepared(
        (layout.programs,), numbers, layout.tile, count, warps_of(expression), fused=False
    )


def warps_of(expression: Expression) -> int:
    """How many warps compute a tile."""
    return max(
        [_MORE_WARPS.get(step.function, _WARPS) for step in expression.steps], default=_WARPS
    )


def plan_dense(
    expression: Expression, tensors: Sequence[Tensor]
) -> tuple[torch.Size, Ints, Launch | None]:
    """The `plan` for tensors that broadcast, and shape and strides of its outputs.

    Outputs are dense. Their dims lie in memory as those of the inputs.
    """
    shape = broadcast_shapes(*[x.shape for x in tensors])
    inputs = [broadcast_strides(x, shape) for x in tensors]
    order = order_of(shape, inputs)
    strides = dense_strides(shape, order)
    outputs = [strides] * len(expression.outputs)
    return shape, strides, plan(expression, shape, inputs, outputs, order)

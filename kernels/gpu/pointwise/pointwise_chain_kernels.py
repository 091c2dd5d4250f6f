"""Chains of pointwise functions as one kernel, with the same bits as one kernel for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ... import pointwise_chain_ref as reference
from ...pointwise_chain_ref import At, Chain
from ...select import triton_kernel
from ..launch.aot_cases import Case
from .evaluate import TooLarge, plan
from .expression import WORK, Expression, Writer
from .pointwise_kernels import Pointwise, key_of, numbers_are_real, stand_in, supported, write
from .prologue import MOST_INPUTS, Prologue, function_of
from .strided_layout import broadcast_strides, dense_strides, order_of

TORCH = {
    "functions that are no single pointwise kernel": "see `why_not`",
    "tensors on several devices, or too large": "as the pointwise functions by themselves",
}
CASES: list[Case] = []  # its kernels are those of `pointwise_kernels` and `reductions`

_MOST_PLANS = 256  # of one chain: other layouts of its inputs


def why_not(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    made = triton_kernel(function)
    if not isinstance(made, Pointwise):
        return "no pointwise kernel"
    adapted, given = made.adapt(*[stand_in(arg) for arg in arguments])
    if not adapted or not all(map(supported, given)):
        return "numbers that Triton has not"
    dtype = function(*[stand_in(arg) for arg in arguments]).dtype
    return "" if dtype in WORK else "numbers that Triton has not"


def expression_of(chain: Chain, tensors: Sequence[Tensor]) -> tuple[Expression, list[float | int]]:
    """What a chain computes for tensors of these dtypes, and the numbers that it takes."""
    values = [stand_in(x) for x in tensors]
    found = []
    for function, arguments in chain.links:
        made = triton_kernel(function)
        assert isinstance(made, Pointwise), function
        args = [values[a.number] if type(a) is At else a for a in arguments]
        name, given = made.adapt(*args)
        values.append(function(*args))
        found.append((name, given, values[-1].dtype))
    w = Writer()
    # `at` has the number in the expression of a value, and of a number by its kind.
    at = {id(value): w.tensor(value.dtype) for value in values[: chain.inputs]}
    numbers: dict[tuple[type, str], float | int] = {}
    of_number: dict[tuple[type, str], int] = {}
    for _, given, dtype in found:
        kind = float if numbers_are_real(given, dtype) else int
        for arg in given:
            if not isinstance(arg, Tensor) and (kind, repr(kind(arg))) not in numbers:
                key = kind, repr(kind(arg))
                numbers[key] = kind(arg)
                of_number[key] = w.number(kind(arg))
    for value, (name, given, dtype) in zip(values[chain.inputs :], found, strict=True):
        kind = float if numbers_are_real(given, dtype) else int
        inputs = [
            at[id(arg)] if isinstance(arg, Tensor) else of_number[kind, repr(kind(arg))]
            for arg in given
        ]
        at[id(value)] = write(w, name, inputs, given, dtype)
    outputs = [at[id(values[number])] for number in chain.outputs]
    return w.expression(*outputs), list(numbers.values())


def several(chain: Chain) -> Callable[..., tuple[Tensor, ...]]:
    plans: dict[Any, Callable[..., tuple[Tensor, ...]]] = {}

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        key = tuple(map(key_of, tensors))
        found = plans.get(key)
        if found is None:
            if len(plans) >= _MOST_PLANS:
                plans.clear()
            found = plans[key] = _plan(chain, tensors)
        return found(*tensors)

    return run


def _plan(chain: Chain, tensors: Sequence[Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    if len({x.device for x in tensors}) != 1:
        return reference.several(chain)
    expression, numbers = expression_of(chain, tensors)
    dtypes = [expression.dtype(value) for value in expression.outputs]
    shape = torch.broadcast_shapes(*[x.shape for x in tensors])
    inputs = [broadcast_strides(x, shape) for x in tensors]
    order = order_of(shape, inputs)
    strides = dense_strides(shape, order)
    itemsize = max(dtype.itemsize for dtype in (*dtypes, *[x.dtype for x in tensors]))
    try:
        launch = plan(expression, shape, inputs, [strides] * len(dtypes), order, itemsize)
    except TooLarge:
        return reference.several(chain)
    device = tensors[0].device

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        made = tuple(
            [torch.empty_strided(shape, strides, dtype=dtype, device=device) for dtype in dtypes]
        )
        launch((*tensors, *made, *numbers))
        return made

    return run


def one(chain: Chain) -> Callable[..., Tensor]:
    run = several(chain)
    return lambda *tensors: run(*tensors)[0]


def as_prologue(chain: Chain, kept: bool) -> Callable[..., tuple[Any, Tensor | None]]:
    compute = one(chain)
    expressions: dict[tuple[torch.dtype, ...], tuple[Expression, Any]] = {}

    def run(*tensors: Tensor) -> tuple[Any, Tensor | None]:
        first = tensors[0]
        dense = all(
            x.shape == first.shape and x.is_contiguous() and x.device == first.device and x.ndim
            for x in tensors
        )
        if not dense or first.numel() == 0 or len(tensors) > MOST_INPUTS:
            value = compute(*tensors)
            return value, value
        dtypes = tuple([x.dtype for x in tensors])
        found = expressions.get(dtypes)
        if found is None:
            expression, numbers = expression_of(chain, tensors)
            found = expressions[dtypes] = expression, function_of(expression, tuple(numbers))
        expression, function = found
        dtype = expression.dtype(expression.outputs[0])
        whole = torch.empty_like(first, dtype=dtype) if kept else None
        return Prologue(tensors, function, dtype, whole), whole

    return run

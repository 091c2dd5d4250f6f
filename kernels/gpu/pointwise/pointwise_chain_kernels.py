"""Chains of pointwise functions as one kernel, with the same bits as one kernel for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ... import pointwise_chain_ref as reference
from ...pointwise_chain_ref import At, Chain
from ...select import triton_kernel
from ..reduce.reduction_tiles import from_memory_order, memory_order
from .evaluate import plan_dense
from .expression import WORK, Expression, Writer
from .pointwise_kernels import Pointwise, key_of, numbers_are_real, stand_in, supported, write
from .prologue import MAX_INPUTS, Prologue, function_of

# Left to torch: functions that are no single pointwise kernel (see `why_not`), several devices,
# and tensors that are too large.

_MAX_PLANS = 256  # of one chain: other layouts of its inputs


def why_not(function: Callable[..., Tensor], arguments: tuple[object, ...]) -> str:
    made = triton_kernel(function)
    if not isinstance(made, Pointwise):
        return "no pointwise kernel"
    adapted, given = made.adapt(*[stand_in(arg) for arg in arguments])
    if not adapted or not all(map(supported, given)):
        return "dtypes that Triton lacks"
    dtype = function(*[stand_in(arg) for arg in arguments]).dtype
    return "" if dtype in WORK else "dtypes that Triton lacks"


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
    plans: dict[tuple[object, ...], Callable[..., tuple[Tensor, ...]]] = {}

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        key = tuple(map(key_of, tensors))
        found = plans.get(key)
        if found is None:
            if len(plans) >= _MAX_PLANS:
                plans.clear()
            found = plans[key] = _plan(chain, tensors)
        return found(*tensors)

    return run


def _plan(chain: Chain, tensors: Sequence[Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    if len({x.device for x in tensors}) != 1:
        return reference.several(chain)
    expression, numbers = expression_of(chain, tensors)
    shape, strides, launch = plan_dense(expression, tensors)
    if launch is None:
        return reference.several(chain)
    dtypes, device = [expression.dtype(value) for value in expression.outputs], tensors[0].device

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


def as_prologue(chain: Chain, kept: bool) -> Callable[..., tuple[Tensor | Prologue, Tensor | None]]:
    compute = one(chain)
    expressions: dict[tuple[torch.dtype, ...], tuple[Expression, object]] = {}

    def run(*tensors: Tensor) -> tuple[Tensor | Prologue, Tensor | None]:
        lies = memory_order(tuple(tensors[0].shape), tensors[0].stride())
        views = tensors
        if lies is not None and all(x.ndim == len(lies) for x in tensors):
            views = tuple([x.permute(lies) for x in tensors])
        first = views[0]
        dense = all(
            x.shape == first.shape and x.is_contiguous() and x.device == first.device and x.ndim
            for x in views
        )
        if not dense or first.numel() == 0 or len(views) > MAX_INPUTS:
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
        prologue = Prologue(views, function, dtype, whole, lies)
        if whole is not None and lies is not None:
            whole = from_memory_order(whole, lies, (), True)
        return prologue, whole

    return run

"""`out=`: tensors that take the results of a function."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter, Signature
from typing import Any, TypeVar, cast

import torch

from ..errors import MixedTensorsError, OnefoldRuntimeError, OnefoldTypeError, warn
from . import interpreter
from .inplace import copy_
from .names import names, register_function
from .sbp import without_partial
from .tensor import Tensor

R = TypeVar("R")
L = TypeVar("L")

OUT = Parameter("out", Parameter.KEYWORD_ONLY, default=None, annotation=Tensor | None)
OUTS = OUT.replace(annotation=Sequence[Tensor] | None)


@register_function
def give_to(out: object, result: R) -> R:
    """Write the results of a function to `out`, one tensor or several, in its dtype and layout.

    Returns the tensors of `out` in place of the results. As in torch a tensor without elements
    gets the shape of the result, and one of another shape too, with a warning. Raises
    OnefoldTypeError unless `out` has as many tensors as the result, OnefoldRuntimeError for a dtype
    that cannot hold it or where a gradient would be needed.
    """
    made: list[Any] = [result] if isinstance(result, Tensor) else [*cast("Sequence[Any]", result)]
    given = [out] if isinstance(result, Tensor) else out
    tensors = [*given] if isinstance(given, (tuple, list)) else []
    if [isinstance(x, Tensor) for x in tensors] != [True] * len(made):
        raise OnefoldTypeError(
            f"out= needs {len(made)} onefold tensor{'s' * (len(made) > 1)}, but got {out!r}"
        )
    pairs = [*zip(tensors, made, strict=True)]
    for x, y in pairs:
        _check(x, y)
    for x, y in pairs:
        if x.shape != y.shape:
            if x.meta.numel:
                warn(
                    f"An output with one or more elements was resized since it had shape "
                    f"{list(x.shape)}, which does not match the required output shape "
                    f"{list(y.shape)}; resize it to zero elements first",
                    UserWarning,
                )
            names.resize_(x, y.shape)
        copy_(x, y)
    if isinstance(result, Tensor):
        return cast("R", tensors[0])
    kind: Any = type(result)
    return cast("R", kind(*tensors) if hasattr(kind, "_fields") else kind(tensors))


def _check(x: Tensor, y: Tensor) -> None:
    """Raise OnefoldRuntimeError or MixedTensorsError unless `x` may take the value of `y`."""
    if x.is_global != y.is_global:
        raise MixedTensorsError(
            f"out= must be local or global as the result is: out is {x.meta!r}, the result "
            f"{y.meta!r}; convert the result with to_global or to_local"
        )
    if interpreter.is_grad_enabled() and (x.requires_grad or y.requires_grad):
        raise OnefoldRuntimeError(
            "functions with out=... arguments don't support automatic differentiation, but one "
            "of the arguments requires grad"
        )
    if not torch.can_cast(y.dtype, x.dtype):
        raise OnefoldRuntimeError(
            f"result type {y.dtype} can't be cast to the desired output type {x.dtype}"
        )


def made_for(out: Tensor, layout: L) -> L:
    """The arguments of a creation function, with the dtype and layout of `out`.

    Raises OnefoldRuntimeError for another dtype, OnefoldTypeError for a layout.
    """
    if not isinstance(out, Tensor):
        raise OnefoldTypeError(f"out= needs 1 onefold tensor, but got {out!r}")
    given = {k: v for k, v in cast("dict[str, Any]", layout).items() if v is not None}
    if given.get("dtype", out.dtype) != out.dtype:
        raise OnefoldRuntimeError(
            f"dtype {given['dtype']} does not match dtype of out parameter ({out.dtype})"
        )
    if given.keys() & {"device", "placement", "sbp"}:
        raise OnefoldTypeError("the layout is that of out=: give no device=, placement= or sbp=")
    given["dtype"] = out.dtype
    if out.is_global:
        given.update(placement=out.placement, sbp=without_partial(out.sbp))
    else:
        given["device"] = out.meta.device
    return cast("L", given)


def with_out(signature: Signature, out: Parameter = OUT) -> Signature:
    """The parameters of a function, with `out` added."""
    given = [*signature.parameters.values()]
    rest = [given.pop()] if given and given[-1].kind is Parameter.VAR_KEYWORD else []
    return signature.replace(parameters=[*given, out, *rest])

"""`out=`: tensors that take the results of a torch function called on our tensors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch

from ...errors import OnefoldRuntimeError, OnefoldTypeError
from ..inplace import copy_
from ..names import register_function
from ..tensor import Tensor
from .resizing import resize_


@register_function
def give_to(out: object, result: Tensor | Sequence[Tensor]) -> object:
    """Let `out`, one tensor or several, take what a function gave, in its own dtype and layout.

    As in torch a tensor without elements gets the shape of the result, and one of another shape
    too, with a warning. Raises OnefoldTypeError unless `out` has as many tensors as the result,
    OnefoldRuntimeError for a dtype that cannot hold it or where a gradient would be needed.
    """
    made = [result] if isinstance(result, Tensor) else [*result]
    given = [*out] if isinstance(out, (tuple, list)) else [out]
    tensors = [each for each in given if isinstance(each, Tensor)]
    if len(tensors) != len(given) or len(given) != len(made):
        raise OnefoldTypeError(
            f"out= needs {len(made)} onefold tensor{'s' * (len(made) > 1)}, but got {out!r}"
        )
    pairs = [*zip(tensors, made, strict=True)]
    for x, y in pairs:
        if x.requires_grad or y.requires_grad:
            raise OnefoldRuntimeError(
                "functions with out=... arguments don't support automatic differentiation, but one "
                "of the arguments requires grad"
            )
        if not torch.can_cast(y.dtype, x.dtype):
            raise OnefoldRuntimeError(
                f"result type {y.dtype} can't be cast to the desired output type {x.dtype}"
            )
    for x, y in pairs:
        if x.shape != y.shape:
            if x.meta.numel:
                warnings.warn(
                    f"An output with one or more elements was resized since it had shape "
                    f"{list(x.shape)}, which does not match the required output shape "
                    f"{list(y.shape)}; resize it to zero elements first",
                    stacklevel=4,
                )
            resize_(x, y.shape)
        copy_(x, y)
    return out

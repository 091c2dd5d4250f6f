"""Functions that describe tensors: numel, is_floating_point, result_type and others."""

from __future__ import annotations

import torch

from ..argument_types import Number
from ..names import register_function
from ..tensor import Tensor
from ..values import to_bool


@register_function
def numel(input: Tensor) -> int:
    """The number of elements of the logical tensor."""
    return input.meta.numel


@register_function
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is floating; complex ones are not."""
    return input.meta.dtype.is_floating_point


@register_function
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex."""
    return input.meta.dtype.is_complex


@register_function
def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.meta.dtype.is_signed


@register_function
def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero. Raises OnefoldRuntimeError for another number."""
    return to_bool(input)


@register_function
def result_type(tensor: Tensor | Number, other: Tensor | Number) -> torch.dtype:
    """The dtype of the result of arithmetic on the two."""
    return torch.result_type(_stand_in(tensor), _stand_in(other))


def _stand_in(operand: Tensor | Number) -> torch.Tensor | Number:
    """A stand-in for an operand in torch's type promotion, with its dtype, with or without dims."""
    if not isinstance(operand, Tensor):
        return operand
    return torch.empty([0] * operand.ndim, dtype=operand.dtype, device="meta")

"""Memory formats: a tensor's elements in row-major order, or with the channels last.

A format is how each shard lies in memory. It changes no value, and neither strides nor views, which
count as if the tensor were one array in row-major order.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...errors import OnefoldRuntimeError
from ...kernels import memory_format_ref as kernels
from ..dispatcher import unary
from ..meta import Meta
from ..op import Gradients, Needs, Op
from ..signature import Axis, Rule, pointwise_of
from ..tensor import Tensor
from .pointwise import INCREASING, fitting

_DIMS = {form: dims for dims, form in kernels.CHANNELS_LAST.items()}


class MemoryFormatAttributes(NamedTuple):
    """The format."""

    memory_format: torch.memory_format


class MemoryFormat(Op):
    """The same values, in memory of this format."""

    name = "memory_format"
    attributes = MemoryFormatAttributes
    saves = ()
    aliases = True
    kernel = staticmethod(kernels.in_format)

    def infer(self, x: Meta, attrs: MemoryFormatAttributes) -> Meta:
        check_rank(x.ndim, attrs.memory_format)
        return x

    def rule(self, axis: Axis, x: Meta, attrs: MemoryFormatAttributes) -> Rule:
        return fitting((*pointwise_of([x], "0"), *INCREASING), [x])

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Meta, attrs: MemoryFormatAttributes
    ) -> Gradients:
        return (dy,)


in_format = unary(MemoryFormat())


def check_rank(ndim: int, memory_format: torch.memory_format) -> None:
    """Raise OnefoldRuntimeError for a tensor that has too few or too many dims for a format."""
    dims = _DIMS.get(memory_format, ndim)
    if dims != ndim:
        name = str(memory_format).removeprefix("torch.")
        raise OnefoldRuntimeError(
            f"required rank {dims} tensor to use {name} format, but got a tensor of {ndim} dims; "
            "channels_last is for (N, C, H, W), and channels_last_3d for (N, C, D, H, W)"
        )


def is_in_format(x: Tensor, memory_format: torch.memory_format) -> bool:
    """Whether all shards that this process has are in a format with the channels last."""
    if x.is_lazy or not x.shards:  # while a graph is captured there is no memory
        return False
    return all(part.is_contiguous(memory_format=memory_format) for part in x.shards)


def memory_format_of(x: Tensor) -> torch.memory_format | None:
    """The format of a tensor whose channels are last in memory; None for any other."""
    return kernels.CHANNELS_LAST[len(x.meta.shape)] if is_last(x) else None


def is_last(x: Tensor) -> bool:
    """Whether the channels of a tensor are last in memory, which no op needs to know."""
    shards: object = x.shards
    if type(shards) is not tuple or not shards or shards[0].is_contiguous():
        return False
    last = kernels.CHANNELS_LAST.get(len(x.meta.shape))
    return last is not None and is_in_format(x, last)

"""Max unpooling: values go back to the places that max pooling gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ...kernels import pool_ref as kernels
from ...kernels.pool_ref import UnpoolSizes
from ..argument_types import Sizes
from ..dispatcher import binary
from ..generated import register_variant
from ..meta import Meta, Shape
from ..op import Gradients, Needs
from ..tensor import Tensor
from .conv import ints
from .gather import add_at
from .pool import MaxPoolTake, Pool, PoolAttributes
from .result_shapes import FLOATS, unpooled
from .view import flatten, reshape


class UnpoolAttributes(NamedTuple):
    """The number of dims of a plane, and the windows of the pooling."""

    planes: int
    sizes: UnpoolSizes


class MaxUnpool(Pool):
    """y = zeros with x at the indices"""

    attributes = UnpoolAttributes
    saves = (1,)
    kernel = staticmethod(kernels.max_unpool)

    def __init__(self, planes: int) -> None:
        self.name = f"max_unpool{planes}d"  # by which autocast knows it

    def deduce(self, x: Meta, places: Meta, attrs: UnpoolAttributes) -> Meta | None:
        *sizes, wanted = attrs.sizes
        ordinary = x.dtype in FLOATS and places.dtype is torch.int64 and x.shape == places.shape
        known = ordinary and wanted is None
        shape = unpooled(x.shape, attrs.planes, *sizes) if known else None
        return None if shape is None else x.like(shape)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Meta, places: Tensor, attrs: UnpoolAttributes
    ) -> Gradients:
        return _take(dy, places, attrs.planes, ()), None


class UnpoolTake(MaxPoolTake):
    """y = u at indices, of which some may be equal"""

    def __init__(self) -> None:
        self.name = "max_unpool_take"

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, u: Meta, places: Tensor, attrs: PoolAttributes
    ) -> Gradients:
        lead = u.ndim - attrs.planes
        plane: Shape = (*u.shape[:lead], u.shape[lead:].numel())
        added = add_at(flatten(dy, lead), flatten(places, lead), plane, lead)
        return reshape(added, u.shape), None


_unpool = {planes: binary(MaxUnpool(planes)) for planes in (1, 2, 3)}
_take = binary(UnpoolTake())


def _max_unpool(
    dims: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    size = ints(kernel_size, dims, "kernel_size")
    step = size if stride is None else ints(stride, dims, "stride")
    wanted = None if output_size is None else tuple(output_size)
    sizes = (size, step, ints(padding, dims, "padding"), wanted)
    return _unpool[dims](input, indices, dims, sizes)


_MAX_UNPOOL = """
    Zeros with `input` at the places in its planes that `max_pool{}d` gave, as in torch.

    `output_size` is needed where several sizes of planes have as many windows. Where windows
    overlap and two maxima have one place, the last is written.
    """
for _dims in (1, 2, 3):
    register_variant(f"max_unpool{_dims}d", _max_unpool, _dims, _MAX_UNPOOL.format(_dims))

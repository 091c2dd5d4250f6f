"""Elements by mask, or by position in the tensor seen as one dim."""

from __future__ import annotations

import torch

from ...errors import OnefoldRuntimeError
from ..names import named, names
from ..tensor import Tensor
from .getitem import nonzero
from .index import put_rows, take_rows
from .slicing import read_slice, slice_by
from .view import reshape


@named
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where `mask` is true, in one dim; the two broadcast against each other."""
    if mask.dtype is not torch.bool:
        raise OnefoldRuntimeError(
            f"masked_select: expected BoolTensor for mask, but got {mask.dtype}"
        )
    x, mask = names.broadcast_tensors(input, mask)
    if not x.ndim:
        x, mask = reshape(x, 1), reshape(mask, 1)
    return take_rows(x, nonzero(mask, as_tuple=True))


@named
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`input` with the elements where `mask` is true taken from `source`, in order."""
    if mask.dtype is not torch.bool or source.dtype != input.dtype:
        raise OnefoldRuntimeError(
            "masked_scatter expects a bool mask and a source of the input's dtype, but got "
            f"{mask.dtype}, {input.dtype} and {source.dtype}"
        )
    x, mask = names.broadcast_tensors(input, mask)
    if not x.ndim:
        return reshape(masked_scatter(reshape(x, 1), reshape(mask, 1), source), ())
    where = nonzero(mask, as_tuple=True)
    count = where[0].shape[0]
    if source.numel() < count:
        raise OnefoldRuntimeError(
            f"masked_scatter: Number of elements of source < number of ones in mask: "
            f"{source.numel()} < {count}"
        )
    values = slice_by(reshape(source, -1), (read_slice(slice(0, count), source.numel()),))
    return put_rows(x, where, values)


@named
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements at `index` of the tensor seen as one dim."""
    return take_rows(reshape(input, input.numel()), (index,))

"""Functions composed of gathers, scatters and reshapes: diagflat, fill, put, sum_to_size, ..."""

from __future__ import annotations

import torch

from ...errors import OnefoldIndexError, OnefoldRuntimeError
from ..argument_types import Dims, Number
from ..names import register_function
from ..tensor import Tensor
from ..values import whole
from .cast import clone
from .data_movement import unpack
from .dims import diag_embed
from .getitem import index_put
from .index_parsing import ONLY_OUTSIDE, like_indices
from .reduce import sum
from .view import reshape


@register_function
def fill(input: Tensor, value: Tensor | Number) -> Tensor:
    """The value in the shape, dtype and layout of `input`."""
    return clone(input).fill_(value)


@register_function
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with the elements of `input` on a diagonal."""
    return diag_embed(reshape(input, -1), offset)


@register_function
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """`input` with `source` at indices into the flattened tensor, added there if `accumulate`."""
    if source.numel() != index.numel():
        raise OnefoldIndexError(
            "put(): expected source and index to have the same number of elements, but got "
            f"{source.numel()} and {index.numel()}"
        )
    flat = index_put(reshape(input, -1), (reshape(index, -1),), reshape(source, -1), accumulate)
    return reshape(flat, *input.shape)


@register_function
def sum_to_size(input: Tensor, *size: Dims) -> Tensor:
    """The sum over the dims along which `size` would broadcast to the input's shape.

    Raises OnefoldRuntimeError for a size that does not broadcast to the input's.
    """
    shape = unpack(size)
    lead = input.ndim - len(shape)
    if lead < 0 or any(n not in (1, m) for n, m in zip(shape, input.shape[lead:], strict=True)):
        raise OnefoldRuntimeError(
            f"size {{{list(shape)}}} is not expandable to size {{{list(input.shape)}}}."
        )
    added = [dim for dim, m in enumerate(input.shape) if dim < lead or shape[dim - lead] != m]
    return reshape(sum(input, added), *shape) if added else input


@register_function
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]:
    """The first of each run of equal elements, and on request the runs of elements and lengths.

    Their number depends on the values, so every process reads the whole tensor. No gradient.
    """
    # By name: of flags given by their places, torch's function takes one for the other.
    found = torch.unique_consecutive(
        whole(input, ONLY_OUTSIDE),
        return_inverse=return_inverse,
        return_counts=return_counts,
        dim=dim,
    )
    return like_indices(found, input)

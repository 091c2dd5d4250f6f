"""Parts of a tensor by coordinates and slices: OneFlow's gather_nd, slice and related functions."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from ...errors import OnefoldRuntimeError, OnefoldTypeError
from ..names import register_function
from ..tensor import Tensor
from .cast import cast
from .cat_split import unbind
from .dims import expand
from .gather import gather
from .getitem import getitem
from .index import put_rows, take_rows
from .like import new_zeros
from .view import view

SliceTuple = Sequence[int | None]  # start, stop, step


def _coordinates(index: Tensor, ndim: int, what: str) -> tuple[Tensor, ...]:
    """The index of each of the first dims, from the last dim of coordinates."""
    if not index.ndim or not 0 < index.shape[-1] <= ndim:
        raise OnefoldRuntimeError(
            f"{what}: the last dim of the index holds coordinates, of which a tensor of {ndim} "
            f"dims takes 1 to {ndim}, but the index has shape {tuple(index.shape)}"
        )
    return unbind(index, -1)


@register_function
def gather_nd(input: Tensor, index: Tensor) -> Tensor:
    """The parts of `input` at coordinates of its first dims, which are the last dim of `index`.

    >>> import onefold as flow
    >>> x = flow.tensor([[1, 2, 3], [4, 5, 6]])
    >>> flow.gather_nd(x, flow.tensor([[0, 2], [1, 0]]))
    tensor([3, 4])
    """
    return take_rows(input, _coordinates(index, input.ndim, "gather_nd"))


@register_function
def scatter_nd(index: Tensor, update: Tensor, shape: Sequence[int]) -> Tensor:
    """Zeros of this shape with `update` at coordinates; duplicates are summed."""
    return put_rows(
        new_zeros(update, tuple(shape)),
        _coordinates(index, len(shape), "scatter_nd"),
        update,
        accumulate=True,
    )


@register_function
def tensor_scatter_nd_update(tensor: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """A copy of `tensor` with `updates` at coordinates of its first dims; see `gather_nd`."""
    return put_rows(tensor, _coordinates(indices, tensor.ndim, "tensor_scatter_nd_update"), updates)


@register_function
def batch_gather(input: Tensor, indices: Tensor) -> Tensor:
    """The elements at `indices` (..., k) of the dim after the common batch dims."""
    dim = indices.ndim - 1
    if dim < 0 or input.ndim <= dim or indices.shape[:-1] != input.shape[:dim]:
        raise OnefoldRuntimeError(
            f"batch_gather: indices (..., k) need the batch dims of the input, but their shape is "
            f"{tuple(indices.shape)} and the input's {tuple(input.shape)}"
        )
    rest = input.shape[dim + 1 :]
    places = view(indices, (*indices.shape, *[1] * len(rest)))
    return gather(input, dim, expand(places, *indices.shape, *rest))


def _slices(input: Tensor, given: Sequence[SliceTuple], what: str) -> tuple[builtins.slice, ...]:
    if len(given) > input.ndim or any(len(each) != 3 for each in given):
        raise OnefoldTypeError(
            f"{what}: slice_tup_list has (start, stop, step) for each of the first dims, of at "
            f"most {input.ndim}, but got {given!r}"
        )
    return tuple([builtins.slice(*each) for each in given])


@register_function
def slice(input: Tensor, slice_tup_list: Sequence[SliceTuple]) -> Tensor:
    """The part of `input` from (start, stop, step) of each of its first dims, None for the ends.

    >>> import onefold as flow
    >>> flow.slice(flow.arange(6), [(1, 5, 2)])
    tensor([1, 3])
    """
    return getitem(input, _slices(input, slice_tup_list, "slice"))


@register_function
def slice_update(input: Tensor, update: Tensor, slice_tup_list: Sequence[SliceTuple]) -> Tensor:
    """`input` with `update` written in place to the part that `slice` selects."""
    input[_slices(input, slice_tup_list, "slice_update")] = cast(update, input.dtype)
    return input

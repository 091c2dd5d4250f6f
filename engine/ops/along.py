"""Rows along one dim: index_select, index_add, index_copy, index_fill, take_along_dim, one_hot."""

from __future__ import annotations

from typing import Any

import torch

from ...errors import OnefoldIndexError, OnefoldRuntimeError
from ...kernels import gathering as kernels
from ..dispatch import unary
from ..meta import Meta
from ..names import named, names
from ..op import Kernel, Local, Op
from ..sbp import broadcast, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..values import whole
from .dims import expand
from .gather import gather
from .index import add_rows, put_rows, take_rows
from .moving import follows, wrap
from .slicing import slice_by
from .view import reshape


class OneHot(Op):
    """1 where the class is the index, else 0."""

    name = "one_hot"
    differentiable = False

    def infer(self, index: Meta, classes: int) -> Meta:
        return index.like((*index.shape, classes), torch.int64)

    def rule(self, axis: Axis, index: Meta, classes: int) -> Rule:
        new = Signature((broadcast,), (split(index.ndim),))
        return [*follows((d, d) for d in range(index.ndim)), new]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        (classes,) = attrs
        size, offset = local.output_shape()[-1], local.output_offset()[-1]
        return lambda index: kernels.one_hot(index, offset, size, classes)


_one_hot = unary(OneHot())


def _along(dim: int, index: Tensor) -> tuple[Tensor | None, ...]:
    return (*[None] * dim, index)


def _vector(index: Tensor, what: str) -> Tensor:
    if index.ndim > 1:
        raise OnefoldIndexError(f"{what}(): Index is supposed to be a vector, not {index.ndim}-d")
    if index.dtype not in (torch.int64, torch.int32):
        raise OnefoldRuntimeError(f"{what}(): Expected dtype int32 or int64, got {index.dtype}")
    return index if index.ndim else reshape(index, 1)


@named
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The elements of `dim` at `index`, a vector. A split of `dim` becomes a partial sum."""
    index = _vector(index, "index_select")
    if not input.ndim:
        return reshape(take_rows(reshape(input, 1), (index,)), ())
    return take_rows(input, _along(wrap(dim, input.ndim), index))


@named
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """`input` plus alpha times the slices of `source`, added at `index` of `dim`, in order."""
    dim = wrap(dim, input.ndim)
    if input.dtype != source.dtype:
        raise OnefoldRuntimeError(
            "index_add_(): self and source expected to have the same dtype, but got (self) "
            f"{input.dtype} and (source) {source.dtype}"
        )
    index = _vector(index, "index_add")
    _check_slices(input, dim, index, source, "index_add")
    added = add_rows(source, _along(dim, index), input.shape)
    return names.add(input, added if alpha == 1 else names.mul(added, alpha))  # type: ignore[no-any-return]


def _check_slices(x: Tensor, dim: int, index: Tensor, source: Tensor, what: str) -> None:
    wanted = (*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :])
    if tuple(source.shape) != wanted:
        raise OnefoldRuntimeError(
            f"{what}(): the source must have shape {list(wanted)} for this index, but has "
            f"{list(source.shape)}"
        )


@named
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`input` with the slices of `source` in the places `index` of `dim`."""
    dim, index = wrap(dim, input.ndim), _vector(index, "index_copy")
    _check_slices(input, dim, index, source, "index_copy")
    return put_rows(input, _along(dim, index), source)


@named
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """`input` with one value in the places `index` of `dim`."""
    dim, index = wrap(dim, input.ndim), _vector(index, "index_fill")
    if not isinstance(value, Tensor):
        value = names.full_like(slice_by(input, (0,) * input.ndim), value)
    return put_rows(input, _along(dim, index), value)


@named
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather` with broadcasting; without `dim` of the tensors seen as one dim."""
    if dim is None:
        return gather(reshape(input, -1), 0, reshape(indices, -1))  # type: ignore[no-any-return]
    if input.ndim != indices.ndim:
        raise OnefoldRuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    dim = wrap(dim, input.ndim)
    ones = [1 if d == dim else n for d, n in enumerate(input.shape)]
    other = [1 if d == dim else n for d, n in enumerate(indices.shape)]
    common = list(torch.broadcast_shapes(ones, other))
    x = expand(input, *[input.shape[dim] if d == dim else n for d, n in enumerate(common)])
    index = expand(indices, *[indices.shape[dim] if d == dim else n for d, n in enumerate(common)])
    return gather(x, dim, index)  # type: ignore[no-any-return]


@named
def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """[...] of classes to [..., num_classes] of 0 and 1 (int64); -1: the largest class plus one.

    Raises OutOfRangeError for a class that is negative or not below `num_classes`.
    """
    if input.dtype is not torch.int64:
        raise OnefoldRuntimeError(
            f"one_hot is only applicable to index tensor of type LongTensor, not {input.dtype}"
        )
    if num_classes == -1:
        if not input.numel():
            raise OnefoldRuntimeError(
                "Can not infer total number of classes from empty tensor; give num_classes"
            )
        num_classes = int(whole(input).max()) + 1
    if num_classes < 1:
        raise OnefoldRuntimeError(f"num_classes should be positive, but got {num_classes}")
    return _one_hot(input, num_classes)  # type: ignore[no-any-return]

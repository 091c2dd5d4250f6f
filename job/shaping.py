"""Ops on shapes, layouts and dtypes, and ops that concatenate and select, under `flow` itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..engine.argument_types import Number
from ..engine.ops.cast import cast as cast_op, clone
from ..engine.ops.cat_split import cat, stack as stack_op
from ..engine.ops.dims import permute, squeeze as squeeze_op, transpose as transpose_op, unsqueeze
from ..engine.ops.index import index_select
from ..engine.ops.like import ones_like as ones_like_op, zeros_like as zeros_like_op
from ..engine.ops.matmul import matmul as matmul_op
from ..engine.ops.slicing import narrow
from ..engine.ops.view import flatten as flatten_op, reshape as reshape_op
from ..engine.ops.where import where as where_op
from ..engine.tensor import Tensor
from .blob import Blob, each
from .distribute import Distribute

__all__ = [
    "cast", "concat", "expand_dims", "flatten", "gather", "identity", "matmul", "ones_like",
    "parallel_cast", "reshape", "slice", "squeeze", "stack", "transpose", "where", "zeros_like",
]  # fmt: skip


def reshape(x: Blob, shape: Sequence[int], name: str | None = None) -> Blob:
    """The same elements in another shape; one size may be -1."""
    return each(reshape_op, x, tuple(shape))


def flatten(input: Blob, start_dim: int = 0, end_dim: int = -1, name: str | None = None) -> Blob:
    """Dims `start_dim` to `end_dim` as one."""
    return each(flatten_op, input, start_dim, end_dim)


def matmul(
    a: Blob,
    b: Blob,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
) -> Blob:
    """The product of matrices, or of batches of them."""

    def one(x: Tensor, y: Tensor) -> Tensor:
        x = transpose_op(x, -1, -2) if transpose_a else x
        y = transpose_op(y, -1, -2) if transpose_b else y
        return matmul_op(x, y)

    return each(one, a, b)


def cast(x: Blob, dtype: torch.dtype, name: str | None = None) -> Blob:
    """The same values in another dtype."""
    return each(cast_op, x, dtype)


def transpose(a: Blob, perm: Sequence[int] | None = None, name: str | None = None) -> Blob:
    """The dims in another order; without one, reversed."""
    order = tuple(reversed(range(len(a.shape)))) if perm is None else tuple(perm)
    return each(permute, a, order)


def concat(
    inputs: Sequence[Blob] | None = None,
    axis: int = 0,
    max_dim_size: int | None = None,
    name: str | None = None,
    values: Sequence[Blob] | None = None,
) -> Blob:
    """Blobs one after the other along a dim."""
    return each(cat, list(inputs or values or ()), axis)


def stack(inputs: Sequence[Blob], axis: int = 0, name: str | None = None) -> Blob:
    """Blobs one after the other along a new dim."""
    return each(stack_op, list(inputs), axis)


def squeeze(input: Blob, axis: Sequence[int] | None = None, name: str | None = None) -> Blob:
    """Without dims of size 1: all of them, or those in `axis`."""
    dims = axis or [d for d, size in enumerate(input.shape) if size == 1]
    for dim in sorted((d % len(input.shape) for d in dims), reverse=True):
        input = each(squeeze_op, input, dim)
    return input


def expand_dims(input: Blob, axis: int, name: str | None = None) -> Blob:
    """With a new dim of size 1."""
    return each(unsqueeze, input, axis)


def gather(
    params: Blob, indices: Blob, validate_indices: object = None, axis: int = 0,
    batch_dims: int = 0, name: str | None = None,
) -> Blob:  # fmt: skip
    """The slices of `params` along a dim that `indices` names."""

    def one(x: Tensor, index: Tensor) -> Tensor:
        flat = reshape_op(cast_op(index, torch.int64), (-1,))
        found = index_select(x, axis, flat)
        shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
        return reshape_op(found, shape)

    return each(one, params, indices)


def where(
    condition: Blob,
    x: Blob | Number | None = None,
    y: Blob | Number | None = None,
    name: str | None = None,
) -> Blob:
    """The elements of `x` where the condition holds, else those of `y`."""
    return each(lambda c, a, b: where_op(cast_op(c, torch.bool), a, b), condition, x, y)


def slice(
    x: Blob, begin: Sequence[int | None], size: Sequence[int | None], name: str | None = None
) -> Blob:
    """From `begin` on, so many of each dim; None or -1 is to the end."""

    def one(tensor: Tensor) -> Tensor:
        for dim, (first, count) in enumerate(zip(begin, size, strict=True)):
            start = first or 0
            rest = tensor.shape[dim] - start
            tensor = narrow(tensor, dim, start, rest if count in (None, -1) else count)
        return tensor

    return each(one, x)


def identity(x: Blob, name: str | None = None) -> Blob:
    """The same value."""
    return each(clone, x)


def ones_like(like: Blob, dtype: torch.dtype | None = None, name: str | None = None) -> Blob:
    """Ones in the shape of another blob."""
    return each(lambda x: ones_like_op(x, dtype=dtype), like)


def zeros_like(like: Blob, dtype: torch.dtype | None = None, name: str | None = None) -> Blob:
    """Zeros in the shape of another blob."""
    return each(lambda x: zeros_like_op(x, dtype=dtype), like)


def parallel_cast(
    input: Blob,
    name: str | None = None,
    distribute: Distribute | None = None,
    gradient_distribute: Distribute | None = None,
) -> Blob:
    """The same value, laid out so, and its gradient."""
    return input.with_layouts(distribute, gradient_distribute)

"""Sparse tensors in coordinate form (`flow.sparse`): products, sums and softmax of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .engine.argument_types import DeviceLike, Number
from .engine.ops.creation import tensor
from .engine.ops.sparse_tensor import SparseTensor, log_softmax, mm
from .engine.tensor import Tensor
from .errors import OnefoldIndexError, OnefoldValueError, ShapeError

__all__ = ["SparseTensor", "addmm", "log_softmax", "mm", "softmax", "sum"]


def sparse_coo_tensor(
    indices: object,
    values: object,
    size: Sequence[int] | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:
    """A sparse tensor of values (count, *dense dims) at the places `indices` (sparse dims, count).

    Without `size` it is as large as the places need. Raises ShapeError for other shapes, and
    OnefoldIndexError for places outside of `size`, if `check_invariants` is true or there is none.

    >>> import onefold as flow
    >>> x = flow.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
    >>> flow.sparse.mm(x, flow.ones(3, 1))
    tensor([[3.],
            [9.]])
    """
    kept = values if isinstance(values, Tensor) else tensor(values)
    places = indices if isinstance(indices, Tensor) else tensor(indices)
    kept, places = kept.to(dtype or kept.dtype), places.to(torch.int64)
    if kept.is_local:
        kept = kept if device is None else kept.to(device)
        places = places.to(kept.device)
    if places.ndim != 2 or not kept.ndim or places.shape[1] != kept.shape[0]:
        raise ShapeError(
            "sparse_coo_tensor takes indices (sparse dims, count) and values (count, *dense dims), "
            f"but got the shapes {tuple(places.shape)} and {tuple(kept.shape)}"
        )
    sparse_dims, dense = places.shape[0], tuple(kept.shape[1:])
    checks = size is None or check_invariants
    ends = [end + 1 for end in places.amax(1).tolist()] if checks and places.numel() else []
    if ends and (least := min(places.amin(1).tolist())) < 0:
        raise OnefoldIndexError(f"sparse_coo_tensor: a place has the negative index {least}")
    shape = tuple(size) if size is not None else (*(ends or [0] * sparse_dims), *dense)
    if len(shape) != sparse_dims + len(dense) or shape[sparse_dims:] != dense:
        raise OnefoldValueError(
            f"sparse_coo_tensor: size must have {sparse_dims} sparse dims and then {dense}, the "
            f"shape of each value, but is {shape}"
        )
    if any(end > length for end, length in zip(ends, shape, strict=False)):
        raise OnefoldIndexError(f"sparse_coo_tensor: a place is outside of the size {shape}")
    if requires_grad:
        kept = kept.detach().requires_grad_()
    return SparseTensor(places, kept, shape, bool(is_coalesced))


def addmm(
    mat: Tensor, mat1: SparseTensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2); with a beta of 0 `mat` is not read, as in torch."""
    product: Tensor = alpha * mm(mat1, mat2)
    return product if beta == 0 else beta * mat + product


def sum(
    input: SparseTensor, dim: int | Sequence[int] | None = None, dtype: torch.dtype | None = None
) -> Any:
    """The sum of all elements, or over some dims: a sparse tensor of the others."""
    return (input if dtype is None else input.to(dtype)).sum(dim)


def softmax(input: SparseTensor, dim: int, *, dtype: torch.dtype | None = None) -> SparseTensor:
    """The softmax over the elements that are kept along a dim."""
    found = log_softmax(input if dtype is None else input.to(dtype), dim)
    return found._with(found._values().exp())


def _of(dtype: torch.dtype) -> Callable[..., SparseTensor]:
    def made(indices: Tensor, values: Tensor, size: Sequence[int] | None = None) -> SparseTensor:
        return sparse_coo_tensor(indices, values, size, dtype=dtype)

    made.__doc__ = f"`sparse_coo_tensor` with values of {dtype}, by its old name."
    return made


FloatTensor, DoubleTensor, HalfTensor = _of(torch.float32), _of(torch.float64), _of(torch.float16)
LongTensor, IntTensor = _of(torch.int64), _of(torch.int32)

"""Reductions and scans: selects the kernel of `reductions`, `argreduce`, `variance` or `scan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import inf, isinf, prod as product
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from ... import reduce_ref as torchs
from ...reduce_ref import Dims
from ..gather.pick_kernels import picked, placed
from ..sort.order_statistics import of_rank, suits
from . import scan_kernels
from .argreduce_kernels import extreme, find, place_in_whole
from .reduction_tiles import (
    NUMBERS,
    dims_of,
    from_memory_order,
    in_order,
    last_group,
    memory_order,
    reduced_shape,
)
from .reductions import divisor, reduce_dims, sum_dtype
from .scan_kernels import scan
from .variance_kernels import logsumexp_dims, variance

Rest = ParamSpec("Rest")
Found = TypeVar("Found", Tensor, tuple[Tensor, Tensor])

# Left to torch: dtypes that Triton lacks, and reductions of no elements: errors and neutral
# values.


def _suits(x: Tensor, *others: torch.dtype) -> bool:
    """Whether Triton works on these: known numbers, and some of them."""
    return x.numel() > 0 and NUMBERS.issuperset((x.dtype, *others))


def _or_torch(
    kernel: Callable[Concatenate[Tensor, Rest], Found],
) -> Callable[Concatenate[Tensor, Rest], Found]:
    """The kernel where it suits the tensor and the dtypes among its arguments, else the reference.

    The reference is the function of the same name.
    """
    reference = getattr(torchs, kernel.__name__)

    @wraps(kernel)
    def run(x: Tensor, /, *args: Rest.args, **named: Rest.kwargs) -> Found:
        dtypes = [arg for arg in args if isinstance(arg, torch.dtype)]
        chosen: Callable[Concatenate[Tensor, Rest], Found]
        chosen = kernel if _suits(x, *dtypes) else reference
        return chosen(x, *args, **named)

    return run


@_or_torch
def total(x: Tensor, dim: Dims, keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    if dtype is torch.bool:
        return torchs.total(x, dim, keepdim, dtype)
    wanted = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    return reduce_dims(x, dims_of(dim, x.ndim), keepdim, "sum", wanted, sum_dtype(wanted))


@_or_torch
def sum_rows(x: Tensor) -> Tensor:
    dtype = x.dtype if x.dtype.is_floating_point else torch.int64
    return reduce_dims(x, tuple(range(x.ndim - 1)), False, "sum", dtype, sum_dtype(dtype))


@_or_torch
def mean(x: Tensor, dim: Dims, keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    if not (dtype or x.dtype).is_floating_point:
        return torchs.mean(x, dim, keepdim, dtype)
    count = product(x.shape[d] for d in dims_of(dim, x.ndim))
    return partial_mean(x, dim, keepdim, dtype, count)


@_or_torch
def partial_mean(
    x: Tensor, dim: Dims, keepdim: bool, dtype: torch.dtype | None, count: int
) -> Tensor:
    wanted, dims = dtype or x.dtype, dims_of(dim, x.ndim)
    if not wanted.is_floating_point:
        return torchs.partial_mean(x, dim, keepdim, dtype, count)
    return reduce_dims(x, dims, keepdim, "sum", wanted, finish="mean", count=count)


@_or_torch
def prod(x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    dtype = x.dtype if x.dtype.is_floating_point else torch.int64
    return reduce_dims(x, dims_of(dim, x.ndim), keepdim and dim is not None, "prod", dtype)


@_or_torch
def amax(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return reduce_dims(x, dims_of(dim, x.ndim), keepdim, "max", x.dtype)


@_or_torch
def amin(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return reduce_dims(x, dims_of(dim, x.ndim), keepdim, "min", x.dtype)


@_or_torch
def any_of(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return _whether(x, dim, keepdim, "max")


@_or_torch
def all_of(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return _whether(x, dim, keepdim, "min")


def _whether(x: Tensor, dim: Dims, keepdim: bool, kind: str) -> Tensor:
    dims = () if dim == () else dims_of(dim, x.ndim)
    dtype = torch.uint8 if x.dtype is torch.uint8 else torch.bool
    return reduce_dims(x, dims, keepdim, kind, dtype, torch.int32, map="nonzero")


@_or_torch
def argmax(x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    return extreme(x, dims_of(dim, x.ndim), keepdim, False, False)[1]


@_or_torch
def argmin(x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    return extreme(x, dims_of(dim, x.ndim), keepdim, True, False)[1]


@_or_torch
def max_along(x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    return extreme(x, dims_of(dim, x.ndim), keepdim, False, True)


@_or_torch
def min_along(x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    return extreme(x, dims_of(dim, x.ndim), keepdim, True, True)


def median(x: Tensor) -> Tensor:
    flat = x.reshape(-1)
    return of_rank(flat, 0, "median")[0].reshape(()) if suits(flat, 0) else torchs.median(x)


def nanmedian(x: Tensor) -> Tensor:
    flat = x.reshape(-1)
    return of_rank(flat, 0, "nanmedian")[0].reshape(()) if suits(flat, 0) else torchs.nanmedian(x)


def median_along(x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    if not suits(x, dim):
        return torchs.median_along(x, dim, keepdim)
    return _squeezed(of_rank(x, dim, "median"), dim, keepdim)


def nanmedian_along(x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    if not suits(x, dim):
        return torchs.nanmedian_along(x, dim, keepdim)
    return _squeezed(of_rank(x, dim, "nanmedian"), dim, keepdim)


def _squeezed(found: tuple[Tensor, Tensor], dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


@_or_torch
def pick(x: Tensor, index: Tensor, dim: int, keepdim: bool) -> Tensor:
    return picked(x, index, dim, 0)


@_or_torch
def pick_here(x: Tensor, index: Tensor, dim: int, keepdim: bool, start: int) -> Tensor:
    return picked(x, index, dim, start)


def place(
    values: Tensor, index: Tensor, shape: Sequence[int], dim: int, keepdim: bool, start: int
) -> Tensor:
    if not _suits(values) or 0 in shape:
        return torchs.place(values, index, shape, dim, keepdim, start)
    return placed(values, index, tuple(shape), dim, start)


def first_index(x: Tensor, value: Tensor, dim: int, keepdim: bool, start: int) -> Tensor:
    if not _suits(x) or x.dtype is not value.dtype or x.ndim == 0:
        return torchs.first_index(x, value, dim, keepdim, start)
    found = find(x, value, dims_of(dim, x.ndim), start)
    return found if keepdim else found.squeeze(dim)


def first_index_flat(
    x: Tensor, value: Tensor, offset: Sequence[int], shape: Sequence[int], target: Sequence[int]
) -> Tensor:
    if not _suits(x) or x.dtype is not value.dtype:
        return torchs.first_index_flat(x, value, offset, shape, target)
    found = find(x.reshape(-1), value, (0,), 0).reshape(())
    inner = 1
    sizes = zip(reversed(x.shape), reversed(offset), reversed(shape), strict=True)
    for size, start, whole in sizes:
        if size != whole:
            place_in_whole(found, size * inner, whole * inner, start * inner)
        inner *= whole
    return found.reshape(tuple(target))


@_or_torch
def var(x: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    return variance(x, dims_of(dim, x.ndim), correction, keepdim, False)


@_or_torch
def std(x: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    return variance(x, dims_of(dim, x.ndim), correction, keepdim, True)


def variance_around(x: Tensor, mean: Tensor, dim: Dims, freedom: float, keepdim: bool) -> Tensor:
    dims = dims_of(dim, x.ndim)
    if not _suits(x) or mean.shape != reduced_shape(x.shape, dims, True):
        return torchs.variance_around(x, mean, dim, freedom, keepdim)
    lies = memory_order(tuple(x.shape), x.stride())
    if lies is not None:
        turned, center = x.permute(lies), mean.permute(lies)
        y = variance_around(turned, center, in_order(lies, dims), freedom, True)
        return from_memory_order(y, lies, dims, keepdim)
    count, less = divisor(freedom)
    center = mean.expand(reduced_shape(x.shape, last_group(x.shape, dims), True))
    return reduce_dims(
        x, dims, keepdim, "sum", x.dtype, map="apart", finish="mean", count=count, order=less,
        center=center.contiguous(),
    )  # fmt: skip


@_or_torch
def vector_norm(x: Tensor, ord: float, dim: Dims, keepdim: bool) -> Tensor:
    if not x.dtype.is_floating_point:
        return torchs.vector_norm(x, ord, dim, keepdim)
    kind, map, finish = "sum", "power", "root"
    if isinf(ord):
        kind, map, finish = "max" if ord == inf else "min", "abs", "none"
    elif ord in (0, 1):
        map, finish = "abs" if ord else "nonzero", "none"
    elif ord == 2:
        map, finish = "square", "sqrt"
    order = float(ord) if map == "power" else 0
    dims = dims_of(dim, x.ndim)
    return reduce_dims(x, dims, keepdim, kind, x.dtype, map=map, finish=finish, order=order)


@_or_torch
def logsumexp(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    if not x.dtype.is_floating_point:
        x = x.to(torch.get_default_dtype())
    return logsumexp_dims(x, dims_of(dim, x.ndim), keepdim, x.dtype)


@_or_torch
def cumsum(x: Tensor, dim: int, back: bool) -> Tensor:
    return scan(x, dim, False, back)


@_or_torch
def cumprod(x: Tensor, dim: int, back: bool) -> Tensor:
    return scan(x, dim, True, back)


def recurrence(a: Tensor, b: Tensor, dim: int, back: bool) -> Tensor:
    if not _suits(a, b.dtype) or a.dtype is not b.dtype:
        return torchs.recurrence(a, b, dim, back)
    return scan_kernels.recurrence(a, b, dim, back)

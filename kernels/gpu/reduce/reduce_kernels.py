"""Reductions and scans: selects the kernel of `reductions`, `argreduce`, `variance` or `scan`."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isinf

import torch
from torch import Tensor

from ... import reduce_ref as torchs
from ..gather import pick_kernels
from ..gather.pick_kernels import picked, placed
from ..sort.order_statistics import of_rank, suits
from . import argreduce_kernels, reductions, scan_kernels, variance_kernels
from .argreduce_kernels import extreme, find, place_in_whole
from .reduction_tiles import NUMBERS, dims_of, groups
from .reductions import divisor, reduce_dims
from .scan_kernels import scan
from .variance_kernels import logsumexp_dims, variance

Dims = int | tuple[int, ...] | None

TORCH = {
    "complex numbers, unsigned integers above 8 bits": "Triton has no such numbers",
    "reductions of no elements": "torch has the errors and the neutral values",
    "extremum_of_none": "fills, with nothing to reduce",
}


def _suits(x: Tensor, *others: torch.dtype | None) -> bool:
    """Whether Triton works on these: known numbers, and some of them."""
    dtypes = (x.dtype, *(dtype for dtype in others if dtype is not None))
    return x.numel() > 0 and NUMBERS.issuperset(dtypes)


def total(x: Tensor, dim: Dims, keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    if not _suits(x, dtype) or dtype is torch.bool:
        return torchs.total(x, dim, keepdim, dtype)
    wanted = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    return reduce_dims(x, dims_of(dim, x.ndim), keepdim, "sum", wanted, _sum_wide(wanted))


def _sum_wide(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_floating_point:
        return torch.float64 if dtype is torch.float64 else torch.float32
    return torch.int64


def sum_rows(x: Tensor) -> Tensor:
    if not _suits(x):
        return torchs.sum_rows(x)
    dtype = x.dtype if x.dtype.is_floating_point else torch.int64
    return reduce_dims(x, tuple(range(x.ndim - 1)), False, "sum", dtype, _sum_wide(dtype))


def mean(x: Tensor, dim: Dims, keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    wanted = dtype or x.dtype
    if not _suits(x, dtype) or not wanted.is_floating_point:
        return torchs.mean(x, dim, keepdim, dtype)
    dims = dims_of(dim, x.ndim)
    return _mean_of(x, dims, keepdim, wanted, _count(x, dims))


def partial_mean(
    x: Tensor, dim: Dims, keepdim: bool, dtype: torch.dtype | None, count: int
) -> Tensor:
    wanted = dtype or x.dtype
    if not _suits(x, dtype) or not wanted.is_floating_point:
        return torchs.partial_mean(x, dim, keepdim, dtype, count)
    return _mean_of(x, dims_of(dim, x.ndim), keepdim, wanted, count)


def _mean_of(
    x: Tensor, dims: tuple[int, ...], keepdim: bool, dtype: torch.dtype, count: int
) -> Tensor:
    return reduce_dims(x, dims, keepdim, "sum", dtype, finish="mean", count=count)


def _count(x: Tensor, dims: Sequence[int]) -> int:
    count = 1
    for dim in dims:
        count *= x.shape[dim]
    return count


def prod(x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if not _suits(x):
        return torchs.prod(x, dim, keepdim)
    dtype = x.dtype if x.dtype.is_floating_point else torch.int64
    dims = dims_of(dim, x.ndim)
    return reduce_dims(x, dims, keepdim and dim is not None, "prod", dtype)


def amax(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    if not _suits(x):
        return torchs.amax(x, dim, keepdim)
    return reduce_dims(x, dims_of(dim, x.ndim), keepdim, "max", x.dtype)


def amin(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    if not _suits(x):
        return torchs.amin(x, dim, keepdim)
    return reduce_dims(x, dims_of(dim, x.ndim), keepdim, "min", x.dtype)


def any_of(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    if not _suits(x):
        return torchs.any_of(x, dim, keepdim)
    return _whether(x, dim, keepdim, "max")


def all_of(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    if not _suits(x):
        return torchs.all_of(x, dim, keepdim)
    return _whether(x, dim, keepdim, "min")


def _whether(x: Tensor, dim: Dims, keepdim: bool, kind: str) -> Tensor:
    dims = () if dim == () else dims_of(dim, x.ndim)
    dtype = torch.uint8 if x.dtype is torch.uint8 else torch.bool
    return reduce_dims(x, dims, keepdim, kind, dtype, torch.int32, map="nonzero")


def argmax(x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if not _suits(x):
        return torchs.argmax(x, dim, keepdim)
    return extreme(x, dims_of(dim, x.ndim), keepdim, False, False)[1]


def argmin(x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if not _suits(x):
        return torchs.argmin(x, dim, keepdim)
    return extreme(x, dims_of(dim, x.ndim), keepdim, True, False)[1]


def max_along(x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    if not _suits(x):
        return torchs.max_along(x, dim, keepdim)
    return extreme(x, dims_of(dim, x.ndim), keepdim, False, True)


def min_along(x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    if not _suits(x):
        return torchs.min_along(x, dim, keepdim)
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
    values, indices = of_rank(x, dim, "median")
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def nanmedian_along(x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    if not suits(x, dim):
        return torchs.nanmedian_along(x, dim, keepdim)
    values, indices = of_rank(x, dim, "nanmedian")
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def pick(x: Tensor, index: Tensor, dim: int, keepdim: bool) -> Tensor:
    if not _suits(x):
        return torchs.pick(x, index, dim, keepdim)
    return picked(x, index, dim, 0)


def pick_here(x: Tensor, index: Tensor, dim: int, keepdim: bool, start: int) -> Tensor:
    if not _suits(x):
        return torchs.pick_here(x, index, dim, keepdim, start)
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


def var(x: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    if not _suits(x):
        return torchs.var(x, dim, correction, keepdim)
    return variance(x, dims_of(dim, x.ndim), correction, keepdim, False)


def std(x: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    if not _suits(x):
        return torchs.std(x, dim, correction, keepdim)
    return variance(x, dims_of(dim, x.ndim), correction, keepdim, True)


def variance_around(x: Tensor, mean: Tensor, dim: Dims, freedom: float, keepdim: bool) -> Tensor:
    dims = dims_of(dim, x.ndim)
    if not _suits(x) or mean.shape != _kept_shape(x, dims):
        return torchs.variance_around(x, mean, dim, freedom, keepdim)
    if [reduced for _, reduced in groups(x.shape, dims)].count(True) > 1:
        kept = [d for d in range(x.ndim) if d not in dims]
        x, mean = x.permute(*kept, *dims), mean.permute(*kept, *dims)
        result = variance_around(x, mean, tuple(range(len(kept), x.ndim)), freedom, False)
        return result.reshape(_kept_shape_of(x, kept, dims)) if keepdim else result
    count, less = divisor(freedom)
    return reduce_dims(
        x, dims, keepdim, "sum", x.dtype, map="apart", finish="mean", count=count, order=less,
        center=mean.contiguous(),
    )  # fmt: skip


def _kept_shape(x: Tensor, dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(1 if d in dims else size for d, size in enumerate(x.shape))


def _kept_shape_of(x: Tensor, kept: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """The shape with dims kept of a tensor that now has the reduced dims last."""
    sizes = dict(zip(kept, x.shape, strict=False))
    return tuple(sizes.get(d, 1) for d in range(len(kept) + len(dims)))


def vector_norm(x: Tensor, ord: float, dim: Dims, keepdim: bool) -> Tensor:
    if not _suits(x) or not x.dtype.is_floating_point:
        return torchs.vector_norm(x, ord, dim, keepdim)
    dims = dims_of(dim, x.ndim)
    if isinf(ord):
        return reduce_dims(x, dims, keepdim, "max" if ord == inf else "min", x.dtype, map="abs")
    if ord in (0, 1):
        return reduce_dims(x, dims, keepdim, "sum", x.dtype, map="abs" if ord else "nonzero")
    if ord == 2:
        return reduce_dims(x, dims, keepdim, "sum", x.dtype, map="square", finish="sqrt")
    order = float(ord)
    return reduce_dims(x, dims, keepdim, "sum", x.dtype, map="power", finish="root", order=order)


def logsumexp(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    if not _suits(x):
        return torchs.logsumexp(x, dim, keepdim)
    dtype = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
    if not x.dtype.is_floating_point:
        x = x.to(dtype)
    return logsumexp_dims(x, dims_of(dim, x.ndim), keepdim, dtype)


def cumsum(x: Tensor, dim: int, back: bool) -> Tensor:
    return scan(x, dim, False, back) if _suits(x) else torchs.cumsum(x, dim, back)


def cumprod(x: Tensor, dim: int, back: bool) -> Tensor:
    return scan(x, dim, True, back) if _suits(x) else torchs.cumprod(x, dim, back)


def recurrence(a: Tensor, b: Tensor, dim: int, back: bool) -> Tensor:
    if not _suits(a, b.dtype) or a.dtype is not b.dtype:
        return torchs.recurrence(a, b, dim, back)
    return scan_kernels.recurrence(a, b, dim, back)


CASES = [
    *reductions.CASES,
    *argreduce_kernels.CASES,
    *variance_kernels.CASES,
    *pick_kernels.CASES,
    *scan_kernels.CASES,
]

"""Reductions and scans on local tensors, also on empty shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from .host_memory import on_host

Dims: TypeAlias = int | tuple[int, ...] | None  # None: all


def total(x: Tensor, dim: Dims, keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    """The sum over `dim`; integers and bools are summed as int64."""
    return torch.sum(x, dim, keepdim, dtype=dtype)


def sum_rows(x: Tensor) -> Tensor:
    """The (n,) sum over all rows of x[..., n]."""
    return (x.flatten(0, -2) if x.ndim > 1 else x.unsqueeze(0)).sum(0)


def mean(x: Tensor, dim: Dims, keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    """The mean over `dim`."""
    return torch.mean(x, dim, keepdim, dtype=dtype)


def prod(x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    """The product over one dim, or over all."""
    return torch.prod(x) if dim is None else torch.prod(x, dim, keepdim)


def amax(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """The greatest elements over `dim`; nan where there is one."""
    return torch.amax(x, () if dim is None else dim, keepdim)


def amin(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """The least elements over `dim`; nan where there is one."""
    return torch.amin(x, () if dim is None else dim, keepdim)


def any_of(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """Whether some element over `dim` is not zero; over no dim where it is ()."""
    if dim is None and not keepdim:
        return torch.any(x)
    return torch.any(x, tuple(range(x.ndim)) if dim is None else dim, keepdim=keepdim)


def all_of(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """Whether every element over `dim` is not zero; over no dim where it is ()."""
    if dim is None and not keepdim:
        return torch.all(x)
    return torch.all(x, tuple(range(x.ndim)) if dim is None else dim, keepdim=keepdim)


def argmax(x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    """Where the first greatest element is along `dim` (None: in the flattened tensor)."""
    return torch.argmax(x, dim, keepdim)


def argmin(x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    """Where the first least element is along `dim` (None: in the flattened tensor)."""
    return torch.argmin(x, dim, keepdim)


def max_along(x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The greatest elements along `dim`, and where the first of them is."""
    values, indices = torch.max(x, dim, keepdim)
    return values, indices


def min_along(x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The least elements along `dim`, and where the first of them is."""
    values, indices = torch.min(x, dim, keepdim)
    return values, indices


def median(x: Tensor) -> Tensor:
    """The median of all elements, the lower of two."""
    return torch.median(_dense(x))


def nanmedian(x: Tensor) -> Tensor:
    """`median` of what is a number."""
    return torch.nanmedian(_dense(x))


def median_along(x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The medians along `dim`, the lower of two, and where one is."""
    values, indices = torch.median(_dense(x), dim, keepdim)
    return values, indices


def nanmedian_along(x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """`median_along` of what is a number."""
    values, indices = torch.nanmedian(_dense(x), dim, keepdim)
    return values, indices


def _dense(x: Tensor) -> Tensor:
    # The CPU's medians read memory that is not the tensor's where it is expanded.
    return x.contiguous() if on_host(x) else x


def var(x: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    """The variance over `dim`, with the count less `correction` below."""
    return _spread_of(torch.var, x, dim, correction, keepdim)


def std(x: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    """The root of `var`."""
    return _spread_of(torch.std, x, dim, correction, keepdim)


def _spread_of(
    function: Callable[..., Tensor], x: Tensor, dim: Dims, correction: float, keepdim: bool
) -> Tensor:
    if x.numel() == 0:  # torch warns even where a shard has no result at all
        nothing = torch.sum(x.real, dim, keepdim)
        if nothing.numel() == 0:
            return nothing
    return function(x, dim, correction=correction, keepdim=keepdim)


def vector_norm(x: Tensor, ord: float, dim: Dims, keepdim: bool) -> Tensor:
    """(sum of |x|**ord)**(1/ord), the extremes for ord = +-inf, the non-zeros for ord = 0."""
    norm: Tensor = torch.linalg.vector_norm(x, ord, dim, keepdim)
    return norm


def logsumexp(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """log(sum(exp(x))) over `dim`."""
    return torch.logsumexp(x, dim, keepdim)  # type: ignore[arg-type]


def partial_mean(
    x: Tensor, dim: Dims, keepdim: bool, dtype: torch.dtype | None, count: int
) -> Tensor:
    """The sum over `dim` divided by `count`, the size of the whole of which `x` is a part.

    Summed in float32 when the result is of half precision: the sum of a part may overflow it.
    """
    wanted = dtype or x.dtype
    wide = torch.float32 if wanted in (torch.float16, torch.bfloat16) else wanted
    total = torch.sum(x, dim, keepdim, dtype=wide)
    return total.div_(count).to(wanted)


def variance_around(x: Tensor, mean: Tensor, dim: Dims, freedom: float, keepdim: bool) -> Tensor:
    """The sum of |x - mean|**2 over `dim` divided by `freedom`."""
    apart = x - mean
    squares = torch.abs(apart).square_() if apart.is_complex() else apart.square_()
    return torch.sum(squares, dim, keepdim).div_(freedom)


def extremum_of_none(x: Tensor, shape: Sequence[int], kind: str) -> Tensor:
    """What is neutral in a "max" (the least number of the dtype) or a "min", in `shape`."""
    if x.dtype is torch.bool:
        value: float = kind == "min"
    elif x.dtype.is_floating_point:
        value = float("-inf") if kind == "max" else float("inf")
    else:
        info = torch.iinfo(x.dtype)
        value = info.min if kind == "max" else info.max
    return x.new_full(shape, value)


def pick(x: Tensor, index: Tensor, dim: int, keepdim: bool) -> Tensor:
    """x at `index` along `dim`; the index keeps the dim with size 1, or lacks it."""
    if keepdim:
        return torch.gather(x, dim, index)
    return torch.gather(x, dim, index.unsqueeze(dim)).squeeze(dim)


def pick_here(x: Tensor, index: Tensor, dim: int, keepdim: bool, start: int) -> Tensor:
    """`pick` for a part of x that begins at `start` along `dim`: 0 where the index is elsewhere."""
    if x.shape[dim] == 0:
        return x.new_zeros(index.shape)
    local = index - start
    here = (local >= 0) & (local < x.shape[dim])
    found = pick(x, local.clamp_(0, x.shape[dim] - 1), dim, keepdim)
    return torch.where(here, found, 0)


def place(
    values: Tensor, index: Tensor, shape: Sequence[int], dim: int, keepdim: bool, start: int
) -> Tensor:
    """Zeros in `shape` but for `values` at `index` along `dim`; the part begins at `start`."""
    y = values.new_zeros(shape)
    if y.numel() == 0:
        return y
    if not keepdim:
        values, index = values.unsqueeze(dim), index.unsqueeze(dim)
    local = index - start
    here = (local >= 0) & (local < shape[dim])
    return y.scatter_(dim, local.clamp_(0, shape[dim] - 1), torch.where(here, values, 0))


_NOWHERE = torch.iinfo(torch.int64).max


def first_index(x: Tensor, value: Tensor, dim: int, keepdim: bool, start: int) -> Tensor:
    """Where along `dim` x first equals `value` (nan equals nan), counted from -`start`.

    The greatest int64 where it never does.
    """
    if x.ndim == 0:
        return torch.zeros_like(x, dtype=torch.int64)
    if not keepdim:
        value = value.unsqueeze(dim)
    if x.shape[dim] == 0:
        where = torch.full(value.shape, _NOWHERE, dtype=torch.int64, device=x.device)
    else:
        same = (x == value) | (torch.isnan(x) & torch.isnan(value))
        found, where = torch.max(same, dim, True)
        where = torch.where(found, where + start, _NOWHERE)
    return where if keepdim else where.squeeze(dim)


def first_index_flat(
    x: Tensor, value: Tensor, offset: Sequence[int], shape: Sequence[int], target: Sequence[int]
) -> Tensor:
    """Where in the flattened whole x first equals `value`.

    x is the part at `offset` of a whole of `shape`; elements of a part come in the order that
    they have in the whole. The result has shape `target` (all its dims of size 1).
    """
    flat = x.reshape(-1)
    found = first_index(flat, value.reshape(()), 0, False, 0)
    if flat.numel() == 0 or int(found) == _NOWHERE:
        return torch.full(target, _NOWHERE, dtype=torch.int64, device=x.device)
    rest, index, step = int(found), 0, 1
    for size, start, whole in zip(
        reversed(x.shape), reversed(offset), reversed(shape), strict=True
    ):
        index += (rest % size + start) * step
        rest //= size
        step *= whole
    return torch.full(target, index, dtype=torch.int64, device=x.device)


def cumsum(x: Tensor, dim: int, back: bool) -> Tensor:
    """The sum of each element and all before it, or (`back`) after it, along `dim`."""
    return x.flip(dim).cumsum(dim).flip(dim) if back else torch.cumsum(x, dim)


def cumprod(x: Tensor, dim: int, back: bool) -> Tensor:
    """The product of each element and all before it, or (`back`) after it, along `dim`."""
    return x.flip(dim).cumprod(dim).flip(dim) if back else torch.cumprod(x, dim)


def recurrence(a: Tensor, b: Tensor, dim: int, back: bool) -> Tensor:
    """y[i] = b[i] + a[i] * y[i - 1] along `dim`, or (`back`) y[i] = b[i] + a[i] * y[i + 1].

    In as many steps as the size has bits: each joins twice as many elements. Source: Hillis and
    Steele, "Data Parallel Algorithms" (1986).
    """
    size = b.shape[dim] if b.ndim else 0
    y, step = b.clone(), 1
    while step < size:
        here, there = slice(step, None), slice(0, size - step)
        if back:
            here, there = there, here
        mine, other = (_part(a, dim, here), _part(a, dim, there))
        added = mine * _part(y, dim, there)
        _part(y, dim, here).add_(added)
        joined = a.clone()
        _part(joined, dim, here).copy_(mine * other)
        a, step = joined, 2 * step
    return y


def _part(x: Tensor, dim: int, along: slice) -> Tensor:
    return x.movedim(dim, 0)[along].movedim(0, dim)

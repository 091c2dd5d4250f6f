"""Reductions that take more than one torch call, and those of empty shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

Dims: TypeAlias = int | tuple[int, ...] | None  # None: all


def partial_mean(
    x: torch.Tensor,
    dim: Dims,
    keepdim: bool,
    dtype: torch.dtype | None,
    count: int,
) -> torch.Tensor:
    """The sum over `dim` divided by `count`, the size of the whole of which `x` is a part.

    Summed in float32 when the result is of half precision: the sum of a part may overflow it.
    """
    wanted = dtype or x.dtype
    wide = torch.float32 if wanted in (torch.float16, torch.bfloat16) else wanted
    total = torch.sum(x, dim, keepdim, dtype=wide)
    return total.div_(count).to(wanted)


def variance_around(
    x: torch.Tensor,
    mean: torch.Tensor,
    dim: Dims,
    freedom: float,
    keepdim: bool,
) -> torch.Tensor:
    """The sum of |x - mean|**2 over `dim` divided by `freedom`."""
    apart = x - mean
    squares = torch.abs(apart).square_() if apart.is_complex() else apart.square_()
    return torch.sum(squares, dim, keepdim).div_(freedom)


def extremum_of_none(x: torch.Tensor, shape: Sequence[int], kind: str) -> torch.Tensor:
    """What is neutral in a "max" (the least number of the dtype) or a "min", in `shape`."""
    if x.dtype is torch.bool:
        value: float = kind == "min"
    elif x.dtype.is_floating_point:
        value = float("-inf") if kind == "max" else float("inf")
    else:
        info = torch.iinfo(x.dtype)
        value = info.min if kind == "max" else info.max
    return x.new_full(shape, value)


def pick(x: torch.Tensor, index: torch.Tensor, dim: int, keepdim: bool) -> torch.Tensor:
    """x at `index` along `dim`; the index keeps the dim with size 1, or lacks it."""
    if keepdim:
        return torch.gather(x, dim, index)
    return torch.gather(x, dim, index.unsqueeze(dim)).squeeze(dim)


def pick_here(
    x: torch.Tensor, index: torch.Tensor, dim: int, keepdim: bool, start: int
) -> torch.Tensor:
    """`pick` for a part of x that begins at `start` along `dim`: 0 where the index is elsewhere."""
    if x.shape[dim] == 0:
        return x.new_zeros(index.shape)
    local = index - start
    here = (local >= 0) & (local < x.shape[dim])
    found = pick(x, local.clamp_(0, x.shape[dim] - 1), dim, keepdim)
    return torch.where(here, found, 0)


def place(
    values: torch.Tensor,
    index: torch.Tensor,
    shape: Sequence[int],
    dim: int,
    keepdim: bool,
    start: int,
) -> torch.Tensor:
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


def first_index(
    x: torch.Tensor, value: torch.Tensor, dim: int, keepdim: bool, start: int
) -> torch.Tensor:
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
    x: torch.Tensor,
    value: torch.Tensor,
    offset: Sequence[int],
    shape: Sequence[int],
    target: Sequence[int],
) -> torch.Tensor:
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


def product_of_others(x: torch.Tensor, dim: int | None) -> torch.Tensor:
    """For each element the product of the others along `dim` (None: of all), right at zeros too.

    Products of what stands before and behind; dividing the whole product would fail at zeros.
    """
    if dim is None:
        return product_of_others(x.reshape(-1), 0).reshape(x.shape)
    if x.ndim == 0 or x.numel() == 0:
        return torch.ones_like(x)
    one = torch.ones_like(x.narrow(dim, 0, 1))
    last = x.shape[dim] - 1
    before = torch.cat([one, x.narrow(dim, 0, last)], dim).cumprod(dim)
    behind = torch.cat([one, x.narrow(dim, 1, last).flip(dim)], dim).cumprod(dim).flip(dim)
    return before * behind


def reversed_cumsum(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The sum of each element and all behind it along `dim`."""
    return x.flip(dim).cumsum(dim).flip(dim)


# Gradients that formulas get wrong at zeros: torch's own, from torch's autograd.


def product_of_others_backward(dy: torch.Tensor, x: torch.Tensor, dim: int | None) -> torch.Tensor:
    """The gradient of `product_of_others`."""
    if x.ndim == 0 or x.numel() == 0:
        return torch.zeros_like(x)
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        y = product_of_others(leaf, dim)
        return _gradients(y, (leaf,), dy)[0]


def cumprod_backward(dy: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    """The gradient of cumprod."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return _gradients(torch.cumprod(leaf, dim), (leaf,), dy)[0]


def cumprod_backward_backward(
    ddx: torch.Tensor, dy: torch.Tensor, x: torch.Tensor, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of `cumprod_backward` for dy and x."""
    with torch.enable_grad():
        leaf, weight = x.detach().requires_grad_(), dy.detach().requires_grad_()
        y = torch.cumprod(leaf, dim)
        (dx,) = torch.autograd.grad(y, leaf, weight, create_graph=True)
        for_dy, for_x = _gradients(dx, (weight, leaf), ddx)
        return for_dy, for_x


def _gradients(
    y: torch.Tensor, leaves: tuple[torch.Tensor, ...], dy: torch.Tensor
) -> list[torch.Tensor]:
    found: list[torch.Tensor | None] = [*torch.autograd.grad(y, leaves, dy, allow_unused=True)]
    # The gradient of an only element is `dy` itself.
    return [
        torch.zeros_like(leaf) if grad is None else grad.clone() if leaf.numel() < 2 else grad
        for leaf, grad in zip(leaves, found, strict=True)
    ]

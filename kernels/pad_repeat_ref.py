"""Padding, repeat, diag_embed, and the gradients of padding and unfold on local tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Pads = Sequence[tuple[int, int]]  # per dim: how many elements before and after


def padded_index(size: int, before: int, after: int, mode: str) -> Tensor:
    """Which element stands at each place of a padded dim; `mode` as in torch's pad.

    Example: `padded_index(3, 2, 1, "reflect")` is [2, 1, 0, 1, 2, 1].
    """
    places = torch.arange(-before, size + after)
    if mode == "circular":
        return places % size
    if mode == "replicate":
        return places.clamp(0, size - 1)
    places = places.abs()
    return torch.where(places >= size, 2 * (size - 1) - places, places)


def pad_constant(x: Tensor, pads: Pads, value: float) -> Tensor:
    """Each dim with a number before and after; negative pads cut elements off."""
    return torch.constant_pad_nd(x, [size for both in reversed(pads) for size in both], value)


def pad(x: Tensor, pads: Pads, mode: str) -> Tensor:
    """Each dim padded with its own elements."""
    for dim, (before, after) in enumerate(pads):
        if before or after:
            index = padded_index(x.shape[dim], before, after, mode)
            x = x.index_select(dim, index.to(x.device))
    return x


def pad_grad(dy: Tensor, pads: Pads, mode: str) -> Tensor:
    """The gradient of `pad`: what each element became, added in a fixed order."""
    for dim, (before, after) in enumerate(pads):
        if before or after:
            shape = list(dy.shape)
            shape[dim] -= before + after
            index = padded_index(shape[dim], before, after, mode)
            dy = dy.new_zeros(shape).index_add_(dim, index.to(dy.device), dy)
    return dy


def repeat(x: Tensor, times: Sequence[int]) -> Tensor:
    """The tensor repeated as a whole along each dim; missing dims are in front."""
    return x.repeat(tuple(times))


def repeat_interleave(x: Tensor, count: int, dim: int) -> Tensor:
    """Each element of a dim repeated in its place."""
    return torch.repeat_interleave(x, count, dim)


def diag_embed(x: Tensor, shape: Sequence[int], offset: int, dim1: int, dim2: int) -> Tensor:
    """Zeros in `shape` with the last dim of `x` on the diagonal of two dims."""
    return torch.diagonal_scatter(x.new_zeros(tuple(shape)), x, offset, dim1, dim2)


def unfold_grad(dy: Tensor, dim: int, length: int, step: int) -> Tensor:
    """The gradient of `unfold` along a dim of this length: the windows added where they overlap."""
    count, size = dy.shape[dim], dy.shape[-1]
    starts = torch.arange(count, device=dy.device) * step
    index = (starts[:, None] + torch.arange(size, device=dy.device)).reshape(-1)
    flat = dy.movedim(-1, dim + 1).flatten(dim, dim + 1)
    shape = list(flat.shape)
    shape[dim] = length
    return dy.new_zeros(shape).index_add_(dim, index, flat)

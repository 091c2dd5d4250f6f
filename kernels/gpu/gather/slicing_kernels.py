"""Slices of shards: reading a slice, and writing one into zeros or into a copy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...slicing_ref import Cuts
from ..pointwise.copy_kernels import contiguous, copy_into, fill


def take(x: Tensor, cuts: Cuts | None, shape: Sequence[int]) -> Tensor:
    return _put(x, shape, None if cuts is None else (cuts[1], cuts[0]))


def put(dy: Tensor, cuts: Cuts | None, shape: Sequence[int]) -> Tensor:
    return _put(dy, shape, cuts)


def _put(
    x: Tensor, shape: Sequence[int], cuts: tuple[tuple[slice | int, ...], ...] | None
) -> Tensor:
    y = torch.empty(tuple(shape), dtype=x.dtype, device=x.device)
    if cuts is None:
        return fill(y, 0)
    part = y[cuts[0]]
    if part.numel() < y.numel():
        fill(y, 0)
    copy_into(part, x[cuts[1]])
    return y


def put_into(x: Tensor, value: Tensor | None, cuts: Cuts | None) -> Tensor:
    y = contiguous(x)
    if cuts is not None:
        mine, place = cuts
        if value is None:
            fill(y[mine], 0)
        else:
            copy_into(y[mine], value[place])
    return y

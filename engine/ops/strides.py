"""Strides: where the elements of a view would lie if its base were one array, row by row.

They decide, for every layout alike, what torch decides by the strides of one tensor: whether a
reshape is a view, and whether a tensor is contiguous.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from ..tensor import Tensor
from ..views import Step, base_of

Numbers = tuple[int, ...]


def has_strides_for(x: Tensor, shape: Numbers) -> bool:
    """Whether the elements of `x` lie so that a tensor of another shape can be a view of them."""
    base = base_of(x)
    return base is None or _can_view(tuple(x.shape), _strides(x), shape)


def has_contiguous_strides(x: Tensor) -> bool:
    """Whether the elements of `x` lie row by row."""
    return base_of(x) is None or _is_contiguous(tuple(x.shape), _strides(x))


def _strides(x: Tensor) -> Numbers:
    base = base_of(x)
    if base is None:
        return _row_major(tuple(x.shape))
    return _after(x._step, tuple(base.shape), _strides(base))


@lru_cache(maxsize=4096)
def _row_major(shape: Numbers) -> Numbers:
    return torch.empty(shape, device="meta").stride()


@lru_cache(maxsize=4096)
def _after(step: Step, shape: Numbers, strides: Numbers) -> Numbers:
    return step.on_one(torch.empty_strided(shape, strides, device="meta")).stride()


@lru_cache(maxsize=4096)
def _can_view(shape: Numbers, strides: Numbers, new: Numbers) -> bool:
    try:
        torch.empty_strided(shape, strides, device="meta").view(new)
    except RuntimeError:
        return False
    return True


@lru_cache(maxsize=4096)
def _is_contiguous(shape: Numbers, strides: Numbers) -> bool:
    return torch.empty_strided(shape, strides, device="meta").is_contiguous()

"""Strides: where the elements of a view would lie if its base were one array, row by row.

They decide, for every layout alike, what torch decides by the strides of one tensor: whether a
reshape is a view, and whether a tensor is contiguous.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from ..tensor import Tensor
from ..views import ViewStep, base_of

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
    if x.step.detaches:
        return _strides(base)
    return _after(x.step, tuple(base.shape), _strides(base))


@lru_cache(maxsize=4096)
def _row_major(shape: Numbers) -> Numbers:
    return torch.empty(shape, device="meta").stride()


@lru_cache(maxsize=4096)
def _after(step: ViewStep, shape: Numbers, strides: Numbers) -> Numbers:
    made = step.op.kernel(torch.empty_strided(shape, strides, device="meta"), *step.attrs)
    view: torch.Tensor = made if step.op.num_outputs == 1 else made[step.index]
    return view.stride()


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

"""Strides: where the elements of a view would lie if its base were one array, row by row.

They decide, for every layout alike, what torch decides by the strides of one tensor: whether a
reshape is a view, and whether a tensor is contiguous.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from ..tensor import Tensor
from ..views import ViewStep

Shape = tuple[int, ...]
Chain = tuple[Shape, *tuple[ViewStep, ...]]  # the shape of a base, and the steps from a view to it


def has_strides_for(x: Tensor, shape: Shape) -> bool:
    """Whether the elements of `x` lie so that a tensor of another shape can be a view of them."""
    return _can_view(_chain(x), shape)


def has_contiguous_strides(x: Tensor) -> bool:
    """Whether the elements of `x` lie row by row."""
    return _is_contiguous(_chain(x))


def _chain(x: Tensor) -> Chain:
    steps: list[ViewStep] = []
    while (base := getattr(x, "_base", None)) is not None:
        steps.append(x._step)
        x = base
    return (x.meta.shape, *steps)


@lru_cache(maxsize=4096)
def _can_view(chain: Chain, shape: Shape) -> bool:
    try:
        _on_one(chain).view(shape)
    except RuntimeError:
        return False
    return True


@lru_cache(maxsize=4096)
def _is_contiguous(chain: Chain) -> bool:
    return _on_one(chain).is_contiguous()


def _on_one(chain: Chain) -> torch.Tensor:
    """The view on torch's data-free "meta" device."""
    shape, *steps = chain
    x = torch.empty(shape, device="meta")
    for step in reversed(steps):
        x = step.on_one(x)
    return x

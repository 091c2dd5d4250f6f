"""Where the elements of a view would lie if its base were one array, row by row.

This decides, for every layout alike, what torch decides by the strides of one tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from types import EllipsisType, NoneType
from typing import Any, NamedTuple, TypeAlias

import torch

from .meta import Shape
from .tensor import Tensor
from .views import ViewStep, base_of, root_of

Chain: TypeAlias = tuple[Shape, *tuple[ViewStep, ...]]  # the shape of a base, and steps to it


def chain_of(x: Tensor) -> Chain:
    """The shape of the base that is no view itself, and the steps from a view to it."""
    steps: list[ViewStep] = []
    while (base := getattr(x, "_base", None)) is not None:
        steps.append(x._step)
        x = base
    return (x.meta.shape, *steps)


def on_one(chain: Chain) -> torch.Tensor:
    """The view on torch's data-free "meta" device."""
    shape, *steps = chain
    x = torch.empty(shape, device="meta")
    for step in reversed(steps):
        x = step.on_one(x)
    return x


@lru_cache(maxsize=4096)
def strides_of(chain: Chain) -> tuple[Shape, int]:
    """The strides in the base's memory, and the offset of the first element."""
    x = on_one(chain)
    return tuple(x.stride()), int(x.storage_offset())


class _Range(NamedTuple):
    """The indices start, start + step, ..., last of a dim of the base."""

    start: int
    last: int
    step: int  # 0 for a single index


Ranges: TypeAlias = tuple[_Range, ...] | None  # None: not all products of such indices


def unnoticed(
    changed: Sequence[Tensor], written: Tensor, item: tuple[Any, ...] | None = None
) -> set[int]:
    """Those tensors, by id, of which a write to a part of `x.data` leaves every element.

    What the tape has kept of them is as it was. Other writes count for all views, as in torch.
    `item` is an index of `written`, if not all of it is.
    """
    base, detached = written, False
    above = {id(written)}
    while base.shared and (next_base := base_of(base)) is not None:
        # A tensor with history may be a detached view, too, of one that stands in for it.
        detached = detached or (base._step.detaches and base.node is None)
        base = next_base
        above.add(id(base))
    if not detached:
        return set()
    others = [x for x in changed if id(x) not in above and x.meta.numel < base.meta.numel]
    if not others:
        return set()
    place = _place(written, item)
    return {id(x) for x in others if _are_apart(_place(x), place)}


def _place(x: Tensor, item: tuple[Any, ...] | None = None) -> Ranges:
    """The indices of the base that a view, or an item of it, has in each dim."""
    if x.dtype != root_of(x).dtype:
        return None
    chain = chain_of(x)
    if item is None:
        return _ranges(chain, x.meta.shape)
    if not all(type(each) in (int, slice, NoneType, EllipsisType) for each in item):
        return None
    part = on_one(chain)[item]
    return _ranges_of(chain[0], part.shape, part.stride(), int(part.storage_offset()))


def _are_apart(mine: Ranges, other: Ranges) -> bool:
    """Whether it is certain that no element is in both."""
    if mine is None or other is None:
        return False
    for a, b in zip(mine, other, strict=True):
        if a.start > b.last or b.start > a.last:
            return True
        step = gcd(a.step, b.step)
        if step and (a.start - b.start) % step:
            return True
    return False


@lru_cache(maxsize=4096)
def _ranges(chain: Chain, shape: Shape) -> Ranges:
    return _ranges_of(chain[0], shape, *strides_of(chain))


def _ranges_of(sizes: Shape, shape: Shape, strides: Shape, offset: int) -> Ranges:
    """The indices of a base of these sizes that a view has in each dim."""
    if 0 in shape:
        return None
    units = [1] * len(sizes)  # the strides of the base
    for dim in range(len(sizes) - 1, 0, -1):
        units[dim - 1] = units[dim] * sizes[dim]
    starts = [offset // unit % size for unit, size in zip(units, sizes, strict=True)]
    found = [_Range(start, start, 0) for start in starts]
    for size, stride in zip(shape, strides, strict=True):
        if size == 1 or stride == 0:
            continue
        dims = [dim for dim, unit in enumerate(units) if sizes[dim] > 1 and stride % unit == 0]
        if not dims or found[dims[0]].step:
            return None
        dim, step = dims[0], stride // units[dims[0]]
        last = starts[dim] + step * (size - 1)
        if last >= sizes[dim]:
            return None
        found[dim] = _Range(starts[dim], last, step)
    return tuple(found)

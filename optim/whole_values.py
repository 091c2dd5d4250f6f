"""Whole values of logical tensors, for updates that no rank can make from its shards alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from ..engine.convert import box
from ..engine.meta import Meta
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor, from_shards

Local = dict[torch.device, torch.Tensor]  # the whole value on each device of this process


def whole_meta(meta: Meta, shape: Sequence[int] | None = None) -> Meta:
    """The layout in which every rank has all of a tensor, perhaps one of another shape."""
    shape = tuple(meta.shape if shape is None else shape)
    if meta.placement is None:
        return meta.like(shape=shape)
    return meta.like(shape=shape, nd_sbp=(broadcast,) * len(meta.nd_sbp))


def gathered(tensor: Tensor) -> Local:
    """The whole value; it must not be written."""
    found: Local = {}
    for part in box(tensor, whole_meta(tensor.meta)).shards:
        found.setdefault(part.device, part)
    return found


def spread(values: Local, target: Tensor) -> Tensor:
    """The whole value, laid out as a tensor is; it may share memory with the values."""
    shape = next(iter(values.values())).shape if values else target.shape
    meta = whole_meta(target.meta, shape)
    found = from_shards(tuple([values[part.device] for part in target.shards]), meta)
    return box(found, target.meta) if meta.shape == target.shape else found


def mapped(change: Callable[..., torch.Tensor], *tensors: Tensor) -> Tensor:
    """A tensor made from the shards of others that are laid out as the first is."""
    made: dict[int, torch.Tensor] = {}
    for parts in zip(*[tensor.shards for tensor in tensors], strict=True):
        if id(parts[0]) not in made:
            made[id(parts[0])] = change(*parts)
    return from_shards(tuple([made[id(part)] for part in tensors[0].shards]), tensors[0].meta)


def distinct(*tensors: Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Shards that belong together, each of the first tensor's once: replicas may be one."""
    seen: set[int] = set()
    for parts in zip(*[tensor.shards for tensor in tensors], strict=True):
        if id(parts[0]) not in seen:
            seen.add(id(parts[0]))
            yield parts

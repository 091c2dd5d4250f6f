"""Norms of single tensors over all their shards, kept on the devices of the shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..engine.convert import box
from ..engine.meta import Meta
from ..engine.sbp import broadcast, partial_sum
from ..engine.tensor import Tensor
from ..kernels import optim_ref as kernels
from ..kernels.select import pick
from .device_scalar import DeviceScalar, Given


def tensor_norms(tensors: Sequence[Tensor], scale: DeviceScalar | None = None) -> list[Tensor]:
    """The 2-norm of each logical tensor, times `scale`: 0-d and float64, beside each shard.

    Tensors of one layout are reduced together. Nothing is read.
    """
    alike: dict[Any, list[int]] = {}
    added = [_without_addends(tensor) for tensor in tensors]
    for index, tensor in enumerate(added):
        meta = tensor.meta
        alike.setdefault((meta.placement, meta.nd_sbp, meta.device), []).append(index)
    found: dict[int, Tensor] = {}
    for indices in alike.values():
        norms = _norms([added[i] for i in indices], scale)
        layout = norms.meta.like(shape=())
        for place, index in enumerate(indices):
            found[index] = Tensor(tuple([part[place] for part in norms.shards]), layout)
    return [found[index] for index in range(len(tensors))]


def _without_addends(tensor: Tensor) -> Tensor:
    if not tensor.meta.partial:
        return tensor
    nd_sbp = tuple(broadcast if sbp.is_partial else sbp for sbp in tensor.meta.nd_sbp)
    return box(tensor, tensor.meta.like(nd_sbp=nd_sbp))


def _norms(tensors: Sequence[Tensor], scale: DeviceScalar | None) -> Tensor:
    """The norms of tensors that are laid out alike, as one vector."""
    meta = tensors[0].meta
    shape = (len(tensors),)
    columns = zip(*[tensor.shards for tensor in tensors], strict=True)
    squares = tuple([_squares(parts, scale) for parts in columns])
    if meta.placement is None:
        vector = Tensor(squares, Meta.of(shape, torch.float64, device=meta.device))
    else:
        nd_sbp = tuple(partial_sum if sbp.is_split else broadcast for sbp in meta.nd_sbp)
        layout = Meta.of(shape, torch.float64, meta.placement, nd_sbp)
        whole = (broadcast,) * len(nd_sbp)
        vector = box(Tensor(squares, layout), layout.like(nd_sbp=whole))
    return Tensor(tuple([part.sqrt() for part in vector.shards]), vector.meta)


def _squares(parts: Sequence[torch.Tensor], scale: DeviceScalar | None) -> torch.Tensor:
    number = Given(scale=scale).on(parts[0])["scale"]
    return pick(kernels.powers, parts[0].device.type)(parts, 2.0, number)  # type: ignore[no-any-return]

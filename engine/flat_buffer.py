"""Flat buffers: tensors of one layout that every rank holds whole, as one flat tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..kernels import optim_ref as kernels
from ..kernels.select import pick
from .meta import Meta
from .tensor import Shards


def flat_meta(metas: Sequence[Meta]) -> Meta:
    """The meta of the tensors one after the other. They differ in shape only; no axis is split."""
    first = metas[0]
    assert not any(sbp.is_split for sbp in first.nd_sbp)
    assert all(first.like(shape=meta.shape) is meta for meta in metas)
    return first.like(shape=(sum(meta.numel for meta in metas),))


def flatten(*tensors: Shards) -> Shards:
    """The shards of the flat tensor, from those of each tensor; replicas are flattened once."""
    made: dict[tuple[int, ...], torch.Tensor] = {}
    found = []
    for parts in zip(*tensors, strict=True):
        key = tuple(map(id, parts))
        if key not in made:
            made[key] = pick(kernels.flatten, parts[0].device.type)(parts)
        found.append(made[key])
    return tuple(found)


def unflatten(shapes: Sequence[Sequence[int]], flat: Shards) -> tuple[Shards, ...]:
    """The shards of each tensor, from those of the flat tensor, as views of them."""
    cut: dict[int, Sequence[torch.Tensor]] = {}
    for part in flat:
        if id(part) not in cut:
            cut[id(part)] = kernels.unflatten(part, shapes)
    return tuple([tuple([cut[id(part)][i] for part in flat]) for i in range(len(shapes))])

"""Norms and other numbers of logical tensors, over all their shards; one layout at a time.

Nothing is read: the numbers stay on the devices of the shards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import torch

from ..engine import boxing
from ..engine.boxing import BoxingPlan
from ..engine.convert import box
from ..engine.meta import Meta
from ..engine.ops.reduce import without_partials
from ..engine.sbp import Sbp, broadcast, partial_sum, without_partial
from ..engine.tensor import Tensor, from_shards
from ..kernels import optim_ref as kernels
from ..kernels.select import pick
from .device_scalar import DeviceScalar, on_device_of

Local = Callable[[Sequence[torch.Tensor]], torch.Tensor]  # shards to one float64 number for each


def tensor_norms(tensors: Sequence[Tensor], scale: DeviceScalar | None = None) -> list[Tensor]:
    """The 2-norm of each logical tensor, times `scale`: 0-d, float64, on the shards' devices."""
    found: dict[int, Tensor] = {}
    for indices, squares in numbers_of(tensors, partial_sum, partial(powers, 2.0, scale)):
        total = box(squares, squares.meta.like(nd_sbp=(broadcast,) * len(squares.meta.nd_sbp)))
        norms = [part.sqrt() for part in total.shards]
        layout = total.meta.like(shape=())
        for place, index in enumerate(indices):
            found[index] = from_shards(tuple([part[place] for part in norms]), layout)
    return [found[index] for index in range(len(tensors))]


def numbers_of(
    tensors: Sequence[Tensor], combined: Sbp, local: Local
) -> list[tuple[list[int], Tensor]]:
    """For each layout: which of the tensors have it, and what `local` gives for them, as a vector.

    The vector is to be `combined` over the ranks that hold parts of them.
    """
    reduced = [without_partials(tensor) for tensor in tensors]
    alike: dict[object, list[int]] = {}
    for index, tensor in enumerate(reduced):
        meta = tensor.meta
        alike.setdefault((meta.placement, meta.nd_sbp, meta.device), []).append(index)
    return [
        (indices, _vector([reduced[i] for i in indices], combined, local))
        for indices in alike.values()
    ]


def _vector(tensors: Sequence[Tensor], combined: Sbp, local: Local) -> Tensor:
    columns = zip(*[tensor.shards for tensor in tensors], strict=True)
    layout = _layout(tensors[0].meta, len(tensors), combined)
    return from_shards(tuple([local(parts) for parts in columns]), layout)


def _layout(meta: Meta, count: int, combined: Sbp) -> Meta:
    if meta.placement is None:
        return Meta.of((count,), torch.float64, device=meta.device)
    nd_sbp = tuple(combined if sbp.is_split else broadcast for sbp in meta.nd_sbp)
    return Meta.of((count,), torch.float64, meta.placement, nd_sbp)


def exchanges(metas: Sequence[Meta | None]) -> list[BoxingPlan]:
    """The boxings by which a number of tensors of these metas, the same on all ranks, is made."""
    given = [meta for meta in metas if meta is not None and meta.placement is not None]
    reduced = [meta.like(nd_sbp=without_partial(meta.nd_sbp)) for meta in given]
    plans = [boxing.plan(src, dst) for src, dst in zip(given, reduced, strict=True)]
    alike = Counter((meta.placement, meta.nd_sbp) for meta in reduced)
    of = {(meta.placement, meta.nd_sbp): meta for meta in reduced}
    for key, count in alike.items():
        made = _layout(of[key], count, partial_sum)
        plans.append(boxing.plan(made, made.like(nd_sbp=(broadcast,) * len(made.nd_sbp))))
    return [plan for plan in plans if plan.communicates]


def powers(
    norm_type: float, scale: DeviceScalar | None, parts: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Each part's norm, times `scale`, to the power norm_type."""
    number = on_device_of(scale, parts[0])
    return pick(kernels.powers, parts[0].device.type)(parts, norm_type, number)

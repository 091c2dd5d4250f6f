"""Layout costs: the modelled seconds of ops, boxings and updates, by layouts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Protocol

import torch

from ...distributed.world import on_world_change
from ...engine import boxing
from ...engine.meta import Meta
from ...engine.placement import Placement
from ...engine.sbp import NdSbp, Sbp, split
from ...engine.signature_choice import BYTE_TIME, op_time
from ..ir import ProgramStep
from ..passes.pass_utils import time

_EXACT_RANKS = 8  # of meshes where layouts that do not divide evenly are planned, not rounded up


class LayoutCosts(Protocol):
    """What the search minimizes, in seconds."""

    def op(
        self, step: ProgramStep, inputs: Sequence[Meta | None], outputs: Sequence[Meta]
    ) -> float:
        """The step on values in these layouts."""

    def boxing(self, src: Meta, dst: Meta) -> float:
        """From one layout to another."""

    def update(self, parameter: Meta, kept: float) -> float:
        """An optimizer's update that keeps `kept` bytes for each element of a parameter."""


class ModelledCosts:
    """The costs by which eager mode chooses layouts."""

    def op(
        self, step: ProgramStep, inputs: Sequence[Meta | None], outputs: Sequence[Meta]
    ) -> float:
        if step.op is None or outputs[0].placement is None:
            return 0.0
        return op_time(step.op, inputs, outputs)

    def boxing(self, src: Meta, dst: Meta) -> float:
        return boxing_time(src, dst)

    def update(self, parameter: Meta, kept: float) -> float:
        moved = 3.0 * parameter.dtype.itemsize + 2.0 * kept  # the gradient is read, the rest too
        elements = local_elements(parameter)
        return elements * moved * BYTE_TIME[parameter.device_type]


def local_elements(meta: Meta) -> int:
    """Elements of the largest shard."""
    if meta.placement is None:
        return meta.numel
    return prod(meta.local_shape(0))


def boxing_time(src: Meta, dst: Meta) -> float:
    """Modelled seconds of a boxing, as of its plan, by arithmetic on the layouts where possible.

    On one placement the plan depends on the shape by the bytes alone where all shards are equal, so
    that one plan serves all shapes. On larger meshes shards that differ count as the largest.
    """
    if src is dst:
        return 0.0
    placement = src.placement
    if placement is None or placement is not dst.placement or src.numel == 0:
        return time(src, dst)
    nbytes = _padded(src, dst)
    if nbytes != src.nbytes and placement.num_ranks <= _EXACT_RANKS:
        return time(src, dst)
    start, end, dims = _renamed(src.nd_sbp, dst.nd_sbp)
    latency, per_byte = _affine(placement, start, end, dims, src.ndim > dims)
    return latency + per_byte * nbytes


def _padded(src: Meta, dst: Meta) -> float:
    """The bytes of the tensor with its dims rounded up until all splits divide them."""
    shape = list(src.shape)
    mesh = src.global_placement.shape
    for nd_sbp in (src.nd_sbp, dst.nd_sbp):
        parts: dict[int, int] = {}
        for sbp, ranks in zip(nd_sbp, mesh, strict=True):
            if sbp.is_split:
                parts[sbp.dim] = parts.get(sbp.dim, 1) * ranks
        for dim, count in parts.items():
            shape[dim] = -(-shape[dim] // count) * count
    return float(prod(shape) * src.dtype.itemsize)


@lru_cache(1 << 14)
def _renamed(src: NdSbp, dst: NdSbp) -> tuple[NdSbp, NdSbp, int]:
    """Two layouts whose splits are of dims 0, 1, ... in the order of their use, and how many."""
    names: dict[Sbp, Sbp] = {}
    for sbp in (*src, *dst):
        if sbp.is_split and sbp not in names:
            names[sbp] = split(len(names))
    start, end = (tuple([names.get(sbp, sbp) for sbp in each]) for each in (src, dst))
    return start, end, len(names)


@lru_cache(1 << 14)
def _affine(
    placement: Placement, src: NdSbp, dst: NdSbp, dims: int, spare: bool
) -> tuple[float, float]:
    """Seconds of a boxing without bytes, and for each byte of a tensor that all splits divide."""
    shape = (placement.num_ranks,) * (dims + spare)
    short, long = (
        boxing.plan(Meta.of(shape, dtype, placement, src), Meta.of(shape, dtype, placement, dst)).time
        for dtype in (torch.uint8, torch.float64)
    )
    per_byte = (long - short) / (prod(shape) * (torch.float64.itemsize - 1))
    return short - per_byte * prod(shape), per_byte


on_world_change(_affine.cache_clear)  # placements belong to a world

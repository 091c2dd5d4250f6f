"""Layout costs: the modeled seconds of ops, boxings and updates, by layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Protocol

import torch

from ...distributed.world import on_world_change
from ...engine import boxing
from ...engine.machine import machine
from ...engine.meta import Meta
from ...engine.placement import Placement
from ...engine.sbp import NdSbp, Sbp, split
from ...engine.signature_choice import op_time
from ..ir import ProgramStep
from ..passes.pass_utils import time

_FINE = 1 << 10  # times the smallest tensor, so that rounding counts for nothing
_EXACT_RANKS = 8  # of meshes where layouts that do not divide evenly are planned, not rounded up


class LayoutCosts(Protocol):
    """The cost functions of a search, in seconds."""

    def op(
        self, step: ProgramStep, inputs: Sequence[Meta | None], outputs: Sequence[Meta]
    ) -> float:
        """The step on values in these layouts."""

    def boxing(self, src: Meta, dst: Meta) -> float:
        """From one layout to another."""

    def update(self, parameter: Meta, kept: float) -> float:
        """An optimizer's update that keeps `kept` bytes for each element of a parameter."""


class ModeledCosts:
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
        return elements * moved * machine(parameter.device_type).byte


def local_elements(meta: Meta) -> int:
    """Elements of the largest shard."""
    if meta.placement is None:
        return meta.numel
    return prod(meta.local_shape(0))


@dataclass(frozen=True, slots=True)
class Boxing:
    """A boxing on one placement for a tensor of any size.

    Its plan depends on the shape by the bytes alone where all shards are equal, and not on which
    dims are split. So dims are named in the order of their use.
    """

    placement: Placement
    src: NdSbp
    dst: NdSbp
    dims: int  # that are split
    spare: bool  # whether there are others

    def metas(self, dtype: torch.dtype, factor: int = 1) -> tuple[Meta, Meta]:
        """The metas at both ends, of `factor` times the smallest tensor that all splits divide."""
        ranks = self.placement.num_ranks
        shape = [1] * self.dims + [ranks] * self.spare
        for old, new, parts in zip(self.src, self.dst, self.placement.shape, strict=True):
            for dim in {sbp.dim for sbp in (old, new) if sbp.is_split}:
                shape[dim] *= parts
        if shape:
            shape[-1] *= factor
        ends = (Meta.of(shape, dtype, self.placement, each) for each in (self.src, self.dst))
        return next(ends), next(ends)


def boxing_of(src: Meta, dst: Meta) -> tuple[Boxing, float] | None:
    """The boxing, and the bytes of the tensor with its dims rounded up until all splits divide
    them; None between placements.
    """
    placement = src.placement
    if placement is None or placement is not dst.placement or src.numel == 0:
        return None
    shape = list(src.shape)
    for meta in (src, dst):
        for dim, count in _parts(meta.nd_sbp, placement).items():
            shape[dim] = -(-shape[dim] // count) * count
    start, end, dims = _renamed(src.nd_sbp, dst.nd_sbp)
    boxed = Boxing(placement, start, end, dims, src.ndim > dims)
    return boxed, float(prod(shape) * src.dtype.itemsize)


def boxing_time(src: Meta, dst: Meta) -> float:
    """Modeled seconds of a boxing, as of its plan, by arithmetic on the layouts where possible.

    On larger meshes shards that differ count as the largest.
    """
    if src is dst:
        return 0.0
    found = boxing_of(src, dst)
    if found is None:
        return time(src, dst)
    boxed, nbytes = found
    if nbytes != src.nbytes and boxed.placement.num_ranks <= _EXACT_RANKS:
        return time(src, dst)
    latency, per_byte = _affine(boxed)
    return latency + per_byte * nbytes


def _parts(nd_sbp: NdSbp, placement: Placement) -> dict[int, int]:
    """The number of parts into which each dim is split."""
    parts: dict[int, int] = {}
    for sbp, ranks in zip(nd_sbp, placement.shape, strict=True):
        if sbp.is_split:
            parts[sbp.dim] = parts.get(sbp.dim, 1) * ranks
    return parts


@lru_cache(1 << 14)
def _renamed(src: NdSbp, dst: NdSbp) -> tuple[NdSbp, NdSbp, int]:
    """Two layouts with dims renumbered in the order of their use, and the number of dims."""
    names: dict[Sbp, Sbp] = {}
    for sbp in (*src, *dst):
        if sbp.is_split and sbp not in names:
            names[sbp] = split(len(names))
    start, end = (tuple([names.get(sbp, sbp) for sbp in each]) for each in (src, dst))
    return start, end, len(names)


@lru_cache(1 << 14)
def _affine(boxed: Boxing) -> tuple[float, float]:
    """Seconds of a boxing without bytes, and for each byte of a tensor that all splits divide."""
    few, many = (boxed.metas(dtype, _FINE) for dtype in (torch.uint8, torch.float64))
    short, long = boxing.plan(*few).time, boxing.plan(*many).time
    per_byte = (long - short) / (many[0].nbytes - few[0].nbytes)
    return short - per_byte * few[0].nbytes, per_byte


on_world_change(_affine.cache_clear)  # placements belong to a world

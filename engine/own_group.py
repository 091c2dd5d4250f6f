"""What one process has of a global tensor: its shard, and what its group of ranks has."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..distributed import provenance
from ..distributed.world import world
from ..errors import ShapeError
from .autograd_function import Function
from .convert import to_global, to_local
from .meta import Meta
from .placement import Placement
from .sbp import NdSbp, broadcast, partial_sum, without_partial
from .tensor import Tensor, from_shards


def group_placement(placement: Placement, axes: Sequence[int]) -> Placement:
    """The ranks that differ from this process's along these axes only, in a mesh of their shape.

    The whole placement where one process owns all ranks.
    """
    if not world().launched or tuple(axes) == tuple(range(placement.ndim)):
        return placement
    position = placement.position.get(world().rank or 0, 0)
    ranks = [placement.flat_ranks[i] for i in placement.group(position, tuple(axes))]
    found: Any = ranks
    for size in reversed([placement.shape[axis] for axis in axes][1:]):
        found = [found[i : i + size] for i in range(0, len(found), size)]
    return Placement(placement.device_type, found)


def from_equal_parts(x: Tensor, placement: Placement, nd_sbp: NdSbp) -> Tensor:
    """The global tensor of which each rank has a part of x's shape, with gradients for the parts.

    Nothing is compared or sent: where it is broadcast, ranks are trusted to have equal values, and
    each gets the whole gradient. In a world of one process `x` is the part of every rank.
    """
    found: Tensor = _FromEqualParts.apply(x, placement, nd_sbp)
    return found


def on_ranks_of(input: Tensor, x: Tensor) -> Tensor:
    """A local tensor that is equal on all ranks of `input`, as a global one there."""
    if x.is_global:
        return x
    return from_equal_parts(x, input.placement, (broadcast,) * input.placement.ndim)


def own_part(x: Tensor) -> Tensor:
    """This rank's shard, where ranks have the same gradient for what they have in common.

    Raises ShapeError for a split of uneven parts, of which no rank could tell what the others have.
    """
    for sbp in x.sbp:
        if sbp.is_split:
            parts = prod(x.placement.shape[i] for i, each in enumerate(x.sbp) if each == sbp)
            if x.shape[sbp.dim] % parts:
                raise ShapeError(
                    f"{x.meta!r} has uneven parts of dim {sbp.dim}, which cannot be local tensors: "
                    f"{x.shape[sbp.dim]} is not a multiple of {parts}. Choose another size, or "
                    "keep it global with use_local_output=False"
                )
    found: Tensor = _OwnPart.apply(x)
    return found


def in_own_group(x: Tensor, axes: Sequence[int], averaged: Sequence[int]) -> Tensor:
    """What this rank's group along `axes` has of a parameter: local where there are no axes.

    `x` is broadcast along the other axes. Along those that are `averaged` groups have gradients of
    their own batches, whose mean is the parameter's; along the rest they have the same gradient.
    """
    found: Tensor = _InOwnGroup.apply(x, tuple(axes), tuple(averaged))
    return found


def _as(x: Tensor, meta: Meta) -> Tensor:
    """A tensor with the shards of `x`, whose memory they share."""
    x.shared = True
    shards = x.shards
    if provenance.state.on:  # other groups have the same history with other ranks in it
        shards = tuple([shard.detach() for shard in shards])
    y = from_shards(shards, meta)
    y.shared = True
    return y


class _FromEqualParts(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, placement: Placement, nd_sbp: NdSbp) -> Tensor:
        ctx.sbp = without_partial(nd_sbp)
        if not world().launched:
            return to_global(x, placement, nd_sbp)
        shape = list(x.shape)
        for axis, sbp in enumerate(nd_sbp):
            if sbp.is_split:
                shape[sbp.dim] *= placement.shape[axis]
        return _as(x, Meta.of(tuple(shape), x.dtype, placement, nd_sbp))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        return to_local(to_global(dy, sbp=ctx.sbp)), None, None


class _OwnPart(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.place, ctx.sbp = x.placement, without_partial(x.sbp)
        return to_local(to_global(x, sbp=ctx.sbp))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        return from_equal_parts(dy, ctx.place, ctx.sbp)


class _InOwnGroup(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axes: tuple[int, ...], averaged: tuple[int, ...]) -> Tensor:
        ctx.placement, ctx.axes, ctx.averaged = x.placement, axes, averaged
        if not axes:
            return _as(x, to_local(x).meta)
        group = group_placement(x.placement, axes)
        return _as(x, Meta.of(x.shape, x.dtype, group, tuple([x.sbp[axis] for axis in axes])))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        place: Placement = ctx.placement
        found = [broadcast] * place.ndim
        for axis in ctx.averaged:
            found[axis] = partial_sum
        for axis, sbp in zip(ctx.axes, dy.sbp if ctx.axes else (), strict=True):
            found[axis] = sbp
        mean = dy / prod([place.shape[axis] for axis in ctx.averaged])
        return _as(mean, Meta.of(dy.shape, dy.dtype, place, tuple(found))), None, None

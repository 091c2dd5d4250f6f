"""The local shards that ranks combine to a global tensor: their metas and checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from ..distributed import collectives
from ..distributed.world import world
from ..errors import OnefoldError, RankMismatch, ShapeError, user_line
from ..kernels.formatted import in_format_of
from ..kernels.memory_format_ref import CHANNELS_LAST
from .meta import Meta, blank_shards
from .placement import Placement
from .sbp import NdSbp, short
from .tensor import Tensor
from .thread_stack import ThreadStack

_members_alone = ThreadStack[bool]("members_alone")


@contextmanager
def joined_by_members(alone: bool = True) -> Iterator[None]:
    """In the block the processes of a placement join parts, while others do something else.

    So groups of processes can have tensors of their own, of which the others know nothing.
    """
    _members_alone.push(alone)
    try:
        yield
    finally:
        _members_alone.pop()


def _joining(placement: Placement) -> tuple[int, ...]:
    """The ranks that join parts on a placement."""
    if any(_members_alone.items()[-1:]):
        return tuple(placement.flat_ranks)
    return tuple(range(world().size))


@dataclass(frozen=True, slots=True)
class Parts:
    """What the members of a placement join: the same on every process, member or not."""

    shapes: list[tuple[int, ...]]  # by position
    dtype: torch.dtype
    requires_grad: bool  # whether any of them does


def parts(x: Tensor, placement: Placement, nd_sbp: NdSbp, check_meta: bool) -> Parts:
    """The members' parts, as gathered from them if `check_meta`, else assumed to be like `x`.

    Collective over the job then, or over the placement (`joined_by_members`). Raises RankMismatch
    when processes disagree on what they join.
    """
    here = world()
    ranks = _joining(placement) if here.launched and check_meta else ()
    if here.planned or here.rank not in ranks:
        return Parts([tuple(x.shape)] * placement.num_ranks, x.dtype, x.requires_grad)
    mine = (tuple(x.shape), x.dtype, repr(placement), short(nd_sbp), x.requires_grad)
    found = collectives.gather_objects((mine, user_line()), ranks)
    gathered = dict(zip(ranks, found, strict=True))
    for rank, (theirs, line) in gathered.items():
        if theirs[0] is None:
            raise RankMismatch(
                f"local_to_global: rank {rank} could not take part, at {line}: {theirs[1]}"
            )
    member = placement.flat_ranks[0]
    for rank, (theirs, line) in gathered.items():
        first = 1 if rank in placement.position else 2  # a non-member's part does not count
        if theirs[first:4] != gathered[member][0][first:4]:
            raise RankMismatch(
                "local_to_global: ranks disagree on (dtype, placement, sbp): rank "
                f"{member} has {gathered[member][0][1:4]} at {gathered[member][1]}, rank {rank} "
                f"has {theirs[1:4]} at {line}. Every rank must pass the same."
            )
    members = [gathered[rank][0] for rank in placement.flat_ranks]
    return Parts(
        shapes=[shape for shape, *_ in members],
        dtype=members[0][1],
        requires_grad=any(requires_grad for *_, requires_grad in members),
    )


def report_problem(error: OnefoldError, placement: object) -> None:
    """Take part in the others' `parts` with an error, so that none of them waits."""
    ranks = tuple(range(world().size))
    if isinstance(placement, Placement):
        ranks = _joining(placement)
    if world().rank in ranks:
        collectives.gather_objects(((None, str(error)), user_line()), ranks)


def joined_shape(
    shapes: list[tuple[int, ...]], placement: Placement, nd_sbp: NdSbp
) -> tuple[int, ...]:
    """The shape of the tensor with these parts, which are in mesh order."""
    ndims = {len(shape) for shape in shapes}
    if len(ndims) > 1:
        raise ShapeError(f"local_to_global: the parts have different numbers of dims: {shapes}")
    shape = list(shapes[0])
    for dim in range(len(shape)):
        axes = [axis for axis, sbp in enumerate(nd_sbp) if sbp.kind == "S" and sbp.dim == dim]
        if axes:
            shape[dim] = sum(shapes[position][dim] for position in placement.group(0, axes))
    return tuple(shape)


def unbalanced(meta: Meta, shapes: list[tuple[int, ...]]) -> ShapeError:
    """The error for parts whose shapes are not those of a balanced split."""
    assert meta.placement is not None
    dims = sorted({sbp.dim for sbp in meta.nd_sbp if sbp.kind == "S"})
    wanted = {rank: tuple(meta.local_shape(i)) for i, rank in enumerate(meta.placement.flat_ranks)}
    found = dict(zip(meta.placement.flat_ranks, shapes, strict=True))
    where = f"dimension {dims[0]}" if dims else "every dimension"
    return ShapeError(
        f"Sizes of tensors in {where} must be same or match balanced split distribution: for "
        f"sbp {short(meta.nd_sbp)} the parts must be {wanted} (rank: shape), but are {found}. "
        "The first ranks hold one more where the size does not divide."
    )


def own_parts(x: Tensor, meta: Meta, copy: bool) -> tuple[torch.Tensor, ...]:
    """The shards made from this process's part, on the devices of their ranks.

    Along broadcast axes the first rank's counts.
    """
    assert meta.placement is not None
    placement, owned = meta.placement, meta.placement.owned
    if not owned:
        return ()
    if not meta.has_data or not x.meta.has_data:
        return blank_shards(meta)
    (part,) = x.shards
    devices = [placement.device(placement.flat_ranks[position]) for position in owned]
    axes = [axis for axis, sbp in enumerate(meta.nd_sbp) if sbp.kind == "B"]
    if not world().launched or not axes:
        moved = {device: part.to(device, copy=copy) for device in dict.fromkeys(devices)}
        return tuple([moved[device] for device in devices])
    group = tuple(placement.flat_ranks[p] for p in placement.group(owned[0], axes))
    mine = placement.flat_ranks[owned[0]] == group[0]
    # On that device on each of them: else they would meet in different back ends.
    given = part.to(devices[0], copy=copy) if mine else None
    sent = collectives.broadcast(given, part.shape, part.dtype, devices[0], group[0], group)
    # Which is sent in row-major order.
    return (in_format_of(sent, part) if part.ndim in CHANNELS_LAST else sent,)

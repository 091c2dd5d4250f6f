"""The steps of a boxing plan as collectives, for the one rank of this process.

Sums are in rank order, as in the virtual world, so all replicas and both worlds agree bit for bit.
Gloo's all_reduce has another order of addition. With three or more ranks, floating-point numbers
are therefore exchanged, summed here and gathered, which moves the same bytes. With NCCL the sum is
NCCL's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from ...distributed import collectives
from ...distributed.wire_format import to_reducible
from ...distributed.world import world
from ..meta import balanced
from .boxes import Cut, cut_out, take, volume
from .boxing_steps import AllGather, AllReduce, BoxingStep, Copy, Exchange, Local
from .combine import Layout, reduce
from .route_end import RouteEnd
from .route_step import Route

# None where the rank is not in the placement.
Shard: TypeAlias = torch.Tensor | None
Apply: TypeAlias = Callable[[Shard], Shard]
Begin: TypeAlias = Callable[[Shard], Callable[[], torch.Tensor]]


def prepare(step: BoxingStep, rank: int) -> Apply:
    """A function from the rank's shard before a step to the one after it."""
    begin = prepare_begin(step, rank)
    if begin is not None:
        return lambda shard: begin(shard)()
    if rank not in step.ranks:
        return lambda shard: None
    return _PREPARE[type(step)](step, rank)


def prepare_begin(step: BoxingStep, rank: int, consumes: bool = False) -> Begin | None:
    """A function that starts a step and returns one that ends it; None for synchronous steps.

    What it is given must not change before the end; with `consumes` the step may overwrite it.
    """
    if rank not in step.ranks:
        return None
    if isinstance(step, AllReduce):
        return _all_reduce(step, rank, consumes)
    make = _BEGIN.get(type(step))
    return None if make is None else make(step, rank)


def _local(step: Local, rank: int) -> Apply:
    region, made = step.keeps(rank), step.made(rank)
    if region is None:
        cut: Cut = ()
        layout = Layout([], made, "sum")
    else:
        cut = cut_out(region, step.held(rank))
        layout = Layout([region], made, step.fill)
    if region == made:
        return lambda shard: take(_there(shard), cut)

    def apply(shard: Shard) -> torch.Tensor:
        part = take(_there(shard), cut)
        return layout.build([part], part.dtype, part.device)

    return apply


def _copy(step: Copy, rank: int) -> Apply:
    device = step.target.device(rank)
    return lambda shard: _there(shard).to(device)


def overwrites(step: BoxingStep, rank: int, shard: torch.Tensor) -> bool:
    """Whether a step that consumes `shard`, which may be fake, leaves its result in its memory.

    Only asked where ranks are processes.
    """
    if not isinstance(step, AllReduce) or not _at_once(step, rank):
        return False
    assert step.reduction is not None
    data, _, restore = to_reducible(shard, step.reduction, inplace=True)
    return bool(restore(data).untyped_storage()._cdata == shard.untyped_storage()._cdata)


def _at_once(step: AllReduce, rank: int) -> bool:
    """Whether the all_reduce of the back end gives the required bits."""
    dtype = step.before.dtype
    exact = not (dtype.is_floating_point or dtype.is_complex)
    here = world()
    cuda = step.placement.device_type == "cuda"
    nccl = cuda and (here.planned or not here.connection().staged)
    return exact or nccl or (len(step.group(rank)) == 2 and step.reduction == "sum")


def _all_reduce(step: AllReduce, rank: int, consumes: bool) -> Begin:
    group, reduction = step.group(rank), step.reduction
    assert reduction is not None
    if _at_once(step, rank):
        return lambda shard: collectives.begin_all_reduce(
            _there(shard), group, reduction, inplace=consumes
        )
    size, count, me = volume(step.held(rank)), len(group), group.index(rank)
    chunks = [balanced(size, count, index) for index in range(count)]
    shapes = [(length,) for _, length in chunks]
    arriving = [(chunks[me][1],)] * count
    arriving[me] = (0,)
    forms = reduction, step.held(rank)[1]

    def begin(shard: Shard) -> Callable[[], torch.Tensor]:
        value = _there(shard)
        flat = value.reshape(-1)
        sends = [flat.narrow(0, *chunk) for chunk in chunks]
        own, sends[me] = sends[me], flat.narrow(0, 0, 0)
        exchanged = collectives.begin_exchange(sends, arriving, group, forms)

        def end() -> torch.Tensor:
            pieces = exchanged()
            pieces[me] = own
            total = reduce(pieces, reduction)
            return torch.cat(collectives.all_gather(total, group, shapes)).view(value.shape)

        return end

    return begin


def _all_gather(step: AllGather, rank: int) -> Begin:
    group = step.group(rank)
    held = [step.held(other) for other in group]
    shapes = [box[1] for box in held]
    layout = Layout(held, step.made(rank))

    def begin(shard: Shard) -> Callable[[], torch.Tensor]:
        value = _there(shard)
        gathered = collectives.begin_all_gather(value.contiguous(), group, shapes)
        return lambda: layout.gathered(gathered(), value.dtype, value.device)

    return begin


def _exchange(step: Exchange, rank: int) -> Begin:
    group, count, reduction = step.group(rank), step.addends, step.reduction or "sum"
    me = group.index(rank)
    cuts = [cut_out(step.region(rank, other), step.held(rank)) for other in group]
    regions = [step.region(other, rank) for other in group]
    shapes = [region[1] for region in regions]
    shapes[me] = (0,)
    forms = f"{step.before!r} to {step.after!r}"
    layout = Layout(regions[::count], step.made(rank))

    def begin(shard: Shard) -> Callable[[], torch.Tensor]:
        value = _there(shard)
        sends = [take(value, cut).contiguous() for cut in cuts]
        own, sends[me] = sends[me], value.new_empty(0)
        exchanged = collectives.begin_exchange(sends, shapes, group, forms)

        def end() -> torch.Tensor:
            pieces = exchanged()
            pieces[me] = own
            combined = [
                reduce(pieces[i : i + count], reduction) for i in range(0, len(group), count)
            ]
            return layout.build(combined, value.dtype, value.device)

        return end

    return begin


def _there(shard: Shard) -> torch.Tensor:
    assert shard is not None
    return shard


_PREPARE: dict[type[BoxingStep], Callable[[Any, int], Apply]] = {
    Local: _local,
    Route: lambda step, rank: RouteEnd(step, rank).run,
    Copy: _copy,
}
_BEGIN: dict[type[BoxingStep], Callable[[Any, int], Begin]] = {
    AllGather: _all_gather,
    Exchange: _exchange,
}

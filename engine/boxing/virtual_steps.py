"""The steps of a boxing plan as tensor arithmetic, for all ranks in one process.

Each step is prepared once and then applied to many tensors. Replicas share one torch tensor:
results with the same inputs are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from ..meta import Box
from .boxes import Cut, cut_out, hull, take, volume
from .boxing_steps import AllGather, AllReduce, BoxingStep, Copy, Exchange, Local
from .combine import Layout, Values, reduce
from .route_step import Route

Group: TypeAlias = tuple[int, ...]
Apply: TypeAlias = Callable[[Values], Values]


def prepare(step: BoxingStep) -> Apply:
    """A function from the shards before a step to those after it, for all ranks."""
    return _PREPARE[type(step)](step)


def _local(step: Local) -> Apply:
    numbers: dict[object, int] = {}  # of jobs that make equal tensors of equal ones
    jobs: list[tuple[int, int, Cut, Layout | None]] = []
    for rank in step.ranks:
        region, held, made = step.keeps(rank), step.held(rank), step.made(rank)
        if region is None:
            key: object = made[1]
            cut: Cut = ()
            layout: Layout | None = Layout([], made, "sum")
        elif region == made:
            cut, layout = cut_out(region, held), None
            key = cut, None
        else:
            cut, layout = cut_out(region, held), Layout([region], made, step.fill)
            key = cut, cut_out(region, made), made[1]
        jobs.append((rank, numbers.setdefault(key, len(numbers)), cut, layout))

    def apply(values: Values) -> Values:
        once: dict[object, torch.Tensor] = {}
        out: Values = {}
        for rank, job, cut, layout in jobs:
            shard = values[rank]
            key = id(shard), job
            made = once.get(key)
            if made is None:
                made = take(shard, cut)
                if layout is not None:
                    made = layout.build([made], shard.dtype, shard.device)
                once[key] = made
            out[rank] = made
        return out

    return apply


def _all_reduce(step: AllReduce) -> Apply:
    reduction = step.reduction
    assert reduction is not None
    boxes = {group: step.made(group[0]) for group in step.groups()}
    return _group_wise(step, boxes, lambda group, addends: reduce(addends, reduction))


def _all_gather(step: AllGather) -> Apply:
    layouts = {
        group: Layout([step.held(rank) for rank in group], step.made(group[0]))
        for group in step.groups()
    }

    def combine(group: Group, shards: Sequence[torch.Tensor]) -> torch.Tensor:
        layout = layouts[group]
        whole = layout.build(shards, shards[0].dtype, shards[0].device)
        return whole.clone() if layout.whole else whole

    return _group_wise(step, {group: layout.box for group, layout in layouts.items()}, combine)


def _exchange(step: Exchange) -> Apply:
    """Join the regions of a group once, and cut the shard of each rank out of the result.

    Where the regions of a group do not make up a box, every rank's shard is joined on its own.
    """
    count, reduction = step.addends, step.reduction or "sum"
    layouts: dict[Group, Layout] = {}
    cuts: dict[int, Cut] = {}
    for group in step.groups():
        held = [step.held(rank) for rank in group[::count]]
        around = hull(held)
        if sum(map(volume, held)) != volume(around):
            return _exchange_apart(step)
        layouts[group] = Layout(held, around)
        cuts.update({rank: cut_out(step.made(rank), around) for rank in group})

    def combine(group: Group, shards: Sequence[torch.Tensor]) -> torch.Tensor:
        sums = [reduce(shards[i : i + count], reduction) for i in range(0, len(group), count)]
        return layouts[group].build(sums, shards[0].dtype, shards[0].device)

    return _group_wise(
        step, {group: layout.box for group, layout in layouts.items()}, combine, cuts
    )


def _group_wise(
    step: BoxingStep,
    boxes: dict[Group, Box],
    combine: Callable[[Group, Sequence[torch.Tensor]], torch.Tensor],
    cuts: dict[int, Cut] | None = None,
) -> Apply:
    """Combine the shards of each group to one tensor, out of which each rank cuts its shard."""
    devices = {rank: step.placement.device(rank) for rank in step.ranks}
    mixed = len(set(devices.values())) > 1

    def apply(values: Values) -> Values:
        once: dict[object, torch.Tensor] = {}
        out: Values = {}
        for group, box in boxes.items():
            shards = [values[rank] for rank in group]
            key = box, *map(id, shards)
            combined = once.get(key)
            if combined is None:
                if mixed:
                    shards = [shard.to(devices[group[0]]) for shard in shards]
                combined = once[key] = combine(group, shards)
            if mixed:
                moved = {device: combined.to(device) for device in set(devices.values())}
                for rank in group:
                    out[rank] = take(moved[devices[rank]], cuts[rank] if cuts else ())
            elif cuts is None:
                for rank in group:
                    out[rank] = combined
            else:
                for rank in group:
                    out[rank] = take(combined, cuts[rank])
        return out

    return apply


def _exchange_apart(step: Exchange) -> Apply:
    count, reduction = step.addends, step.reduction or "sum"
    plans = []
    for group in step.groups():
        for rank in group:
            regions = [step.region(other, rank) for other in group]
            cuts = [
                cut_out(region, step.held(other))
                for region, other in zip(regions, group, strict=True)
            ]
            plans.append((rank, group, cuts, Layout(regions[::count], step.made(rank))))
    devices = {rank: step.placement.device(rank) for rank in step.ranks}

    def apply(values: Values) -> Values:
        out: Values = {}
        for rank, group, cuts, layout in plans:
            device = devices[rank]
            pieces = [
                take(values[other], cut).to(device) for other, cut in zip(group, cuts, strict=True)
            ]
            combined = [
                reduce(pieces[i : i + count], reduction) for i in range(0, len(pieces), count)
            ]
            out[rank] = layout.build(combined, step.before.dtype, device)
        return out

    return apply


def _route(step: Route) -> Apply:
    placement, reduction, dtype = step.target, step.reduction or "sum", step.before.dtype
    parts: list[tuple[list[tuple[int, Cut]], torch.device]] = []
    taken: dict[int, list[tuple[int, Box]]] = {rank: [] for rank in placement.flat_ranks}
    for group in step.groups():
        for part in step.parts(group[0]):
            for taker in part.takers:
                taken[taker].append((len(parts), part.box))
            cuts = [(source, cut_out(part.box, step.held(source))) for source in part.sources]
            parts.append((cuts, step.placement.device(part.owner)))
    jobs = []
    for rank, found in taken.items():
        layout = Layout([box for _, box in found], step.made(rank), step.fill)
        numbers = tuple(number for number, _ in found)
        jobs.append((rank, numbers, layout, placement.device(rank)))
    mixed = len({job[3] for job in jobs} | {device for _, device in parts}) > 1

    def apply(values: Values) -> Values:
        results = []
        for cuts, device in parts:
            addends = [take(values[rank], cut) for rank, cut in cuts]
            if mixed:
                addends = [addend.to(device) for addend in addends]
            results.append(reduce(addends, reduction))
        once: dict[object, torch.Tensor] = {}
        out: Values = {}
        for rank, numbers, layout, device in jobs:
            key = numbers, layout.box, device
            made = once.get(key)
            if made is None:
                pieces = [results[number] for number in numbers]
                if mixed:
                    pieces = [piece.to(device) for piece in pieces]
                made = once[key] = layout.build(pieces, dtype, device)
            out[rank] = made
        return out

    return apply


def _copy(step: Copy) -> Apply:
    devices = {rank: step.target.device(rank) for rank in step.ranks}

    def apply(values: Values) -> Values:
        once: dict[object, torch.Tensor] = {}
        for rank, shard in values.items():
            key = id(shard), devices[rank]
            if key not in once:
                once[key] = shard.to(devices[rank])
        return {rank: once[id(shard), devices[rank]] for rank, shard in values.items()}

    return apply


_PREPARE: dict[type[BoxingStep], Callable[[Any], Apply]] = {
    Local: _local,
    AllReduce: _all_reduce,
    AllGather: _all_gather,
    Exchange: _exchange,
    Route: _route,
    Copy: _copy,
}

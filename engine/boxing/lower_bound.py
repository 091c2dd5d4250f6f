"""The bytes that each rank must receive in any plan."""

from __future__ import annotations

from ..meta import Meta
from .boxes import intersect, volume
from .route_step import Route


def lower_bound(src: Meta, dst: Meta) -> dict[int, int]:
    """Bytes that each rank of `dst` must receive: what it needs and does not hold.

    Where addends are joined it must receive something for every element that it needs, whatever
    it holds; nothing where the target is partial and the addends may lie anywhere.

    >>> p = onefold.placement("cpu", [0, 1])
    >>> split = onefold.zeros(8, placement=p, sbp=onefold.sbp.split(0)).meta
    >>> lower_bound(split, split.like(nd_sbp=(onefold.sbp.broadcast,)))
    {0: 16, 1: 16}
    """
    assert src.placement is not None and dst.placement is not None
    route = Route(src, dst, tuple(range(len(src.nd_sbp))))
    combined = any(
        sbp.is_partial and src.placement.shape[axis] > 1
        for axis, sbp in enumerate(src.nd_sbp)
        if axis not in {old for old, _ in route.kept}
    )
    bound = {}
    for rank, position in dst.placement.position.items():
        missing = volume(dst.box(position))
        held = src.placement.position.get(rank)
        if route.fill is not None:
            missing = 0
        elif held is not None and not combined:
            old, new = src.placement.coordinate(held), dst.placement.coordinate(position)
            if all(old[a] == new[b] for a, b in route.kept):
                missing -= volume(intersect(src.box(held), dst.box(position)))
        bound[rank] = missing * src.dtype.itemsize
    return bound

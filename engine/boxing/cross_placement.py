"""Boxing between placements: the candidate plans, and the cheapest of them.

Routing alone moves the fewest bytes. If partial or replicated axes are split first, collectives on
either side do a part of the work with fewer messages.
"""

from __future__ import annotations

from itertools import product

from ..meta import Meta
from ..sbp import Sbp, broadcast, split, without_partial
from .boxing_steps import BoxingStep, Local
from .path_search import steps_on_one
from .route_step import Route

_PRICED_RANKS = 64  # larger jobs take the way with the fewest messages


def cross_steps(src: Meta, dst: Meta) -> tuple[BoxingStep, ...]:
    """Steps between two placements of one device type."""
    start, end = _plain(src), _plain(dst)
    ways = _ways(start, end)
    if src.global_placement.num_ranks + dst.global_placement.num_ranks > _PRICED_RANKS:
        best = ways[-1]
    else:
        best = min(ways, key=_price)
    first = () if start is src else (Local(src, start),)
    last = () if end is dst else (Local(end, dst),)
    return (*first, *best, *last)


def _plain(meta: Meta) -> Meta:
    """The layout with broadcast in place of partial along axes of one rank, which is the same."""
    nd_sbp = tuple(
        broadcast if size == 1 and sbp.is_partial else sbp
        for sbp, size in zip(meta.nd_sbp, meta.global_placement.shape, strict=True)
    )
    return meta if nd_sbp == meta.nd_sbp else meta.like(nd_sbp=nd_sbp)


def _ways(src: Meta, dst: Meta) -> list[tuple[BoxingStep, ...]]:
    """The candidate plans, the one with the fewest messages last."""
    whole = Route(src, dst)
    if whole.kept:
        return [(whole,)]
    froms = [src] if _kinds(src) < 2 else []
    if _kinds(src):
        froms.append(_spread(src) or src.like(nd_sbp=without_partial(src.nd_sbp)))
    tos = [dst] if _kinds(dst) < 2 else [dst.like(nd_sbp=without_partial(dst.nd_sbp))]
    ranks = set(src.global_placement.flat_ranks), set(dst.global_placement.flat_ranks)
    spread = None if ranks[0] & ranks[1] else _spread(dst)
    if spread is not None and spread is not dst:
        tos.append(spread)
    ways = [
        (*steps_on_one(src, a), Route(a, b), *steps_on_one(b, dst)) for a, b in product(froms, tos)
    ]
    if ranks[0] == ranks[1] and dst.is_whole:
        whole_src = src.like(nd_sbp=(broadcast,) * len(src.nd_sbp))
        ways.append((*steps_on_one(src, whole_src), Route(whole_src, dst)))
    return ways


def _kinds(meta: Meta) -> int:
    return len({sbp.kind for sbp in meta.nd_sbp if sbp.is_partial})


def _spread(meta: Meta) -> Meta | None:
    """The layout with partial and broadcast axes split, the longest dims first.

    None when no dim is long enough or can be split further without moving other splits.
    """
    sizes = list(meta.shape)
    for sbp, parts in zip(meta.nd_sbp, meta.global_placement.shape, strict=True):
        if sbp.is_split:
            sizes[sbp.dim] //= parts
    out: list[Sbp] = []
    for axis, (sbp, parts) in enumerate(zip(meta.nd_sbp, meta.global_placement.shape, strict=True)):
        if sbp.is_split or parts == 1:
            out.append(sbp)
            continue
        later = {other.dim for other in meta.nd_sbp[axis + 1 :]}
        dims = [dim for dim, size in enumerate(sizes) if size >= parts and dim not in later]
        if not dims:
            return None
        dim = max(dims, key=lambda d: (sizes[d] % parts == 0, sizes[d], -d))
        sizes[dim] //= parts
        out.append(split(dim))
    return meta.like(nd_sbp=tuple(out))


def _price(way: tuple[BoxingStep, ...]) -> tuple[int, float, int]:
    """Bytes of all ranks, time, and number of steps."""
    total = sum(step.received(rank) for step in way for rank in step.ranks)
    return total, sum(step.time for step in way), len(way)

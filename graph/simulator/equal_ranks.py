"""Equal ranks: groups of ranks that do the same on shards of the same sizes."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ...engine.meta import Meta
from ...engine.placement import Placement


def equal_ranks(metas: Iterable[Meta]) -> list[tuple[int, ...]]:
    """All ranks of these layouts in groups, by the first rank of each.

    Ranks are equal that are in the same placements and have shards of one shape of every value.
    Only values that are split unevenly are looked at rank by rank.

    >>> p = onefold.placement("cpu", [0, 1, 2, 3])
    >>> equal_ranks([onefold.zeros(6, placement=p, sbp=onefold.sbp.split(0)).meta])
    [(0, 1), (2, 3)]
    """
    placements: dict[Placement, int] = {}
    uneven: list[Meta] = []
    for meta in dict.fromkeys(metas):
        if meta.placement is not None:
            placements.setdefault(meta.placement, 0)
            if not _is_even(meta):
                uneven.append(meta)
    marks: dict[int, list[object]] = {}
    for number, placement in enumerate(placements):
        for rank in placement.flat_ranks:
            marks.setdefault(rank, []).append(number)
    for meta in uneven:
        for rank, position in meta.global_placement.position.items():
            marks[rank].append(meta.local_shape(position))
    groups: dict[tuple[object, ...], list[int]] = {}
    for rank in sorted(marks):
        groups.setdefault(tuple(marks[rank]), []).append(rank)
    return [tuple(ranks) for ranks in groups.values()] or [(0,)]


def _is_even(meta: Meta) -> bool:
    """Whether all shards have one shape."""
    pairs = list(zip(meta.nd_sbp, meta.global_placement.shape, strict=True))
    return all(
        size % prod(parts for sbp, parts in pairs if sbp.is_split and sbp.dim == dim) == 0
        for dim, size in enumerate(meta.shape)
    )

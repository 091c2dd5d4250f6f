"""Direct plans: straight to the target layout, by one exchange or message by message."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

import numpy as np
import numpy.typing as npt

from ..meta import Box
from ..sbp import NdSbp, Sbp, broadcast
from . import comm_cost
from .boxing_steps import Exchange, Local
from .message_routing import Held, Needed, assign, gather_moves, load, spread_moves
from .route_step import Route
from .transitions import Edge, Problem, innermost, reducible

# An exchange among more ranks is priced as if it were balanced.
_PRICED_RANKS = 256
# Past these a route has more messages than its bytes are worth.
_ROUTED_RANKS = 64
_CELLS = 128


def exchange_axes(src: NdSbp, dst: NdSbp) -> tuple[int, ...]:
    """The axes along which some rank lacks something: the smallest groups of an exchange.

    Partial axes that are joined, and those that split a dim in `src` past the common
    beginning of the splits of that dim in `src` and `dst`.
    """
    found = {a for a, sbp in enumerate(src) if sbp.is_partial and dst[a] is not sbp}
    for sbp in src:
        if sbp.is_split:
            old = [a for a, other in enumerate(src) if other is sbp]
            new = [a for a, other in enumerate(dst) if other is sbp]
            same = 0
            while same < min(len(old), len(new)) and old[same] == new[same]:
                same += 1
            found.update(old[same:])
    return tuple(sorted(found))


def exchange(problem: Problem) -> tuple[Edge, ...] | None:
    """One exchange to the target's splits, then a fill where the target is partial."""
    src, dst = problem.src, problem.dst
    target = tuple(_unfilled(old, new) for old, new in zip(src, dst, strict=True))
    axes = exchange_axes(src, target)
    if not axes or not reducible(src, axes):
        return None
    moved, busiest = _exchanged(problem, target, axes)
    messages = prod(problem.mesh[a] for a in axes) - 1
    time = comm_cost.exchange(problem.link, messages, busiest * problem.unit)
    first = Edge(Exchange, target, axes, moved, time)
    if target == dst:
        return (first,)
    filled = tuple(a for a, sbp in enumerate(target) if sbp is not dst[a])
    if not innermost(target, filled) or not reducible(dst, filled):
        return None
    return first, Edge(Local, dst, filled, 0, comm_cost.LOCAL_EPSILON)


def _unfilled(old: Sbp, new: Sbp) -> Sbp:
    if not new.is_partial or old is new:
        return new
    return broadcast if old.is_partial else old


def _exchanged(problem: Problem, target: NdSbp, axes: tuple[int, ...]) -> tuple[Fraction, float]:
    """(mean units received, units moved by the busiest rank) of a direct exchange."""
    ranks = problem.ranks
    if ranks > _PRICED_RANKS:
        addends = prod(problem.mesh[a] for a in axes if problem.src[a].is_partial)
        moved = Fraction(problem.share(target) * addends)
        return moved, float(moved)
    dims = _dims(problem)
    start, stop, at = _boxes(problem.mesh, problem.src, dims)
    start_, stop_, _ = _boxes(problem.mesh, target, dims)
    common = np.minimum(stop[:, None], stop_[None]) - np.maximum(start[:, None], start_[None])
    volumes = np.maximum(common, 0).prod(axis=2)
    outside = [a for a in range(len(problem.mesh)) if a not in axes]
    volumes *= (at[:, None, outside] == at[None, :, outside]).all(axis=2)
    np.fill_diagonal(volumes, 0)
    total, box = int(volumes.sum()), ranks ** len(dims)
    busiest = max(int(volumes.sum(axis=0).max()), int(volumes.sum(axis=1).max()))
    return Fraction(total * problem.whole, box * ranks), busiest * problem.whole / box


def _dims(problem: Problem) -> list[int]:
    return sorted({sbp.dim for sbp in (*problem.src, *problem.dst) if sbp.is_split})


_Ints = npt.NDArray[np.int64]


def _boxes(mesh: tuple[int, ...], state: NdSbp, dims: Sequence[int]) -> tuple[_Ints, _Ints, _Ints]:
    """Start, stop [rank, dim] and coordinate [rank, axis] when each dim has as many as ranks."""
    ranks = prod(mesh)
    at = np.indices(mesh, dtype=np.int64).reshape(len(mesh), ranks).T
    start = np.zeros((ranks, len(dims)), dtype=np.int64)
    size = np.full((ranks, len(dims)), ranks, dtype=np.int64)
    for axis, sbp in enumerate(state):
        if sbp.is_split:
            column = dims.index(sbp.dim)
            size[:, column] //= mesh[axis]
            start[:, column] += at[:, axis] * size[:, column]
    return start, start + size, at


def route(problem: Problem) -> tuple[Edge, ...] | None:
    """A plan of single messages; None if there would be too many."""
    src, dst, mesh = problem.src, problem.dst, problem.mesh
    dims = _dims(problem)
    kinds = {sbp.kind for sbp in (*src, *dst) if sbp.is_partial}
    if len(kinds) > 1 or problem.ranks > _ROUTED_RANKS or _cells(problem, dims) > _CELLS:
        return None
    axes = range(len(mesh))
    kept = [a for a in axes if src[a].is_partial and dst[a] is src[a]]
    summed = [a for a in axes if src[a].is_partial and a not in kept]
    filled = [a for a in axes if dst[a].is_partial and a not in kept]
    held = [
        Held(rank, box, index)
        for rank, (box, index) in enumerate(_placed(problem, src, dims, kept, summed))
    ]
    needed = [
        Needed(rank, box, index)
        for rank, (box, index) in enumerate(_placed(problem, dst, dims, kept, filled))
    ]
    parts = assign(held, needed)
    box = problem.ranks ** len(dims)
    total, time = 0, comm_cost.LOCAL_EPSILON
    for moves in (gather_moves(parts), spread_moves(parts)):
        if moves:
            messages, busiest, moved = load(moves)
            total += moved
            nbytes = busiest * problem.nbytes / box
            time += comm_cost.exchange(problem.link, messages, nbytes)
    mean = Fraction(total * problem.whole, box * problem.ranks)
    return (Edge(Route, dst, tuple(axes), mean, time),)


def _cells(problem: Problem, dims: Sequence[int]) -> int:
    """An upper bound of the number of regions that differ in their holders or takers."""
    count = 1
    for dim in dims:
        old, new = (
            prod(n for sbp, n in zip(state, problem.mesh, strict=True) if sbp.dim == dim)
            for state in (problem.src, problem.dst)
        )
        more, less = max(old, new), min(old, new)
        count *= more if more % less == 0 else more + less - 1
    return count


def _placed(
    problem: Problem, state: NdSbp, dims: Sequence[int], kept: list[int], index: list[int]
) -> list[tuple[Box, int]]:
    """Every rank's box, with one more dim per kept axis, and its row-major index in `index`."""
    start, stop, at = _boxes(problem.mesh, state, dims)
    key = np.zeros(problem.ranks, dtype=np.int64)
    for axis in index:
        key = key * problem.mesh[axis] + at[:, axis]
    offsets = np.concatenate([start, at[:, kept]], axis=1).tolist()
    sizes = np.concatenate([stop - start, np.ones_like(at[:, kept])], axis=1).tolist()
    return [
        ((tuple(offset), tuple(size)), number)
        for offset, size, number in zip(offsets, sizes, key.tolist(), strict=True)
    ]

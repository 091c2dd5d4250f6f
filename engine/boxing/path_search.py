"""The least-cost path between two nd_sbps of one placement.

Only the axes that change, and axes that depend on them, take part. The rest of the mesh repeats
their decision. Paths are compared at a size at which bandwidth matters most and the number of steps
a little. So a path does not depend on the tensor's shape and is searched once for all shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from heapq import heappop, heappush
from math import prod

from ..machine import machine
from ..meta import Meta
from ..sbp import NdSbp, Sbp, broadcast, split
from . import comm_cost
from .boxing_steps import BoxingStep, Exchange, Local
from .direct_plan import exchange, route
from .transitions import Edge, Problem, edges, innermost, with_sbps

_CACHED_PATHS = 8192
_NBYTES = 2.0**26  # of the tensors for which paths are compared
_BYTES_WEIGHT = 16.0  # bytes of all ranks count this much more than those of the busiest one


def steps_on_one(src: Meta, dst: Meta) -> tuple[BoxingStep, ...]:
    """Steps from `src` to `dst`, two layouts of one placement."""
    placement = src.global_placement
    if src is dst:
        return ()
    if all(
        s is t or n == 1 for s, t, n in zip(src.nd_sbp, dst.nd_sbp, placement.shape, strict=True)
    ):
        return ()  # an axis of one rank holds everything under any sbp
    if src.numel == 0:
        return (Local(src, dst),)
    path = find_path(placement.type, placement.shape, src.nd_sbp, dst.nd_sbp, src.ndim)
    steps: list[BoxingStep] = []
    before = src
    for edge in path:
        after = dst if edge.after == dst.nd_sbp else src.like(nd_sbp=edge.after)
        steps.append(edge.make(before, after, edge.axes))
        before = after
    return tuple(steps)


@lru_cache(maxsize=_CACHED_PATHS)
def find_path(
    device_type: str, mesh: tuple[int, ...], src: NdSbp, dst: NdSbp, ndim: int
) -> tuple[Edge, ...]:
    """The steps of the fastest path from `src` to `dst` for tensors with `ndim` dims."""
    # Axes of one rank change their names for free.
    state = tuple(t if size == 1 else s for s, t, size in zip(src, dst, mesh, strict=True))
    path = [] if state == src else [Edge(Local, state, (), 0, comm_cost.LOCAL_EPSILON)]
    axes = active_axes(state, dst)
    if not axes:
        return tuple(path)
    repeated = [a for a in range(len(mesh)) if a not in axes and state[a].is_split]
    problem = Problem(
        machine(device_type).link,
        tuple(mesh[a] for a in axes),
        tuple(state[a] for a in axes),
        tuple(dst[a] for a in axes),
        _spare(src, dst, ndim),
        _NBYTES / prod(mesh[a] for a in repeated),
    )
    for edge in _tidy(solve(problem)):
        moved = tuple(axes[a] for a in edge.axes)
        path.append(replace(edge, after=with_sbps(state, axes, edge.after), axes=moved))
    return tuple(path)


def _spare(src: NdSbp, dst: NdSbp, ndim: int) -> Sbp | None:
    """A split to which one kind of partial is reduced before it becomes another kind."""
    used = {sbp.dim for sbp in (*src, *dst)}
    return next((split(dim) for dim in range(ndim) if dim not in used), None)


def active_axes(src: NdSbp, dst: NdSbp) -> tuple[int, ...]:
    """Axes that change, and those entangled with them.

    Entangled are axes that split the same dim, and partial axes next to another reduction.
    """
    active = {a for a, sbp in enumerate(src) if sbp is not dst[a]}
    mixed = len({sbp.kind for sbp in (*src, *dst) if sbp.is_partial}) > 1
    if not active:
        return ()
    if len(active) == 1 and not mixed and innermost(src, (*active,)) and innermost(dst, (*active,)):
        return (*active,)
    if mixed:
        active |= {a for a, sbp in enumerate(src) if sbp.is_partial}
    while True:
        dims = {sbp.dim for a in active for sbp in (src[a], dst[a]) if sbp.is_split}
        more = {a for a, sbp in enumerate(src) if sbp.is_split and sbp.dim in dims}
        if more <= active:
            return tuple(sorted(active))
        active |= more


def solve(problem: Problem) -> tuple[Edge, ...]:
    """The cheapest of a path of collectives, one direct exchange, and messages."""
    best = shortest(problem)
    if len(problem.mesh) == 1:
        return best
    straight = exchange(problem)
    if straight is not None:
        best = min(best, straight, key=partial(price, problem))
    if _improvable(problem, best):
        messages = route(problem)
        if messages is not None:
            best = min(best, messages, key=partial(price, problem))
    return best


def price(problem: Problem, path: Sequence[Edge]) -> tuple[float, int]:
    """The key by which paths are compared: time of the busiest ranks, bytes of all, steps."""
    nbytes = float(sum(edge.bytes for edge in path)) * problem.unit
    time = sum(edge.time for edge in path)
    return time + _BYTES_WEIGHT * nbytes * problem.link.byte, len(path)


def _improvable(problem: Problem, path: Sequence[Edge]) -> bool:
    """Whether messages could move fewer bytes, or balance them better, than this path.

    An element with `a` addends and `t` takers costs at least (a - 1) + (t - 1) messages.
    """
    total = sum(edge.bytes for edge in path)
    addends = copies = 1
    for old, new, size in zip(problem.src, problem.dst, problem.mesh, strict=True):
        if old.is_partial and new is not old:
            addends *= size
        if new.is_broadcast:
            copies *= size
    if addends > 1:
        return total * problem.ranks > problem.whole * (addends + copies - 2)
    if any(new.is_partial and new is not problem.src[a] for a, new in enumerate(problem.dst)):
        return total > 0
    edge = path[0]
    if edge.make is not Exchange or len(path) > 1:
        return False
    balanced = comm_cost.exchange(
        problem.link,
        prod(problem.mesh[a] for a in edge.axes) - 1,
        float(edge.bytes) * problem.unit,
    )
    return edge.time > 1.25 * balanced


def shortest(problem: Problem) -> tuple[Edge, ...]:
    """Dijkstra over the states that have, per axis, the sbp of source, target or broadcast."""
    choices = [_choices(problem, axis) for axis in range(len(problem.mesh))]
    done: set[NdSbp] = set()
    pushed = 0
    heap: list[tuple[float, int, int, NdSbp, tuple[Edge, ...]]]
    heap = [(0.0, 0, 0, problem.src, ())]
    while heap:
        spent, length, _, state, path = heappop(heap)
        if state == problem.dst:
            return path
        if state in done:
            continue
        done.add(state)
        for edge in edges(problem, state, choices):
            if edge.after not in done:
                pushed += 1
                total = spent + price(problem, (edge,))[0]
                heappush(heap, (total, length + 1, pushed, edge.after, (*path, edge)))
    raise AssertionError(f"no path from {problem.src} to {problem.dst}")


def _choices(problem: Problem, axis: int) -> tuple[Sbp, ...]:
    source, target = problem.src[axis], problem.dst[axis]
    choices = [target, source, broadcast]
    if source.is_partial and target.is_partial and source is not target:
        choices += [] if problem.spare is None else [problem.spare]
    return tuple(dict.fromkeys(choices))


def _tidy(path: Sequence[Edge]) -> list[Edge]:
    """The path with adjacent local steps of one kind merged."""
    out: list[Edge] = []
    for edge in path:
        filled = {edge.after[a] for a in edge.axes if edge.after[a].is_partial}
        last = out[-1] if out else None
        if last is not None and last.make is Local and edge.make is Local:
            before = {last.after[a] for a in last.axes if last.after[a].is_partial}
            if before == filled:
                axes = tuple(sorted({*last.axes, *edge.axes}))
                out[-1] = Edge(Local, edge.after, axes, 0, edge.time)
                continue
        out.append(edge)
    return out

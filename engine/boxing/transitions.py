"""Transitions: single steps from one nd_sbp to another, with a cost that is independent of the
shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from ..machine import Link
from ..sbp import NdSbp, Sbp, broadcast
from . import comm_cost
from .boxing_steps import AllGather, AllReduce, BoxingStep, Exchange, Local

Bytes = int | Fraction  # mean per rank, in units of Problem.unit


@dataclass(frozen=True, slots=True)
class Edge:
    """A step to the state `after`, along `axes`, with its price."""

    make: type[BoxingStep]
    after: NdSbp
    axes: tuple[int, ...]
    bytes: Bytes
    time: float


@dataclass(frozen=True, slots=True)
class Problem:
    """From `src` to `dst` on a mesh whose axes all take part; the tensor has `nbytes` bytes."""

    link: Link
    mesh: tuple[int, ...]
    src: NdSbp
    dst: NdSbp
    spare: Sbp | None  # a split of a dim that nothing else splits
    nbytes: float

    @property
    def ranks(self) -> int:
        return prod(self.mesh)

    @property
    def whole(self) -> int:
        """The tensor's bytes in a unit in which the bytes of every collective are integers."""
        return self.ranks * self.ranks

    @property
    def unit(self) -> float:
        """Bytes per unit."""
        return self.nbytes / self.whole

    def share(self, state: NdSbp) -> int:
        """Units of one shard."""
        sizes = zip(state, self.mesh, strict=True)
        return self.whole // prod(size for sbp, size in sizes if sbp.is_split)


def innermost(state: NdSbp, axes: Sequence[int]) -> bool:
    """Whether no axis outside `axes` splits a dim further that one of `axes` splits."""
    return not any(
        state[a].is_split and state[b] is state[a] and b not in axes
        for a in axes
        for b in range(a + 1, len(state))
    )


def reducible(state: NdSbp, axes: Sequence[int]) -> bool:
    """Whether the partial `axes` can be joined: mixed reductions nest, the last axis first."""
    kinds = {state[a].kind for a in axes if state[a].is_partial}
    if not kinds:
        return True
    first = min(a for a in axes if state[a].is_partial)
    inner = {sbp.kind for sbp in state[first:] if sbp.is_partial}
    return len(kinds) == 1 and inner == kinds


def with_sbps(state: NdSbp, axes: Sequence[int], sbps: Sequence[Sbp]) -> NdSbp:
    """The state with the sbps of some axes replaced."""
    out = list(state)
    for axis, sbp in zip(axes, sbps, strict=True):
        out[axis] = sbp
    return tuple(out)


def edges(problem: Problem, state: NdSbp, choices: Sequence[Sequence[Sbp]]) -> Iterator[Edge]:
    """All moves from a state: each axis alone, and axes that share one collective."""
    for axis, options in enumerate(choices):
        for sbp in options:
            if sbp is not state[axis]:
                found = move(problem, state, (axis,), with_sbps(state, (axis,), (sbp,)))
                if found is not None:
                    yield found
    if len(state) == 1:
        return
    for axes, sbps in _together(problem, state):
        found = move(problem, state, axes, with_sbps(state, axes, sbps))
        if found is not None:
            yield found


def _together(problem: Problem, state: NdSbp) -> Iterator[tuple[tuple[int, ...], tuple[Sbp, ...]]]:
    dst = problem.dst
    splits = tuple(a for a, sbp in enumerate(state) if sbp.is_split and dst[a] is not sbp)
    partials = tuple(a for a, sbp in enumerate(state) if sbp.is_partial)
    changing = tuple(a for a in partials if dst[a] is not state[a])
    combined = tuple(a for a in changing if not dst[a].is_split)
    scattered = tuple(a for a in changing if dst[a].is_split)
    for axes in dict.fromkeys((splits, partials, changing, combined)):
        if len(axes) > 1:
            yield axes, (broadcast,) * len(axes)
    if len(scattered) > 1:
        yield scattered, tuple(dst[a] for a in scattered)


def move(problem: Problem, state: NdSbp, axes: tuple[int, ...], after: NdSbp) -> Edge | None:
    """The one collective that makes this move, or None when no single one does.

    All `axes` are alike: all split, all partial or all broadcast, before and after.
    """
    old, new = state[axes[0]], after[axes[0]]
    if old.is_broadcast or (old.is_split and new.is_partial):
        fits = innermost(after if new.is_split else state, axes)
        if not fits or (old.is_split and not reducible(after, axes)):
            return None
        return Edge(Local, after, axes, 0, comm_cost.LOCAL_EPSILON)
    if not innermost(state, axes) or not innermost(after, axes) or not reducible(state, axes):
        return None
    count = prod(problem.mesh[a] for a in axes)
    held, made = problem.share(state), problem.share(after)
    link, unit = problem.link, problem.unit
    if new.is_broadcast and old.is_partial:
        time = comm_cost.all_reduce(link, count, held * unit)
        return Edge(AllReduce, after, axes, 2 * held * (count - 1) // count, time)
    if new.is_broadcast:
        time = comm_cost.all_gather(link, count, (made - held) * unit)
        return Edge(AllGather, after, axes, made - held, time)
    if new.is_split:
        moved = made * (count - 1) if old.is_partial else made * (count - 1) // count
        return Edge(Exchange, after, axes, moved, comm_cost.exchange(link, count - 1, moved * unit))
    return None

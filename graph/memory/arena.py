"""Arena: offsets in one block of memory for buffers of known lifetimes, close to the least peak.

Dynamic storage allocation is NP-hard. Several greedy orders are tried, and the best is improved.
The largest sum of bytes that are live at one time is a lower bound for every plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Literal, TypeAlias

import numpy as np

from .liveness import Buffer, Ints, live_at, spans_of

ALIGNMENT = 64  # bytes; every offset is a multiple
TRIES = 10_000  # placements that may be spent on improving one plan
ENOUGH = 1.0005  # a ratio with which no more is tried
ENOUGH_OF_MANY = 1.02  # the same for more than `TRIES` buffers, each order of which takes a second
_MIN_ROUNDS, _MAX_ROUNDS = 3, 200
_STUCK = 8  # rounds without success before a fresh start
_NOISE = 0.5  # of the logarithm of sizes, in a fresh start

Fit: TypeAlias = Literal["best", "first"]  # the smallest gap, or the lowest


@dataclass(frozen=True)
class Arena:
    """The offsets of buffers: `offsets[i]` of `buffers[i]`. Sizes are aligned."""

    buffers: tuple[Buffer, ...]
    offsets: tuple[int, ...]
    peak: int  # bytes of the arena
    lower_bound: int  # bytes below which no arena can be

    @property
    def ratio(self) -> float:
        """Peak over lower bound; 1.0 proves that the plan is optimal."""
        return self.peak / self.lower_bound if self.lower_bound else 1.0

    def __str__(self) -> str:
        return (
            f"arena of {self.peak:,} bytes for {len(self.buffers):,} buffers: "
            f"{self.ratio:.4f} x the lower bound of {self.lower_bound:,}"
        )


def aligned(nbytes: int) -> int:
    """Rounded up to a multiple of the alignment.

    >>> aligned(0), aligned(1), aligned(64)
    (0, 64, 64)
    """
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """The largest sum of aligned bytes that are live at one time."""
    sizes, firsts, lasts = spans_of(buffers)
    whole = -(-sizes // ALIGNMENT) * ALIGNMENT
    return int(live_at(whole, firsts, lasts, 1 + int(lasts.max(initial=-1))).max(initial=0))


def plan(buffers: Sequence[Buffer], tries: int = TRIES) -> Arena:
    """Offsets by the best of the greedy orders, improved by about so many further placements.

    >>> print(plan([Buffer("x", 100, 0, 1), Buffer("y", 10, 1, 2), Buffer("z", 90, 2, 3)]))
    arena of 192 bytes for 3 buffers: 1.0000 x the lower bound of 192
    """
    if not buffers:
        return Arena((), (), 0, 0)
    work = _Work(buffers)
    bound = lower_bound(buffers)
    enough = ENOUGH if len(buffers) <= TRIES else ENOUGH_OF_MANY
    found: list[tuple[int, Ints, Ints, Fit]] = []
    for key, fit in _ORDERS:
        order = np.lexsort(key(work)[::-1])  # its last key is the first to decide
        offsets = work.place(order, fit)
        found.append((work.peak(offsets), offsets, order, fit))
        if found[-1][0] <= enough * bound:
            break
    peak, best, order, fit = min(found, key=lambda plan: plan[0])
    if peak > enough * bound and tries:
        best = _improved(work, best, order, fit, bound, tries)
    return Arena(tuple(buffers), tuple(best.tolist()), work.peak(best), bound)


def check(arena: Arena) -> None:
    """Raise AssertionError if live buffers overlap, or one is not aligned or not inside."""
    assert len(arena.buffers) == len(arena.offsets), "there is not one offset for each buffer"
    for buffer, offset in zip(arena.buffers, arena.offsets, strict=True):
        assert offset >= 0 and offset % ALIGNMENT == 0, f"{buffer} lies at {offset}"
        assert offset + aligned(buffer.nbytes) <= arena.peak, f"{buffer} at {offset} goes beyond"
    placed = [(b, at) for b, at in zip(arena.buffers, arena.offsets, strict=True) if b.nbytes]
    live: list[tuple[Buffer, int]] = []  # by offset
    for new in sorted(placed, key=lambda each: each[0].first):
        there = [each for each in live if each[0].last >= new[0].first]
        live = sorted([*there, new], key=itemgetter(1))
        for (low, at), (high, above) in pairwise(live):
            assert at + low.nbytes <= above, f"{low} at {at} overlaps {high} at {above}"


class _Work:
    """The buffers as arrays, and the greedy placement of them in any order."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.size: Ints = np.array([aligned(b.nbytes) for b in buffers], np.int64)
        self.first: Ints = np.array([b.first for b in buffers], np.int64)
        self.last: Ints = np.array([b.last for b in buffers], np.int64)
        self.span: Ints = self.last - self.first + 1

    def peak(self, offsets: Ints) -> int:
        return int((offsets + self.size).max(initial=0))

    def crowd(self) -> Ints:
        """The peak of aligned bytes during each buffer's life."""
        live = live_at(self.size, self.first, self.last, int(self.last.max()) + 1)
        spans = zip(self.first.tolist(), self.last.tolist(), strict=True)
        return np.array([live[first : last + 1].max() for first, last in spans], np.int64)

    def place(self, order: Ints, fit: Fit) -> Ints:
        """Place each buffer of `order` in a gap that fits, else above all that are live then."""
        offsets = np.zeros(len(self.size), np.int64)
        # What lies there already, by offset: start, end, first and last event.
        rows: Ints = np.empty((4, len(self.size)), np.int64)
        used = 0
        sizes, firsts, lasts = self.size.tolist(), self.first.tolist(), self.last.tolist()
        for index in order.tolist():
            size, first, last = sizes[index], firsts[index], lasts[index]
            if size == 0:
                continue
            meets = (rows[2, :used] <= last) & (rows[3, :used] >= first)
            offset = _gap(rows[0, :used][meets], rows[1, :used][meets], size, fit)
            offsets[index] = offset
            at = int(rows[0, :used].searchsorted(offset))
            rows[:, at + 1 : used + 1] = rows[:, at:used].copy()
            rows[:, at] = offset, offset + size, first, last
            used += 1
        return offsets


def _gap(starts: Ints, ends: Ints, size: int, fit: Fit) -> int:
    """The start of a gap of `size`; `starts` ascend, and the placed buffers may overlap."""
    if not len(starts):
        return 0
    tops = np.maximum.accumulate(ends)
    gaps = starts.copy()
    gaps[1:] -= tops[:-1]
    fits = np.flatnonzero(gaps >= size)
    if not len(fits):
        return int(tops[-1])
    chosen = int(fits[0] if fit == "first" else fits[gaps[fits].argmin()])
    return int(tops[chosen - 1]) if chosen else 0


# What to place first, by the keys in turn, and in which gap. The first is the best for training
# steps: of buffers alike, those that stay longest lie lowest.
_ORDERS: tuple[tuple[Callable[[_Work], tuple[Ints, ...]], Fit], ...] = (
    (lambda w: (-w.size, -w.last), "first"),
    # Activations of pipelines below, what one segment makes and drops above them.
    (lambda w: (w.span <= w.span.mean(), -w.size, -w.last), "first"),
    (lambda w: (w.span <= w.span.mean(), -w.last, -w.size), "first"),
    (lambda w: (-w.size, w.first), "best"),
    (lambda w: (-w.size * w.span, -w.crowd()), "best"),
    (lambda w: (-w.crowd(), -w.size), "first"),
    (lambda w: (-w.crowd(), -w.span), "best"),
    (lambda w: (-w.span, -w.size), "best"),
    (lambda w: (w.first, -w.size), "best"),
)


def _improved(work: _Work, offsets: Ints, order: Ints, fit: Fit, bound: int, tries: int) -> Ints:
    """Remove the buffers above the bound, place them first, and then the others.

    A round may be worse than the one before, the best is kept. When nothing is won any more it
    starts again from an order by size with some (always the same) noise.
    """
    rng = np.random.default_rng(0)
    best, peak, placed, stuck = offsets, work.peak(offsets), offsets, 0
    for _ in range(min(_MAX_ROUNDS, max(_MIN_ROUNDS, tries // len(order)))):
        high = (placed + work.size)[order] > bound
        count = int(high.sum())
        if stuck >= _STUCK or high[:count].all():
            weight = work.size if rng.random() < 0.5 else work.size * work.span
            noisy = weight * np.exp(_NOISE * rng.standard_normal(len(order)))
            order, stuck = np.argsort(-noisy, kind="stable"), 0
        else:
            order = np.concatenate([order[high], order[~high]])
        placed = work.place(order, fit)
        found = work.peak(placed)
        stuck += 1
        if found < peak:
            best, peak, stuck = placed, found, 0
        if peak <= ENOUGH * bound:
            break
    return best

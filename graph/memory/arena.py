"""Arena: places in one block of memory for buffers of known lifetimes, close to the least peak.

Dynamic storage allocation is NP-hard, so several greedy orders are tried and the best is improved;
the largest sum of bytes that are live at once bounds every plan from below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .liveness import Buffer, live_bytes

ALIGNMENT = 64  # bytes; every offset is a multiple
TRIES = 5_000  # placements that may be spent on improving one plan
_MIN_ROUNDS, _MAX_ROUNDS = 3, 200

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Arena:
    """Where each buffer lies: `offsets[i]` of `buffers[i]`. Sizes count aligned."""

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
    """The largest sum of aligned bytes that are there at once."""
    whole = [Buffer(b.key, aligned(b.nbytes), b.first, b.last) for b in buffers]
    return max(live_bytes(whole, 1 + max((b.last for b in buffers), default=-1)), default=0)


def plan(buffers: Sequence[Buffer], tries: int = TRIES) -> Arena:
    """Offsets by the best of the greedy orders, improved with about so many more placements.

    >>> print(plan([Buffer("x", 100, 0, 1), Buffer("y", 10, 1, 2), Buffer("z", 90, 2, 3)]))
    arena of 192 bytes for 3 buffers: 1.0000 x the lower bound of 192
    """
    work = _Work(buffers)
    bound = lower_bound(buffers)
    found: list[tuple[int, Ints, Ints]] = []
    for key in _ORDERS:
        order = np.lexsort(key(work)[::-1])  # its last key is the first to decide
        offsets = work.place(order)
        found.append((work.peak(offsets), offsets, order))
        if found[-1][0] == bound:
            break
    peak, best, order = min(found, key=lambda plan: plan[0])
    if peak > bound and tries:
        best = _improved(work, best, order, bound, tries)
    return Arena(tuple(buffers), tuple(best.tolist()), work.peak(best), bound)


def check(arena: Arena) -> None:
    """Raise AssertionError if buffers that meet overlap, or one is misplaced or not inside."""
    assert len(arena.buffers) == len(arena.offsets), "there is not one offset for each buffer"
    for buffer, offset in zip(arena.buffers, arena.offsets, strict=True):
        assert offset >= 0 and offset % ALIGNMENT == 0, f"{buffer} lies at {offset}"
        assert offset + aligned(buffer.nbytes) <= arena.peak, f"{buffer} at {offset} goes beyond"
    starts = sorted(
        (i for i, b in enumerate(arena.buffers) if b.nbytes), key=lambda i: arena.buffers[i].first
    )
    live: list[int] = []  # by offset
    for index in starts:
        buffer = arena.buffers[index]
        live = [i for i in live if arena.buffers[i].last >= buffer.first]
        live = sorted([*live, index], key=lambda i: arena.offsets[i])
        for low, high in pairwise(live):
            end = arena.offsets[low] + arena.buffers[low].nbytes
            assert end <= arena.offsets[high], (
                f"{arena.buffers[low]} at {arena.offsets[low]} overlaps {arena.buffers[high]} at "
                f"{arena.offsets[high]}"
            )


class _Work:
    """The buffers as arrays, and the greedy placement of them in any order."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.size: Ints = np.array([aligned(b.nbytes) for b in buffers], np.int64)
        self.first: Ints = np.array([b.first for b in buffers], np.int64)
        self.last: Ints = np.array([b.last for b in buffers], np.int64)

    def peak(self, offsets: Ints) -> int:
        return int((offsets + self.size).max(initial=0))

    def place(self, order: Ints) -> Ints:
        """Each buffer of `order` in the smallest gap that holds it, else on top of all it meets."""
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
            offset = _best_gap(rows[0, :used][meets], rows[1, :used][meets], size)
            offsets[index] = offset
            at = int(rows[0, :used].searchsorted(offset))
            rows[:, at + 1 : used + 1] = rows[:, at:used].copy()
            rows[:, at] = offset, offset + size, first, last
            used += 1
        return offsets


def _best_gap(starts: Ints, ends: Ints, size: int) -> int:
    """The start of the smallest gap that holds `size`; `starts` go up, intervals may overlap."""
    if not len(starts):
        return 0
    tops = np.maximum.accumulate(ends)
    gaps = starts.copy()
    gaps[1:] -= tops[:-1]
    fits = np.flatnonzero(gaps >= size)
    if not len(fits):
        return int(tops[-1])
    best = int(fits[gaps[fits].argmin()])
    return int(tops[best - 1]) if best else 0


_ORDERS: tuple[Callable[[_Work], tuple[Ints, ...]], ...] = (
    lambda w: (-w.size, w.first),
    lambda w: (-w.size * (w.last - w.first + 1), w.first),
    lambda w: (w.first - w.last, -w.size),
    lambda w: (w.first, -w.size),
)


def _improved(work: _Work, offsets: Ints, order: Ints, bound: int, tries: int) -> Ints:
    """Take the buffers that stand above the bound out, put them in again first, then the others.

    Until nothing changes or the rounds are used up; a round may be worse than the one before, the
    best is kept.
    """
    best, peak, placed = offsets, work.peak(offsets), offsets
    for _ in range(min(_MAX_ROUNDS, max(_MIN_ROUNDS, tries // max(1, len(order))))):
        high = (placed + work.size)[order] > bound
        count = int(high.sum())
        if not count or high[:count].all():
            break
        order = np.concatenate([order[high], order[~high]])
        placed = work.place(order)
        found = work.peak(placed)
        if found < peak:
            best, peak = placed, found
    return best

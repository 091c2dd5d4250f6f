"""Routing: who sends which region to whom, for any boxes held and needed, in the fewest bytes.

Index space is divided into cells in which the set of holders and the set of receivers are constant.
Each cell gets owners. An owner sums the addends of its share of the cell once and sends the result
to all receivers. This takes at most two rounds, and its bytes are the lower bound for every pair of
layouts: (addends - 1) + receivers - (1 if a receiver holds an addend).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from ..meta import Box


@dataclass(frozen=True, slots=True)
class Held:
    """A rank holds `box`, as one addend of a partial value (0 when there is only one)."""

    rank: int
    box: Box
    addend: int


@dataclass(frozen=True, slots=True)
class Needed:
    """A rank needs `box`; the ranks of one `option` get it, others the identity (for partials)."""

    rank: int
    box: Box
    option: int


@dataclass(frozen=True, slots=True)
class Part:
    """`owner` gets and sums the addends of `box` from `sources`, and sends it to `takers`."""

    box: Box
    sources: tuple[int, ...]
    owner: int
    takers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """One message: `box`, from rank `src` to rank `dst`."""

    src: int
    dst: int
    box: Box


def gather_moves(parts: Sequence[Part]) -> tuple[Move, ...]:
    """The messages of the first round: addends to owners."""
    return tuple(
        Move(source, part.owner, part.box)
        for part in parts
        for source in part.sources
        if source != part.owner
    )


def spread_moves(parts: Sequence[Part]) -> tuple[Move, ...]:
    """The messages of the second round: results from owners to takers."""
    return tuple(
        Move(part.owner, taker, part.box)
        for part in parts
        for taker in part.takers
        if taker != part.owner
    )


def load(moves: Sequence[Move]) -> tuple[int, int, int]:
    """(messages, elements) of the busiest rank in one direction, and elements of all ranks."""
    counts: dict[tuple[int, bool], int] = {}
    sizes: dict[tuple[int, bool], int] = {}
    total = 0
    for move in moves:
        size = prod(move.box[1])
        total += size
        for end in ((move.src, True), (move.dst, False)):
            counts[end] = counts.get(end, 0) + 1
            sizes[end] = sizes.get(end, 0) + size
    return max(counts.values()), max(sizes.values()), total


def assign(held: Sequence[Held], needed: Sequence[Needed]) -> tuple[Part, ...]:
    """The parts of which every needed box is assembled; the same list on every process.

    A rank takes what it holds from itself. Other sources are balanced over the replicas. Where
    more ranks need a region than hold it, each of them gets a share and passes it on to the
    others, so that a region leaves its holders once.
    """
    sent: dict[int, int] = {}
    parts: list[Part] = []
    shared: dict[tuple[tuple[int, ...], tuple[int, ...]], list[_Cell]] = {}
    for cell in _cells(held, needed):
        everyone = {rank for ranks in cell.holders for rank in ranks}
        if len(cell.holders) > 1:
            owners = tuple(rank for rank in cell.takers if rank in everyone) or cell.takers
            shared.setdefault((owners, cell.takers), []).append(cell)
            continue
        rest = tuple(rank for rank in cell.takers if rank not in everyone)
        parts += [Part(cell.box, (r,), r, (r,)) for r in cell.takers if r in everyone]
        if len(rest) > len(everyone):
            shared.setdefault((rest, rest), []).append(cell)
            continue
        for rank in rest:
            source = _pick(cell.holders[0], rank, prod(cell.box[1]), sent)
            parts.append(Part(cell.box, (source,), source, (rank,)))
    for (owners, takers), cells in shared.items():
        for cell, box, owner in _share(cells, owners):
            size = prod(box[1])
            sources = tuple(_pick(ranks, owner, size, sent) for ranks in cell.holders)
            parts.append(Part(box, sources, owner, takers))
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class _Cell:
    box: Box
    holders: tuple[tuple[int, ...], ...]  # per addend, in addend order
    takers: tuple[int, ...]


def _pick(holders: Sequence[int], wanting: int, size: int, sent: dict[int, int]) -> int:
    """The holder that has sent least so far (the wanting rank itself when it is one)."""
    if wanting in holders:
        return wanting
    best = min(holders, key=lambda rank: sent.get(rank, 0))
    sent[best] = sent.get(best, 0) + size
    return best


def _share(cells: Sequence[_Cell], owners: Sequence[int]) -> Iterator[tuple[_Cell, Box, int]]:
    """The cells distributed over the owners in equal volumes, cut along their longest dims."""
    total = sum(prod(cell.box[1]) for cell in cells)
    turn, done, count = 0, 0, len(owners)
    for cell in cells:
        offset, size = cell.box
        dim = max(range(len(size)), key=lambda d: (size[d], -d)) if size else -1
        start, left = 0, size[dim] if size else 1
        row = prod(size) // left
        while left:
            wanted = total * (turn + 1) - done * count  # rows = wanted / (count * row), rounded
            rows = min(left, max(0, (2 * wanted + count * row) // (2 * count * row)))
            if turn == count - 1:
                rows = left
            if rows:
                yield cell, _rows(offset, size, dim, start, rows), owners[turn]
                start, left, done = start + rows, left - rows, done + rows * row
            if left:
                turn += 1


def _rows(offset: tuple[int, ...], size: tuple[int, ...], dim: int, start: int, rows: int) -> Box:
    if dim < 0:
        return offset, size
    return (
        (*offset[:dim], offset[dim] + start, *offset[dim + 1 :]),
        (*size[:dim], rows, *size[dim + 1 :]),
    )


def _cells(held: Sequence[Held], needed: Sequence[Needed]) -> Iterator[_Cell]:
    """Regions with constant holders and takers, in index order, that some rank needs."""
    held = [h for h in held if prod(h.box[1])]
    needed = [n for n in needed if prod(n.box[1])]
    if not needed:
        return
    dims = len(needed[0].box[0])
    tables = [_masks([h.box for h in held], [n.box for n in needed], dim) for dim in range(dims)]
    everything = (1 << len(held)) - 1, (1 << len(needed)) - 1

    def walk(
        dim: int, offset: tuple[int, ...], size: tuple[int, ...], holding: int, needing: int
    ) -> Iterator[_Cell]:
        if not needing:
            return
        if dim == dims:
            yield _cell((offset, size), held, needed, holding, needing)
            return
        for start, length, hold, need in tables[dim]:
            yield from walk(
                dim + 1, (*offset, start), (*size, length), holding & hold, needing & need
            )

    yield from walk(0, (), (), *everything)


def _masks(held: Sequence[Box], needed: Sequence[Box], dim: int) -> list[tuple[int, int, int, int]]:
    """(start, length, bits of the holders, bits of the needers) of each interval of a dim."""
    edges = {box[0][dim] + end for box in (*held, *needed) for end in (0, box[1][dim])}
    intervals = list(pairwise(sorted(edges)))
    place = {start: index for index, (start, _) in enumerate(intervals)}
    place[max(edges)] = len(intervals)
    bits = [[0, 0] for _ in intervals]
    for side, boxes in enumerate((held, needed)):
        for number, box in enumerate(boxes):
            first, last = place[box[0][dim]], place[box[0][dim] + box[1][dim]]
            for index in range(first, last):
                bits[index][side] |= 1 << number
    return [
        (start, stop - start, hold, need)
        for (start, stop), (hold, need) in zip(intervals, bits, strict=True)
    ]


def _cell(
    box: Box, held: Sequence[Held], needed: Sequence[Needed], holding: int, needing: int
) -> _Cell:
    addends: dict[int, list[int]] = {}
    for number in _ones(holding):
        addends.setdefault(held[number].addend, []).append(held[number].rank)
    assert addends, f"no rank holds {box}"
    everyone = {held[number].rank for number in _ones(holding)}
    options: dict[int, list[int]] = {}
    for number in _ones(needing):
        options.setdefault(needed[number].option, []).append(needed[number].rank)
    # The option whose ranks hold most of it already; replicas of a partial must be alike.
    takers = max(options.values(), key=lambda ranks: len(everyone.intersection(ranks)))
    holders = tuple(tuple(addends[addend]) for addend in sorted(addends))
    return _Cell(box, holders, tuple(takers))


def _ones(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low

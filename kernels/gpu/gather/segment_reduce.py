"""Segment reduction: rows with the same target are reduced in order, without atomics.

Rows are sorted by target and split into chunks of a fixed size. A program reduces the segments of
its chunk. A segment that lies inside the chunk is done; the partial results of segments across
chunks are kept. A second pass combines these, each segment by the program of the chunk in which it
begins. Products and extrema are computed in the same way. NaN is both the greatest and the least
value.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch.jit_kernel import Kernel
from ..pointwise.copy_kernels import fill
from ..pointwise.scalar_functions import maximum, minimum
from ..reduce.reduction_tiles import cdiv, power_of_2
from ..reduce.reductions import neutral, sum_dtype
from ..sort.sort_kernels import sort_rows

STAGES = 4  # of the loop over rows: those of three steps are on their way
_LANES = 128  # chunks times columns of one program, at least
_WIDEST = 1024  # columns of one program: 16 bytes for each thread


@triton.jit
def combine(a, b, KIND: tl.constexpr):
    """Combine two values of a segment, the earlier first."""
    if KIND == "sum":
        return a + b
    elif KIND == "prod":
        return a * b
    elif KIND == "max":
        return maximum(a, b)
    else:
        return minimum(a, b)


@triton.jit
def _store(y, total, done, ADD: tl.constexpr):
    """Store what a segment gave, or add it to what is there."""
    if ADD:
        total += tl.load(y, mask=done, other=0).to(total.dtype)
    tl.store(y, total.to(y.dtype.element_ty), mask=done)


@triton.jit
def _part(width, LANES: tl.constexpr, BLOCK: tl.constexpr):
    """The chunks and the columns of this program. Those of one row are side by side."""
    across = tl.cdiv(width, BLOCK)
    chunk = (tl.program_id(0) // across).to(tl.int64) * LANES + tl.arange(0, LANES)
    return chunk, (tl.program_id(0) % across * BLOCK + tl.arange(0, BLOCK))[None, :]


@Kernel
def add_chunks(
    places, order, source, y, head, tail, count: tl.int64, rows: tl.int64, width,
    KIND: tl.constexpr, NEUTRAL: tl.constexpr, ADD: tl.constexpr, CHUNK: tl.constexpr,
    LANES: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    chunk, column = _part(width, LANES, BLOCK)
    begin = chunk * CHUNK
    known = begin < count
    current = tl.load(places + begin, mask=known, other=-1)
    before = tl.load(places + begin - 1, mask=known & (begin > 0), other=-1)
    own = current != before  # whether the run began in this chunk
    nothing = tl.full((LANES, BLOCK), NEUTRAL, head.dtype.element_ty)
    total = nothing
    spot = chunk[:, None] * width + column
    # Rows of the next steps are copied meanwhile: they lie anywhere, and their sum waits for each.
    for step in tl.range(CHUNK, num_stages=STAGES):
        live = begin + step < count
        place = tl.load(places + begin + step, mask=live, other=-1)
        ends = live & (place != current)
        done = (ends & own & (current < rows))[:, None] & (column < width)
        _store(y + current[:, None] * width + column, total, done, ADD)
        tl.store(head + spot, total, mask=(ends & (own == 0))[:, None] & (column < width))
        total = tl.where(ends[:, None], nothing, total)
        own = own | ends
        current = tl.where(ends, place, current)
        row = tl.load(order + begin + step, mask=live, other=0)
        wanted = (live & (place < rows))[:, None] & (column < width)
        v = tl.load(source + row[:, None] * width + column, mask=wanted, other=0).to(total.dtype)
        if KIND == "sum":
            total += v
        else:
            total = tl.where(wanted, combine(total, v, KIND), total)
    after = tl.load(places + begin + CHUNK, mask=begin + CHUNK < count, other=-1)
    goes_on = known & (after == current)
    inside = column < width
    done = (known & own & (goes_on == 0) & (current < rows))[:, None] & inside
    _store(y + current[:, None] * width + column, total, done, ADD)
    tl.store(tail + spot, total, mask=(goes_on & own)[:, None] & inside)
    tl.store(head + spot, total, mask=(known & (own == 0))[:, None] & inside)


@Kernel
def combine_chunks(
    places, y, head, tail, count: tl.int64, rows: tl.int64, width,
    KIND: tl.constexpr, ADD: tl.constexpr, CHUNK: tl.constexpr, LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    chunk, column = _part(width, LANES, BLOCK)
    begin = chunk * CHUNK
    behind = begin + CHUNK
    known = behind < count
    before = tl.load(places + begin - 1, mask=known & (begin > 0), other=-1)
    first = tl.load(places + begin, mask=known, other=-1)
    last = tl.load(places + behind - 1, mask=known, other=-1)
    after = tl.load(places + behind, mask=known, other=-2)
    mine = known & (after == last) & (last < rows) & ((first != last) | (before != first))
    inside = column < width
    total = tl.load(tail + chunk[:, None] * width + column, mask=mine[:, None] & inside, other=0)
    following = chunk + 1
    live = mine
    while tl.max(live.to(tl.int32)) > 0:
        at = following * CHUNK
        place = tl.load(places + at, mask=live & (at < count), other=-1)
        live = live & (place == last)
        spot = following[:, None] * width + column
        more = live[:, None] & inside
        v = tl.load(head + spot, mask=more, other=0)
        if KIND == "sum":
            total += v
        else:
            total = tl.where(more, combine(total, v, KIND), total)
        following += 1
    done = mine[:, None] & inside
    _store(y + last[:, None] * width + column, total, done, ADD)


def add_runs(places: Tensor, source: Tensor, rows: int, into: Tensor | None = None) -> Tensor:
    """The sums of the rows of `source` by target, as [rows, width], perhaps added to `into`.

    Targets from `rows` on are ignored.
    """
    if not source.numel() or not rows:
        if into is not None:
            return into
        y = torch.empty((rows, source.shape[1]), dtype=source.dtype, device=source.device)
        return fill(y, 0)
    return reduce_runs(*sort_rows(places, most=rows), source, rows, into=into)


def reduce_runs(
    places: Tensor,
    order: Tensor,
    source: Tensor,
    rows: int,
    kind: str = "sum",
    dtype: torch.dtype | None = None,
    into: Tensor | None = None,
) -> Tensor:
    """The "sum", "prod", "max" or "min" of the rows of `source` by target, as [rows, width].

    `places` are the sorted targets, `order` the row of each. A target without rows gets the neutral
    element. Sums are added to `into`, which is dense, where it is given.
    """
    count, width = source.shape
    wide = sum_dtype(source.dtype)
    y = into
    if y is None:
        y = torch.empty((rows, width), dtype=dtype or source.dtype, device=source.device)
        fill(y, neutral(kind, y.dtype))
    chunk = 16 if count < 4096 else 64
    chunks = cdiv(count, chunk)
    block = min(power_of_2(width), _WIDEST)
    lanes = max(_LANES // block, 1)
    head, tail = torch.empty((2, chunks, width), dtype=wide, device=source.device).unbind()
    grid = (cdiv(chunks, lanes) * cdiv(width, block),)
    constants = (into is not None, chunk, lanes, block)
    add_chunks.launch(
        grid,
        (places, order, source.contiguous(), y, head, tail, count, rows, width),
        (kind, neutral(kind, wide), *constants, STAGES),
    )
    combine_chunks.launch(grid, (places, y, head, tail, count, rows, width), (kind, *constants))
    return y

"""max, min, argmax and argmin: the first position of the extremum. NaN is more extreme than
numbers.
"""

from __future__ import annotations

from math import inf

import torch
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from .reduction_tiles import TRITON, first_of, is_nan, one_group, reduced_shape, tiles, wide_of
from .reductions import neutral, reduce_dims

NOWHERE = torch.iinfo(torch.int64).max


@Kernel
def _extreme(
    x, at_x, values, indices, kept, n, inner, chunk,
    LEAST: tl.constexpr, STAGED: tl.constexpr, VALUES: tl.constexpr, WIDE: tl.constexpr,
    NEUTRAL: tl.constexpr, ROWS: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    index, first, inside = first_of(kept, n, inner, ROWS, BK)
    split = tl.program_id(1).to(tl.int64)
    begin = split * chunk
    step = 1 if ROWS else inner
    at = tl.arange(0, BR)
    start_of = (first + begin * step)[:, None]
    best = tl.full((BK, BR), NEUTRAL, WIDE)
    # Behind every index; a lane that saw nothing better than the neutral value keeps it.
    where = tl.full((BK, BR), 9223372036854775807, tl.int64)
    for start in range(0, chunk, BR):
        r = (start + at)[None, :].to(tl.int64)
        mask = inside[:, None] & (begin + r < n)
        v = tl.load(x + start_of + r * step, mask=mask, other=0).to(WIDE)
        if STAGED:
            place = tl.load(at_x + start_of + r * step, mask=mask, other=0)
        else:
            place = begin + r + tl.zeros((BK, BR), tl.int64)
        better = v < best if LEAST else v > best
        better = better | (is_nan(v) & (is_nan(best) == 0)) | (where == 9223372036854775807)
        better = better & mask
        best = tl.where(better, v, best)
        where = tl.where(better, place, where)
    broken = is_nan(best)
    numbers = tl.where(broken, NEUTRAL, best)
    result = tl.min(numbers, 1) if LEAST else tl.max(numbers, 1)
    found = best == result[:, None]
    if best.dtype.is_floating():
        nan = tl.max(broken.to(tl.int32), 1) > 0
        result = tl.where(nan, float("nan"), result)
        found = (nan[:, None] & broken) | ((nan == 0)[:, None] & found)
    where = tl.min(tl.where(found, where, 9223372036854775807), 1)
    out = split * kept + index
    tl.store(indices + out, where, mask=inside)
    if VALUES:
        tl.store(values + out, result.to(values.dtype.element_ty), mask=inside)


def extreme(
    x: Tensor, dims: tuple[int, ...], keepdim: bool, least: bool, with_values: bool
) -> tuple[Tensor, Tensor]:
    """(values, indices) of the first extreme over the dims, which lie side by side."""
    shape = reduced_shape(x.shape, dims, keepdim)
    wide = wide_of(x.dtype)
    dense, outer, n, inner = one_group(x, dims)
    worked = (TRITON[wide], neutral("min" if least else "max", wide))
    places: Tensor | None = None
    while True:
        t = tiles(outer, n, inner)
        done = t.splits == 1
        size = shape if done else (t.splits, t.kept)
        indices = torch.empty(size, dtype=torch.int64, device=x.device)
        kept_values = with_values or not done
        values = torch.empty(
            size if kept_values else (0,), dtype=x.dtype if done else wide, device=x.device
        )
        constants = (least, places is not None, kept_values, *worked)
        t.launch(_extreme, (dense, places, values, indices), (t.chunk,), constants)
        if done:
            return values, indices
        dense, places, outer, n, inner = values, indices, 1, t.splits, t.kept


@Kernel
def _first(
    x, value, y, kept, n, inner, chunk, offset,
    ROWS: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    index, first, inside = first_of(kept, n, inner, ROWS, BK)
    split = tl.program_id(1).to(tl.int64)
    begin = split * chunk
    step = 1 if ROWS else inner
    at = tl.arange(0, BR)
    wanted = tl.load(value + index, mask=inside, other=0)[:, None]
    where = tl.full((BK, BR), 9223372036854775807, tl.int64)
    for start in range(0, chunk, BR):
        r = begin + (start + at)[None, :]
        mask = inside[:, None] & (r < n)
        v = tl.load(x + first[:, None] + r * step, mask=mask, other=0)
        same = mask & ((v == wanted) | (is_nan(v) & is_nan(wanted)))
        where = tl.minimum(where, tl.where(same, r + offset, 9223372036854775807))
    tl.store(y + split * kept + index, tl.min(where, 1), mask=inside)


def find(x: Tensor, value: Tensor, dims: tuple[int, ...], offset: int) -> Tensor:
    """Where along the dims each value is first found, plus `offset`, or NOWHERE; dims kept."""
    dense, outer, n, inner = one_group(x, dims)
    t = tiles(outer, n, inner)
    shape = reduced_shape(x.shape, dims, True)
    y = torch.empty((t.splits, *shape), dtype=torch.int64, device=x.device)
    t.launch(_first, (dense, value.contiguous(), y), (t.chunk, offset), ())
    return y[0] if t.splits == 1 else reduce_dims(y, (0,), False, "min", torch.int64)


@Kernel
def _in_whole(places, n, whole, start):
    place = tl.load(places)
    moved = place // n * whole + place % n + start
    tl.store(places, tl.where(place == 9223372036854775807, place, moved))


def place_in_whole(places: Tensor, n: int, whole: int, start: int) -> None:
    """Count one place in wholes of so many elements, of which it is counted in parts of n.

    The part of each begins at `start`. NOWHERE stays.
    """
    _in_whole.launch((1,), (places, n, whole, start), warps=1)


CASES = [
    Case(
        _extreme,
        (kind, None, kind, "*i64"),
        (False, False, True, tl.float32, -inf, rows, kept, block),
    )
    for kind in ("*bf16", "*fp32")
    for rows, kept, block in ((True, 2, 2048), (False, 128, 32))
]
CASES += [
    Case(_first, ("*fp32", "*fp32", "*i64"), (True, 2, 2048)),
    Case(_in_whole, ("*i64", "i32?", "i32?", "i32?"), warps=1),
]

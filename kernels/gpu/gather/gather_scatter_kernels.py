"""gather, scatter, embedding, one_hot and their gradients. Sums have a fixed order.

An invalid index is an error on the CPU. On a GPU, where a check would have to wait for the device,
the result is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

import torch
import triton.language as tl
from torch import Tensor

from ... import gather_scatter_ref as reference
from ..launch.aot_cases import Case, tensors
from ..launch.jit_kernel import Kernel
from ..pointwise.copy_kernels import contiguous, copy_into, fill, reshape
from ..pointwise.scalar_functions import div, div_floor
from ..reduce.reduction_tiles import NUMBERS
from ..reduce.reductions import sum_dtype
from ..sort.sort_kernels import sort_rows
from .scatter_gather import (
    BLOCK,
    Along,
    checked,
    gather_each,
    gather_rows,
    gathered,
    launch_flat,
    mark_last,
    place_each,
    places_of,
    plain,
    write,
    write_last,
)
from .segment_reduce import STAGES, add_chunks, add_runs, combine, combine_chunks, reduce_runs
from .sums_in_rows import fit, sums_in_rows

# Left to torch: complex numbers, sums of bools, and gather of a tensor without dims. Whether
# indices are in range is asked on the CPU only: on a GPU the host would wait for it.

Shape = Sequence[int]


def _cut(shape: Shape, dim: int) -> tuple[int, int, int]:
    """A shape as (lead, dim, rest)."""
    return prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :])


def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    if x.is_complex() or not x.ndim or not index.ndim:
        return reference.gather(x, dim, index)
    dim %= x.ndim
    return gather_held(x, dim, index, 0, x.shape[dim])


def gather_held(x: Tensor, dim: int, index: Tensor, offset: int, whole: int) -> Tensor:
    if x.is_complex():
        return reference.gather_held(x, dim, index, offset, whole)
    along = Along(x.shape[dim], offset, whole)
    index = checked(index, along, dim)
    x = reference.fit(x, (0,) * x.ndim, index.shape, dim)
    return gathered(x, index, *_cut(index.shape, dim), along, each=True).view(index.shape)


def _within(x: Tensor, y: Tensor, dim: int) -> Tensor:
    """x with the part that y covers replaced by y; both have the same size along `dim`."""
    if y.shape == x.shape:
        return y
    whole = contiguous(x)
    copy_into(reference.fit(whole, (0,) * x.ndim, y.shape, dim), y)
    return whole


def add_at(
    dy: Tensor, dim: int, index: Tensor, shape: Shape, start: Shape, offset: int, whole: int
) -> Tensor:
    if dy.is_complex() or dy.dtype is torch.bool:
        return reference.add_at(dy, dim, index, shape, start, offset, whole)
    along = Along(shape[dim], offset, whole)
    index = checked(index, along, dim)
    found = _summed(dy, dim, index, along)
    if found.shape == tuple(shape):
        return found
    y = fill(torch.empty(tuple(shape), dtype=dy.dtype, device=dy.device), 0)
    copy_into(reference.fit(y, start, index.shape, dim), found)
    return y


def _summed(dy: Tensor, dim: int, index: Tensor, along: Along) -> Tensor:
    """The sums of the elements of dy by target along a dim; the other dims are those of dy."""
    lead, entries, rest = _cut(index.shape, dim)
    part = [along.size if d == dim % index.ndim else n for d, n in enumerate(index.shape)]
    if fit(entries, along.size, dy.dtype) and index.numel():
        rows, values = (contiguous(x.movedim(dim, -1)) for x in (index, dy))
        found = sums_in_rows(rows.view(-1, entries), values.view(-1, entries), along)
        return contiguous(found.view(*rows.shape[:-1], along.size).movedim(-1, dim))
    total = lead * along.size * rest
    places = places_of(index, entries, rest, along, total)
    return add_runs(places, reshape(dy, (-1, 1)), total).view(part)


def scatter(
    x: Tensor, dim: int, index: Tensor, source: Tensor | float, offset: int, whole: int
) -> Tensor:
    if x.is_complex():
        return reference.scatter(x, dim, index, source, offset, whole)
    along = Along(x.shape[dim], offset, whole)
    index = checked(index, along, dim)
    y = contiguous(reference.fit(x, (0,) * x.ndim, index.shape, dim))
    if isinstance(source, Tensor):
        source = source[tuple([slice(n) for n in index.shape])]
    _, entries, rest = _cut(index.shape, dim)
    places = places_of(index, entries, rest, along, y.numel())
    write(y, places, source, entries, rest, along.size, each=True)
    return _within(x, y, dim)


@Kernel
def _with_own(
    x, found, times, y, count: tl.int64, width,
    KIND: tl.constexpr, MEAN: tl.constexpr, OWN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Combine the reduced value of each target with x; targets without values keep x."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    own = tl.load(x + at, mask=inside, other=0).to(found.dtype.element_ty)
    v = tl.load(found + at, mask=inside, other=0)
    if OWN:
        v = combine(own, v, KIND)
    if MEAN or not OWN:
        n = tl.load(times + at // width, mask=inside, other=0)
        if MEAN:
            among = (tl.maximum(n, 1 - OWN) + OWN).to(v.dtype)
            if v.dtype.is_floating():
                v = div(v, among)
            else:  # sums wrap as torch's do
                v = div_floor(v.to(y.dtype.element_ty).to(v.dtype), among)
        if not OWN:
            v = tl.where(n > 0, v, own)
    tl.store(y + at, v.to(y.dtype.element_ty), mask=inside)


_KINDS = {"sum": "sum", "mean": "sum", "prod": "prod", "amax": "max", "amin": "min"}
_OF_BOOLS = {"sum": "amax", "prod": "amin"}  # whether any, whether all


def scatter_reduce(
    x: Tensor, index: Tensor, source: Tensor, dim: int, how: str, own: bool
) -> Tensor:
    if not x.ndim:
        flat = [t.reshape(-1) for t in (x, index, source)]
        return scatter_reduce(flat[0], flat[1], flat[2], 0, how, own).view(())
    kind = _reduction(x, source, how)
    if kind is None:
        return reference.scatter_reduce(x, index, source, dim, how, own)
    dim %= x.ndim
    y = contiguous(reference.fit(x, (0,) * x.ndim, index.shape, dim))
    along = Along(y.shape[dim], 0, y.shape[dim])
    _, entries, rest = _cut(index.shape, dim)
    places = places_of(checked(index, along, dim), entries, rest, along, y.numel())
    values = plain(source[tuple([slice(n) for n in index.shape])])
    _reduce_into(plain(y).view(-1, 1), places, values.view(-1, 1), kind, own)
    return _within(x, y, dim)


def index_reduce(x: Tensor, index: Tensor, source: Tensor, dim: int, how: str, own: bool) -> Tensor:
    kind = _reduction(x, source, how)
    if kind is None:
        return reference.index_reduce(x, index, source, dim, how, own)
    # Slices are rows, so that only the index is sorted.
    y, values = contiguous(x.movedim(dim, 0)), plain(source.movedim(dim, 0))
    rows, count, width = len(y), len(index), prod(y.shape[1:])
    along = Along(rows, 0, rows)
    places = places_of(checked(index, along, dim), max(count, 1), 1, along, rows)
    _reduce_into(plain(y).view(rows, width), places, values.view(count, width), kind, own)
    return contiguous(y.movedim(0, dim)) if dim else y


def _reduction(x: Tensor, source: Tensor, how: str) -> str | None:
    """The name of a reduction of bytes where x has bools; None for what is left to torch."""
    truth = x.dtype is torch.bool
    usable = x.dtype in NUMBERS and source.dtype is x.dtype and how in _KINDS
    if not usable or (truth and how == "mean"):
        return None
    return _OF_BOOLS.get(how, how) if truth else how


def _reduce_into(y: Tensor, places: Tensor, values: Tensor, how: str, own: bool) -> None:
    """Reduce the rows of `values` into the rows of a dense y at `places`."""
    if not values.numel():
        return
    rows, width = y.shape
    places, order = sort_rows(places, most=rows)
    kind, wide = _KINDS[how], sum_dtype(y.dtype)
    found = times = reduce_runs(places, order, values, rows, kind, wide)
    if how == "mean" or not own:
        ones = fill(torch.empty((len(places), 1), dtype=torch.int64, device=y.device), 1)
        times = reduce_runs(places, order, ones, rows)
    args = (y, found, times, y, y.numel(), width)
    launch_flat(_with_own, y.numel(), args, kind, how == "mean", own)


def embedding(weight: Tensor, index: Tensor) -> Tensor:
    return embedding_held(weight, index, 0, weight.shape[0])


def embedding_held(weight: Tensor, index: Tensor, offset: int, whole: int) -> Tensor:
    if weight.is_complex():
        return reference.embedding_held(weight, index, offset, whole)
    rows, width = weight.shape
    if index.device.type == "cpu":
        reference.check_rows(index, whole)
    y = gathered(
        weight, index.contiguous(), 1, index.numel(), width, Along(rows, offset, whole), each=False
    )
    return y.view(*index.shape, width)


def embedding_grad(
    dy: Tensor, index: Tensor, shape: Shape, offset: int, padding: int, by_frequency: bool
) -> Tensor:
    if dy.is_complex():
        return reference.embedding_grad(dy, index, shape, offset, padding, by_frequency)
    rows, width = shape
    places, source = _rows_by_place(dy, index, shape, offset, padding)
    if not by_frequency:
        return add_runs(places, source, rows)
    y = fill(torch.empty((rows, width), dtype=dy.dtype, device=dy.device), 0)
    _reduce_into(y, places, source, "mean", own=False)
    return y


def add_embedding_grad(
    total: Tensor, dy: Tensor, index: Tensor, shape: Shape, offset: int, padding: int
) -> Tensor:
    if dy.is_complex() or sum_dtype(dy.dtype) is not dy.dtype or not total.is_contiguous():
        return total.add_(embedding_grad(dy, index, shape, offset, padding, False))
    places, source = _rows_by_place(dy, index, shape, offset, padding)
    return add_runs(places, source, shape[0], into=total)


def _rows_by_place(
    dy: Tensor, index: Tensor, shape: Shape, offset: int, padding: int
) -> tuple[Tensor, Tensor]:
    """The row of the weight for each row of a gradient, and these rows."""
    rows, width = shape
    along = Along(rows, offset, offset + rows, padding)
    places = places_of(index.contiguous(), max(index.numel(), 1), 1, along, rows)
    return places, reshape(dy, (index.numel(), width))


@Kernel
def _one_hot(index, y, count: tl.int64, offset, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    i = tl.load(index + at // size, mask=at < count, other=-1)
    tl.store(y + at, (i == at % size + offset).to(tl.int64), mask=at < count)


def one_hot(index: Tensor, offset: int, size: int, whole: int) -> Tensor:
    index = checked(index, Along(size, offset, whole), index.ndim)
    y = torch.empty((*index.shape, size), dtype=torch.int64, device=index.device)
    launch_flat(_one_hot, y.numel(), (index, y, y.numel(), offset, size))
    return y


_SIZES = ("i32",) * 5

CASES = [
    *[
        Case(gather_rows, (f"*{dtype}", "*i64", f"*{dtype}", *_SIZES), (False, 2 * BLOCK))
        for dtype in ("bf16", "fp32")
    ],
    Case(gather_each, ("*fp32", "*i64", "*fp32", "i64?", *_SIZES), (False, True, BLOCK)),
    Case(place_each, ("*i64", "*i64", "i64?", *_SIZES, "i32?", "i64?"), (False, BLOCK), warps=8),
    Case(mark_last, ("*i64", "*i64", "i64?", "i64?"), (BLOCK,)),
    Case(
        write_last,
        ("*fp32", "*i64", "*i64", "*fp32", "i64?", "i32", "i32", "i32", "i64?"),
        (True, False, BLOCK),
    ),
    *[
        Case(
            add_chunks,
            ("*i64", "*i64", f"*{dtype}", f"*{dtype}", "*fp32", "*fp32", "i64?", "i64?"),
            ("sum", 0, add, 64, lanes, block, STAGES),
        )
        for dtype, add, lanes, block in (
            ("bf16", False, 1, 1024),
            ("fp32", False, 1, 1024),
            ("fp32", False, 128, 1),
            ("fp32", True, 1, 1024),
        )
    ],
    *[
        Case(
            add_chunks,
            (*tensors("i64", *"po"), *tensors("fp32", *"syht"), "i64?", "i64?"),
            ("max", -inf, False, 64, lanes, block, STAGES),
        )
        for lanes, block in ((128, 1), (1, 1024))
    ],
    *[
        Case(
            combine_chunks,
            ("*i64", f"*{dtype}", "*fp32", "*fp32", "i64?", "i64?"),
            (kind, add, 64, lanes, block),
        )
        for dtype, kind, add, lanes, block in (
            ("bf16", "sum", False, 1, 1024),
            ("fp32", "sum", True, 1, 1024),
            ("fp32", "max", False, 128, 1),
            ("fp32", "max", False, 1, 1024),
        )
    ],
    *[
        Case(_with_own, ("*bf16", "*fp32", "*i64", "*bf16", "i64?"), (kind, mean, own, BLOCK))
        for kind, mean, own in (("sum", True, False), ("max", False, True))
    ],
    Case(_one_hot, ("*i64", "*i64", "i64?"), (BLOCK,)),
]

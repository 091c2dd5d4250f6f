"""gather, scatter, embedding and one_hot, and their gradients, which add in a fixed order.

A wrong index raises on the CPU; on a GPU, where asking would wait for it, it gives NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
import triton.language as tl
from torch import Tensor

from .. import gathering as reference
from .cases import Case
from .launch import Kernel
from .places import (
    BLOCK,
    Along,
    checked,
    gather_each,
    gather_rows,
    gathered,
    mark_last,
    place_each,
    places_of,
    write,
    write_last,
)
from .runs import add_chunks, add_runs, join_chunks
from .tiles import cdiv

TORCH = {
    "complex tensors": "Triton has no complex numbers",
    "sorting by place": "torch.sort(stable=True) of int64 keys is a radix sort on the GPU; what "
    "follows it is done here",
    "sums of bools": "torch has none either",
}

Shape = Sequence[int]


def _cut(shape: Shape, dim: int) -> tuple[int, int, int]:
    """A shape as (lead, dim, rest)."""
    return prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :])


def _gather(x: Tensor, dim: int, index: Tensor, offset: int, whole: int) -> Tensor:
    along = Along(x.shape[dim], offset, whole)
    index = checked(index, along, dim)
    x = reference.fit(x, (0,) * x.ndim, index.shape, dim)
    return gathered(x, index, *_cut(index.shape, dim), along, each=True).view(index.shape)


def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    if x.is_complex() or not x.ndim or not index.ndim:
        return reference.gather(x, dim, index)
    dim %= x.ndim
    return _gather(x, dim, index, 0, x.shape[dim])


def gather_held(x: Tensor, dim: int, index: Tensor, offset: int, whole: int) -> Tensor:
    if x.is_complex():
        return reference.gather_held(x, dim, index, offset, whole)
    return _gather(x, dim, index, offset, whole)


def add_at(
    dy: Tensor, dim: int, index: Tensor, shape: Shape, start: Shape, offset: int, whole: int
) -> Tensor:
    if dy.is_complex() or dy.dtype is torch.bool:
        return reference.add_at(dy, dim, index, shape, start, offset, whole)
    along = Along(shape[dim], offset, whole)
    index = checked(index, along, dim)
    lead, entries, rest = _cut(index.shape, dim)
    total = lead * shape[dim] * rest
    places = places_of(index, entries, rest, along, total)
    found = add_runs(places, dy.reshape(-1, 1), total)
    part = [shape[dim] if d == dim else n for d, n in enumerate(index.shape)]
    if tuple(part) == tuple(shape):
        return found.view(part)
    y = dy.new_zeros(shape)
    reference.fit(y, start, index.shape, dim).copy_(found.view(part))
    return y


def scatter(
    x: Tensor, dim: int, index: Tensor, source: Tensor | float, offset: int, whole: int
) -> Tensor:
    if x.is_complex():
        return reference.scatter(x, dim, index, source, offset, whole)
    along = Along(x.shape[dim], offset, whole)
    index = checked(index, along, dim)
    part = reference.fit(x, (0,) * x.ndim, index.shape, dim)
    y = part.clone(memory_format=torch.contiguous_format)
    if isinstance(source, Tensor):
        values = source[tuple([slice(n) for n in index.shape])]
    else:
        values = x.new_full(index.shape, source)
    _, entries, rest = _cut(index.shape, dim)
    places = places_of(index, entries, rest, along, y.numel())
    write(y, places, values, entries, rest, along.size, each=True)
    if part.shape == x.shape:
        return y
    whole_y = x.clone(memory_format=torch.contiguous_format)
    reference.fit(whole_y, (0,) * x.ndim, index.shape, dim).copy_(y)
    return whole_y


def _embedding(weight: Tensor, index: Tensor, offset: int, whole: int) -> Tensor:
    rows, width = weight.shape
    if index.device.type == "cpu":
        reference.check_rows(index, whole)
    y = gathered(
        weight, index.contiguous(), 1, index.numel(), width, Along(rows, offset, whole), each=False
    )
    return y.view(*index.shape, width)


def embedding(weight: Tensor, index: Tensor) -> Tensor:
    if weight.is_complex():
        return reference.embedding(weight, index)
    return _embedding(weight, index, 0, weight.shape[0])


def embedding_held(weight: Tensor, index: Tensor, offset: int, whole: int) -> Tensor:
    if weight.is_complex():
        return reference.embedding_held(weight, index, offset, whole)
    return _embedding(weight, index, offset, whole)


def embedding_grad(
    dy: Tensor, index: Tensor, shape: Shape, offset: int, padding: int, by_frequency: bool
) -> Tensor:
    if dy.is_complex():
        return reference.embedding_grad(dy, index, shape, offset, padding, by_frequency)
    rows, width = shape
    along = Along(rows, offset, offset + rows, padding)
    places = places_of(index.contiguous(), max(index.numel(), 1), 1, along, rows)
    y = add_runs(places, dy.reshape(index.numel(), width), rows)
    if by_frequency:
        count = add_runs(places, torch.ones_like(places).unsqueeze(1), rows)
        y = y / count.clamp(min=1)
    return y


@Kernel
def _one_hot(index, y, count: tl.int64, offset, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    i = tl.load(index + at // size, mask=at < count, other=-1)
    tl.store(y + at, (i == at % size + offset).to(tl.int64), mask=at < count)


def one_hot(index: Tensor, offset: int, size: int, whole: int) -> Tensor:
    index = checked(index, Along(size, offset, whole), index.ndim)
    y = torch.empty((*index.shape, size), dtype=torch.int64, device=index.device)
    grid = (cdiv(y.numel(), BLOCK),)
    _one_hot.launch(grid, (index, y, y.numel(), offset, size), (BLOCK,))
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
            ("*i64", "*i64", f"*{dtype}", f"*{dtype}", "*fp32", "*fp32", "i64?", "i64?", "i32"),
            (64, lanes, block),
        )
        for dtype, lanes, block in (("bf16", 1, 1024), ("fp32", 1, 1024), ("fp32", 128, 1))
    ],
    Case(
        join_chunks,
        ("*i64", "*bf16", "*fp32", "*fp32", "i64?", "i64?", "i32"),
        (64, 1, 1024),
    ),
    Case(_one_hot, ("*i64", "*i64", "i64?", "i32", "i32"), (BLOCK,)),
]

"""gather, scatter, embedding and one_hot on shards that hold a part of the indexed dim.

`offset` and `size` describe the elements of that dim that the shard holds, of `whole` elements in
total.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .indexing_ref import OutOfRangeError, check_range

Shape = Sequence[int]


def held(index: Tensor, offset: int, size: int, whole: int, dim: int) -> tuple[Tensor, Tensor]:
    """The index as the shard counts it, 0 where it does not hold the element, and where it does."""
    check_range(index, whole, dim)
    mine = index - offset
    there = (mine >= 0) & (mine < size)
    return mine.masked_fill(~there, 0), there


def fit(x: Tensor, start: Shape, shape: Shape, dim: int) -> Tensor:
    """`x` narrowed to what `shape` needs of it in all dims but `dim`, from `start` on."""
    for d, (begin, size) in enumerate(zip(start, shape, strict=True)):
        if d != dim and x.shape[d] != size:
            x = x.narrow(d, begin if size else 0, size)
    return x


def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """torch.gather, with the error of this package for an index that is not there."""
    try:
        return torch.gather(x, dim, index)
    except RuntimeError:
        check_range(index, x.shape[dim], dim)
        raise


def gather_held(x: Tensor, dim: int, index: Tensor, offset: int, whole: int) -> Tensor:
    """torch.gather of the elements that the shard holds, zeros for the others."""
    mine, there = held(index, offset, x.shape[dim], whole, dim)
    if not x.shape[dim]:
        return x.new_zeros(index.shape)
    return torch.gather(x, dim, mine).masked_fill(~there, 0)


def add_at(
    dy: Tensor, dim: int, index: Tensor, shape: Shape, start: Shape, offset: int, whole: int
) -> Tensor:
    """A shard of zeros to which `dy` is added at the places of `index` along `dim` that it holds.

    In the other dims `dy` stands from `start` on.
    """
    y = dy.new_zeros(shape)
    if shape[dim] != whole:
        index, there = held(index, offset, shape[dim], whole, dim)
        dy = dy.masked_fill(~there, 0)
    elif not y.numel() or not index.is_cpu:  # there torch checks as it reads
        check_range(index, whole, dim)
    if not y.numel():
        return y
    try:
        fit(y, start, dy.shape, dim).scatter_add_(dim, index, dy)
    except RuntimeError:
        check_range(index, whole, dim)
        raise
    return y


def add_at_whole(dy: Tensor, index: Tensor, dim: int, shape: Shape) -> Tensor:
    """`add_at` on the CPU to a whole tensor that is as large as `dy` in the other dims."""
    try:
        return dy.new_zeros(shape).scatter_add_(dim, index, dy)
    except RuntimeError:
        check_range(index, shape[dim], dim)
        raise


def scatter(
    x: Tensor, dim: int, index: Tensor, source: Tensor | float, offset: int, whole: int
) -> Tensor:
    """torch.scatter into the elements that the shard holds."""
    size = x.shape[dim]
    if size == whole:
        if not x.numel() or not index.is_cpu:  # there torch checks as it reads
            check_range(index, whole, dim)
        try:
            return torch.scatter(x, dim, index, source)
        except RuntimeError:
            check_range(index, whole, dim)
            raise
    mine, there = held(index, offset, size, whole, dim)
    # What other ranks hold goes to one more element at the end, which is cut off again.
    spare = x.new_zeros([1 if d == dim else n for d, n in enumerate(x.shape)])
    mine = mine.masked_fill(~there, size)
    longer = torch.cat((x, spare), dim)
    return torch.scatter(longer, dim, mine, source).narrow(dim, 0, size)


def scatter_reduce(
    x: Tensor, index: Tensor, source: Tensor, dim: int, how: str, own: bool
) -> Tensor:
    """torch.scatter_reduce; `own`: whether the elements of `x` take part."""
    return torch.scatter_reduce(x, dim, index, source, how, include_self=own)


def index_reduce(x: Tensor, index: Tensor, source: Tensor, dim: int, how: str, own: bool) -> Tensor:
    """torch.index_reduce: `scatter_reduce` of whole slices along `dim`, by a vector."""
    return torch.index_reduce(x, dim, index, source, how, include_self=own)


def embedding(weight: Tensor, index: Tensor) -> Tensor:
    """The rows of `weight` by index. Raises OutOfRangeError naming the value."""
    try:
        return torch.embedding(weight, index)
    except IndexError:
        check_rows(index, weight.shape[0])
        raise


def embedding_held(weight: Tensor, index: Tensor, offset: int, whole: int) -> Tensor:
    """The rows that the shard holds, zeros for the others."""
    check_rows(index, whole)
    rows = weight.shape[0]
    mine = index - offset
    there = (mine >= 0) & (mine < rows)
    if not rows:
        return weight.new_zeros((*index.shape, weight.shape[1]))
    y = torch.embedding(weight, mine.masked_fill(~there, 0))
    return y.masked_fill(~there.unsqueeze(-1), 0)


def check_rows(index: Tensor, rows: int) -> None:
    """Raise OutOfRangeError, naming the value, for an index that has no row."""
    if not index.numel():
        return
    least, most = map(int, torch.aminmax(index))
    wrong = least if least < 0 else most
    if least < 0 or most >= rows:
        raise OutOfRangeError(
            f"embedding: index out of range: got {wrong}, but the weight has {rows} rows"
        )


def embedding_grad(
    dy: Tensor, index: Tensor, shape: Shape, offset: int, padding: int, by_frequency: bool
) -> Tensor:
    """A shard of zeros to whose rows (those from `offset` on) `dy` is added, in a fixed order.

    Rows at index `padding` get nothing; `by_frequency` divides each by how often it occurs.
    """
    rows, width = shape
    flat = index.reshape(-1)
    source = dy.reshape(flat.numel(), width)
    mine = flat - offset
    there = (mine >= 0) & (mine < rows) & (flat != padding)
    if not there.is_meta and not bool(there.all()):
        mine, source = mine[there], source[there]
    if by_frequency:
        count = torch.bincount(mine, minlength=rows)
        source = source / count[mine].unsqueeze(1)
    return dy.new_zeros((rows, width)).index_add_(0, mine, source)


def embedding_grad_of_all(dy: Tensor, index: Tensor, shape: tuple[int, int]) -> Tensor:
    """The same for a shard that holds all rows, all of which get something."""
    flat = index.reshape(-1)
    return dy.new_zeros(shape).index_add_(0, flat, dy.reshape(flat.numel(), shape[1]))


def add_embedding_grad(
    total: Tensor, dy: Tensor, index: Tensor, shape: Shape, offset: int, padding: int
) -> Tensor:
    """A shard to whose rows the gradient is added in its memory, as it is rounded by itself."""
    return total.add_(embedding_grad(dy, index, shape, offset, padding, False))


def one_hot(index: Tensor, offset: int, size: int, whole: int) -> Tensor:
    """index[..., None] == class, as int64, for the classes from `offset` on."""
    if size == whole > 0 and index.device.type == "cpu":  # there torch checks as it reads
        y = index.new_zeros((*index.shape, size), dtype=torch.int64)
        try:
            return y.scatter_(-1, index.unsqueeze(-1), 1)
        except RuntimeError:
            pass
    check_range(index, whole, index.ndim)
    classes = torch.arange(offset, offset + size, device=index.device)
    return (index.unsqueeze(-1) == classes).to(torch.int64)

"""Batching rules of indexing: gather, scatter, and rows at index tensors."""

from __future__ import annotations

from typing import Any

from ..engine.ops.arithmetic import add, mul
from ..engine.ops.data_movement import wrap
from ..engine.ops.dims import movedim
from ..engine.ops.embedding import embedding
from ..engine.ops.like import replicated_like
from ..engine.ops.ranges import arange
from ..engine.ops.slicing import set_slice
from ..engine.ops.view import view
from ..engine.tensor import Tensor
from .batched_call import BatchedCall, NoRule, Results, Rule


def _gather(call: BatchedCall) -> Results:
    ndim = call.rows[0].ndim
    if not ndim:
        raise NoRule
    return call.run(call.all_at_front(), wrap(call.attrs.dim, ndim) + 1)


def _add_at(call: BatchedCall) -> Results:
    dim, shape, full = call.attrs
    if not shape:
        raise NoRule
    moved = (0, *[d + 1 for d in full])
    return call.run(call.all_at_front(), dim + 1, (call.size, *shape), moved)


def _scatter(call: BatchedCall) -> Results:
    dim, number = call.attrs
    if not call.rows[0].ndim:
        raise NoRule
    return call.run(call.all_at_front(), dim + 1, number)


def _numbers(call: BatchedCall, like: Tensor, ndim: int) -> Tensor:
    """The numbers of the rows, along dim 0 of a tensor of `ndim` dims more."""
    numbers = arange(call.size, **replicated_like(like))
    return view(numbers, (call.size, *[1] * ndim))


def _embedding(call: BatchedCall) -> Results:
    weight, index = call.slots
    padding, by_frequency = call.attrs
    if by_frequency or (padding >= 0 and call.mapped[0]):
        raise NoRule  # the gradient counts the indices of a row
    if not call.mapped[0]:
        return call.run(call.slots, *call.attrs)
    rows, width = call.rows[0].shape
    index = add(index, mul(_numbers(call, index, call.rows[1].ndim), rows))
    return embedding(index, view(weight, (call.size * rows, width)))


def _embedding_grad(call: BatchedCall) -> Results:
    rows, padding, by_frequency = call.attrs
    if by_frequency:
        raise NoRule
    dy, index = call.all_at_front()
    index = add(index, mul(_numbers(call, index, call.rows[1].ndim), rows))
    made = call.whole(call.run([dy, index], call.size * rows, -1, False))
    return set_slice(made, None, (None, padding, None)) if padding >= 0 else made


class _Places:
    """The index tensors of a call for all rows, and where their dims are in the result of a row."""

    def __init__(self, call: BatchedCall, first: int) -> None:
        there = [i for i in range(first, len(call.slots)) if call.slots[i] is not None]
        together = there[-1] - there[0] + 1 == len(there)
        self.indices: list[Any] = [None, *call.slots[first:]]
        self.at = 0  # how many dims stand before them
        if together and not any(call.mapped[i] for i in there):
            self.width = 0  # they stay where they are
            return
        # With an index of the rows themselves. Then torch puts the index dims first.
        self.width = max(call.rows[i].ndim for i in there)
        self.at = there[0] - first if together else 0
        for i in there:
            self.indices[i - first + 1] = call.aligned(i, self.width)
        self.indices[0] = _numbers(call, call.slots[there[0]], self.width)

    def to_front(self, y: Tensor) -> Tensor:
        """The index dims moved to the place after the rows."""
        return self._moved(y, 1 + self.at, 1)

    def from_front(self, y: Tensor) -> Tensor:
        """The inverse of `to_front`."""
        return self._moved(y, 1, 1 + self.at)

    def _moved(self, y: Tensor, old: int, new: int) -> Tensor:
        if not self.at or not self.width:
            return y
        dims = range(self.width)
        return movedim(y, tuple([old + i for i in dims]), tuple([new + i for i in dims]))


def _take_rows(call: BatchedCall) -> Results:
    places = _Places(call, 1)
    return places.from_front(call.run([call.at_front(0), *places.indices]))


def _add_rows(call: BatchedCall) -> Results:
    places = _Places(call, 1)
    dy = places.to_front(call.at_front(0))
    return call.run([dy, *places.indices], (call.size, *call.attrs.sizes))


def _put_rows(call: BatchedCall) -> Results:
    places = _Places(call, 2)
    values = call.at_front(1)
    if values is not None:
        values = places.to_front(values)
    return call.run([call.at_front(0), values, *places.indices])


RULES: dict[str, Rule] = {
    "gather": _gather,
    "add_at": _add_at,
    "scatter": _scatter,
    "embedding": _embedding,
    "embedding_grad": _embedding_grad,
    "take_rows": _take_rows,
    "add_rows": _add_rows,
    "put_rows": _put_rows,
}

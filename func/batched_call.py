"""A call of an op on the rows of tensors, and what batching rules ask of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..engine.dispatcher import of_any_number
from ..engine.meta import Meta, Shape
from ..engine.names import Function
from ..engine.op import Op
from ..engine.ops.cat_split import stack_parts
from ..engine.ops.dims import expand, movedim
from ..engine.ops.slicing import select
from ..engine.ops.view import view
from ..engine.tensor import Tensor

Results: TypeAlias = Any  # a tensor, or a sequence of them for an op of several outputs


class NoRule(Exception):
    """A rule does not cover a call, which is then made row by row."""


@dataclass(slots=True)
class BatchedCall:
    """A call of an op on tensors of which some have one row per index, along dim 0.

    A rule gives the results of all rows, each with the rows along dim 0.
    """

    entry: Function
    op: Op
    slots: Sequence[Any]  # the tensors (None where absent) and numbers
    mapped: Sequence[bool]  # which of them have rows
    rows: Sequence[Any]  # the metas of one row of each tensor
    attrs: Any  # the record of the op's attributes
    metas: Sequence[Meta]  # of the results for one row
    size: int  # the number of rows
    packed: bool  # whether the entry takes its tensors in one tuple

    def run(self, slots: Sequence[Any], *attrs: object) -> Any:
        """Run the op itself on other tensors, perhaps more or fewer, and attributes."""
        entry = of_any_number.get(self.entry)
        if entry is None and not self.packed:
            return self.entry(*slots, *attrs)
        return (entry or self.entry)(tuple(slots), *attrs)

    @property
    def shape(self) -> Shape:
        """The shape of the result for one row."""
        return tuple(self.metas[0].shape)

    def places(self) -> list[int]:
        """The slots that hold tensors."""
        return [index for index, slot in enumerate(self.slots) if isinstance(slot, Tensor)]

    def at_front(self, index: int) -> Any:
        """The tensor of a slot with the rows along dim 0, repeated if it has none."""
        x = self.slots[index]
        if self.mapped[index] or not isinstance(x, Tensor):
            return x
        return expand(x, (self.size, *x.shape))

    def all_at_front(self) -> list[Any]:
        """`at_front` of every slot."""
        return [self.at_front(index) for index in range(len(self.slots))]

    def aligned(self, index: int, ndim: int) -> Any:
        """The tensor of a slot such that the last `ndim` dims of all broadcast."""
        x, row = self.slots[index], self.rows[index]
        if not self.mapped[index] or row.ndim == ndim:
            return x
        return view(x, (self.size, *[1] * (ndim - row.ndim), *row.shape))

    def whole(self, y: Tensor) -> Tensor:
        """A result in the shape that it has for all rows."""
        wanted = (self.size, *self.shape)
        return y if y.shape == wanted else view(y, wanted)


Rule: TypeAlias = Callable[[BatchedCall], Results]


def run_by_rows(call: BatchedCall) -> Results:
    """The results of one call for each row, stacked."""
    found = []
    for index in range(call.size):
        slots = [
            select(x, 0, index) if mapped else x
            for x, mapped in zip(call.slots, call.mapped, strict=True)
        ]
        found.append(call.run(slots, *call.attrs))
    if isinstance(found[0], Tensor):
        return stack_parts(tuple(found), 0)
    return tuple([stack_parts(parts, 0) for parts in zip(*found, strict=True)])


def folded(x: Tensor, dim: int) -> Tensor:
    """Dim 0 and dim `dim` of a row (without dim 0) as one, at the place of the latter."""
    shape = list(x.shape[1:])
    shape[dim] *= x.shape[0]
    return view(movedim(x, 0, dim) if dim else x, tuple(shape))


def unfolded(y: Tensor, dim: int, size: int) -> Tensor:
    """The inverse of `folded`."""
    shape = list(y.shape)
    shape[dim : dim + 1] = [size, shape[dim] // size]
    y = view(y, tuple(shape))
    return movedim(y, dim, 0) if dim else y

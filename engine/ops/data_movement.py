"""What ops that only move data share: base classes, signatures, the parsing of dims and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import torch

from ...errors import OnefoldIndexError, OnefoldRuntimeError
from ..argument_types import Dims
from ..meta import Meta, Shape
from ..op import Gradients, Needs, Op
from ..sbp import Sbp, broadcast, partial_max, partial_min, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .cast import cast

Attributes = TypeVar("Attributes")
Places: TypeAlias = Iterable[tuple[int, int]]


class OneDim(NamedTuple):
    """The dim."""

    dim: int


class SomeDims(NamedTuple):
    """The dims."""

    dims: Shape


class PerDim(NamedTuple):
    """A number for each dim."""

    sizes: Shape


class DataMovement(Op):
    """An op without arithmetic, whose gradient needs none of its tensors."""

    saves: tuple[int, ...] | None = ()
    flops_per_element = 0.0


class Mover(DataMovement, Generic[Attributes]):
    """An op that moves the elements of one tensor: `places` gives its rule, `gradient` its vjp."""

    def places(self, x: Meta, attrs: Attributes) -> Places:
        """(input dim, output dim) for each dim whose split is kept; by default all dims stay."""
        return untouched(x.ndim, ())

    def gradient(self, dy: Tensor, x: Meta, attrs: Attributes) -> Tensor:
        """The gradient of the input `x`."""
        raise NotImplementedError

    def rule(self, axis: Axis, x: Meta, attrs: Attributes) -> Rule:
        return [*follows(self.places(x, attrs)), *passes([x])]

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta, attrs: Attributes) -> Gradients:
        return (self.gradient(dy, x, attrs),)


class IndexedOp(Op, Generic[Attributes]):
    """An op of a tensor and an index tensor; only the index is kept for the gradient."""

    saves = (1,)

    def gradient(self, dy: Tensor, x: Meta, index: Tensor, attrs: Attributes) -> Tensor:
        """The gradient of the input `x`."""
        raise NotImplementedError

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Meta, index: Tensor, attrs: Attributes
    ) -> Gradients:
        return self.gradient(dy, x, index, attrs), None


class ViewOp(Mover[Attributes]):
    """A `Mover` whose output is a view of its input."""

    aliases = makes_views = True


class Rearrangement(ViewOp[Attributes]):
    """A view that has each element once, so that writes reach the input as gradients do."""

    def scatter_view(self, x: Tensor, value: Tensor, index: int, attrs: Attributes) -> Tensor:
        return self.gradient(value, x.meta, attrs)


def reductions(*metas: Meta) -> tuple[Sbp, ...]:
    """The partial layouts that tensors of these dtypes can have."""
    if any(meta.dtype.is_complex for meta in metas):
        return (partial_sum,)
    if any(meta.dtype is torch.bool for meta in metas):
        return (partial_max, partial_min)  # bool has no sum
    return (partial_sum, partial_max, partial_min)


def passes(metas: Sequence[Meta], num_outputs: int = 1) -> list[Signature]:
    """All inputs partial together, and so the outputs: a copied addend is an addend of the copy."""
    return [Signature((sbp,) * len(metas), (sbp,) * num_outputs) for sbp in reductions(*metas)]


def passes_first(x: Meta, others: int) -> list[Signature]:
    """Input 0 partial and so the output, the `others` (indices, say) broadcast."""
    return [Signature((sbp, *(broadcast,) * others), (sbp,)) for sbp in reductions(x)]


def untouched(ndim: int, dims: Sequence[int]) -> list[tuple[int, int]]:
    """The pairs (dim, dim) of the dims but these, which an op leaves alone."""
    return [(dim, dim) for dim in range(ndim) if dim not in dims]


def follows(pairs: Places) -> list[Signature]:
    """One input and one output: the split of input dim i becomes one of output dim j."""
    return [Signature((split(i),), (split(j),)) for i, j in pairs]


def together(dims: Iterable[int], num_inputs: int, num_outputs: int = 1) -> list[Signature]:
    """All inputs and outputs split at the same dim."""
    return [Signature((split(dim),) * num_inputs, (split(dim),) * num_outputs) for dim in dims]


@lru_cache(maxsize=1024)
def all_but(
    dim: int, ndim: int, num_inputs: int = 1, num_outputs: int = 1
) -> tuple[Signature, ...]:
    """All inputs and outputs split at the same dim, any except this one."""
    kept = [d for d in range(ndim) if d != wrap(dim, ndim)]
    return tuple(together(kept, num_inputs, num_outputs))


def contribution(x: Meta) -> Sbp:
    """The partial layout of a result to which each rank adds its part, zeros (False) elsewhere."""
    return partial_max if reductions(x)[0] is partial_max else partial_sum


def wrap(dim: int, ndim: int) -> int:
    """A dim counted from the end as one counted from the start; 0-d tensors count as 1-d.

    Raises OnefoldIndexError when there is no such dim.
    """
    size = max(ndim, 1)
    if not -size <= dim < size:
        raise OnefoldIndexError(
            f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], "
            f"but got {dim})"
        )
    return dim % size


def wrap_all(dims: Dims, ndim: int) -> Shape:
    """Several dims by `wrap`; one int means that dim."""
    return tuple(wrap(dim, ndim) for dim in ((dims,) if isinstance(dims, int) else dims))


def unpack(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Variable arguments given as numbers or as one sequence."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        return tuple(sizes[0])
    return sizes


def sizes_of(given: tuple[Any, ...], named: Dims | None) -> tuple[Any, ...]:
    """Variable arguments given as numbers, as one sequence, or as one sequence by its name."""
    return unpack(given if named is None else (*given, named))


def overlapping(name: str) -> OnefoldRuntimeError:
    """The error for a write to a view in which an element of the base occurs several times."""
    return OnefoldRuntimeError(
        f"{name}: unsupported operation: more than one element of the written-to tensor refers to "
        "a single memory location. Please clone() the tensor before performing the operation."
    )


def match(gradient: Tensor, meta: Meta) -> Tensor:
    """A gradient in the dtype of its input, which the op may have promoted."""
    if gradient.meta.dtype is meta.dtype:
        return gradient
    return cast(gradient, meta.dtype)

"""scatter_reduce and index_reduce: values reduced at the places that an index tells.

The gradients are those of torch, which shares that of a maximum among all values that are equal to
it, and are written with ops: nothing is reduced again but products, for elements that are 0.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch

from ...errors import OnefoldRuntimeError
from ...kernels import gather_scatter_ref as kernels
from ..dispatch_plan import check_tensors
from ..dispatcher import general_of
from ..meta import Meta
from ..names import register_function
from ..op import Gradients, Needs, Op
from ..out_tensors import give_to
from ..sbp import broadcast, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .arithmetic import add, div, mul
from .cast import cast
from .compare import eq, logical_and
from .data_movement import together, wrap
from .gather import add_at, checked_dim, gather, scatter, scatter_add, source_for, split_alike
from .index import add_rows, index_fill, index_select, slices_dim, vector
from .like import ones_like
from .result_shapes import REALS, alike, are_bools, fits_index
from .view import reshape
from .where import clamp, masked_fill, where

_REDUCTIONS = ("prod", "mean", "amax", "amin")


class ReduceAttributes(NamedTuple):
    """The dim, the reduction, and whether the values of x take part."""

    dim: int
    how: str
    own: bool


class IndexedReduction(Op):
    """A reduction of the values of `source` at the places of `index`, with those of x or without.

    A class says how values are read and added at these places.
    """

    attributes = ReduceAttributes
    order = "row-major"
    saves_output = True

    @abstractmethod
    def read(self, x: Tensor, index: Tensor, dim: int) -> Tensor:
        """What x has at the places, in the shape of the source."""

    @abstractmethod
    def added(self, values: Tensor, index: Tensor, x: Tensor, dim: int) -> Tensor:
        """Zeros of the shape of x with the values added at the places."""

    @abstractmethod
    def cleared(self, x: Tensor, index: Tensor, dim: int) -> Tensor:
        """x with zeros at the places."""

    @abstractmethod
    def again(self, x: Tensor, index: Tensor, source: Tensor, attrs: ReduceAttributes) -> Tensor:
        """The reduction of other values."""

    def vjp(
        self, needs: Needs, dy: Tensor, y: Tensor,
        x: Tensor, index: Tensor, source: Tensor, attrs: ReduceAttributes,
    ) -> Gradients:  # fmt: skip
        dim, how, own = attrs
        if how == "sum":
            dx, ds = dy, needs[2] and self.read(dy, index, dim)
        elif how == "mean":
            count = self.added(ones_like(source), index, x, dim)
            dx = div(dy, add(count, 1) if own else clamp(count, min=1))
            ds = needs[2] and self.read(dx, index, dim)
        elif how == "prod":
            return self._of_product(needs, dy, y, x, index, source, attrs)
        else:
            mine = cast(eq(x, y), dy.dtype)
            theirs = cast(eq(source, self.read(y, index, dim)), dy.dtype)
            shared = div(dy, add(mine, self.added(theirs, index, x, dim)))
            dx = mul(mine, shared)
            ds = needs[2] and mul(theirs, self.read(shared, index, dim))
        return needs[0] and (dx if own else self.cleared(dx, index, dim)), None, ds

    def _of_product(
        self, needs: Needs, dy: Tensor, y: Tensor,
        x: Tensor, index: Tensor, source: Tensor, attrs: ReduceAttributes,
    ) -> Gradients:  # fmt: skip
        """Products of the others are quotients; those of a single 0 are reduced without it."""
        dim, _, own = attrs
        dx: Tensor | None = None
        if needs[0]:
            other = masked_fill(x, eq(x, 0), 1.0)
            dx = div(mul(dy, self.again(other, index, source, attrs)), other)
            dx = dx if own else self.cleared(dx, index, dim)
        if not needs[2]:
            return dx, None, None
        zero = eq(source, 0)
        zeros = self.read(self.added(cast(zero, x.dtype), index, x, dim), index, dim)
        single = logical_and(zero, eq(zeros, 1))
        others = self.again(x, index, masked_fill(source, single, 1.0), attrs)
        quotient = div(self.read(mul(dy, y), index, dim), masked_fill(source, zero, 1.0))
        ds = where(single, self.read(mul(dy, others), index, dim), quotient)
        return dx, None, ds


class ScatterReduce(IndexedReduction):
    """torch.scatter_reduce; a sum with the values of x is `scatter_add`."""

    name = "scatter_reduce"
    kernel = staticmethod(kernels.scatter_reduce)

    def deduce(self, x: Meta, index: Meta, source: Meta, attrs: ReduceAttributes) -> Meta | None:
        ordinary = alike(x, source, dtypes=REALS) and index.dtype is torch.int64
        fits = ordinary and are_bools(attrs.own) and fits_index(index.shape, x.shape, attrs.dim)
        known = attrs.how in ("sum", *_REDUCTIONS)
        return x if fits and known and source.shape == index.shape else None

    def rule(self, axis: Axis, x: Meta, index: Meta, source: Meta, attrs: ReduceAttributes) -> Rule:
        return together(split_alike(axis, x, index, attrs.dim), 3)

    def read(self, x: Tensor, index: Tensor, dim: int) -> Tensor:
        return gather(x, dim, index)

    def added(self, values: Tensor, index: Tensor, x: Tensor, dim: int) -> Tensor:
        return add_at(values, index, tuple(x.shape), dim)

    def cleared(self, x: Tensor, index: Tensor, dim: int) -> Tensor:
        return scatter(x, dim, index, 0)

    def again(self, x: Tensor, index: Tensor, source: Tensor, attrs: ReduceAttributes) -> Tensor:
        return _scatter_reduce((x, index, source), *attrs)


class IndexReduce(IndexedReduction):
    """torch.index_reduce: the index is a vector, of whole slices along the dim."""

    name = "index_reduce"
    kernel = staticmethod(kernels.index_reduce)
    like = (0,)

    def rule(self, axis: Axis, x: Meta, index: Meta, source: Meta, attrs: ReduceAttributes) -> Rule:
        others = [split(dim) for dim in range(x.ndim) if dim != attrs.dim]
        return [Signature((sbp, broadcast, sbp), (sbp,)) for sbp in others]

    def read(self, x: Tensor, index: Tensor, dim: int) -> Tensor:
        return index_select(x, dim, index)

    def added(self, values: Tensor, index: Tensor, x: Tensor, dim: int) -> Tensor:
        return add_rows(values, dim, index, tuple(x.shape))

    def cleared(self, x: Tensor, index: Tensor, dim: int) -> Tensor:
        return index_fill(x, dim, index, 0)

    def again(self, x: Tensor, index: Tensor, source: Tensor, attrs: ReduceAttributes) -> Tensor:
        return _index_reduce((x, index, source), *attrs)


_scatter_reduce = general_of(ScatterReduce(), "x index source")
_index_reduce = general_of(IndexReduce(), "x index source")


@register_function
def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:
    """The values of `src` reduced at the positions of `index`.

    `reduce` is "sum", "prod", "mean", "amax" or "amin".
    """
    if out is not None:
        return give_to(
            out, scatter_reduce(input, dim, index, src, reduce, include_self=include_self)
        )
    check_tensors("scatter_reduce", input, index, src)
    dim = wrap(dim, input.ndim)
    if reduce == "sum" and include_self:
        return scatter_add(input, dim, index, src)
    checked_dim(input.meta, dim, index.meta, "scatter_reduce")
    source = source_for(src, index, input, "scatter_reduce")
    return _scatter_reduce((input, index, source), dim, reduce, include_self)


@register_function
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:
    """The slices of `source` along `dim` reduced at the positions `index`, a vector.

    `reduce` is "prod", "mean", "amax" or "amin".
    """
    if out is not None:
        return give_to(
            out, index_reduce(input, dim, index, source, reduce, include_self=include_self)
        )
    check_tensors("index_reduce", input, index, source)
    if reduce not in _REDUCTIONS:
        raise OnefoldRuntimeError(
            f"index_reduce(): Expected reduce to be one of {', '.join(_REDUCTIONS)} but got "
            f"{reduce}."
        )
    if input.dtype != source.dtype:
        raise OnefoldRuntimeError(
            f"index_reduce(): self and source expected to have the same dtype, but got "
            f"{input.dtype} and {source.dtype}"
        )
    index = vector(index, "index_reduce")
    if input.ndim == source.ndim == 0:
        given = (reshape(input, 1), dim, index, reshape(source, 1), reduce)
        return reshape(index_reduce(*given, include_self=include_self), ())
    dim = slices_dim(input.meta, dim, index.meta, source.meta, "index_reduce")
    return _index_reduce((input, index, source), dim, reduce, include_self)

"""Sorting: sort, argsort, topk, kthvalue, msort, unique."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, ParamSpec, TypeAlias

import torch

from ...kernels import sort_ref as kernels
from ..dispatcher import several_of
from ..meta import Meta
from ..names import register_function
from ..op import Attributes, Gradients, Kernel, Needs, Op
from ..out_tensors import give_to
from ..signature import Axis, Rule
from ..tensor import Tensor
from ..values import whole
from .argreduce import ValuesAndIndices
from .data_movement import all_but
from .dims import squeeze
from .gather import add_at
from .index_parsing import ONLY_OUTSIDE, like_indices
from .result_shapes import REALS, are_bools, is_dim


class SortAttributes(NamedTuple):
    """The dim, the direction, and whether equal values keep their order."""

    dim: int
    descending: bool
    stable: bool


class TopkAttributes(NamedTuple):
    """The number of values, the dim, and whether they are the largest and sorted."""

    dim: int
    k: int
    largest: bool
    sorted: bool


class KthvalueAttributes(NamedTuple):
    """The dim, and which value, from 1."""

    dim: int
    k: int


AnyAttributes: TypeAlias = SortAttributes | TopkAttributes | KthvalueAttributes
P = ParamSpec("P")


class Sorting(Op, Generic[P]):
    """Values selected along a dim, and their indices."""

    num_outputs = 2
    order = "row-major"
    saves = ()
    saves_output = (1,)
    one_gradient = True

    attributes: Callable[P, Attributes]

    def __init__(self, name: str, kernel: Kernel, attributes: Callable[P, Attributes]) -> None:
        super().__init__(name, kernel)
        self.attributes = attributes

    def deduce(self, x: Meta, attrs: AnyAttributes) -> tuple[Meta, Meta] | None:
        dim, *rest = attrs
        flags = rest if isinstance(attrs, SortAttributes) else rest[1:]
        if not x.ndim or not is_dim(dim, x.ndim) or x.dtype not in REALS or not are_bools(*flags):
            return None
        shape = list(x.shape)
        if not isinstance(attrs, SortAttributes):
            least = 0 if isinstance(attrs, TopkAttributes) else 1
            if type(attrs.k) is not int or not least <= attrs.k <= shape[dim]:
                return None
            shape[dim] = 1 if least else attrs.k
        return x.like(shape), x.like(shape, torch.int64)

    def rule(self, axis: Axis, x: Meta, attrs: AnyAttributes) -> Rule:
        return all_but(attrs.dim, x.ndim, 1, 2)

    def vjp(
        self,
        needs: Needs,
        dy: Sequence[Tensor | None],
        y: Sequence[Tensor],
        x: Meta,
        attrs: AnyAttributes,
    ) -> Gradients:
        return (None if dy[0] is None else add_at(dy[0], y[1], tuple(x.shape), attrs.dim),)


_sort_op = several_of(Sorting("sort", kernels.sort, SortAttributes), "x")
_topk_op = several_of(Sorting("topk", kernels.topk, TopkAttributes), "x")
_kthvalue_op = several_of(Sorting("kthvalue", kernels.kthvalue, KthvalueAttributes), "x")


@register_function
def sort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> ValuesAndIndices:
    """The values along `dim` in order, and their indices. Equal values keep their order."""
    if out is not None:
        return give_to(out, sort(input, dim, descending, stable))
    return ValuesAndIndices(*_sort_op(input, dim, descending, True))


@register_function
def argsort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The indices that sort the values along `dim`."""
    if out is not None:
        return give_to(out, argsort(input, dim, descending, stable))
    return sort(input, dim, descending, stable).indices


@register_function
def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The values in order along dim 0."""
    if out is not None:
        return give_to(out, msort(input))
    return sort(input, 0).values


@register_function
def topk(
    input: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> ValuesAndIndices:
    """The k largest (or smallest) values along `dim`, and their indices."""
    if out is not None:
        return give_to(out, topk(input, k, dim, largest, sorted))
    return ValuesAndIndices(*_topk_op(input, dim, k, largest, sorted))


@register_function
def kthvalue(
    input: Tensor,
    k: int,
    dim: int = -1,
    keepdim: bool = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> ValuesAndIndices:
    """The k-th smallest value along `dim` (k counts from 1), and its index."""
    if out is not None:
        return give_to(out, kthvalue(input, k, dim, keepdim))
    values, indices = _kthvalue_op(input, dim, k)
    if keepdim or not input.ndim:
        return ValuesAndIndices(values, indices)
    return ValuesAndIndices(squeeze(values, dim), squeeze(indices, dim))


@register_function
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The distinct values, and on request the index of each element's value and the counts.

    Their number depends on the values, so every process reads the whole tensor. No gradient.
    """
    found = torch.unique(whole(input, ONLY_OUTSIDE), sorted, return_inverse, return_counts, dim)
    return like_indices(found, input)

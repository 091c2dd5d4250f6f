"""Sorting: sort, argsort, topk, kthvalue, msort, unique."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, ParamSpec

import torch

from ...kernels import sort_ref as kernels
from ..dispatcher import several
from ..meta import Meta
from ..names import register_function
from ..op import Op
from ..signature import Axis, Rule
from ..tensor import Tensor
from ..values import whole
from .data_movement import together, wrap
from .dims import squeeze
from .gather import add_at
from .index_parsing import like_index


class Sorted(NamedTuple):
    """Sorted or chosen values, and where they stood."""

    values: Tensor
    indices: Tensor


class SortAttributes(NamedTuple):
    """The dim, the direction, and whether equal values keep their order."""

    dim: int
    descending: bool
    stable: bool


class TopkAttributes(NamedTuple):
    """The dim, how many values, which, and whether they are in order."""

    dim: int
    k: int
    largest: bool
    sorted: bool


class KthvalueAttributes(NamedTuple):
    """The dim, and which value, from 1."""

    dim: int
    k: int


P = ParamSpec("P")


class Sorting(Op, Generic[P]):
    """Values chosen along a dim, and where they stood."""

    num_outputs = 2
    saves = ()
    saves_output = True

    attributes: Callable[P, tuple[Any, ...]]

    def __init__(
        self, name: str, kernel: Callable[..., Any], attributes: Callable[P, tuple[Any, ...]]
    ) -> None:
        self.name = name
        self.attributes = attributes
        self.kernel = kernel  # type: ignore[method-assign]

    def rule(self, axis: Axis, x: Meta, attrs: Any) -> Rule:
        return together([d for d in range(x.ndim) if d != wrap(attrs.dim, x.ndim)], 1, 2)

    def vjp(self, needs: Sequence[object], dy: Any, y: Any, x: Meta, attrs: Any) -> Any:
        return (add_at(dy[0], y[1], tuple(x.shape), attrs.dim) if dy[0] is not None else None,)


_sort_op = several(Sorting("sort", kernels.sort, SortAttributes))
_topk_op = several(Sorting("topk", kernels.topk, TopkAttributes))
_kthvalue_op = several(Sorting("kthvalue", kernels.kthvalue, KthvalueAttributes))


@register_function
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Sorted:
    """The values along `dim` in order, and their indices. Equal values keep their order."""
    return Sorted(*_sort_op((input,), dim, descending, True))


@register_function
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices that sort the values along `dim`."""
    return sort(input, dim, descending, stable).indices


@register_function
def msort(input: Tensor) -> Tensor:
    """The values in order along dim 0."""
    return sort(input, 0).values


@register_function
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Sorted:
    """The k largest (or smallest) values along `dim`, and their indices."""
    return Sorted(*_topk_op((input,), dim, k, largest, sorted))


@register_function
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Sorted:
    """The k-th smallest value along `dim` (k counts from 1), and its index."""
    values, indices = _kthvalue_op((input,), dim, k)
    if keepdim or not input.ndim:
        return Sorted(values, indices)
    return Sorted(squeeze(values, dim), squeeze(indices, dim))


@register_function
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct values, and on request where each element went and how often each occurs.

    Their number depends on the values, so every process reads the whole tensor. No gradient.
    """
    found = torch.unique(whole(input), sorted, return_inverse, return_counts, dim)
    if isinstance(found, torch.Tensor):
        return like_index(found, input)
    return tuple(like_index(part, input) for part in found)

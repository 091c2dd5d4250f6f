"""Joining: cat, stack, their kin, and meshgrid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import OnefoldRuntimeError, OnefoldTypeError
from ..dispatch import general
from ..meta import Meta
from ..names import enter, named, names
from ..op import Kernel, Local, Op
from ..sbp import broadcast
from ..sbp import split as split_sbp
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .dims import unsqueeze
from .moving import match, passes, unpack, wrap
from .view import atleast_1d, atleast_2d, atleast_3d, reshape


class Cat(Op):
    """Tensors one after the other along a dim; attributes: the dim, and its size in each.

    An absent tensor stands for zeros of that size. A 1-d tensor of size 0 fits anywhere, as in
    torch.
    """

    name = "cat"
    saves = ()
    flops_per_element = 0.0

    def kernel(self, *args: Any) -> torch.Tensor:
        *parts, dim, sizes = args
        return torch.cat(_filled(parts, dim, sizes), dim)

    def rule(self, axis: Axis, *args: Any) -> Rule:
        *given, dim, _ = args
        metas = [meta for meta in given if meta is not None]
        ndim = max(meta.ndim for meta in metas)
        found = []
        for i in range(ndim):
            if i != wrap(dim, ndim):
                ins = tuple(split_sbp(i) if meta.ndim == ndim else broadcast for meta in metas)
                found.append(Signature(ins, (split_sbp(i),)))
        return [*found, *passes(metas)]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        dim, sizes = attrs
        cat = torch.cat
        if None in local.inputs:
            return lambda *parts: cat(_filled(parts, dim, sizes), dim)
        return lambda *parts: cat(parts, dim)

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, *args: Any) -> Any:
        *metas, dim, sizes = args
        if len(metas) == 1:
            return (dy,)
        parts = names.split(dy, sizes, dim)
        return tuple(
            # An empty 1-d tensor beside others has another shape than its part of the gradient.
            None if not need else match(reshape(part, meta.shape), meta)
            for need, part, meta in zip(needs, parts, metas, strict=True)
        )


def _filled(
    parts: Sequence[torch.Tensor | None], dim: int, sizes: Sequence[int]
) -> list[torch.Tensor]:
    """With zeros in the place of absent parts."""
    like = next(part for part in parts if part is not None)
    filled = []
    for part, size in zip(parts, sizes, strict=True):
        if part is None:
            shape = list(like.shape)
            shape[dim] = size
            part = like.new_zeros(()).expand(shape)
        filled.append(part)
    return filled


class Stack(Op):
    """Tensors of one shape along a new dim; an absent tensor stands for zeros."""

    name = "stack"
    saves = ()
    flops_per_element = 0.0

    def kernel(self, *args: Any) -> torch.Tensor:
        *parts, dim = args
        like = next(part for part in parts if part is not None)
        zeros = like.new_zeros(()).expand(like.shape)
        return torch.stack([zeros if part is None else part for part in parts], dim)

    def rule(self, axis: Axis, *args: Any) -> Rule:
        *given, dim = args
        metas = [meta for meta in given if meta is not None]
        ndim = metas[0].ndim
        dim = wrap(dim, ndim + 1)
        count = len(metas)
        found = [
            Signature((split_sbp(i),) * count, (split_sbp(i + (i >= dim)),)) for i in range(ndim)
        ]
        return [*found, *passes(metas)]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        (dim,) = attrs
        if None in local.inputs:
            return lambda *parts: self.kernel(*parts, dim)
        stack = torch.stack
        return lambda *parts: stack(parts, dim)

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, *args: Any) -> Any:
        *metas, dim = args
        return tuple(
            None if not need else match(part, meta)
            for need, part, meta in zip(needs, names.unbind(dy, dim), metas, strict=True)
        )


join_parts = general(Cat())
stack_parts = general(Stack())


def _given(tensors: Any, what: str) -> tuple[Tensor, ...]:
    if isinstance(tensors, Tensor) or not isinstance(tensors, (tuple, list)):
        raise OnefoldTypeError(
            f"{what}(): argument 'tensors' must be a tuple of Tensors, not {type(tensors).__name__}"
        )
    if not tensors:
        raise OnefoldRuntimeError(f"{what} expects a non-empty list of Tensors")
    for index, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise OnefoldTypeError(
                f"{what}: tensors[{index}] must be an onefold Tensor, not {type(tensor).__name__}"
            )
    return tuple(tensors)


@named
def cat(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """The tensors one after the other along `dim`.

    Splits of other dims stay; along a split dim the tensors are gathered. Raises
    OnefoldRuntimeError when other sizes differ.
    """
    parts = _given(tensors, "cat")
    ndim = max([part.ndim for part in parts])
    dim = wrap(dim if axis is None else axis, ndim)
    sizes = tuple([part.shape[dim] if part.ndim == ndim and ndim else 0 for part in parts])
    return join_parts(parts, dim, sizes)  # type: ignore[no-any-return]


enter("concat", cat)
enter("concatenate", cat)


@named
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape along a new dim `dim`."""
    return stack_parts(_given(tensors, "stack"), dim)  # type: ignore[no-any-return]


@named
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Side by side: along dim 1, vectors along dim 0."""
    parts = [atleast_1d(x) for x in _given(tensors, "hstack")]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


@named
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """One above the other: along dim 0, vectors as rows."""
    return cat([atleast_2d(x) for x in _given(tensors, "vstack")], 0)


enter("row_stack", vstack)


@named
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """One behind the other: along dim 2."""
    return cat([atleast_3d(x) for x in _given(tensors, "dstack")], 2)


@named
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Side by side, vectors as columns."""
    parts = [x if x.ndim > 1 else reshape(x, x.numel(), 1) for x in _given(tensors, "column_stack")]
    return cat(parts, 1)


@named
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Grids of coordinates: tensor i varies along dim i; "xy" exchanges the first two dims.

    Raises OnefoldRuntimeError for tensors of more than one dim or another `indexing`.
    """
    axes = [atleast_1d(x) for x in _given(unpack(tensors), "meshgrid")]
    if indexing not in ("ij", "xy"):
        raise OnefoldRuntimeError(
            f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
        )
    if any(x.ndim > 1 for x in axes):
        raise OnefoldRuntimeError("meshgrid: Expected 0D or 1D tensors in the tensor list")
    swapped = indexing == "xy" and len(axes) > 1
    if swapped:
        axes[0], axes[1] = axes[1], axes[0]
    shape = [x.shape[0] for x in axes]
    grids = []
    for place, x in enumerate(axes):
        column = x
        for _ in range(place + 1, len(axes)):
            column = unsqueeze(column, -1)
        grids.append(column.expand(*shape))
    if swapped:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)

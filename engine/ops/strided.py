"""Tensors by strides: stride, as_strided, empty_strided.

Strides refer to the base as one array in row-major order. So they are torch's, and the same for
every layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import Unpack, overload

import torch

from ...errors import OnefoldRuntimeError
from .. import interpreter
from ..argument_types import TypedLayout
from ..meta import Shape
from ..names import register_function
from ..sbp import Sbp, as_nd_sbp, split
from ..tensor import Tensor
from ..views import FunctionStep, base_of, link
from .creation import empty
from .data_movement import overlapping, wrap
from .dims import permute
from .index import put_rows, take_rows
from .index_parsing import replicated_tensor
from .like import layout_for_new
from .view import strides, view


@overload
def stride(self: Tensor) -> Shape: ...
@overload
def stride(self: Tensor, dim: int) -> int: ...
@register_function
def stride(self: Tensor, dim: int | None = None) -> Shape | int:
    """The strides in the memory of the base, of all dims or one.

    >>> import onefold as flow
    >>> flow.ones(2, 3).t().stride()
    (1, 3)
    """
    found, _ = strides(self)
    return found if dim is None else found[wrap(dim, self.ndim)]


@register_function
def storage_offset(self: Tensor) -> int:
    """The offset of the first element in the memory of the base."""
    return strides(self)[1]


@lru_cache(maxsize=256)
def _places(size: Shape, stride: Shape, offset: int) -> tuple[torch.Tensor, int, bool]:
    """The offsets of the elements in memory, the last of them, and whether they are distinct."""
    if 0 in size:
        return torch.zeros(size, dtype=torch.int64), -1, True
    last = offset + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    places = torch.arange(last + 1).as_strided(size, stride, offset)
    return places, last, places.unique().numel() == places.numel()


@register_function
def as_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A view with this size and these strides of the base of `input`, or of itself if it has none.

    Without `storage_offset` it begins where `input` begins. A split base is gathered. Raises
    OnefoldRuntimeError for negative strides, and for elements outside of the base.
    """
    size, stride = tuple(map(index, size)), tuple(map(index, stride))
    storage_offset = None if storage_offset is None else index(storage_offset)
    if len(size) != len(stride):
        raise OnefoldRuntimeError(
            f"as_strided: mismatch in length of strides and shape: {stride} and {size}"
        )
    if min((*size, *stride, storage_offset or 0), default=0) < 0:
        raise OnefoldRuntimeError(
            f"as_strided: negative sizes, strides and offsets are not supported, got {size}, "
            f"{stride} and {storage_offset}"
        )
    offset = strides(input)[1] if storage_offset is None else storage_offset
    base = input
    while base.shared and (above := base_of(base)) is not None:
        base = above
    places, last, distinct = _places(size, stride, offset)
    if last >= base.meta.numel:
        raise OnefoldRuntimeError(
            f"as_strided: size {size}, strides {stride} and offset {offset} need "
            f"{last + 1} elements, but the tensor's memory has {base.meta.numel}"
        )

    def forward(base: Tensor) -> Tensor:
        return take_rows(view(base, -1), (replicated_tensor(places, base, torch.int64),))

    def scatter(base: Tensor, value: Tensor) -> Tensor:
        if not distinct:
            raise overlapping("as_strided")
        index = replicated_tensor(places, base, torch.int64)
        return view(put_rows(view(base, -1), (index,), value), base.shape)

    def on_one(base: torch.Tensor) -> torch.Tensor:
        return base.as_strided(size, stride, offset)

    with interpreter.grad_mode(interpreter.is_grad_enabled() and input.node is not None):
        return link(forward(base), base, FunctionStep("as_strided", forward, scatter, on_one))


@register_function
def empty_strided(
    size: Sequence[int], stride: Sequence[int], **layout: Unpack[TypedLayout]
) -> Tensor:
    """An uninitialized tensor of this size and these strides.

    A tensor with split dims has each element once, so its strides are those of permuted dims;
    otherwise OnefoldRuntimeError is raised. They may be any if no dim is split.
    """
    size, stride = tuple(size), tuple(stride)
    if len(size) == len(stride):
        order = sorted(range(len(size)), key=lambda dim: (-stride[dim], -size[dim]))
        back = tuple(sorted(range(len(size)), key=order.__getitem__))
        rows = torch.empty([size[dim] for dim in order], device="meta")
        if rows.permute(back).stride() == stride:
            if layout.get("sbp") is not None and layout.get("placement") is not None:
                layout["sbp"] = _permuted(layout, order)
            return permute(empty(*rows.shape, **layout), *back)
    nd_sbp = layout.get("sbp") or ()
    if any(sbp.is_split for sbp in _read(layout)):
        raise OnefoldRuntimeError(
            f"empty_strided: a tensor with sbp={nd_sbp!r} holds each element once, in some order "
            f"of its dims, which strides {stride} for size {size} do not; use broadcast"
        )
    _, last, _ = _places(size, stride, 0)
    return as_strided(empty(last + 1, **layout), size, stride)


def _read(layout: TypedLayout) -> tuple[Sbp, ...]:
    placement, sbp = layout.get("placement"), layout.get("sbp")
    return () if placement is None or sbp is None else as_nd_sbp(sbp, placement.ndim)


def _permuted(layout: TypedLayout, order: Sequence[int]) -> list[Sbp]:
    """The sbp of a tensor whose dims are those of another in this order."""
    return [
        split(order.index(sbp.dim)) if sbp.is_split and sbp.dim < len(order) else sbp
        for sbp in _read(layout)
    ]


@register_function
def new_empty_strided(
    self: Tensor, size: Sequence[int], stride: Sequence[int], **layout: Unpack[TypedLayout]
) -> Tensor:
    """An uninitialized tensor with self's dtype, device or (broadcast) placement."""
    return empty_strided(size, stride, **layout_for_new(self, layout))

"""resize_, set_ and related functions: a tensor takes another shape, or another tensor's memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...errors import OnefoldRuntimeError, OnefoldTypeError, warn
from ..argument_types import Dims
from ..convert import box
from ..grad_mode import no_grad
from ..inplace import become
from ..inplace_views import check_reshaped
from ..meta import check_nd_sbp
from ..names import register_function
from ..tensor import Tensor
from ..views import DETACH, has_links, link, stand_in
from .cat_split import cat
from .creation import read_size
from .data_movement import sizes_of
from .like import new_empty, new_zeros
from .slicing import narrow
from .strided import as_strided
from .view import contiguous, view


@register_function
@no_grad
def resize_(
    self: Tensor,
    *sizes: Dims,
    size: Dims | None = None,
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Tensor:
    """Resize the tensor in place: the elements stay in row-major order, new ones are zeros.

    It keeps its placement and sbp. Raises OnefoldRuntimeError for a tensor that requires grad, is a
    view or has views.
    """
    shape = read_size(sizes_of(sizes, size), "resize_")
    if shape == tuple(self.shape):
        return self
    if self.requires_grad:
        raise OnefoldRuntimeError("cannot resize variables that require grad")
    if self.shared and has_links(self):
        raise OnefoldRuntimeError(
            "resize_: the tensor is a view or has views, which would not follow; clone() it first"
        )
    check_reshaped(self, "resize_")
    check_nd_sbp(shape, self.meta.nd_sbp)
    count = torch.Size(shape).numel()
    values = view(contiguous(self), -1)
    if count > values.shape[0]:
        values = cat([values, new_zeros(values, count - values.shape[0])])
    values = view(narrow(values, 0, 0, count), shape)
    become(self, box(values, self.meta.like(shape)) if self.is_global else values)
    return self


@register_function
def resize_as_(
    input: Tensor, the_template: Tensor, *, memory_format: torch.memory_format | None = None
) -> Tensor:
    """Resize the tensor in place to the shape of another one; see `resize_`."""
    return resize_(input, the_template.shape)


@register_function
def resize(self: Tensor, *sizes: Dims) -> Tensor:
    """The elements in row-major order under another shape; torch deprecates it for `reshape`."""
    warn("non-inplace resize is deprecated; use reshape", UserWarning)
    shape = read_size(sizes, "resize")
    if torch.Size(shape).numel() != self.meta.numel:
        raise OnefoldRuntimeError(
            f"requested resize to {shape} ({torch.Size(shape).numel()} elements in total), but the "
            f"given tensor has a size of {tuple(self.shape)} ({self.meta.numel} elements). Use "
            "resize_ to change the number of elements"
        )
    return view(contiguous(self), shape)


@register_function
def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """The elements under the shape of another tensor; torch deprecates it for `reshape`."""
    return resize(self, tensor.shape)


@register_function
@no_grad
def set_(
    self: Tensor,
    source: Tensor | None = None,
    storage_offset: int = 0,
    size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
) -> Tensor:
    """Make the tensor share the memory of `source`, or of a strided part; without one, empty.

    It takes the layout of `source`, and writes to either change both. Raises OnefoldTypeError for a
    storage, OnefoldRuntimeError for a tensor that requires grad or a `source` of another dtype.
    """
    if self.requires_grad:
        raise OnefoldRuntimeError("set_: a tensor that requires grad cannot be set; use .data")
    check_reshaped(self, "set_")
    if source is None:
        become(self, new_empty(self, 0))
        return self
    if not isinstance(source, Tensor):
        raise OnefoldTypeError(
            f"set_ needs a Tensor, but got {type(source).__name__}: shards are not made of storages"
        )
    if source.dtype != self.dtype:
        raise OnefoldRuntimeError(
            f"Could not set tensor of type {source.dtype} to a tensor of type {self.dtype}"
        )
    if size is not None:
        steps = stride if stride is not None else torch.empty(size, device="meta").stride()
        source = as_strided(source, size, steps, storage_offset)
    become(self, source)
    link(self, stand_in(source), DETACH)
    return self

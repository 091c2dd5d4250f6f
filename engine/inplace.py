"""In-place methods: the named tensor takes a new value and keeps its placement, sbp and dtype."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import AutogradError, OnefoldRuntimeError, OnefoldTypeError, ShapeError
from . import interp
from .autograd import CHANGED, Node
from .convert import box
from .meta import Meta
from .names import named, names
from .tensor import Tensor


@named
def assign_result(self: Tensor, name: str, *args: Any, **kwargs: Any) -> Tensor:
    """`self` takes the result of the op `name` on it; what `x.add_(y)` and its kin do.

    Raises AutogradError for a leaf that requires grad, ShapeError or OnefoldRuntimeError when the
    result does not fit; then `self` is as it was.
    """
    check_may_change(self, f"{name}_")
    return assign(self, getattr(names, name)(self, *args, **kwargs), f"{name}_")


def check_may_change(self: Tensor, what: str) -> None:
    """Raise AutogradError for a leaf that requires grad, unless gradients are off."""
    if self.node is not None and self.node.is_leaf and interp.grad_enabled:
        raise AutogradError(
            f"a leaf Variable that requires grad is being used in an in-place operation ({what}). "
            "Do it under `with flow.no_grad():`, or use the out-of-place form."
        )


def assign(self: Tensor, result: Tensor, what: str) -> Tensor:
    """`self` takes the value of `result`, laid out as `self` is."""
    if result.shape != self.shape:
        raise ShapeError(
            f"{what}: the result has shape {tuple(result.shape)}, which doesn't match the "
            f"tensor's shape {tuple(self.shape)}; an in-place operation keeps the shape"
        )
    if result.dtype != self.dtype:
        if not torch.can_cast(result.dtype, self.dtype):
            raise OnefoldRuntimeError(
                f"{what}: result type {result.dtype} can't be cast to the tensor's type "
                f"{self.dtype}; use the out-of-place form"
            )
        result = names.cast(result, self.dtype)
    if result.meta is not self.meta:
        result = box(result, self.meta)
    old = self.node
    if type(old) is Node and old.out is not None:
        old.out = CHANGED
    self.shards = result.shards
    self.shared = result.shared = True
    self.version = interp.stamp()
    if interp.grad_enabled:
        self.node = result.node
    return self


@named
def copy_(self: Tensor, source: Tensor) -> Tensor:
    """Take the value of `source`, which may have another dtype, placement and sbp."""
    if not isinstance(source, Tensor):
        raise OnefoldTypeError(f"copy_ needs a Tensor, but got {type(source).__name__}")
    check_may_change(self, "copy_")
    if source.is_global != self.is_global:
        raise OnefoldTypeError(
            f"copy_: cannot copy between a local and a global tensor ({source.meta!r} into "
            f"{self.meta!r}); convert the source with to_global or to_local first"
        )
    value = names.cast(source, self.dtype) if source.dtype != self.dtype else source
    if value.shape != self.shape:
        value = names.expand(value, self.shape)
    if value.is_global:
        value = box(value, self.meta)
    return assign(self, value, "copy_")


@named
def fill_(self: Tensor, value: Any) -> Tensor:
    """Every element becomes `value` (a number or a one-element tensor)."""
    check_may_change(self, "fill_")
    return assign(self, names.full_like(self, value), "fill_")


@named
def zero_(self: Tensor) -> Tensor:
    check_may_change(self, "zero_")
    return assign(self, names.full_like(self, 0), "zero_")


@named
def requires_new_memory(self: Tensor) -> bool:
    """Whether in-place work on the shards would be seen through another tensor."""
    return self.shared


def write_through(self: Tensor, shards: tuple[torch.Tensor, ...], meta: Meta | None = None) -> None:
    """Replace the shards of a tensor outside the tape (optimizers, loading)."""
    self.shards = shards
    self.shared = False
    self.version = interp.stamp()
    if meta is not None:
        self.meta = meta


@named
def setitem_(self: Tensor, index: Any, value: Any) -> None:
    """`x[index] = value`: the named tensor changes, no other one does."""
    check_may_change(self, "__setitem__")
    assign(self, names.setitem(self, index, value), "__setitem__")

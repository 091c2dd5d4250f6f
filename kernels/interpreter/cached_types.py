"""Types and shapes of blocks, made once: the interpreter makes them anew for every operation."""

from __future__ import annotations

from typing import Any

import triton.language as tl

_make_block_type, _make_tensor = tl.block_type.__init__, tl.tensor.__init__
_types: dict[tuple[object, ...], tuple[Any, ...]] = {}  # shape, number of elements and name
_shapes: dict[str, tuple[Any, ...]] = {}  # by the names of types: shape and number of elements


def make_block_type(self: Any, element_ty: Any, shape: Any) -> None:
    """tl.block_type(element_ty, shape)"""
    key = (element_ty.name, *shape)
    found = _types.get(key)
    if found is None:
        _make_block_type(self, element_ty, shape)
        _types[key] = self.shape, self.numel, self.name
    else:
        self.element_ty = element_ty
        self.shape, self.numel, self.name = found


def make_tensor(self: Any, handle: Any, type: Any) -> None:
    """tl.tensor(handle, type)"""
    found = _shapes.get(type.name)
    if found is None:
        _make_tensor(self, handle, type)
        _shapes[type.name] = self.shape, self.numel
    else:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = found

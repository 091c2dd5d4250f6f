"""Creation after the model of another tensor: zeros_like, new_zeros and related ops."""

from __future__ import annotations

from typing import Any

import torch

from ..names import register_function
from ..sbp import broadcast
from ..tensor import Tensor
from .creation import Size, empty, full, ones, tensor, zeros
from .random_creation import rand, randint, randn


def _layout_of(x: Tensor, layout: dict[str, Any]) -> dict[str, Any]:
    """The layout arguments for a tensor like x: x's own, unless others are given.

    Constants made like a partial tensor are broadcast.
    """
    if layout.get("device") is not None:
        return layout
    if x.is_local:
        given = layout.get("placement") is not None or layout.get("sbp") is not None
        return layout if given else {**layout, "device": x.device}
    nd_sbp = tuple(broadcast if s.is_partial else s for s in x.sbp)
    return {"placement": x.placement, "sbp": nd_sbp, **layout}


@register_function
def zeros_like(x: Tensor, *, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Zeros in the shape, dtype and layout of x (partial becomes broadcast)."""
    return zeros(x.shape, dtype=dtype or x.dtype, **_layout_of(x, layout))


@register_function
def ones_like(x: Tensor, *, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Ones in the shape, dtype and layout of x (partial becomes broadcast)."""
    return ones(x.shape, dtype=dtype or x.dtype, **_layout_of(x, layout))


@register_function
def empty_like(x: Tensor, *, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Unset values in the shape, dtype and layout of x (partial becomes broadcast)."""
    return empty(x.shape, dtype=dtype or x.dtype, **_layout_of(x, layout))


@register_function
def full_like(
    x: Tensor, fill_value: Any, *, dtype: torch.dtype | None = None, **layout: Any
) -> Tensor:
    """One value in the shape, dtype and layout of x (partial becomes broadcast)."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, **_layout_of(x, layout))


@register_function
def rand_like(x: Tensor, *, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Uniform numbers in the shape, dtype and layout of x (partial becomes broadcast)."""
    return rand(x.shape, dtype=dtype or x.dtype, **_layout_of(x, layout))


@register_function
def randn_like(x: Tensor, *, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Standard normal numbers in the shape, dtype and layout of x (partial becomes broadcast)."""
    return randn(x.shape, dtype=dtype or x.dtype, **_layout_of(x, layout))


@register_function
def randint_like(
    x: Tensor, low: int, high: int | None = None, *, dtype: torch.dtype | None = None, **layout: Any
) -> Tensor:
    """Integers in [low, high) in the shape, dtype and layout of x (partial becomes broadcast)."""
    if high is None:
        low, high = 0, low
    return randint(low, high, x.shape, dtype=dtype or x.dtype, **_layout_of(x, layout))


# Of the same kind as another tensor, in another shape; replicated where that one is global.


def _beside(x: Tensor, layout: dict[str, Any]) -> dict[str, Any]:
    layout = {key: value for key, value in layout.items() if value is not None}
    if x.is_global and not layout.keys() & {"placement", "sbp", "device"}:
        return {**layout, "placement": x.placement, "sbp": (broadcast,) * x.placement.ndim}
    return _layout_of(x, layout)


@register_function
def new_zeros(self: Tensor, *size: Any, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Zeros of another shape with self's dtype, device or (broadcast) placement."""
    return zeros(*size, dtype=dtype or self.dtype, **_beside(self, layout))


@register_function
def new_ones(self: Tensor, *size: Any, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Ones of another shape with self's dtype, device or (broadcast) placement."""
    return ones(*size, dtype=dtype or self.dtype, **_beside(self, layout))


@register_function
def new_empty(self: Tensor, *size: Any, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Unset values of another shape with self's dtype, device or (broadcast) placement."""
    return empty(*size, dtype=dtype or self.dtype, **_beside(self, layout))


@register_function
def new_full(
    self: Tensor, size: Size, fill_value: Any, *, dtype: torch.dtype | None = None, **layout: Any
) -> Tensor:
    """One value in another shape with self's dtype, device or (broadcast) placement."""
    return full(size, fill_value, dtype=dtype or self.dtype, **_beside(self, layout))


@register_function
def new_tensor(
    self: Tensor, data: Any, *, dtype: torch.dtype | None = None, **layout: Any
) -> Tensor:
    """A tensor of `data` with self's dtype, device or (broadcast) placement."""
    return tensor(data, dtype=dtype or self.dtype, **_beside(self, layout))

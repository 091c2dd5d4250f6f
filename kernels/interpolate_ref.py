"""Images at another size: the nearest element, or polynomials between elements, along each dim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Ints = tuple[int, ...]
Scales = tuple[float | None, ...]  # for each dim what was asked for; None: the ratio of the sizes

_nn, _aten = torch._C._nn, torch.ops.aten
_SMOOTH = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


def _function(mode: str, planes: int, end: str) -> Callable[..., Any]:
    kind = {"nearest-exact": "_upsample_nearest_exact"}.get(mode, f"upsample_{mode}")
    found: Callable[..., Any] = getattr(_aten, f"{kind}{planes}d{end}").default
    return found


_FORWARD, _BACKWARD = (
    {
        (mode, planes): _function(mode, planes, end)
        for mode, of in [
            ("nearest", (1, 2, 3)),
            ("nearest-exact", (1, 2, 3)),
            *[(mode, (planes,)) for mode, planes in _SMOOTH.items()],
        ]
        for planes in of
    }
    for end in ("", "_backward")
)


def interpolate(
    x: Tensor, planes: int, size: Ints, mode: str, align_corners: bool, scales: Scales
) -> Tensor:
    """x with this size in its last dims, as torch's functions for each mode."""
    made: Tensor = _FORWARD[mode, planes](x, size, *_rest(mode, align_corners, scales))
    return made


def interpolate_grad(
    dy: Tensor, shape: Ints, planes: int, size: Ints, mode: str, align_corners: bool, scales: Scales
) -> Tensor:
    """The gradient for the input, of this shape."""
    rest = _rest(mode, align_corners, scales)
    dx: Tensor = _BACKWARD[mode, planes](dy, size, shape, *rest)
    return dx


def _rest(mode: str, align_corners: bool, scales: Scales) -> tuple[object, ...]:
    return (align_corners, *scales) if mode in _SMOOTH else scales

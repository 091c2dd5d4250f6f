"""Images at another size. Batch and channels may be split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from ...kernels import interpolate_ref as kernels
from ...kernels.interpolate_ref import Ints, Scales
from ..argument_types import Sizes
from ..dispatcher import unary
from ..meta import Meta
from ..names import names, register_function
from ..op import Gradients, Needs, blank
from ..tensor import Tensor
from .pool import Pool, PoolGrad
from .torch_row import read
from .torch_rows import public


class InterpolateAttributes(NamedTuple):
    """The number of dims of a plane, their new sizes, and the mode of interpolation."""

    planes: int
    size: Ints
    mode: str
    align_corners: bool
    scales: Scales


class InterpolateGradAttributes(NamedTuple):
    """The input's shape, and the attributes of the forward op."""

    shape: Ints
    planes: int
    size: Ints
    mode: str
    align_corners: bool
    scales: Scales


class Interpolate(Pool):
    """Planes resized"""

    name = "interpolate"
    attributes = InterpolateAttributes
    saves = ()
    kernel = staticmethod(kernels.interpolate)

    def infer(self, x: Meta, attrs: InterpolateAttributes) -> Meta:
        return x.like(shape=(*x.shape[:2], *attrs.size))

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Meta, attrs: InterpolateAttributes
    ) -> Gradients:
        return (_interpolate_grad(dy, tuple(x.shape), *attrs),)


class InterpolateGrad(PoolGrad):
    """The gradient of resized planes"""

    name = "interpolate_grad"
    attributes = InterpolateGradAttributes
    saves = ()
    kernel = staticmethod(kernels.interpolate_grad)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, g: Meta, attrs: InterpolateGradAttributes
    ) -> Gradients:
        return (_interpolate(dy, *attrs[1:]),)


_interpolate = unary(Interpolate())
_interpolate_grad = unary(InterpolateGrad())
_ROW = read(
    "interpolate(input, size=None, scale_factor=None, mode='nearest', align_corners=None, "
    "recompute_scale_factor=None, antialias=False): lead 2 linear"
)
_ROW.name = "interpolate_antialiased"
_antialiased = public(_ROW, "torch.nn.functional.interpolate on every shard.")


@lru_cache(maxsize=4096)
def _new_size(
    x: Meta,
    size: Sizes | None,
    scales: Sequence[float] | float | None,
    mode: str,
    align_corners: bool | None,
    again: bool | None,
) -> Ints:
    """The output size, as torch computes it. Raises torch's errors."""
    if x.ndim and not x.shape[0]:
        x = x.like(shape=(1, *x.shape[1:]))  # of an empty batch torch's data-free functions fail
    y = torch.nn.functional.interpolate(
        blank(x), size, scales, mode, align_corners, recompute_scale_factor=again
    )
    return tuple(y.shape[2:])


@register_function
def interpolate(
    input: Tensor,
    size: Sizes | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """(N, C, ...) resized in the last one to three dims, to a size or by a factor.

    `mode` is nearest, nearest-exact, linear (of 3 dims), bilinear or bicubic (4), trilinear (5) or
    area, as in torch. Tensors with the channels last stay so. Only with `antialias` the work is
    torch's on every device. Raises the errors that torch raises.

    Example: `interpolate(x, scale_factor=2, mode="bilinear")` with x (8, 3, 16, 16) has the shape
    (8, 3, 32, 32).
    """
    new = tuple(size) if isinstance(size, Sequence) else size
    factor = tuple(scale_factor) if isinstance(scale_factor, Sequence) else scale_factor
    given = new, factor, mode, align_corners, recompute_scale_factor
    if antialias:
        found: Tensor = _antialiased(input, *given, antialias)
        return found
    out = _new_size(input.meta, *given)
    planes = len(out)
    if mode == "area":
        pooled: Tensor = getattr(names, f"adaptive_avg_pool{planes}d")(input, out)
        return pooled
    scales: Scales = (None,) * planes
    if factor is not None and not recompute_scale_factor:
        each = factor if isinstance(factor, tuple) else (factor,) * planes
        scales = tuple([float(by) for by in each])
    return _interpolate(input, planes, out, mode, bool(align_corners), scales)

"""layer_norm. In training it saves mean and deviation, so that backward reads its input once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from ...kernels import norm_ref as kernels
from .. import interpreter
from ..dispatcher import general, several_of
from ..meta import Meta, Shape
from ..names import register_function
from ..op import Gradients, Kernel, Local, Needs
from ..tensor import Tensor
from .norm import (
    NormAttributes,
    NormGradOp,
    NormOp,
    as_shape,
    input_gradient,
    layer_norm_grad,
    layer_norm_plain,
    scale_and_shift_gradients,
    splits_rows_only,
)


@lru_cache(maxsize=4096)
def _fits(x: Meta, weight: Meta, bias: Meta) -> bool:
    """Whether one dtype is used throughout, and no normalized dim is split."""
    if x.partial:
        return False
    dtype = x.dtype
    wide = dtype is torch.float32 or dtype is torch.float64
    return (
        wide
        and dtype is weight.dtype
        and dtype is bias.dtype
        and weight.shape == bias.shape == x.shape[-weight.ndim :]
        and splits_rows_only(x, weight.shape)
    )


class LayerNormWithStats(NormOp):
    """layer_norm, the mean, and the reciprocal of the deviation"""

    name = "layer_norm_with_stats"
    num_outputs = 3
    saves_output = ((1, 2), (), ())
    one_gradient = True
    depends_on_position = False

    def infer(
        self, x: Meta, weight: Meta, bias: Meta, attrs: NormAttributes
    ) -> tuple[Meta, Meta, Meta]:
        count = len(attrs.shape)
        rows = x.like(shape=(*x.shape[: x.ndim - count], *(1,) * count))
        return x, rows, rows

    def bind(self, local: Local, attrs: NormAttributes) -> Kernel:
        bound = local.bind(kernels.layer_norm_with_stats, *attrs)
        if bound.kernel is not kernels.layer_norm_with_stats:
            return bound
        shape, eps = attrs
        torchs = torch.native_layer_norm  # with no call around it
        return lambda x, weight, bias: torchs(x, shape, weight, bias, eps)

    def vjp(
        self,
        needs: Needs,
        dy: tuple[Tensor | None, ...],
        y: tuple[Tensor, Tensor, Tensor],
        x: Tensor,
        weight: Tensor,
        bias: Meta,
        attrs: NormAttributes,
    ) -> Gradients:
        assert dy[0] is not None  # the statistics are for the gradient only
        if not needs[0]:
            return scale_and_shift_gradients(True, needs, dy[0], x, weight, bias, attrs)
        only_x = not needs[1] and not needs[2]
        if interpreter.is_grad_enabled():  # to be differentiated again
            if only_x:
                return (input_gradient(True, dy[0], x, weight, attrs),)
            return layer_norm_grad((dy[0], x, weight), *attrs)
        if only_x:
            return (_layer_norm_with_stats_input_grad((dy[0], x, weight, *y[1:]), attrs.shape),)
        return _layer_norm_with_stats_grad(dy[0], x, weight, *y[1:], attrs.shape)


class ShapeOfRows(NamedTuple):
    """The shape of the last dims, which are normalized over."""

    shape: Shape


class LayerNormWithStatsGrad(NormGradOp):
    """Gradients of layer_norm for x, weight and bias, from kept statistics"""

    name = "layer_norm_with_stats_grad"
    attributes = ShapeOfRows
    num_outputs = 3
    differentiable = False
    kernel = staticmethod(kernels.layer_norm_with_stats_grad)


class LayerNormWithStatsInputGrad(NormGradOp):
    """The gradient of layer_norm for x alone, from kept statistics"""

    name = "layer_norm_with_stats_input_grad"
    attributes = ShapeOfRows
    differentiable = False
    kernel = staticmethod(kernels.layer_norm_with_stats_input_grad)


LAYER_NORM_WITH_STATS = LayerNormWithStats()
layer_norm_with_stats = several_of(LAYER_NORM_WITH_STATS, "x weight bias", only_first=True)
_layer_norm_with_stats_grad = several_of(LayerNormWithStatsGrad(), "dy x weight mean rstd")
_layer_norm_with_stats_input_grad = general(LayerNormWithStatsInputGrad())


@register_function
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize over the last dims to mean 0 and variance 1, then scale and shift, as in torch.

    Gradients of weight and bias come out as partial sums where leading dims are split. Raises an
    error when `normalized_shape` is not the shape of the last dims.

    Example: `layer_norm(x, (16,), w, b)` with x (4, 16).
    """
    if type(normalized_shape) is not tuple:
        normalized_shape = as_shape(normalized_shape, "layer_norm")
    if (
        interpreter.is_grad_enabled()
        and input.node is not None
        and weight is not None
        and bias is not None
        and _fits(input.meta, weight.meta, bias.meta)
    ):
        return layer_norm_with_stats(input, weight, bias, normalized_shape, eps)[0]
    return layer_norm_plain(input, weight, bias, normalized_shape, eps)

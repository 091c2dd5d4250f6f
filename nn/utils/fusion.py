"""Batch normalization folded into the layer before it, for inference."""

from __future__ import annotations

import copy
from typing import TypeVar

from ...engine.ops.like import ones_like, zeros_like
from ...engine.tensor import Tensor
from ...errors import OnefoldRuntimeError, OnefoldValueError
from ..linear import Affine, Linear
from ..module import Module
from ..parameter import Parameter
from ..running_norm import RunningNorm

A = TypeVar("A", bound=Affine)


def _statistics(layer: Module, bn: RunningNorm) -> tuple[Tensor, Tensor]:
    """The running mean and variance. Raises OnefoldRuntimeError unless both modules infer."""
    if layer.training or bn.training:
        raise OnefoldRuntimeError(
            "Fusion only for eval! The running statistics of a module that trains change: call "
            ".eval() of both modules first"
        )
    if bn.running_mean is None or bn.running_var is None:
        raise OnefoldRuntimeError(
            "cannot fuse a batch normalization without running statistics: it normalizes by those "
            "of each batch"
        )
    return bn.running_mean, bn.running_var


def fuse_conv_bn_eval(conv: A, bn: RunningNorm, transpose: bool = False) -> A:
    """A copy of a convolution that computes `bn(conv(x))`; both have to be in eval mode.

    `transpose` is True for transposed convolutions. Raises OnefoldRuntimeError in training, or for
    a normalization without running statistics.
    """
    mean, variance = _statistics(conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, mean, variance, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """The weight and bias of a convolution with a batch normalization after it.

    The outputs are in dim 0 of the weight, or in dim 1 with `transpose`.
    """
    bias = zeros_like(bn_rm) if conv_b is None else conv_b
    scale = (bn_rv + bn_eps).rsqrt() * (ones_like(bn_rm) if bn_w is None else bn_w)
    shift = zeros_like(bn_rm) if bn_b is None else bn_b
    outputs = [1, -1] if transpose else [-1, 1]
    weight = conv_w * scale.reshape([*outputs, *[1] * (conv_w.ndim - 2)])
    return _parameters(conv_w, conv_b, weight, (bias - bn_rm) * scale + shift)


def fuse_linear_bn_eval(linear: Linear, bn: RunningNorm) -> Linear:
    """A copy of a linear layer that computes `bn(linear(x))`; both have to be in eval mode.

    Raises OnefoldRuntimeError in training, or for a normalization without running statistics, and
    OnefoldValueError where it has another number of features, other than 1.
    """
    mean, variance = _statistics(linear, bn)
    if bn.num_features not in (1, linear.out_features):
        raise OnefoldValueError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, but got "
            f"{linear.out_features} and {bn.num_features}"
        )
    fused = copy.deepcopy(linear)
    scale = ones_like(mean) if bn.weight is None else bn.weight
    shift = zeros_like(mean) if bn.bias is None else bn.bias
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, mean, variance, bn.eps, scale, shift
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Parameter, Parameter]:
    """The weight and bias of a linear layer with a batch normalization after it."""
    bias = zeros_like(bn_rm) if linear_b is None else linear_b
    scale = bn_w * (bn_rv + bn_eps).rsqrt()
    weight = linear_w * scale.unsqueeze(-1)
    return _parameters(linear_w, linear_b, weight, (bias - bn_rm) * scale + bn_b)


def _parameters(
    old_weight: Tensor, old_bias: Tensor | None, weight: Tensor, bias: Tensor
) -> tuple[Parameter, Parameter]:
    """Both as parameters, in the dtypes and with the `requires_grad` of the old ones."""
    old = (old_weight, old_weight if old_bias is None else old_bias)
    trained = old_weight.requires_grad, old_bias is not None and old_bias.requires_grad
    made = [
        Parameter(new.detach().to(each.dtype), requires_grad)
        for new, each, requires_grad in zip((weight, bias), old, trained, strict=True)
    ]
    return made[0], made[1]

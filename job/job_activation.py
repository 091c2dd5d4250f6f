"""Activations, under `flow.nn`."""

from __future__ import annotations

from ..engine.ops.activation import (
    elu as elu_op,
    hardtanh as hardtanh_op,
    leaky_relu as leaky_relu_op,
)
from ..engine.ops.softmax import log_softmax, softmax as softmax_op
from .blob import Blob, each
from .math import gelu, relu, sigmoid, tanh, unary

__all__ = [
    "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsoftmax", "mish",
    "relu", "relu6", "selu", "sigmoid", "silu", "softmax", "tanh",
]  # fmt: skip


selu, mish, silu = map(unary, "selu mish silu".split())
relu6 = unary("relu6", "Each element, brought between 0 and 6.")
hardsigmoid = unary("hardsigmoid", "(x + 3) / 6 of each element, brought between 0 and 1.")
hardswish = unary("hardswish", "Each element times its hardsigmoid.")


def hardtanh(x: Blob, min_val: float = -1.0, max_val: float = 1.0, name: str | None = None) -> Blob:
    """Each element, brought between two numbers."""
    return each(hardtanh_op, x, min_val, max_val)


def elu(x: Blob, alpha: float = 1.0, name: str | None = None) -> Blob:
    """Each element, or alpha * (exp(x) - 1) below 0."""
    return each(elu_op, x, alpha)


def leaky_relu(x: Blob, alpha: float = 0.2, name: str | None = None) -> Blob:
    """Each element, or alpha times it below 0."""
    return each(leaky_relu_op, x, alpha)


def softmax(logits: Blob, axis: int | None = None, name: str | None = None) -> Blob:
    """Shares that sum up to 1 along a dim, the last if none is given."""
    return each(softmax_op, logits, -1 if axis is None else axis)


def logsoftmax(logits: Blob, axis: int | None = None, name: str | None = None) -> Blob:
    """The logarithms of `softmax`."""
    return each(log_softmax, logits, -1 if axis is None else axis)

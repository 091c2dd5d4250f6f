"""Activations, under `flow.nn`."""

from __future__ import annotations

from ..engine.ops.activation import (
    elu as elu_op,
    gelu as gelu_op,
    hardsigmoid as hardsigmoid_op,
    hardswish as hardswish_op,
    hardtanh as hardtanh_op,
    leaky_relu as leaky_relu_op,
    mish as mish_op,
    relu as relu_op,
    relu6 as relu6_op,
    selu as selu_op,
    sigmoid as sigmoid_op,
    silu as silu_op,
    tanh as tanh_op,
)
from ..engine.ops.softmax import log_softmax, softmax as softmax_op
from .blob import Blob, each

__all__ = [
    "elu",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsoftmax",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "tanh",
]


def relu(x: Blob, name: str | None = None) -> Blob:
    """relu of each element."""
    return each(relu_op, x)


def sigmoid(x: Blob, name: str | None = None) -> Blob:
    """sigmoid of each element."""
    return each(sigmoid_op, x)


def tanh(x: Blob, name: str | None = None) -> Blob:
    """tanh of each element."""
    return each(tanh_op, x)


def gelu(x: Blob, name: str | None = None) -> Blob:
    """gelu of each element."""
    return each(gelu_op, x)


def selu(x: Blob, name: str | None = None) -> Blob:
    """selu of each element."""
    return each(selu_op, x)


def mish(x: Blob, name: str | None = None) -> Blob:
    """mish of each element."""
    return each(mish_op, x)


def silu(x: Blob, name: str | None = None) -> Blob:
    """silu of each element."""
    return each(silu_op, x)


def relu6(x: Blob, name: str | None = None) -> Blob:
    """Each element, brought between 0 and 6."""
    return each(relu6_op, x)


def hardsigmoid(x: Blob, name: str | None = None) -> Blob:
    """(x + 3) / 6 of each element, brought between 0 and 1."""
    return each(hardsigmoid_op, x)


def hardswish(x: Blob, name: str | None = None) -> Blob:
    """Each element times its hardsigmoid."""
    return each(hardswish_op, x)


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

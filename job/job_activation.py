"""Activations, under `flow.nn`."""

from __future__ import annotations

from ..engine.names import names
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
    return each(names.relu, x)  # type: ignore[no-any-return]


def sigmoid(x: Blob, name: str | None = None) -> Blob:
    """sigmoid of each element."""
    return each(names.sigmoid, x)  # type: ignore[no-any-return]


def tanh(x: Blob, name: str | None = None) -> Blob:
    """tanh of each element."""
    return each(names.tanh, x)  # type: ignore[no-any-return]


def gelu(x: Blob, name: str | None = None) -> Blob:
    """gelu of each element."""
    return each(names.gelu, x)  # type: ignore[no-any-return]


def selu(x: Blob, name: str | None = None) -> Blob:
    """selu of each element."""
    return each(names.selu, x)  # type: ignore[no-any-return]


def mish(x: Blob, name: str | None = None) -> Blob:
    """mish of each element."""
    return each(names.mish, x)  # type: ignore[no-any-return]


def silu(x: Blob, name: str | None = None) -> Blob:
    """silu of each element."""
    return each(names.silu, x)  # type: ignore[no-any-return]


def relu6(x: Blob, name: str | None = None) -> Blob:
    """Each element, brought between 0 and 6."""
    return each(names.relu6, x)  # type: ignore[no-any-return]


def hardsigmoid(x: Blob, name: str | None = None) -> Blob:
    """(x + 3) / 6 of each element, brought between 0 and 1."""
    return each(names.hardsigmoid, x)  # type: ignore[no-any-return]


def hardswish(x: Blob, name: str | None = None) -> Blob:
    """Each element times its hardsigmoid."""
    return each(names.hardswish, x)  # type: ignore[no-any-return]


def hardtanh(x: Blob, min_val: float = -1.0, max_val: float = 1.0, name: str | None = None) -> Blob:
    """Each element, brought between two numbers."""
    return each(names.hardtanh, x, min_val, max_val)  # type: ignore[no-any-return]


def elu(x: Blob, alpha: float = 1.0, name: str | None = None) -> Blob:
    """Each element, or alpha * (exp(x) - 1) below 0."""
    return each(names.elu, x, alpha)  # type: ignore[no-any-return]


def leaky_relu(x: Blob, alpha: float = 0.2, name: str | None = None) -> Blob:
    """Each element, or alpha times it below 0."""
    return each(names.leaky_relu, x, alpha)  # type: ignore[no-any-return]


def softmax(logits: Blob, axis: int | None = None, name: str | None = None) -> Blob:
    """Shares that sum up to 1 along a dim, the last if none is given."""
    return each(names.softmax, logits, -1 if axis is None else axis)  # type: ignore[no-any-return]


def logsoftmax(logits: Blob, axis: int | None = None, name: str | None = None) -> Blob:
    """The logarithms of `softmax`."""
    return each(names.log_softmax, logits, -1 if axis is None else axis)  # type: ignore[no-any-return]

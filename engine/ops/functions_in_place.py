"""Functions of torch that change their first argument, without being methods there."""

from __future__ import annotations

from ..inplace import assign_result
from ..names import register_function
from ..tensor import Tensor


@register_function
def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu` in place."""
    return assign_result(input, "celu", alpha)


@register_function
def selu_(input: Tensor) -> Tensor:
    """`selu` in place."""
    return assign_result(input, "selu")


@register_function
def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold` in place."""
    return assign_result(input, "threshold", threshold, value)


@register_function
def rrelu_(
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
) -> Tensor:
    """`rrelu` in place."""
    return assign_result(input, "rrelu", lower, upper, training)


@register_function
def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`dropout` in place."""
    return assign_result(input, "dropout", p, train)


@register_function
def alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`alpha_dropout` in place."""
    return assign_result(input, "alpha_dropout", p, train)


@register_function
def feature_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`feature_dropout` in place."""
    return assign_result(input, "feature_dropout", p, train)


@register_function
def feature_alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`feature_alpha_dropout` in place."""
    return assign_result(input, "feature_alpha_dropout", p, train)

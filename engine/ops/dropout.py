"""Dropout. The mask depends on the seed and the logical index, not on the layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import OnefoldValueError
from ...kernels import random_ref
from ..dispatcher import with_number
from ..generator import Draw, default_generator
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Local, Op
from ..signature import Axis, Rule, pointwise_of
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import add, mul, sub
from .like import ones_like
from .slicing import select
from .view import view


class DropoutKey:
    """What one call of dropout draws, and the probability of a zero.

    A runtime argument, so that the plan does not depend on it; `backward` draws the same again.
    """

    __slots__ = ("draw", "p")

    def __init__(self, draw: Draw, p: float) -> None:
        self.draw = draw
        self.p = p

    def __repr__(self) -> str:
        return f"Chance({self.draw!r}, p={self.p})"


def next_draw(p: float) -> DropoutKey:
    """A fresh draw from the default generator."""
    return DropoutKey(default_generator.draw(), p)


class DropoutOp(Op):
    """y = x / (1 - p) where the draw keeps the element, else 0"""

    name = "dropout"
    saves = ()

    def infer(self, x: Meta, chance: DropoutKey) -> Meta:
        return x

    def rule(self, axis: Axis, x: Meta, chance: DropoutKey) -> Rule:
        # All addends of a partial sum get the same mask.
        return pointwise_of((x,), "all")

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        x = local.inputs[0]
        assert x is not None
        shape, offset = tuple(x.shape), local.input_offset(0)
        dropped = local.pick(random_ref.dropout)

        def kernel(x: torch.Tensor, chance: DropoutKey) -> torch.Tensor:
            whole, start = chance.draw.within(shape, offset)
            draw = chance.draw
            return dropped(x, whole, start, p=chance.p, seed=draw.seed, call=draw.call)  # type: ignore[no-any-return]

        return kernel

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, chance: DropoutKey) -> Any:
        return (dropout_by(dy, chance),)


dropout_by = with_number(DropoutOp(), number_first=False)


def _check(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise OnefoldValueError(f"dropout probability has to be between 0 and 1, but got {p}")


@register_function
def dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p), in training only.

    The same seed drops the same elements however the tensor is laid out. Each call takes one call
    id of the default generator. Raises OnefoldValueError unless 0 <= p <= 1.

    Example: `dropout(x, 0.1)`.
    """
    _check(p)
    if not training or p == 0.0:
        return input
    return dropout_by(input, next_draw(p))


def _by_channel(
    input: Tensor, p: float, training: bool, name: str, dims: tuple[int, ...]
) -> Tensor:
    """Drop whole channels; `dims` are the numbers of dims with a batch dim, and without."""
    _check(p)
    if input.ndim not in dims:
        raise OnefoldValueError(
            f"{name} needs an input of {dims[0]} dims, or {dims[1]} without a batch, but got "
            f"{input.ndim}"
        )
    if not training or p == 0.0:
        return input
    channels = 1 if input.ndim == dims[1] else 2
    shape = (*input.shape[:channels], *[1] * (input.ndim - channels))
    mask = dropout_by(ones_like(_first_of(frozen(input), channels)), next_draw(p))
    return mul(input, view(mask, shape))


def _first_of(x: Tensor, channels: int) -> Tensor:
    """One element per channel, laid out as the input's channels are."""
    for _ in range(x.ndim - channels):
        x = select(x, channels, 0)
    return x


@register_function
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Dropout of whole channels of (N, C, L), or (C, L); see `dropout`."""
    return _by_channel(input, p, training, "dropout1d", (3, 2))


@register_function
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Dropout of whole channels of (N, C, H, W), or (C, H, W); see `dropout`."""
    return _by_channel(input, p, training, "dropout2d", (4, 3))


@register_function
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Dropout of whole channels of (N, C, D, H, W), or (C, D, H, W); see `dropout`."""
    return _by_channel(input, p, training, "dropout3d", (5, 4))


@register_function
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False) -> Tensor:
    """Dropout to SELU's negative limit, rescaled to keep mean 0 and variance 1; see `dropout`.

    Raises OnefoldValueError unless 0 <= p <= 1.
    """
    _check(p)
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return mul(input, 0.0)
    limit = -1.7580993408473766  # -scale * alpha of SELU
    # As in torch: y = a * (x * keep + limit * (1 - keep)) + b with mean 0 and variance 1.
    a = ((1.0 - p) * (1.0 + p * limit * limit)) ** -0.5
    kept = dropout_by(ones_like(frozen(input)), next_draw(p))
    keep = mul(kept, 1.0 - p)
    mixed = add(mul(sub(input, limit), keep), limit)
    return add(mul(mixed, a), -a * p * limit)

"""Losses composed of other ops: Gaussian likelihood, and triplets with a user-defined distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...errors import OnefoldValueError
from .. import interpreter
from ..names import register_function
from ..tensor import Tensor
from .arithmetic import add, div, mul, sub
from .cross_entropy import check_reduction
from .like import full_like
from .loss import reduced
from .torch_rows import FUNCTIONS
from .unary import log, square
from .where import at_least, clamp_min, minimum

Distance = Callable[[Tensor, Tensor], Tensor]


@register_function
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of targets under normal distributions of these means and `var`.

    `var` has the input's shape, or size 1 in one dim, or lacks the last dim; it is at least `eps`.
    With `full` the constant term is included. Raises OnefoldValueError for another shape, a
    negative variance or an unknown reduction.
    """
    check_reduction(reduction)
    negative = OnefoldValueError("gaussian_nll_loss: var has negative entries")
    if not isinstance(var, Tensor):
        if var < 0:
            raise negative
        var = full_like(input, var)
    elif not interpreter.capturing() and bool((var < 0).any()):
        raise negative
    if var.shape != input.shape:
        if tuple(input.shape[:-1]) == tuple(var.shape):
            var = var.unsqueeze(-1)
        elif not _lacks_one_dim(var.shape, input.shape):
            raise OnefoldValueError(
                f"gaussian_nll_loss: var has shape {tuple(var.shape)}, which does not fit an input "
                f"of shape {tuple(input.shape)}"
            )
    bounded = at_least(var, eps)
    loss = mul(add(log(bounded), div(square(sub(input, target)), bounded)), 0.5)
    return reduced(add(loss, 0.5 * math.log(2 * math.pi)) if full else loss, reduction)


def _lacks_one_dim(var: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether `var` has size 1 where one dim of the shape is larger, and is else the same."""
    if len(var) != len(shape):
        return False
    return [a for a, b in zip(var, shape, strict=True) if a != b] == [1]


def _norm_distance(a: Tensor, b: Tensor) -> Tensor:
    distance: Tensor = FUNCTIONS["pairwise_distance"](a, b)
    return distance


@register_function
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Distance | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0); d is the 2-norm by default.

    With `swap` the negative may also be as near to the positive. Raises OnefoldValueError for an
    unknown reduction or a margin that is not positive.
    """
    check_reduction(reduction)
    if margin <= 0:
        raise OnefoldValueError(f"margin must be greater than 0, but got {margin}")
    distance = distance_function or _norm_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced(clamp_min(add(sub(near, far), margin), 0), reduction)

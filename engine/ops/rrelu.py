"""rrelu: leaky ReLUs with random slopes."""

from __future__ import annotations

from ..names import register_function
from ..tensor import Tensor
from ..views import snapshot
from .activation import leaky_relu
from .arithmetic import mul
from .like import rand_like
from .where import where


@register_function
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """x where it is positive, elsewhere x times a slope between `lower` and `upper`.

    While training the slope of each element is drawn uniformly, otherwise it is the mean. Source:
    Xu et al., "Empirical Evaluation of Rectified Activations in Convolutional Network" (2015).
    """
    x = snapshot(input) if inplace else input  # which its gradient needs
    if training:
        slope = rand_like(x) * (upper - lower) + lower
        y = where(x >= 0, x, mul(x, slope))
    else:
        y = leaky_relu(x, (lower + upper) / 2)
    return input.copy_(y) if inplace else y

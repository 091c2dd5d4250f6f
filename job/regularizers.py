"""Regularizers: penalties on the size of weights, which are added to gradients."""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.ops.arithmetic import add, mul
from ..engine.ops.reduce import sum
from ..engine.ops.unary import abs, square
from ..engine.tensor import Tensor


@dataclass(frozen=True)
class Regularizer:
    """l1 |w| + l2 / 2 w^2, summed over a variable."""

    l1: float = 0.0
    l2: float = 0.0

    def penalty(self, weight: Tensor) -> Tensor:
        """What is added to the loss for a variable."""
        addends = []
        if self.l1:
            addends.append(mul(sum(abs(weight)), self.l1))
        if self.l2:
            addends.append(mul(sum(square(weight)), self.l2 / 2))
        total = addends[0] if addends else mul(sum(weight), 0.0)
        for addend in addends[1:]:
            total = add(total, addend)
        return total


def l1(l: float = 0.01) -> Regularizer:  # noqa: E741 (the name that programs use)
    """The sum of absolute values, times `l`."""
    return Regularizer(l1=l)


def l2(l: float = 0.01) -> Regularizer:  # noqa: E741 (the name that programs use)
    """Half the sum of squares, times `l`: each gradient gets `l` times its weight."""
    return Regularizer(l2=l)


def l1_l2(l1: float = 0.01, l2: float = 0.01) -> Regularizer:
    """Both."""
    return Regularizer(l1, l2)

"""Dropout as a module."""

from __future__ import annotations

from ..engine.inplace import copy_
from ..engine.ops.dropout import dropout
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from .module import Module


class Dropout(Module):
    """Zero each element with probability p while training, and scale the others by 1/(1-p).

    The mask depends on the element's logical index, so it is the same for every layout.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise OnefoldValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        y = dropout(x, self.p, self.training)
        return copy_(x, y) if self.inplace else y

    def extra_repr(self) -> str:
        return f"p={self.p}"

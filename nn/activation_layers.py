"""Activations as modules."""

from __future__ import annotations

from ..engine.names import names
from ..engine.tensor import Tensor
from .module import Module


class ReLU(Module):
    """max(x, 0)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        return x.relu_() if self.inplace else names.relu(x)


class GELU(Module):
    """x times the normal distribution function of x, exactly or by the tanh approximation."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return names.gelu(x, approximate=self.approximate)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return names.silu(x)  # type: ignore[no-any-return]


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        return names.tanh(x)  # type: ignore[no-any-return]


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        return names.sigmoid(x)  # type: ignore[no-any-return]


class Softmax(Module):
    """Softmax over one dim."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return names.softmax(x, self.dim)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"dim={self.dim}"

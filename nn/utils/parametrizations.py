"""Parametrizations of weights: weight_norm, spectral_norm and orthogonal."""

from __future__ import annotations

from typing import Any, TypeVar

from ...engine.ops.vector_norm import normalize
from ...engine.tensor import Tensor
from ...errors import OnefoldIndexError, OnefoldValueError
from ..module import Module
from .orthogonal import orthogonal
from .parametrize import register_parametrization, tensor_named
from .spectral_norm import (
    as_matrix,
    largest_singular_value,
    output_dim,
    random_direction,
    update_direction,
)
from .weight_norm import norm_except_dim, weight_of

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

M = TypeVar("M", bound=Module)


class _WeightNorm(Module):
    """A weight with the norm of its first tensor and the direction of the second."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_of(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Parametrize a weight by its norm over all dims but `dim`, and its direction.

    They are `parametrizations.weight.original0` and `original1`; a state dict of the older
    `nn.utils.weight_norm` loads as well. With `dim=None` the norm is that of the whole weight.
    Source: Salimans and Kingma, "Weight Normalization" (2016).
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def from_older(state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        older = f"{prefix}{name}_g", f"{prefix}{name}_v"
        if all(key in state_dict for key in older):
            for index, key in enumerate(older):
                newer = f"{prefix}parametrizations.{name}.original{index}"
                state_dict[newer] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(from_older)
    return module


class _SpectralNorm(Module):
    """A weight divided by its largest singular value; vectors by their norm."""

    _u: Tensor
    _v: Tensor

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise OnefoldIndexError(
                f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but "
                f"got {dim})"
            )
        if n_power_iterations <= 0:
            raise OnefoldValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim = dim % ndim
        self.eps = eps
        if ndim == 1:
            return
        self.n_power_iterations = n_power_iterations
        matrix = as_matrix(weight.detach(), self.dim)
        self.register_buffer("_u", random_direction(matrix, 0, eps))
        self.register_buffer("_v", random_direction(matrix, 1, eps))
        self._iterate(matrix, 15)  # so that the first value is near, as in torch

    def _iterate(self, matrix: Tensor, steps: int) -> None:
        for _ in range(steps):
            update_direction(self._u, matrix, self._v, self.eps)
            update_direction(self._v, matrix.mH, self._u, self.eps)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        return weight / largest_singular_value(matrix, self._u, self._v)

    def right_inverse(self, value: Tensor) -> Tensor:
        return value  # a value that is assigned is normalized where it is read


def spectral_norm(
    module: M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> M:
    """Parametrize a weight as another weight divided by its spectral norm.

    The norm is estimated by power iteration, a few steps whenever the weight is read in training.
    `dim` is that of the outputs: 0, or 1 for transposed convolutions. Raises OnefoldValueError
    for a name that is no tensor of the module. Source: Miyato et al., "Spectral Normalization for
    Generative Adversarial Networks" (2018).
    """
    weight = tensor_named(module, name)
    made = _SpectralNorm(weight, n_power_iterations, output_dim(module, dim), eps)
    return register_parametrization(module, name, made)

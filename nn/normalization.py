"""Normalisation layers."""

from __future__ import annotations

from typing import Any

import torch

from ..engine.ops.layer_norm import layer_norm
from ..engine.tensor import Tensor
from . import init
from .module import Module
from .parameter import Parameter


class LayerNorm(Module):
    """Normalisation over the last dims to mean 0 and variance 1, then weight and bias."""

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...] | list[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Any = None,
        sbp: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(shape)
        self.eps = eps
        self.weight: Parameter | None
        self.bias: Parameter | None
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            unset = None
            if wanted:
                unset = Parameter(
                    init.empty_parameter(self.normalized_shape, dtype, device, placement, sbp)
                )
            self.register_parameter(name, unset)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"

"""Layers with a weight and a bias: the base of Linear and of convolutions."""

from __future__ import annotations

from typing import Any

import torch

from . import init
from .module import Module
from .parameter import Parameter


class Affine(Module):
    """Owns `weight`, whose dim 0 is the outputs, and `bias` (outputs,) or None."""

    weight: Parameter
    bias: Parameter | None

    def _make_parameters(
        self,
        shape: tuple[int, ...],
        bias: bool,
        dtype: torch.dtype | None,
        device: Any,
        placement: Any,
        sbp: Any,
    ) -> None:
        self.weight = Parameter(init.empty_parameter(shape, dtype, device, placement, sbp))
        if bias:
            self.bias = Parameter(init.bias_like(self.weight, shape[0]))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias uniformly within 1 / sqrt(inputs per output), as torch does."""
        bound = init.default_bound(init.fan_in_and_out(self.weight)[0])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

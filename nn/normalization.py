"""Normalisation layers."""

from __future__ import annotations

import torch

from ..engine.argument_types import Dims, Layout
from ..engine.ops.batch_norm import group_norm
from ..engine.ops.creation import empty
from ..engine.ops.layer_norm import layer_norm
from ..engine.ops.norm import rms_norm
from ..engine.placement import Placement
from ..engine.sbp import SbpLike
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from . import init
from .module import Module
from .parameter import Parameter


class LayerNorm(Module):
    """Normalisation over the last dims to mean 0 and variance 1, then weight and bias."""

    def __init__(
        self,
        normalized_shape: Dims,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.weight: Parameter | None
        self.bias: Parameter | None
        where: Layout = {"device": device, "placement": placement, "sbp": sbp}
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            unset = empty(self.normalized_shape, dtype=dtype, **where) if wanted else None
            self.register_parameter(name, None if unset is None else Parameter(unset))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return torch.nn.LayerNorm.extra_repr(self)  # type: ignore[arg-type]


class RMSNorm(Module):
    """Division by the root mean square over the last dims, then a weight.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
    """

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: Dims,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        where: Layout = {"device": device, "placement": placement, "sbp": sbp}
        unset = empty(self.normalized_shape, dtype=dtype, **where) if elementwise_affine else None
        self.register_parameter("weight", None if unset is None else Parameter(unset))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return torch.nn.RMSNorm.extra_repr(self)  # type: ignore[arg-type]


class GroupNorm(Module):
    """Groups of channels normalised for each sample, then a weight and a bias for each channel.

    Source: Wu and He, "Group Normalization" (2018). Raises OnefoldValueError when the channels do
    not divide into the groups.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise OnefoldValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        where: Layout = {"device": device, "placement": placement, "sbp": sbp}
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            unset = empty(num_channels, dtype=dtype, **where) if wanted else None
            self.register_parameter(name, None if unset is None else Parameter(unset))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return torch.nn.GroupNorm.extra_repr(self)  # type: ignore[arg-type]

"""Normalization layers."""

from __future__ import annotations

import torch

from ..engine.argument_types import DeviceLike, Dims, TypedLayout
from ..engine.ops.creation import empty
from ..engine.ops.group_norm import group_norm
from ..engine.ops.layer_norm import layer_norm
from ..engine.ops.norm import rms_norm
from ..engine.placement import Placement
from ..engine.sbp import SbpLike
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from . import init
from .module import Module
from .parameter import Parameter


class Scaled(Module):
    """Owns `weight`, ones at first, and `bias`, zeros, each None where it is not wanted."""

    weight: Parameter | None
    bias: Parameter | None

    def _make_scale(self, shape: Dims, where: TypedLayout, **wanted: bool) -> None:
        """Register each of `weight` and `bias` that is named, with this shape and layout."""
        for name, want in wanted.items():
            self.register_parameter(name, Parameter(empty(shape, **where)) if want else None)

    def reset_parameters(self) -> None:
        """Weight 1 and bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        bias = self._parameters.get("bias")
        if bias is not None:
            init.zeros_(bias)


class _OverLastDims(Scaled):
    def __init__(
        self, normalized_shape: Dims, eps: float | None, where: TypedLayout, **wanted: bool
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(shape)
        self.eps = eps
        self.elementwise_affine = wanted["weight"]
        self._make_scale(self.normalized_shape, where, **wanted)
        self.reset_parameters()


class LayerNorm(_OverLastDims):
    """Normalization over the last dims to mean 0 and variance 1, then weight and bias."""

    eps: float

    def __init__(
        self,
        normalized_shape: Dims,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        where: TypedLayout = {
            "dtype": dtype, "device": device, "placement": placement, "sbp": sbp
        }  # fmt: skip
        wanted = elementwise_affine and bias
        super().__init__(normalized_shape, eps, where, weight=elementwise_affine, bias=wanted)

    def forward(self, input: Tensor) -> Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return torch.nn.LayerNorm.extra_repr(self)  # type: ignore[arg-type]


class RMSNorm(_OverLastDims):
    """Division by the root mean square over the last dims, then a weight.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
    """

    def __init__(
        self,
        normalized_shape: Dims,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        where: TypedLayout = {
            "dtype": dtype, "device": device, "placement": placement, "sbp": sbp
        }  # fmt: skip
        super().__init__(normalized_shape, eps, where, weight=elementwise_affine)

    def forward(self, input: Tensor) -> Tensor:
        return rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return torch.nn.RMSNorm.extra_repr(self)  # type: ignore[arg-type]


class GroupNorm(Scaled):
    """Groups of channels normalized for each sample, then a weight and a bias for each channel.

    Source: Wu and He, "Group Normalization" (2018). Raises OnefoldValueError when the channels do
    not divide into the groups.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceLike | None = None,
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
        where: TypedLayout = {
            "dtype": dtype, "device": device, "placement": placement, "sbp": sbp
        }  # fmt: skip
        self._make_scale(num_channels, where, weight=affine, bias=affine and bias)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return torch.nn.GroupNorm.extra_repr(self)  # type: ignore[arg-type]

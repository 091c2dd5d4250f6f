"""Convolution of images."""

from __future__ import annotations

from typing import Any

import torch

from ..engine.ops.conv import conv2d
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from .affine import Affine


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


class Conv2d(Affine):
    """2-d convolution of (N, C, H, W) with weights (out_channels, in_channels / groups, kh, kw)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | str = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Any = None,
        sbp: Any = None,
    ) -> None:
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise OnefoldValueError(
                f"Conv2d: in_channels={in_channels} and out_channels={out_channels} must be "
                f"divisible by groups={groups}"
            )
        if padding_mode != "zeros":
            raise OnefoldValueError(
                f"Conv2d: padding_mode={padding_mode!r} is not supported, only 'zeros'; pad the "
                "input with nn.functional.pad first"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _pair(kernel_size)
        self.stride = _pair(stride)
        self.padding = padding if isinstance(padding, str) else _pair(padding)
        self.dilation = _pair(dilation)
        self.groups = groups
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self._make_parameters(shape, bias, dtype, device, placement, sbp)

    def forward(self, x: Tensor) -> Tensor:
        return conv2d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding}"
        )

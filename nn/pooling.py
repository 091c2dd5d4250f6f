"""Pooling of images."""

from __future__ import annotations

from typing import ClassVar

import torch

from ..engine.argument_types import Sizes
from ..engine.ops.pool import Pooled, avg_pool2d, max_pool2d
from ..engine.tensor import Tensor
from .module import Module


class _Pool2d(Module):
    """A layer with windows on images."""

    of_torch: ClassVar[type[torch.nn.Module]]

    def __init__(
        self, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, ceil_mode: bool
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return self.of_torch.extra_repr(self)  # type: ignore[arg-type]


class MaxPool2d(_Pool2d):
    """The largest value of each window; with `return_indices` also its place in the plane."""

    of_torch = torch.nn.MaxPool2d

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.dilation = dilation
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Pooled:
        windows = (self.kernel_size, self.stride, self.padding, self.dilation)
        return max_pool2d(input, *windows, self.ceil_mode, self.return_indices)


class AvgPool2d(_Pool2d):
    """The mean of each window; with `count_include_pad` the divisor includes the padding."""

    of_torch = torch.nn.AvgPool2d

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        windows = (self.kernel_size, self.stride, self.padding, self.ceil_mode)
        return avg_pool2d(input, *windows, self.count_include_pad, self.divisor_override)

"""Convolutions of signals, images and volumes, and transposed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch.nn.modules.conv import _ConvNd as _TorchConv

from ..engine.argument_types import DeviceLike, Sizes
from ..engine.ops.conv import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    ints,
)
from ..engine.ops.creation import empty
from ..engine.ops.pad import pad
from ..engine.placement import Placement
from ..engine.sbp import SbpLike, broadcast, split
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from .linear import Affine, bias_of
from .parameter import Parameter

_MODES = ("zeros", "reflect", "replicate", "circular")
_CONVOLUTIONS = {1: conv1d, 2: conv2d, 3: conv3d}
_TRANSPOSED = {
    1: conv_transpose1d,
    2: conv_transpose2d,
    3: conv_transpose3d,
}


class _ConvNd(Affine):
    """A convolution with as many dims as the kernel has sizes, by the arguments of torch's base."""

    padding: tuple[int, ...] | str
    output_padding: tuple[int, ...]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: Sizes,
        padding: Sizes | str,
        dilation: Sizes,
        transposed: bool,
        output_padding: Sizes,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        name, planes = type(self).__name__, len(kernel_size)
        if groups <= 0 or in_channels % groups or out_channels % groups:
            raise OnefoldValueError(
                f"{name}: in_channels={in_channels} and out_channels={out_channels} must be "
                f"divisible by groups={groups}"
            )
        if padding_mode not in _MODES:
            raise OnefoldValueError(
                f"{name}: padding_mode must be one of {', '.join(_MODES)}, but got {padding_mode!r}"
            )
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise OnefoldValueError(
                    f"{name}: padding must be 'same', 'valid' or ints, but got {padding!r}"
                )
            if padding == "same" and any(n != 1 for n in ints(stride, planes, "stride")):
                raise OnefoldValueError(
                    f"{name}: padding='same' is not supported for strided convolutions"
                )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = ints(stride, planes, "stride")
        self.padding = padding if isinstance(padding, str) else ints(padding, planes, "padding")
        self.dilation = ints(dilation, planes, "dilation")
        self.transposed = transposed
        self.output_padding = ints(output_padding, planes, "output_padding")
        self.groups = groups
        self.padding_mode = padding_mode
        channels = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        shape = (channels[0], channels[1] // groups, *kernel_size)
        unset = empty(shape, dtype=dtype, device=device, placement=placement, sbp=sbp)
        self.weight = Parameter(unset)
        self.register_parameter("bias", Parameter(self._unset_bias(unset)) if bias else None)
        self.reset_parameters()

    @property
    def _reversed_padding_repeated_twice(self) -> list[int]:
        """How far each dim is padded before and after, the last dim first."""
        pads = []
        for index in reversed(range(len(self.kernel_size))):
            if isinstance(self.padding, str):
                total = self.dilation[index] * (self.kernel_size[index] - 1)
                before = total // 2 if self.padding == "same" else 0
                after = total - before if self.padding == "same" else 0
            else:
                before = after = self.padding[index]
            pads += [before, after]
        return pads

    def _unset_bias(self, weight: Tensor) -> Tensor:
        """A bias on the weight's device; of a global weight, split where its channels are."""
        if not self.transposed:
            return bias_of(weight)
        if weight.is_local:
            return empty(self.out_channels, dtype=weight.dtype, device=weight.device)
        whole = self.groups > 1
        layout = tuple(
            split(0) if sbp.is_split and sbp.dim == 1 and not whole else broadcast
            for sbp in weight.sbp
        )
        return empty(self.out_channels, dtype=weight.dtype, placement=weight.placement, sbp=layout)

    def extra_repr(self) -> str:
        return str(_TorchConv.extra_repr(self))  # type: ignore[arg-type]


class _Conv(_ConvNd):
    """A convolution with weights (out_channels, in_channels / groups, *kernel_size)."""

    planes: ClassVar[int]  # the number of dims of images

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, ints(kernel_size, self.planes, "kernel_size"), stride,
            padding, dilation, False, 0, groups, bias, padding_mode, device, dtype,
            placement=placement, sbp=sbp,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution with other weights, which subclasses compute from their own."""
        padding = self.padding
        if self.padding_mode != "zeros":
            input = pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
            padding = (0,) * self.planes
        return _CONVOLUTIONS[self.planes](
            input, weight, bias, self.stride, padding, self.dilation, self.groups
        )


class Conv1d(_Conv):
    """Convolution of (N, C, L) with weights (out_channels, in_channels / groups, k)."""

    planes = 1


class Conv2d(_Conv):
    """Convolution of (N, C, H, W) with weights (out_channels, in_channels / groups, kh, kw)."""

    planes = 2


class Conv3d(_Conv):
    """Convolution of (N, C, D, H, W) with weights (out_channels, in_channels / groups, ...)."""

    planes = 3


class _ConvTransposeNd(_ConvNd):
    """A transposed convolution with weights (in_channels, out_channels / groups, *kernel_size)."""

    planes: ClassVar[int]  # the number of dims of images

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        if padding_mode != "zeros":
            raise OnefoldValueError(
                f'Only "zeros" padding mode is supported for {type(self).__name__}'
            )
        if isinstance(padding, str):
            raise OnefoldValueError(
                f"{type(self).__name__}: padding must be ints, but got {padding!r}"
            )
        super().__init__(
            in_channels, out_channels, ints(kernel_size, self.planes, "kernel_size"), stride,
            padding, dilation, True, output_padding, groups, bias, padding_mode, device, dtype,
            placement=placement, sbp=sbp,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        left = self.output_padding if output_size is None else self._left(input, output_size)
        convolve = _TRANSPOSED[self.planes]
        assert not isinstance(self.padding, str)
        y: Tensor = convolve(
            input, self.weight, self.bias, self.stride, self.padding, left, self.groups,
            self.dilation,
        )  # fmt: skip
        return y

    def _left(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The padding at the end of the output by which it has the size asked for."""
        sizes = tuple(output_size)[-self.planes :]
        first = input.ndim - self.planes
        if len(output_size) not in (self.planes, first + self.planes):
            raise OnefoldValueError(
                f"{type(self).__name__}: for {input.ndim}D input, output_size must have "
                f"{self.planes} or {first + self.planes} elements (got {len(output_size)})"
            )
        padding = self.padding
        assert not isinstance(padding, str)
        least = [
            (input.shape[first + i] - 1) * self.stride[i]
            - 2 * padding[i]
            + self.dilation[i] * (self.kernel_size[i] - 1)
            + 1
            for i in range(self.planes)
        ]
        most = [low + step - 1 for low, step in zip(least, self.stride, strict=True)]
        if any(not low <= n <= high for low, n, high in zip(least, sizes, most, strict=True)):
            raise OnefoldValueError(
                f"requested an output size of {list(sizes)}, but valid sizes range from {least} to "
                f"{most} (for an input of {list(input.shape[first:])})"
            )
        return tuple(n - low for n, low in zip(sizes, least, strict=True))


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution of (N, C, L), the gradient of Conv1d for its input."""

    planes = 1


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution of (N, C, H, W), the gradient of Conv2d for its input."""

    planes = 2


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution of (N, C, D, H, W), the gradient of Conv3d for its input."""

    planes = 3

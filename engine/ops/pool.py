"""Max and average pooling over the last dims. All dims before them may be split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, ParamSpec

import torch

from ...errors import ShapeError
from ...kernels import pool_ref as kernels
from ...kernels.pool_ref import MaxSizes
from ..dispatcher import binary, several, unary
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Local, Op
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .conv import Ints, ints
from .dims import squeeze, unsqueeze


def _leading(x: Meta, planes: int, num_inputs: int, num_outputs: int = 1) -> list[Signature]:
    """The splits of the dims before the planes, which all inputs and outputs share."""
    return [
        Signature((split(i),) * num_inputs, (split(i),) * num_outputs)
        for i in range(x.ndim - planes)
    ]


class MaxPoolAttributes(NamedTuple):
    """The number of dims of a plane, and the sizes of windows."""

    planes: int
    sizes: MaxSizes


class MaxPool(Op):
    """(the maximum of each window, its place in the plane)"""

    name = "max_pool"
    attributes = MaxPoolAttributes
    num_outputs = 2
    saves = (0,)

    def kernel(
        self, x: torch.Tensor, planes: int, sizes: MaxSizes
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return kernels.max_pool(x, planes, sizes)

    def rule(self, axis: Axis, x: Meta, attrs: MaxPoolAttributes) -> Rule:
        return _leading(x, attrs.planes, 1, 2)

    def bind(self, local: Local, attrs: MaxPoolAttributes) -> Kernel:
        if 0 in local.input_shape(0):
            shape = local.output_shape()
            return lambda x: (x.new_zeros(shape), x.new_zeros(shape, dtype=torch.int64))
        max_pool = local.pick(kernels.max_pool)
        return lambda x: max_pool(x, *attrs)

    def vjp(
        self, needs: Sequence[object], dy: Any, y: Any, x: Tensor, attrs: MaxPoolAttributes
    ) -> Any:
        # The places are found again instead of being kept: they are twice as large as y.
        return (_max_grad(dy[0], x, *attrs),)


class MaxPoolGrad(Op):
    """dx = dy added at the places of the maxima of x"""

    name = "max_pool_grad"
    attributes = MaxPoolAttributes

    def infer(self, dy: Meta, x: Meta, attrs: MaxPoolAttributes) -> Meta:
        return x

    def rule(self, axis: Axis, dy: Meta, x: Meta, attrs: MaxPoolAttributes) -> Rule:
        passes = Signature((partial_sum, broadcast), (partial_sum,))
        return [*_leading(x, attrs.planes, 2), passes]

    def bind(self, local: Local, attrs: MaxPoolAttributes) -> Kernel:
        grad = local.pick(kernels.max_pool_grad)
        return lambda dy, x: grad(dy, x, *attrs)

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        g: Tensor,
        x: Tensor,
        attrs: MaxPoolAttributes,
    ) -> Any:
        return needs[0] and _max_take(dy, x, *attrs), None


class MaxPoolTake(Op):
    """y = u at the places of the maxima of x"""

    name = "max_pool_take"
    attributes = MaxPoolAttributes

    def infer(self, u: Meta, x: Meta, attrs: MaxPoolAttributes) -> Meta:
        blank = torch.empty(x.shape, dtype=x.dtype, device="meta")
        return u.like(shape=kernels.max_pool(blank, *attrs)[1].shape)

    def rule(self, axis: Axis, u: Meta, x: Meta, attrs: MaxPoolAttributes) -> Rule:
        passes = Signature((partial_sum, broadcast), (partial_sum,))
        return [*_leading(x, attrs.planes, 2), passes]

    def bind(self, local: Local, attrs: MaxPoolAttributes) -> Kernel:
        if 0 in local.input_shape(0):
            shape = local.output_shape()
            return lambda u, x: u.new_zeros(shape)
        take = local.pick(kernels.max_pool_take)
        return lambda u, x: take(u, x, *attrs)

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        u: Tensor,
        x: Tensor,
        attrs: MaxPoolAttributes,
    ) -> Any:
        return needs[0] and _max_grad(dy, x, *attrs), None


class AvgPoolAttributes(NamedTuple):
    """The number of dims of a plane, how the window moves, and what its sum is divided by."""

    planes: int
    size: Ints
    stride: Ints
    padding: Ints
    ceil_mode: bool
    count_include_pad: bool
    divisor: int | None


class AdaptiveAttributes(NamedTuple):
    """The number of dims of a plane, and how many windows it has along each."""

    planes: int
    windows: Ints


class AvgPoolGradAttributes(NamedTuple):
    """The input's shape, and the attributes of the pooling."""

    shape: Ints
    pooling: AvgPoolAttributes | AdaptiveAttributes


P = ParamSpec("P")


class AvgPool(Op, Generic[P]):
    """The mean of each window, or with `adaptive` of as many windows as asked for"""

    saves = ()
    attributes: Callable[P, AvgPoolAttributes | AdaptiveAttributes]

    def __init__(
        self, adaptive: bool, attributes: Callable[P, AvgPoolAttributes | AdaptiveAttributes]
    ) -> None:
        self.name = "adaptive_avg_pool" if adaptive else "avg_pool"
        self.adaptive = adaptive
        self.attributes = attributes
        self.pool: Kernel = kernels.adaptive_avg_pool if adaptive else kernels.avg_pool

    def kernel(self, x: torch.Tensor, planes: int, *sizes: Any) -> torch.Tensor:
        return self.pool(x, planes, *sizes)  # type: ignore[no-any-return]

    def rule(self, axis: Axis, x: Meta, attrs: AvgPoolAttributes | AdaptiveAttributes) -> Rule:
        return [*_leading(x, attrs.planes, 1), Signature((partial_sum,), (partial_sum,))]

    def bind(self, local: Local, attrs: AvgPoolAttributes | AdaptiveAttributes) -> Kernel:
        if 0 in local.input_shape(0):
            shape = local.output_shape()
            return lambda x: x.new_zeros(shape)
        pool = local.pick(self.pool)
        return lambda x: pool(x, *attrs)

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        x: Meta,
        attrs: AvgPoolAttributes | AdaptiveAttributes,
    ) -> tuple[Tensor]:
        grad = _adaptive_grad if self.adaptive else _avg_grad
        return (grad(dy, tuple(x.shape), attrs),)


class AvgPoolGrad(Op):
    """The gradient of average pooling for an input of a given shape"""

    attributes = AvgPoolGradAttributes
    saves = ()

    def __init__(self, adaptive: bool) -> None:
        self.name = "adaptive_avg_pool_grad" if adaptive else "avg_pool_grad"
        self.adaptive = adaptive

    def infer(self, dy: Meta, attrs: AvgPoolGradAttributes) -> Meta:
        return dy.like(shape=attrs.shape)

    def rule(self, axis: Axis, dy: Meta, attrs: AvgPoolGradAttributes) -> Rule:
        planes = attrs.pooling.planes
        return [*_leading(dy, planes, 1), Signature((partial_sum,), (partial_sum,))]

    def bind(self, local: Local, attrs: AvgPoolGradAttributes) -> Kernel:
        pooling = attrs.pooling
        shape = tuple(local.output_shape())
        if 0 in shape or 0 in local.input_shape(0):
            return lambda dy: dy.new_zeros(shape)
        pooled: Kernel = kernels.adaptive_avg_pool if self.adaptive else kernels.avg_pool
        expected = pooled(torch.empty(shape, device="meta"), *pooling).shape
        if tuple(local.input_shape(0)) != tuple(expected):  # torch's kernels do not look
            raise ShapeError(f"gradient of shape {tuple(local.input_shape(0))}, not {expected}")
        unpicked = kernels.adaptive_avg_pool_grad if self.adaptive else kernels.avg_pool_grad
        grad = local.pick(unpicked)
        return lambda dy: grad(dy, shape, *pooling)

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, g: Meta, attrs: AvgPoolGradAttributes
    ) -> tuple[Tensor]:
        pooling = attrs.pooling
        if isinstance(pooling, AdaptiveAttributes):
            return (_adaptive(dy, *pooling),)
        return (_avg(dy, *pooling),)


_max = several(MaxPool())
_max_grad = binary(MaxPoolGrad())
_max_take = binary(MaxPoolTake())
_avg = unary(AvgPool(False, AvgPoolAttributes))
_avg_grad = unary(AvgPoolGrad(adaptive=False))
_adaptive = unary(AvgPool(True, AdaptiveAttributes))
_adaptive_grad = unary(AvgPoolGrad(adaptive=True))


def _windows(count: int, kernel_size: Any, stride: Any, padding: Any) -> tuple[Ints, Ints, Ints]:
    size = ints(kernel_size, count, "kernel_size")
    step = size if stride is None or stride == () else ints(stride, count, "stride")
    return size, step, ints(padding, count, "padding")


def _check_dims(x: Tensor, dims: int, name: str) -> None:
    if x.ndim not in (dims + 1, dims + 2):
        raise ShapeError(
            f"{name}() expects an input of {dims + 2} dims, or {dims + 1} without a batch, but "
            f"got shape {tuple(x.shape)}"
        )


@register_function
def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The maximum of each window of (N, C, H, W) or (C, H, W), as in torch.

    With `return_indices` also its place in the plane. `stride` is the window's size by default.

    Example: `max_pool2d(x, 2)` with x (8, 3, 32, 32) has shape (8, 3, 16, 16).
    """
    _check_dims(input, 2, "max_pool2d")
    windows = _windows(2, kernel_size, stride, padding)
    y, indices = _max((input,), 2, (*windows, ints(dilation, 2, "dilation"), ceil_mode))
    return (y, indices) if return_indices else y


@register_function
def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The maximum of each window of (N, C, L) or (C, L); see `max_pool2d`."""
    _check_dims(input, 1, "max_pool1d")
    size, step, pad = _windows(1, kernel_size, stride, padding)
    flat = ((1, *size), (1, *step), (0, *pad), (1, *ints(dilation, 1, "dilation")), ceil_mode)
    y, indices = _max((unsqueeze(input, -2),), 2, flat)
    y = squeeze(y, -2)
    return (y, squeeze(indices, -2)) if return_indices else y


@register_function
def max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The maximum of each window of (N, C, D, H, W) or (C, D, H, W); see `max_pool2d`."""
    _check_dims(input, 3, "max_pool3d")
    windows = _windows(3, kernel_size, stride, padding)
    y, indices = _max((input,), 3, (*windows, ints(dilation, 3, "dilation"), ceil_mode))
    return (y, indices) if return_indices else y


@register_function
def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of (N, C, H, W) or (C, H, W), as in torch.

    Example: `avg_pool2d(x, 2)` with x (8, 3, 32, 32) has shape (8, 3, 16, 16).
    """
    _check_dims(input, 2, "avg_pool2d")
    windows = _windows(2, kernel_size, stride, padding)
    return _avg(input, 2, *windows, ceil_mode, count_include_pad, divisor_override)


@register_function
def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of (N, C, L) or (C, L); see `avg_pool2d`."""
    _check_dims(input, 1, "avg_pool1d")
    size, step, pad = _windows(1, kernel_size, stride, padding)
    flat = ((1, *size), (1, *step), (0, *pad), ceil_mode, count_include_pad, None)
    return squeeze(_avg(unsqueeze(input, -2), 2, *flat), -2)


def _output_size(input: Tensor, size: Any, planes: int) -> Ints:
    wanted = (size,) * planes if size is None or isinstance(size, int) else tuple(size)
    own = input.shape[input.ndim - planes :]
    return tuple(mine if want is None else want for want, mine in zip(wanted, own, strict=True))


@register_function
def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """The means of as many windows as asked for (None: as many as there are), as in torch.

    Example: `adaptive_avg_pool2d(x, 1)` averages each plane of x.
    """
    _check_dims(input, 2, "adaptive_avg_pool2d")
    return _adaptive(input, 2, _output_size(input, output_size, 2))


@register_function
def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """The means of as many windows of (N, C, L) or (C, L) as asked for, as in torch."""
    _check_dims(input, 1, "adaptive_avg_pool1d")
    size = (1, *_output_size(input, output_size, 1))
    return squeeze(_adaptive(unsqueeze(input, -2), 2, size), -2)

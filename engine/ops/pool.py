"""Max and average pooling over the last dims. All dims before them may be split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, cast

import torch

from ...errors import ShapeError
from ...kernels import pool_ref as kernels
from ...kernels.pool_ref import AvgSizes, MaxSizes
from ..argument_types import Sizes
from ..dispatcher import binary, several_of, unary
from ..generated import register_variant
from ..meta import Meta, Shape
from ..names import register_function
from ..op import Arg, Attributes, Gradients, Kernel, Local, Needs, Op, Order
from ..signature import Axis, Rule, from_spec
from ..tensor import Tensor
from .conv import Ints, ints
from .dims import squeeze, unsqueeze
from .result_shapes import FLOATS, adaptively_pooled, are_bools, are_ints, pooled

Pooled: TypeAlias = Tensor | tuple[Tensor, Tensor]


class PoolAttributes(NamedTuple):
    """The number of dims of a plane, and its windows (adaptive: their number)."""

    planes: int
    sizes: MaxSizes | AvgSizes | Ints


class PoolGradAttributes(NamedTuple):
    """The input's shape, and the attributes of the pooling."""

    shape: Ints
    planes: int
    sizes: MaxSizes | AvgSizes | Ints


class Pool(Op):
    """An op on planes: the dims before them may be split, and its first input partial."""

    order: Order = "row-major"

    linear = "0"

    def rule(self, axis: Axis, x: Meta, *rest: Arg) -> Rule:
        *others, attrs = rest
        lead = " ".join(f"d{i}" for i in range(x.ndim - attrs.planes))
        inputs, outputs = [lead] * (1 + len(others)), [lead] * self.num_outputs
        return from_spec(f"{', '.join(inputs)} -> {', '.join(outputs)}", self.linear)

    def bind(self, local: Local, attrs: Arg) -> Kernel:
        if 0 not in local.input_shape(0):
            return super().bind(local, attrs)
        made = [(local.output_shape(i), meta.dtype) for i, meta in enumerate(local.outputs)]

        def zeros(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor | list[torch.Tensor]:
            """The result for empty inputs, which torch's kernels reject."""
            found = [x.new_zeros(shape, dtype=dtype) for shape, dtype in made]
            return found if len(found) > 1 else found[0]

        return zeros


class PoolGrad(Pool):
    """The gradient of a pooling, from that of its result, for an input of a given shape"""

    attributes: Callable[..., Attributes] = PoolGradAttributes
    order = "always"

    def infer(self, dy: Meta, *rest: Arg) -> Meta:
        return dy.like(shape=rest[-1].shape)

    def bind(self, local: Local, attrs: PoolGradAttributes) -> Kernel:
        return super().bind(local, attrs._replace(shape=local.output_shape()))


def check_gradient(own: Shape, pool: Pool, shape: Shape, attrs: Attributes) -> None:
    """Check that dy has the shape of the pooling's result, which torch's kernels do not check."""
    if 0 not in own:
        found = pool.infer(Meta.of(shape, torch.float32, device=torch.device("cpu")), attrs)
        expected = tuple((found if isinstance(found, Meta) else found[0]).shape)
        if tuple(own) != expected:
            raise ShapeError(f"gradient of shape {tuple(own)}, not {expected}")


def _pooled(x: Meta, planes: int, sizes: Any, adaptive: bool) -> Shape | None:
    """The shape of the result, where it is known, for an input of floating dtype."""
    if sizes is None or x.dtype not in FLOATS or planes not in (2, 3):
        return None
    if adaptive:
        return adaptively_pooled(x.shape, planes, sizes)
    return pooled(x.shape, planes, *sizes)


class MaxPool(Pool):
    """(the maximum of each window, its index in the plane); `adaptive` as in `AvgPool`"""

    attributes = PoolAttributes
    linear = ""
    num_outputs = 2
    saves = ()
    saves_output = (1,)
    one_gradient = True

    def __init__(self, adaptive: bool) -> None:
        self.name = "adaptive_max_pool" if adaptive else "max_pool"
        self.kernel = kernels.adaptive_max_pool if adaptive else kernels.max_pool
        self.adaptive = adaptive

    def deduce(self, x: Meta, attrs: PoolAttributes) -> tuple[Meta, Meta] | None:
        shape = _pooled(x, *attrs, self.adaptive)
        return None if shape is None else (x.like(shape), x.like(shape, torch.int64))

    def vjp(self, needs: Needs, dy: Arg, y: Arg, x: Meta, attrs: PoolAttributes) -> Gradients:
        return (_max_grad[self.adaptive](dy[0], y[1], tuple(x.shape), *attrs),)


class MaxPoolGrad(PoolGrad):
    """dx = dy added at the places of the maxima"""

    saves = (1,)

    def __init__(self, adaptive: bool) -> None:
        self.name = "adaptive_max_pool_grad" if adaptive else "max_pool_grad"
        self.kernel = kernels.adaptive_max_pool_grad if adaptive else kernels.max_pool_grad
        self.adaptive = adaptive

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, g: Meta, places: Tensor, attrs: PoolGradAttributes
    ) -> Gradients:
        return _max_take[self.adaptive](dy, places, *attrs[1:]), None


class MaxPoolTake(Pool):
    """y = u at the places of the maxima"""

    attributes = PoolAttributes
    saves = (1,)
    kernel = staticmethod(kernels.max_pool_take)

    def __init__(self, adaptive: bool) -> None:
        self.name = "adaptive_max_pool_take" if adaptive else "max_pool_take"
        self.adaptive = adaptive

    def infer(self, u: Meta, places: Meta, attrs: PoolAttributes) -> Meta:
        return u.like(shape=places.shape)

    def bind(self, local: Local, attrs: PoolAttributes) -> Kernel:
        return super().bind(local, (attrs.planes,))

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, u: Meta, places: Tensor, attrs: PoolAttributes
    ) -> Gradients:
        return _max_grad[self.adaptive](dy, places, tuple(u.shape), *attrs), None


class AvgPool(Pool):
    """The mean of each window, or with `adaptive` of a given number of windows"""

    attributes = PoolAttributes
    saves = ()

    def __init__(self, adaptive: bool, planes: int) -> None:
        self.name = "adaptive_avg_pool" if adaptive else "avg_pool"
        if planes == 3:  # which autocast runs in float32, as torch's
            self.name += "3d"
        self.kernel = kernels.adaptive_avg_pool if adaptive else kernels.avg_pool
        self.adaptive = adaptive

    def deduce(self, x: Meta, attrs: PoolAttributes) -> Meta | None:
        planes, sizes = attrs.planes, cast(Any, attrs.sizes)
        if not self.adaptive:
            *windows, ceil_mode, counts_padding, divisor = sizes
            ordinary = are_bools(counts_padding) and (divisor is None or are_ints(divisor))
            sizes = (*windows, None, ceil_mode) if ordinary and divisor != 0 else None
        shape = _pooled(x, planes, sizes, self.adaptive)
        return None if shape is None else x.like(shape)

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta, attrs: PoolAttributes) -> Gradients:
        grads = _adaptive_grad if self.adaptive else avg_grad
        return (grads[attrs.planes](dy, tuple(x.shape), *attrs),)


class AvgPoolGrad(PoolGrad):
    """The gradient of average pooling"""

    saves = ()

    def __init__(self, pool: AvgPool) -> None:
        self.name = f"{pool.name}_grad"
        self.kernel = kernels.adaptive_avg_pool_grad if pool.adaptive else kernels.avg_pool_grad
        self.pool = pool

    def bind(self, local: Local, attrs: PoolGradAttributes) -> Kernel:
        pooling = PoolAttributes(*attrs[1:])
        check_gradient(local.input_shape(0), self.pool, local.output_shape(), pooling)
        return super().bind(local, attrs)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, g: Meta, attrs: PoolGradAttributes
    ) -> Gradients:
        pools = adaptive_avg if self.pool.adaptive else avg
        return (pools[attrs.planes](dy, *attrs[1:]),)


# By the number of dims of a plane.
_AVG = {planes: AvgPool(False, planes) for planes in (2, 3)}
_ADAPTIVE = {planes: AvgPool(True, planes) for planes in (2, 3)}
_max, adaptive_max = (several_of(MaxPool(adaptive), "x") for adaptive in (False, True))
_max_grad = {adaptive: binary(MaxPoolGrad(adaptive)) for adaptive in (False, True)}
_max_take = {adaptive: binary(MaxPoolTake(adaptive)) for adaptive in (False, True)}
avg = {planes: unary(op) for planes, op in _AVG.items()}
avg_grad = {planes: unary(AvgPoolGrad(op)) for planes, op in _AVG.items()}
adaptive_avg = {planes: unary(op) for planes, op in _ADAPTIVE.items()}
_adaptive_grad = {planes: unary(AvgPoolGrad(op)) for planes, op in _ADAPTIVE.items()}


# Torch's kernels take planes: a line is one of a single row.


def as_planes(x: Tensor, dims: int, name: str) -> Tensor:
    """The input as planes with at least two dims."""
    if x.ndim not in (dims + 1, dims + 2):
        raise ShapeError(
            f"{name}() expects an input of {dims + 2} dims, or {dims + 1} without a batch, but "
            f"got shape {tuple(x.shape)}"
        )
    return unsqueeze(x, -2) if dims == 1 else x


def _of_planes(sizes: Sizes, dims: int, what: str, fill: int) -> Ints:
    found = ints(sizes, dims, what)
    return (fill, *found) if dims == 1 else found


def windows_of(
    dims: int, kernel_size: Sizes, stride: Sizes | None, padding: Sizes
) -> tuple[Ints, Ints, Ints]:
    """Size, stride and padding of windows, as torch's functions take them."""
    size = _of_planes(kernel_size, dims, "kernel_size", 1)
    step = size
    if stride is not None and stride != ():
        step = _of_planes(stride, dims, "stride", 1)
    return size, step, _of_planes(padding, dims, "padding", 0)


def max_pool(
    dims: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Pooled:
    """`max_pool1d`, `max_pool2d` or `max_pool3d`."""
    x = as_planes(input, dims, f"max_pool{dims}d")
    spread = _of_planes(dilation, dims, "dilation", 1)
    sizes = (*windows_of(dims, kernel_size, stride, padding), spread, ceil_mode)
    y, indices = _max(x, max(dims, 2), sizes)
    if dims == 1:
        y = squeeze(y, -2)
        indices = squeeze(indices, -2) if return_indices else indices
    return (y, indices) if return_indices else y


_MAX_POOL2D = """
    The maximum of each window of (N, C, H, W) or (C, H, W), as in torch.

    With `return_indices` also its place in the plane. `stride` is the window's size by default.

    Example: `max_pool2d(x, 2)` with x (8, 3, 32, 32) has shape (8, 3, 16, 16).
    """
_ALIKE = "The maximum of each window of {}; see `max_pool2d`."

max_pool1d = register_variant("max_pool1d", max_pool, 1, _ALIKE.format("(N, C, L) or (C, L)"))
max_pool2d = register_variant("max_pool2d", max_pool, 2, _MAX_POOL2D)
max_pool3d = register_variant(
    "max_pool3d", max_pool, 3, _ALIKE.format("(N, C, D, H, W) or (C, D, H, W)")
)


def _with_indices(
    dims: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> Pooled:
    return max_pool(dims, input, kernel_size, stride, padding, dilation, ceil_mode, True)


for _dims in (1, 2, 3):
    register_variant(
        f"max_pool{_dims}d_with_indices",
        _with_indices,
        _dims,
        f"`max_pool{_dims}d` with the places of the maxima.",
    )


def _avg_pool(
    dims: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    x = as_planes(input, dims, f"avg_pool{dims}d")
    windows = windows_of(dims, kernel_size, stride, padding)
    return avg[dims](x, dims, (*windows, ceil_mode, count_include_pad, divisor_override))


_AVG_POOL2D = """
    The mean of each window of (N, C, H, W) or (C, H, W), as in torch.

    Example: `avg_pool2d(x, 2)` with x (8, 3, 32, 32) has shape (8, 3, 16, 16).
    """

avg_pool2d = register_variant("avg_pool2d", _avg_pool, 2, _AVG_POOL2D)
avg_pool3d = register_variant(
    "avg_pool3d",
    _avg_pool,
    3,
    "The mean of each window of (N, C, D, H, W) or (C, D, H, W); see `avg_pool2d`.",
)


@register_function
def avg_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of (N, C, L) or (C, L); see `avg_pool2d`."""
    x = as_planes(input, 1, "avg_pool1d")
    windows = windows_of(1, kernel_size, stride, padding)
    return squeeze(avg[2](x, 2, (*windows, ceil_mode, count_include_pad, None)), -2)

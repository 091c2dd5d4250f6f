"""Convolutions of any number of dims, also transposed, and the windows of images as columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeAlias

import torch

from ...errors import OnefoldRuntimeError, OnefoldValueError, ShapeError
from ...kernels import conv_ref as kernels
from ...kernels.onednn_workaround import is_affected
from ..argument_types import Sizes
from ..dispatcher import binary, ternary
from ..generated import register_variant
from ..meta import Meta, Shape
from ..names import register_function
from ..op import Arg, Bound, Gradients, Kernel, Local, Needs, Op, required
from ..signature import Axis, Rule, from_spec, with_bias
from ..tensor import Tensor
from .dims import permute, squeeze, unsqueeze
from .flip_repeat import unfold
from .memory_formats import is_last
from .pad import pad
from .reduce import sum
from .result_shapes import alike, convolved
from .slicing import narrow
from .view import reshape

Ints: TypeAlias = tuple[int, ...]


class ConvolutionAttributes(NamedTuple):
    """Stride, padding and dilation of the window, and the number of groups.

    `last` says that the channels of the weight are last in memory, as they will be in its gradient.
    """

    stride: Ints
    padding: Ints
    dilation: Ints
    transposed: bool
    output_padding: Ints
    groups: int
    last: bool


def _held_groups(groups: int, channels: int, whole: int) -> int:
    """The number of groups in so many input channels: channels are split by whole groups."""
    return channels * groups // whole if groups > 1 and whole else groups


def _terms(
    axis: Axis, attrs: ConvolutionAttributes, x: Meta, outs: int, place: int
) -> tuple[str, str, str]:
    """Batch and channels of x, w and y as letters of a spec; x is the input at this place.

    The channels of several groups are split together, or not at all.
    """
    if attrs.groups == 1:
        return "n c", "c o" if attrs.transposed else "o c", "n o"
    held = _held_groups(attrs.groups, x.shape[1], axis.whole[place][1])
    by_groups = held % axis.parts == 0 or x.shape[1] == outs == held
    return ("n g", "g", "n g") if by_groups and not any(axis.ragged) else ("n", "", "n")


class Convolution(Op):
    """y[n, o, ...] = sum over channels and window of x[n, c, ...] * w[o, c, ...], plus bias[o]"""

    name = "convolution"
    attributes = ConvolutionAttributes
    order = "row-major"
    saves = ((1,), (0,), ())
    kernel = staticmethod(kernels.convolution)

    def infer(self, *args: Arg) -> Meta | tuple[Meta, ...]:
        kernel = args[1].shape[2:]
        if 0 in kernel:
            raise OnefoldRuntimeError(f"the kernel has no elements: its size is {tuple(kernel)}")
        _check_channels(args[0].shape, args[1].shape, args[-1])
        return super().infer(*args)

    def infer_by_kernel(self, *args: Arg) -> Meta | tuple[Meta, ...]:
        return super().infer_by_kernel(*args[:3], *args[3][:6])

    def deduce(
        self, x: Meta, w: Meta, bias: Meta | None, attrs: ConvolutionAttributes
    ) -> Meta | None:
        shape = convolved(x.shape, w.shape, *attrs[:6]) if alike(x, w, bias) else None
        if shape is None or (bias is not None and bias.shape != shape[1:2]):
            return None
        return x.like(shape)

    def rule(
        self, axis: Axis, x: Meta, w: Meta, bias: Meta | None, attrs: ConvolutionAttributes
    ) -> Rule:
        outs = w.shape[0]
        if attrs.transposed:
            outs = w.shape[1] * _held_groups(attrs.groups, x.shape[1], axis.whole[0][1])
        of_x, of_w, of_y = _terms(axis, attrs, x, outs, 0)
        rule = from_spec(f"{of_x}, {of_w} -> {of_y}", "each")
        return rule if bias is None else with_bias(rule, 1)

    def bind(self, local: Local, attrs: ConvolutionAttributes) -> Kernel:
        shape = local.output_shape()
        channels = local.input_shape(0)[1]
        if 0 in shape or 0 in local.input_shape(0) or 0 in local.input_shape(1):
            # Of nothing: torch's kernels refuse some empty inputs. Contracted channels give zeros.
            return lambda x, w, bias: _only_bias(x.new_zeros(shape), bias)
        held = _held_groups(attrs.groups, channels, local.input(0).shape[1])
        shapes, dtype = (local.input_shape(0), local.input_shape(1)), local.input(0).dtype
        if local.pick(kernels.convolution) is kernels.convolution and (
            attrs.transposed or not is_affected(*shapes, dtype, *attrs[:3])
        ):
            return Bound(torch.convolution, *attrs[:5], held)  # without a check at each call
        return local.bind(kernels.convolution, *attrs[:5], held)

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        x, w = map(required, inputs[:2])
        return _flops(x, w, outputs[0])

    def vjp(
        self,
        needs: Needs,
        dy: Tensor,
        y: Meta,
        x: Tensor,
        w: Tensor,
        bias: Meta | None,
        attrs: ConvolutionAttributes,
    ) -> Gradients:
        dx = needs[0] and _input_grad(dy, w, x.meta, attrs)
        dw = needs[1] and _weight_grad(dy, x, tuple(w.shape), attrs)
        return dx, dw, bias and needs[2] and sum(dy, (0, *range(2, dy.ndim)))


def _check_channels(x: Shape, w: Shape, attrs: ConvolutionAttributes) -> None:
    """Raise OnefoldRuntimeError unless the input has the channels that the weight is for."""
    groups = attrs.groups
    if len(x) != len(w) or type(groups) is not int or groups < 1:
        return  # torch's own error explains these
    wanted = w[0] if attrs.transposed else w[1] * groups
    if x[1] != wanted:
        kind = "transposed=1" if attrs.transposed else f"groups={groups}"
        raise OnefoldRuntimeError(
            f"Given {kind}, weight of size {list(w)}, expected input{list(x)} to have {wanted} "
            f"channels, but got {x[1]} channels instead. Channels are dim 1 of a batch (dim 0 of a "
            f"single input): give an input with {wanted}, or make the layer with in_channels={x[1]}"
        )


def _flops(x: Meta, w: Meta, y: Meta) -> float:
    """Of a convolution from x to y, or of its weight's gradient.

    Each element of y meets the whole kernel, or each of x where it is transposed: dim 0 of the
    weight has the channels of x then. Where both have as many, the transposed one makes y larger.
    """
    same = x.shape[1] == y.shape[1]
    transposed = y.numel > x.numel if same else w.shape[0] == x.shape[1]
    return 2.0 * (x if transposed else y).numel * prod(w.shape[1:])


def _only_bias(y: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return y if bias is None else y + bias.view(-1, *[1] * (y.ndim - 2))


def _input_grad(dy: Tensor, w: Tensor, x: Meta, attrs: ConvolutionAttributes) -> Tensor:
    """The gradient for the input: the transposed convolution with the same weight."""
    dx = _convolution(dy, w, None, *_other_way(dy.shape, w.shape, x.shape, attrs))
    for dim in range(2, x.ndim):
        if dx.shape[dim] != x.shape[dim]:
            # An output padding of a stride or more holds windows that belong to no input.
            dx = narrow(dx, dim, 0, x.shape[dim])
    return dx


@lru_cache(maxsize=4096)
def _other_way(
    dy: Shape, w: Shape, x: Shape, attrs: ConvolutionAttributes
) -> ConvolutionAttributes:
    """The attributes of the convolution that maps the shape of `dy` to that of `x`."""
    stride, padding, dilation, transposed, _, groups, last = attrs
    left = (0,) * len(stride)
    if not transposed:
        # The windows may not reach the input's end; what they leave is the other one's padding.
        left = tuple(
            x[i + 2] - ((dy[i + 2] - 1) * s - 2 * p + d * (w[i + 2] - 1) + 1)
            for i, (s, p, d) in enumerate(zip(stride, padding, dilation, strict=True))
        )
    return ConvolutionAttributes(stride, padding, dilation, not transposed, left, groups, last)


class WeightGradAttributes(NamedTuple):
    """The weight's shape, and the attributes of the convolution."""

    shape: Ints
    sizes: ConvolutionAttributes


class ConvolutionWeightGrad(Op):
    """dw[o, c, ...] = sum over batch and positions of dy[n, o, ...] * x[n, c, ...]"""

    name = "convolution_weight_grad"
    attributes = WeightGradAttributes
    order = "row-major"
    saves = ((1,), (0,))

    def infer(self, dy: Meta, x: Meta, attrs: WeightGradAttributes) -> Meta:
        return x.like(shape=attrs.shape)

    def rule(self, axis: Axis, dy: Meta, x: Meta, attrs: WeightGradAttributes) -> Rule:
        of_x, of_w, of_dy = _terms(axis, attrs.sizes, x, dy.shape[1], 1)
        return from_spec(f"{of_dy}, {of_x} -> {of_w}", "each")

    def bind(self, local: Local, attrs: WeightGradAttributes) -> Kernel:
        sizes = attrs.sizes
        held = _held_groups(sizes.groups, local.input_shape(1)[1], local.input(1).shape[1])
        shape = local.output_shape()
        given = (shape, *sizes[:5], held, sizes.last)
        return local.bind(kernels.convolution_weight_grad, *given)

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        dy, x = map(required, inputs[:2])
        return _flops(x, outputs[0], dy)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, g: Tensor, x: Tensor, attrs: WeightGradAttributes
    ) -> Gradients:
        d_g = needs[0] and _convolution(x, dy, None, *attrs.sizes)
        return d_g, needs[1] and _input_grad(g, dy, x.meta, attrs.sizes)


_convolution = ternary(Convolution())
_weight_grad = binary(ConvolutionWeightGrad())


def ints(value: Sizes, count: int, what: str) -> Ints:
    """`value`, an int or a sequence of one or `count`, as `count` ints."""
    if type(value) is tuple and len(value) == count:
        return value
    if isinstance(value, int):
        return (value,) * count
    found: Ints = tuple(value)
    if len(found) == 1:
        return found * count
    if len(found) != count:
        raise OnefoldValueError(f"{what} must be an int or {count} ints, but got {found}")
    return found


def _with_batch(x: Tensor, dims: int, name: str) -> tuple[Tensor, bool]:
    """(x with a batch dim, whether one was added)."""
    if x.ndim == dims + 2:
        return x, False
    if x.ndim != dims + 1:
        raise ShapeError(
            f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {name}{dims}d, "
            f"but got input of size: {list(x.shape)}"
        )
    return unsqueeze(x, 0), True


def _named_padding(
    x: Tensor, w: Tensor, padding: str, stride: Ints, dilation: Ints
) -> tuple[Tensor, Ints]:
    """(x, padded where the two ends differ; the padding that is the same at both ends)."""
    if padding == "valid":
        return x, (0,) * len(stride)
    if padding != "same":
        raise OnefoldValueError(f"padding must be 'valid', 'same' or ints, but got {padding!r}")
    if any(s != 1 for s in stride):
        raise OnefoldValueError("padding='same' is not supported for strided convolutions")
    totals = [d * (k - 1) for d, k in zip(dilation, w.shape[2:], strict=True)]
    if any(total % 2 for total in totals):
        # As in torch, the odd one goes to the end.
        x = pad(x, tuple(n for total in reversed(totals) for n in (0, total % 2)))
    return x, tuple(total // 2 for total in totals)


def _conv(
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    x, added = _with_batch(input, dims, "conv")
    stride, dilation = ints(stride, dims, "stride"), ints(dilation, dims, "dilation")
    if isinstance(padding, str):
        x, padding = _named_padding(x, weight, padding, stride, dilation)
    padding = ints(padding, dims, "padding")
    given = stride, padding, dilation, False, (0,) * dims, groups, is_last(weight)
    y = _convolution(x, weight, bias, *given)
    return squeeze(y, 0) if added else y


def _conv_transpose(
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    x, added = _with_batch(input, dims, "conv_transpose")
    stride, dilation = ints(stride, dims, "stride"), ints(dilation, dims, "dilation")
    padding, left = ints(padding, dims, "padding"), ints(output_padding, dims, "output_padding")
    given = stride, padding, dilation, True, left, groups, is_last(weight)
    y = _convolution(x, weight, bias, *given)
    return squeeze(y, 0) if added else y


_CONV2D = """
    Convolution over (N, C, H, W) or (C, H, W) with weight (O, C / groups, kH, kW), as in torch.

    `padding` is ints, "valid" or "same". Batch, output channels (weight split(0)) and input
    channels (weight split(1), partial sums) may be split. Raises an error when sizes do not fit.

    Example: `conv2d(x, w, b, padding=1)` with x (8, 3, 32, 32), w (16, 3, 3, 3) and b (16,).
    """
_CONV_TRANSPOSE2D = """
    The gradient of conv2d for its input, as an op: weight (C, O / groups, kH, kW), as in torch.

    Raises an error when sizes do not fit.

    Example: `conv_transpose2d(x, w, stride=2)` with x (8, 16, 7, 7) and w (16, 3, 2, 2).
    """

conv1d = register_variant("conv1d", _conv, 1, "Convolution over (N, C, L) or (C, L); see `conv2d`.")
conv2d = register_variant("conv2d", _conv, 2, _CONV2D)
conv3d = register_variant(
    "conv3d", _conv, 3, "Convolution over (N, C, D, H, W) or (C, D, H, W); see `conv2d`."
)
conv_transpose1d = register_variant(
    "conv_transpose1d",
    _conv_transpose,
    1,
    "Transposed convolution over (N, C, L) or (C, L); see `conv_transpose2d`.",
)
conv_transpose2d = register_variant("conv_transpose2d", _conv_transpose, 2, _CONV_TRANSPOSE2D)
conv_transpose3d = register_variant(
    "conv_transpose3d",
    _conv_transpose,
    3,
    "Transposed convolution over (N, C, D, H, W) or (C, D, H, W); see `conv_transpose2d`.",
)


@register_function
def im2col(
    input: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
) -> Tensor:
    """The sliding windows of (N, C, H, W) or (C, H, W), one per column: (N, C * kh * kw, L).

    Raises ShapeError for another number of dims and for windows larger than the padded image.

    Example: `im2col(x, 3)` with x (2, 4, 5, 5) has shape (2, 36, 9).
    """
    if input.ndim not in (3, 4):
        raise ShapeError(
            f"im2col: expected an input of 3 or 4 dims, (N, C, H, W) or (C, H, W), but got shape "
            f"{tuple(input.shape)}"
        )
    top, left = ints(padding, 2, "padding")
    x = input if top == left == 0 else pad(input, (left, left, top, top))
    rows = x.ndim - 2
    sizes = ints(kernel_size, 2, "kernel_size")
    windows = zip(sizes, ints(dilation, 2, "dilation"), ints(stride, 2, "stride"), strict=True)
    for dim, (size, spacing, step) in enumerate(windows, rows):
        span = (size - 1) * spacing + 1
        if min(size, spacing, step) < 1 or span > x.shape[dim]:
            raise ShapeError(
                f"im2col: kernel_size {kernel_size}, dilation {dilation} and stride {stride} must "
                f"be positive and fit the padded input of shape {tuple(x.shape)}"
            )
        x = unfold(x, dim, span, step)
        if spacing > 1:
            x = x[..., ::spacing]
    lead = tuple(range(rows))
    x = permute(x, (*lead, rows + 2, rows + 3, rows, rows + 1))
    channels, height, width, *count = x.shape[rows - 1 :]
    columns = (channels * height * width, count[0] * count[1])
    return reshape(x, (*x.shape[: rows - 1], *columns))

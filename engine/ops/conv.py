"""Convolutions of any number of dims, also transposed: batch and channels may be split."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import torch

from ...errors import OnefoldValueError, ShapeError
from ...kernels import conv_ref as kernels
from ..dispatcher import binary, ternary
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Local, Op
from ..sbp import Sbp, broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .dims import squeeze, unsqueeze
from .pad import pad
from .reduce import sum

Ints: TypeAlias = tuple[int, ...]


class ConvolutionAttributes(NamedTuple):
    """How the window moves; `each` is the number of input channels per group."""

    stride: Ints
    padding: Ints
    dilation: Ints
    transposed: bool
    output_padding: Ints
    groups: int
    each: int


def _held_groups(attrs: ConvolutionAttributes, channels: int) -> int:
    """The groups among these input channels: channels of groups are split by whole groups."""
    return channels // attrs.each if attrs.groups > 1 and attrs.each else attrs.groups


def _splits_groups(attrs: ConvolutionAttributes, of_in: int, of_out: int, axis: Axis) -> bool:
    """Whether balanced splits of input and output channels both go by whole groups."""
    groups = _held_groups(attrs, of_in)
    return not any(axis.ragged) and (groups % axis.parts == 0 or of_in == of_out == groups)


class Convolution(Op):
    """y[n, o, ...] = sum over channels and window of x[n, c, ...] * w[o, c, ...], plus bias[o]"""

    name = "convolution"
    attributes = ConvolutionAttributes
    saves = (0, 1)

    def infer(self, x: Meta, w: Meta, bias: Meta | None, attrs: ConvolutionAttributes) -> Meta:
        tensors = [
            None if m is None else torch.empty(m.shape, dtype=m.dtype, device="meta")
            for m in (x, w, bias)
        ]
        y = torch.convolution(tensors[0], tensors[1], tensors[2], *attrs[:6])  # type: ignore[arg-type]
        return Meta.of(y.shape, y.dtype, device=y.device)

    def rule(
        self, axis: Axis, x: Meta, w: Meta, bias: Meta | None, attrs: ConvolutionAttributes
    ) -> Rule:
        batch: list[tuple[Sbp, ...]] = [
            (split(0), broadcast, broadcast, split(0)),
            (partial_sum, broadcast, partial_sum, partial_sum),
            (broadcast, partial_sum, partial_sum, partial_sum),
        ]
        if attrs.groups == 1:
            of_out, of_in = (1, 0) if attrs.transposed else (0, 1)
            batch.append((broadcast, split(of_out), split(0), split(1)))
            batch.append((split(1), split(of_in), partial_sum, partial_sum))
        else:
            out = w.shape[0]
            if attrs.transposed:
                out = w.shape[1] * _held_groups(attrs, x.shape[1])
            if _splits_groups(attrs, x.shape[1], out, axis):
                batch.append((split(1), split(0), split(0), split(1)))
        return [Signature(row[:3] if bias is not None else row[:2], (row[3],)) for row in batch]

    def bind(self, local: Local, attrs: ConvolutionAttributes) -> Kernel:
        sizes = attrs[:5]
        held = _held_groups(attrs, local.input_shape(0)[1])
        shape = local.output_shape()
        if 0 in shape or 0 in local.input_shape(0) or 0 in local.input_shape(1):
            # Of nothing: torch's kernels refuse some empty inputs. Contracted channels give zeros.
            return lambda x, w, bias: _only_bias(x.new_zeros(shape), bias)
        convolve = local.pick(kernels.convolution)
        return lambda x, w, bias: convolve(x, w, bias, *sizes, held)

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        w = inputs[1]
        assert w is not None
        return 2.0 * outputs[0].numel * prod(w.shape[1:])

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        x: Tensor,
        w: Tensor,
        bias: Meta | None,
        attrs: ConvolutionAttributes,
    ) -> Any:
        dx = _input_grad(dy, w, x.meta, attrs) if needs[0] else None
        dw = _weight_grad(dy, x, tuple(w.shape), attrs) if needs[1] else None
        if bias is None or not needs[2]:
            return dx, dw
        return dx, dw, sum(dy, (0, *range(2, dy.ndim)))


def _only_bias(y: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    if bias is None:
        return y
    return y + bias.view(-1, *[1] * (y.ndim - 2))


def _input_grad(dy: Tensor, w: Tensor, x: Meta, attrs: ConvolutionAttributes) -> Tensor:
    """The gradient for the input: the convolution the other way round, with the same weight."""
    stride, padding, dilation, transposed, _, groups, _ = attrs
    each = dy.shape[1] // groups
    if transposed:
        none = (0,) * len(stride)
        return _convolution(dy, w, None, stride, padding, dilation, False, none, groups, each)
    # The windows may not reach the input's end; what they leave is the other one's padding.
    left = tuple(
        x.shape[i + 2] - ((dy.shape[i + 2] - 1) * s - 2 * p + d * (w.shape[i + 2] - 1) + 1)
        for i, (s, p, d) in enumerate(zip(stride, padding, dilation, strict=True))
    )
    return _convolution(dy, w, None, stride, padding, dilation, True, left, groups, each)


class WeightGradAttributes(NamedTuple):
    """The weight's shape, and the attributes of the convolution."""

    shape: Ints
    sizes: ConvolutionAttributes


class ConvolutionWeightGrad(Op):
    """dw[o, c, ...] = sum over batch and positions of dy[n, o, ...] * x[n, c, ...]"""

    name = "convolution_weight_grad"
    attributes = WeightGradAttributes

    def infer(self, dy: Meta, x: Meta, attrs: WeightGradAttributes) -> Meta:
        return x.like(shape=attrs.shape)

    def rule(self, axis: Axis, dy: Meta, x: Meta, attrs: WeightGradAttributes) -> Rule:
        found = [
            ((split(0), split(0)), partial_sum),
            ((partial_sum, broadcast), partial_sum),
            ((broadcast, partial_sum), partial_sum),
        ]
        if attrs.sizes.groups == 1:
            of_dy, of_x = (1, 0) if attrs.sizes.transposed else (0, 1)
            found.append(((split(1), broadcast), split(of_dy)))
            found.append(((broadcast, split(1)), split(of_x)))
        elif _splits_groups(attrs.sizes, x.shape[1], dy.shape[1], axis):
            found.append(((split(1), split(1)), split(0)))
        return [Signature(inputs, (output,)) for inputs, output in found]

    def bind(self, local: Local, attrs: WeightGradAttributes) -> Kernel:
        sizes = attrs.sizes[:5]
        held = _held_groups(attrs.sizes, local.input_shape(1)[1])
        shape = local.output_shape()
        weight_grad = local.pick(kernels.convolution_weight_grad)
        return lambda dy, x: weight_grad(dy, x, shape, *sizes, held)

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        dy = inputs[0]
        assert dy is not None
        return 2.0 * dy.numel * prod(outputs[0].shape[1:])

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        g: Tensor,
        x: Tensor,
        attrs: WeightGradAttributes,
    ) -> Any:
        d_g = _convolution(x, dy, None, *attrs.sizes) if needs[0] else None
        d_x = _input_grad(g, dy, x.meta, attrs.sizes) if needs[1] else None
        return d_g, d_x


_convolution = ternary(Convolution())
_weight_grad = binary(ConvolutionWeightGrad())


def ints(value: Any, count: int, what: str) -> Ints:
    """`value`, an int or a sequence of one or `count`, as `count` ints."""
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
            f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {name}, but got "
            f"input of size: {list(x.shape)}"
        )
    return unsqueeze(x, 0), True


def _conv(
    dims: int,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    name = f"conv{dims}d"
    x, added = _with_batch(x, dims, name)
    stride, dilation = ints(stride, dims, "stride"), ints(dilation, dims, "dilation")
    if isinstance(padding, str):
        x, padding = _named_padding(x, w, padding, stride, dilation)
    padding = ints(padding, dims, "padding")
    each = x.shape[1] // groups if groups > 0 else 0
    y = _convolution(x, w, bias, stride, padding, dilation, False, (0,) * dims, groups, each)
    return squeeze(y, 0) if added else y


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


@register_function
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over (N, C, L) or (C, L); see `conv2d`."""
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


@register_function
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over (N, C, H, W) or (C, H, W) with weight (O, C / groups, kH, kW), as in torch.

    `padding` is ints, "valid" or "same". Batch, output channels (weight split(0)) and input
    channels (weight split(1), partial sums) may be split. Raises an error when sizes do not fit.

    Example: `conv2d(x, w, b, padding=1)` with x (8, 3, 32, 32), w (16, 3, 3, 3) and b (16,).
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


@register_function
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over (N, C, D, H, W) or (C, D, H, W); see `conv2d`."""
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(
    dims: int,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    x, added = _with_batch(x, dims, f"conv_transpose{dims}d")
    y = _convolution(
        x,
        w,
        bias,
        ints(stride, dims, "stride"),
        ints(padding, dims, "padding"),
        ints(dilation, dims, "dilation"),
        True,
        ints(output_padding, dims, "output_padding"),
        groups,
        x.shape[1] // groups if groups > 0 else 0,
    )
    return squeeze(y, 0) if added else y


@register_function
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution over (N, C, L) or (C, L); see `conv_transpose2d`."""
    return _conv_transpose(
        1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@register_function
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The gradient of conv2d for its input, as an op: weight (C, O / groups, kH, kW), as in torch.

    Raises an error when sizes do not fit.

    Example: `conv_transpose2d(x, w, stride=2)` with x (8, 16, 7, 7) and w (16, 3, 2, 2).
    """
    return _conv_transpose(
        2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )

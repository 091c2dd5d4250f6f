"""Neural network ops on blobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

from ..engine.ops.arithmetic import add, div, mul, neg, sub
from ..engine.ops.cast import cast
from ..engine.ops.conv import conv2d as conv2d_op
from ..engine.ops.cross_entropy import cross_entropy
from ..engine.ops.dims import permute
from ..engine.ops.dropout import dropout as dropout_op
from ..engine.ops.like import ones_like
from ..engine.ops.loss import binary_cross_entropy_with_logits
from ..engine.ops.pad import pad
from ..engine.ops.pool import avg_pool2d as avg_pool2d_op, max_pool2d as max_pool2d_op
from ..engine.ops.reduce import mean as mean_op, sum
from ..engine.ops.softmax import log_softmax
from ..engine.ops.unary import rsqrt
from ..engine.ops.view import reshape, view
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError, ShapeError
from .blob import Blob, each
from .ignored import note_ignored
from .job_activation import *  # noqa: F403
from .tracing import tracing

Padding: TypeAlias = str | Sequence[int | Sequence[int]]  # see `pads`


def pair(what: str, value: int | Sequence[int]) -> tuple[int, int]:
    """Height and width, of one number or two."""
    given: tuple[object, ...] = (value, value) if isinstance(value, int) else tuple(value)
    found = [n for n in given if isinstance(n, int) and n > 0]
    if len(given) != 2 or len(found) != 2:
        raise OnefoldTypeError(f"{what} needs one or two positive integers, but got {value!r}")
    return (found[0], found[1])


def check_format(who: str, data_format: str) -> None:
    """Raise OnefoldValueError for what is no order of dims."""
    if data_format not in ("NCHW", "NHWC"):
        raise OnefoldValueError(f"{who}: data_format must be NCHW or NHWC, but got {data_format!r}")


def pads(
    who: str,
    padding: Padding,
    sizes: Sequence[int],
    field: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int] = (1, 1),
) -> list[tuple[int, int]]:
    """What is added before and after height and width.

    "VALID" adds nothing; "SAME", which is "SAME_LOWER", as much as makes outputs of size / stride,
    an odd rest before; "SAME_UPPER" has it after. Or a pair for each dim.

    >>> pads("conv2d", "SAME", (28, 28), (5, 4), (1, 1))
    [(2, 2), (2, 1)]
    """
    if padding == "VALID":
        return [(0, 0), (0, 0)]
    if padding in ("SAME", "SAME_LOWER", "SAME_UPPER"):
        found = []
        for size, reach, stride, step in zip(sizes, field, strides, dilation, strict=True):
            wanted = -(-size // stride)
            total = max((wanted - 1) * stride + (reach - 1) * step + 1 - size, 0)
            less, more = total // 2, total - total // 2
            found.append((less, more) if padding == "SAME_UPPER" else (more, less))
        return found
    if isinstance(padding, (list, tuple)):
        given = [(n, n) if isinstance(n, int) else tuple(n) for n in padding]
        if len(given) == 4:  # all four dims
            given = given[2:] if given[1] == (0, 0) else given[1:3]
        if len(given) == 2 and all(len(both) == 2 for both in given):
            return [(int(a), int(b)) for a, b in given]
    raise OnefoldValueError(
        f"{who}: padding must be VALID, SAME, SAME_LOWER, SAME_UPPER, or a number or a pair for "
        f"height and width, but got {padding!r}"
    )


def _padded(
    x: Tensor, around: list[tuple[int, int]], value: float
) -> tuple[Tensor, tuple[int, int]]:
    """The tensor with what is unequal before and after added, and the equal rest for the op."""
    (top, bottom), (left, right) = around
    if top == bottom and left == right:
        return x, (top, left)
    return pad(x, (left, right, top, bottom), value=value), (0, 0)


def _channels_second(x: Tensor) -> Tensor:
    return permute(x, (0, 3, 1, 2))


def _channels_last(x: Tensor) -> Tensor:
    return permute(x, (0, 2, 3, 1))


def conv2d(
    input: Blob,
    filters: Blob,
    strides: int | Sequence[int] = 1,
    padding: Padding = "VALID",
    data_format: str = "NCHW",
    dilations: int | Sequence[int] = 1,
    groups: int = 1,
    name: str | None = None,
) -> Blob:
    """The convolution of images with filters (out, in / groups, height, width).

    With "NHWC" the channels are last, of the filters too.
    """
    check_format("conv2d", data_format)
    steps, spread = pair("conv2d: strides", strides), pair("conv2d: dilations", dilations)

    def one(x: Tensor, weight: Tensor) -> Tensor:
        if data_format == "NHWC":
            x, weight = _channels_second(x), _channels_second(weight)
        around = pads("conv2d", padding, x.shape[2:], weight.shape[2:], steps, spread)
        x, rest = _padded(x, around, 0.0)
        y = conv2d_op(x, weight, None, steps, rest, spread, groups)
        return _channels_last(y) if data_format == "NHWC" else y

    return each(one, input, filters)


def bias_add(
    value: Blob, bias: Blob, data_format: str | None = None, name: str | None = None
) -> Blob:
    """A bias added to each channel: dim 1, or with "NHWC" the last."""

    def one(x: Tensor, b: Tensor) -> Tensor:
        behind = 0 if data_format == "NHWC" else x.ndim - 2
        return add(x, view(b, (-1, *(1,) * behind)))

    return each(one, value, bias)


def _pool2d(
    kind: str,
    input: Blob,
    ksize: int | Sequence[int],
    strides: int | Sequence[int] | None,
    padding: Padding,
    data_format: str,
    ceil_mode: bool,
) -> Blob:
    check_format(kind, data_format)
    field = pair(f"{kind}: ksize", ksize)
    steps = field if strides is None else pair(f"{kind}: strides", strides)

    def one(x: Tensor) -> Tensor:
        if data_format == "NHWC":
            x = _channels_second(x)
        around = pads(kind, padding, x.shape[2:], field, steps)
        if kind == "max_pool2d":
            x, rest = _padded(x, around, float("-inf"))
            y = max_pool2d_op(x, field, steps, rest, ceil_mode=ceil_mode)
            assert isinstance(y, Tensor)  # no places of the maxima are asked for
        else:
            y = _averages(x, field, steps, around, ceil_mode)
        return _channels_last(y) if data_format == "NHWC" else y

    return each(one, input)


def _averages(
    x: Tensor,
    field: tuple[int, int],
    steps: tuple[int, int],
    around: list[tuple[int, int]],
    ceil_mode: bool,
) -> Tensor:
    """Averages over what is in the image: what was added does not count."""
    (top, bottom), (left, right) = around
    if (top, left) == (bottom, right):
        return avg_pool2d_op(x, field, steps, (top, left), ceil_mode, False)
    edges = (left, right, top, bottom)
    sums = avg_pool2d_op(pad(x, edges), field, steps, 0, ceil_mode)
    counts = avg_pool2d_op(pad(ones_like(x), edges), field, steps, 0, ceil_mode)
    return div(sums, counts)


def max_pool2d(
    input: Blob,
    ksize: int | Sequence[int],
    strides: int | Sequence[int] | None = None,
    padding: Padding = "VALID",
    data_format: str = "NCHW",
    ceil_mode: bool = False,
    name: str | None = None,
) -> Blob:
    """The largest of each window. The channels are dim 1 unless data_format is "NHWC"."""
    return _pool2d("max_pool2d", input, ksize, strides, padding, data_format, ceil_mode)


def avg_pool2d(
    input: Blob,
    ksize: int | Sequence[int],
    strides: int | Sequence[int] | None = None,
    padding: Padding = "VALID",
    data_format: str = "NCHW",
    ceil_mode: bool = False,
    name: str | None = None,
) -> Blob:
    """The average of each window. The channels are dim 1 unless data_format is "NHWC"."""
    return _pool2d("avg_pool2d", input, ksize, strides, padding, data_format, ceil_mode)


def dropout(
    x: Blob,
    rate: float | None = None,
    noise_shape: object = None,
    seed: int | None = None,
    name: str | None = None,
) -> Blob:
    """Zeros in place of a share `rate` of the elements, in jobs that train; others scaled up.

    Which ones follows from `onefold.manual_seed`; a `seed` warns and changes nothing.
    """
    if noise_shape is not None:
        raise OnefoldValueError(
            f"dropout: noise_shape={noise_shape!r} is not offered; leave it out, and each element "
            "is dropped by itself"
        )
    if seed is not None:
        note_ignored("nn.dropout", "seed", seed, "onefold.manual_seed(n) decides what is dropped")
    if rate is None or not 0 <= rate < 1:
        raise OnefoldValueError(f"dropout: rate must be at least 0 and below 1, but got {rate!r}")
    if not tracing("nn.dropout").trains or rate == 0:
        return x
    return each(dropout_op, x, rate)


def sparse_softmax_cross_entropy_with_logits(
    labels: Blob, logits: Blob, name: str | None = None
) -> Blob:
    """The cross entropy of logits, whose last dim is the classes, with int32 or int64 labels.

    Raises OnefoldTypeError for other labels, and ShapeError unless their shape is that of the
    logits without the last dim.
    """
    who = "sparse_softmax_cross_entropy_with_logits"
    if labels.dtype not in (torch.int32, torch.int64):
        raise OnefoldTypeError(
            f"{who} needs labels of int32 or int64, but got {labels.dtype}; declare them with "
            "dtype=flow.int32"
        )
    if labels.shape != logits.shape[:-1]:
        raise ShapeError(
            f"{who} needs a label for each row of logits {logits.shape}, of shape "
            f"{logits.shape[:-1]}, but got labels {labels.shape}; reshape them"
        )

    def one(target: Tensor, x: Tensor) -> Tensor:
        shape = tuple(target.shape)
        if len(shape) != 1:
            target, x = reshape(target, (-1,)), reshape(x, (-1, x.shape[-1]))
        losses = cross_entropy(x, cast(target, torch.int64), reduction="none")
        return losses if len(shape) == 1 else reshape(losses, shape)

    return each(one, labels, logits)


def softmax_cross_entropy_with_logits(labels: Blob, logits: Blob, name: str | None = None) -> Blob:
    """The cross entropy of each row of logits with its row of shares, which sum up to 1."""

    def one(target: Tensor, x: Tensor) -> Tensor:
        return neg(sum(mul(target, log_softmax(x, -1)), -1))

    return each(one, labels, logits)


def sigmoid_cross_entropy_with_logits(labels: Blob, logits: Blob, name: str | None = None) -> Blob:
    """The cross entropy of each logit with its share."""

    def one(target: Tensor, x: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(x, cast(target, x.dtype), reduction="none")

    return each(one, labels, logits)


def moments(
    x: Blob, axes: Sequence[int], keepdims: bool = False, name: str | None = None
) -> tuple[Blob, Blob]:
    """The mean, and the variance of the population, over some dims."""

    def one(tensor: Tensor) -> tuple[Tensor, Tensor]:
        mean = mean_op(tensor, tuple(axes), True)
        centered = sub(tensor, mean)
        variance = mean_op(mul(centered, centered), tuple(axes), keepdims)
        return mean_op(tensor, tuple(axes), keepdims), variance

    mean, variance = each(one, x)
    return mean, variance


def batch_normalization(
    x: Blob,
    mean: Blob,
    variance: Blob,
    offset: Blob | None = None,
    scale: Blob | None = None,
    variance_epsilon: float = 1e-5,
    axis: int = 1,
    name: str | None = None,
) -> Blob:
    """Each channel, along `axis`, with these moments taken out of it."""
    dim = axis % len(x.shape)

    def one(
        tensor: Tensor, mean: Tensor, variance: Tensor, offset: Tensor | None, scale: Tensor | None
    ) -> Tensor:
        size = (-1, *(1,) * (tensor.ndim - dim - 1))
        factor = rsqrt(add(view(variance, size), variance_epsilon))
        if scale is not None:
            factor = mul(factor, view(scale, size))
        y = mul(sub(tensor, view(mean, size)), factor)
        return y if offset is None else add(y, view(offset, size))

    return each(one, x, mean, variance, offset, scale)

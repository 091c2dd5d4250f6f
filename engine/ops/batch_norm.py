"""batch_norm over the whole logical batch, group_norm and instance_norm, in smaller ops."""

from __future__ import annotations

from ...errors import OnefoldValueError, ShapeError
from ..inplace import assign_result
from ..names import register_function
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import add, mul, neg, sub
from .batch_norm_with_stats import batch_norm_with_stats, takes
from .cast import narrowed, widened
from .device_transfer import to
from .layer_norm import layer_norm
from .reduce import mean as mean_op
from .softmax import combine_partials
from .unary import rsqrt
from .view import view


def _per_channel(vector: Tensor, ndim: int) -> Tensor:
    """A vector of channels, shaped to broadcast along dim 1 of `ndim` dims."""
    return view(vector, (-1, *[1] * (ndim - 2)))


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        x = mul(x, _per_channel(weight, x.ndim))
    return x if bias is None else add(x, _per_channel(bias, x.ndim))


@register_function
def batch_norm_train(
    input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise by the statistics of the whole batch; (y, mean, unbiased variance), per channel.

    The functional form for modules that keep running statistics. A batch that is split over ranks
    gives the same numbers: two sums per channel are exchanged. Raises OnefoldValueError when a
    channel has fewer than two values.

    Example: `y, mean, variance = batch_norm_train(x)` with x (8, 3, 4, 4).
    """
    if input.ndim < 2:
        raise ShapeError(f"batch_norm needs (N, C, ...), but got shape {tuple(input.shape)}")
    count = input.numel() // input.shape[1] if input.shape[1] else 0
    if count == 1:
        raise OnefoldValueError(
            "Expected more than 1 value per channel when training, got input size "
            f"{tuple(input.shape)}"
        )
    if weight is not None and bias is not None and takes(input.meta, weight.meta, bias.meta):
        y, mean, variance, _ = batch_norm_with_stats((input, weight, bias), eps)
        return y, frozen(mean), frozen(variance)
    dims = (0, *range(2, input.ndim))
    wide = widened(input)
    mean = combine_partials(mean_op(wide, dims, True))
    # Subtracted before squaring, so that a large mean costs no accuracy.
    centred = sub(wide, mean)
    variance = combine_partials(mean_op(mul(centred, centred), dims, True))
    # Arithmetic on the channels first: it passes over no data.
    scale = rsqrt(add(variance, eps))
    if weight is not None:
        scale = mul(scale, _per_channel(weight, input.ndim))
    y = narrowed(_scaled(mul(centred, scale), None, bias), input.dtype)
    flat = [view(frozen(x), (-1,)) for x in (mean, variance)]
    return y, flat[0], mul(flat[1], count / max(count - 1, 1))


@register_function
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel, as in torch: by the batch when training, else by running statistics.

    In training the running statistics, where given, are updated in place, with the unbiased
    variance. The batch is the whole logical batch, however it is split. Raises OnefoldValueError
    without running statistics outside training, or for one value per channel in training.

    Example: `batch_norm(x, mean, variance, w, b)` with x (8, 3, 4, 4) and vectors of 3.
    """
    if training:
        y, mean, variance = batch_norm_train(input, weight, bias, eps)
        for running, now in ((running_mean, mean), (running_var, variance)):
            if running is not None:
                assign_result(running, "lerp", to(now, running.dtype), momentum)
        return y
    if running_mean is None or running_var is None:
        raise OnefoldValueError(
            "Expected running_mean and running_var to be defined when training=False"
        )
    # Small arithmetic on the channels first, so that the input is passed over only twice.
    scale = rsqrt(add(widened(running_var), eps))
    if weight is not None:
        scale = mul(scale, weight)
    shift = mul(running_mean, scale)
    shift = neg(shift) if bias is None else sub(bias, shift)
    y = mul(input, _per_channel(scale, input.ndim))
    return narrowed(add(y, _per_channel(shift, input.ndim)), input.dtype)


@register_function
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise groups of channels of each sample, then scale and shift per channel, as in torch.

    Raises OnefoldValueError when the channels do not divide into the groups.

    Example: `group_norm(x, 2, w, b)` with x (8, 4, 5, 5) and vectors of 4.
    """
    if input.ndim < 2:
        raise ShapeError(f"group_norm needs (N, C, ...), but got shape {tuple(input.shape)}")
    batch, channels, *rest = input.shape
    if num_groups <= 0 or channels % num_groups:
        raise OnefoldValueError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {tuple(input.shape)} and num_groups={num_groups}"
        )
    shape = (channels // num_groups, *rest)
    grouped = view(input, (batch, num_groups, *shape))
    unit = layer_norm(grouped, shape, None, None, eps)
    return _scaled(view(unit, input.shape), weight, bias)


@register_function
def instance_norm(
    input: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each sample by its own statistics, then scale and shift.

    Raises OnefoldValueError when a channel has one value only.

    Example: `instance_norm(x)` with x (8, 4, 5, 5).
    """
    rest = tuple(input.shape[2:])
    if rest.count(1) == len(rest):
        raise OnefoldValueError(
            "Expected more than 1 spatial element when training, got input size "
            f"{tuple(input.shape)}"
        )
    return _scaled(layer_norm(input, rest, None, None, eps), weight, bias)

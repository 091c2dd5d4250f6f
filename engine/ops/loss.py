"""Elementwise losses: mse, l1, smooth_l1, huber, binary cross entropies, kl_div, cosine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, NamedTuple, ParamSpec

import torch

from ...errors import OnefoldValueError
from ...kernels import elementwise_loss as elementwise
from ..dispatcher import binary
from ..meta import Meta
from ..names import register_function
from ..op import Arg, Attributes, Gradients, Kernel, Needs, NoAttributes
from ..tensor import Tensor
from .activation import sigmoid, softplus
from .arithmetic import add, div, mul, neg, sub
from .cast import cast, narrowed, widened
from .cross_entropy import check_reduction
from .dims import expand
from .pointwise import Elementwise, Entry
from .reduce import mean, sum, sum_to, without_partials
from .unary import exp, log, log1p, sign
from .vector_norm import vector_norm
from .where import at_least, clamp

P = ParamSpec("P")


class ThresholdAttributes(NamedTuple):
    """The error at which a loss changes from squares to absolute values."""

    threshold: float


class KlAttributes(NamedTuple):
    """Whether the target is given as logarithms."""

    log_target: bool


def _difference_loss(
    name: str, kernel: Kernel, slope: Entry, attributes: Callable[P, Attributes]
) -> Callable[Concatenate[Tensor, Tensor, P], Tensor]:
    """The entry of a loss f(a - b), given f' as a function of a - b and the record, if any."""

    def vjp(needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor, *attrs: object) -> Gradients:
        da = mul(dy, slope(sub(a, b), *attrs))
        return needs[0] and sum_to(da, a.meta), needs[1] and sum_to(neg(da), b.meta)

    return binary(Elementwise(name, kernel, vjp).taking(attributes))


_squared = _difference_loss(
    "squared_error", elementwise.squared_error, lambda d: mul(d, 2), NoAttributes
)
_absolute = _difference_loss("absolute_error", elementwise.absolute_error, sign, NoAttributes)
_smooth = _difference_loss(
    "smooth_error",
    elementwise.smooth_error,
    lambda d, at: clamp(div(d, at.threshold), -1.0, 1.0) if at.threshold else sign(d),
    ThresholdAttributes,
)
_huber = _difference_loss(
    "huber_error",
    elementwise.huber_error,
    lambda d, at: clamp(d, -at.threshold, at.threshold),
    ThresholdAttributes,
)


def reduced(y: Tensor, reduction: str) -> Tensor:
    """Elementwise losses, their mean, or their sum."""
    if reduction == "mean":
        return mean(y)
    return sum(y) if reduction == "sum" else y


def _weighed(y: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """The losses times their weights, reduced; a mean is over the sum of the weights."""
    if weight is None:
        return reduced(y, reduction)
    y = mul(y, weight)
    if reduction == "mean":
        return div(sum(y), sum(expand(weight, y.shape)))
    return reduced(y, reduction)


@register_function
def mse_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """The squared error, its mean, or its sum, as in torch.

    Raises OnefoldValueError for an unknown reduction.

    Example: `mse_loss(y, target)` is a scalar.
    """
    check_reduction(reduction)
    return _weighed(_squared(input, target), weight, reduction)


@register_function
def l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """The absolute error, its mean, or its sum; see `mse_loss`."""
    check_reduction(reduction)
    return _weighed(_absolute(input, target), weight, reduction)


@register_function
def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """The squared error over 2 beta where the error is below beta, else |error| - beta / 2.

    Raises OnefoldValueError for a negative beta; see `mse_loss`.
    """
    check_reduction(reduction)
    if beta < 0:
        raise OnefoldValueError(f"smooth_l1_loss does not support negative values for beta: {beta}")
    return reduced(_smooth(input, target, float(beta)), reduction)


@register_function
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Half the squared error where the error is below delta, else delta (|error| - delta / 2).

    As in torch, a mean of weighted losses is over their number, and not over the sum of weights.
    Raises OnefoldValueError unless delta is positive; see `mse_loss`.
    """
    check_reduction(reduction)
    if delta <= 0:
        raise OnefoldValueError(
            f"huber_loss does not support non-positive values for delta: {delta}"
        )
    y = _huber(input, target, float(delta))
    return reduced(y if weight is None else mul(y, weight), reduction)


# Cross entropies of bits.


def _bits_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor, t: Tensor) -> Gradients:
    d_x = None
    if needs[0]:
        spread = clamp(mul(sub(1.0, x), x), 1e-12, None)
        d_x = mul(dy, div(sub(x, t), spread))
    return d_x, needs[1] and mul(dy, sub(log1p(neg(x)), log(x)))


class _SameShape(Elementwise):
    """A pointwise op whose two inputs must have one shape; they do not broadcast."""

    def infer(self, *args: Arg) -> Meta:
        if args[0].shape != args[1].shape:
            raise OnefoldValueError(
                f"Using a target size ({tuple(args[1].shape)}) that is different to the input "
                f"size ({tuple(args[0].shape)}) is not supported. Please ensure they have the "
                "same size."
            )
        return super().infer(*args)


_SAVES = ((0, 1), (0,))  # the gradient of the targets does not need them
_bits = binary(
    _SameShape("binary_cross_entropy", elementwise.bit_cross_entropy, _bits_vjp, saves=_SAVES)
)


@register_function
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The cross entropy of probabilities and targets in [0, 1], element by element, as in torch.

    Logarithms are not less than -100. Raises OnefoldValueError for an unknown reduction or when
    the shapes differ.

    Example: `binary_cross_entropy(sigmoid(x), target)`.
    """
    check_reduction(reduction)
    y = _bits(input, target)
    return reduced(y if weight is None else mul(y, weight), reduction)


def _logits_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor, t: Tensor) -> Gradients:
    return needs[0] and mul(dy, sub(sigmoid(x), t)), needs[1] and neg(mul(dy, x))


_logits = binary(
    _SameShape(
        "binary_cross_entropy_with_logits",
        elementwise.bit_cross_entropy_with_logits,
        _logits_vjp,
        saves=_SAVES,
    )
)


@register_function
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of sigmoid(input), computed without overflow.

    `pos_weight` weighs the positive targets. Raises OnefoldValueError for an unknown reduction or
    when the shapes differ.

    Example: `binary_cross_entropy_with_logits(x, target)`.
    """
    check_reduction(reduction)
    y = _logits(input, target)
    if pos_weight is not None:
        # The positive part of the loss, target * softplus(-x), once more (pos_weight - 1) times.
        positive = mul(target, softplus(neg(input)))
        y = add(y, mul(positive, sub(pos_weight, 1.0)))
    return reduced(y if weight is None else mul(y, weight), reduction)


# Divergences and angles.


def _kl_vjp(
    needs: Needs, dy: Tensor, y: Meta, x: Tensor, t: Tensor, attrs: KlAttributes
) -> Gradients:
    d_t = None
    weight = exp(t) if attrs.log_target else t
    d_x = needs[0] and sum_to(neg(mul(dy, weight)), x.meta)
    if needs[1]:
        log_target = attrs.log_target
        each = mul(weight, add(sub(t, x), 1.0)) if log_target else sub(add(log(t), 1.0), x)
        d_t = sum_to(mul(dy, each), t.meta)
    return d_x, d_t


_kl_op = Elementwise("kl_divergence", elementwise.kl_divergence, _kl_vjp, saves=((1,), (0, 1)))
_kl = binary(_kl_op.taking(KlAttributes))


@register_function
def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """The Kullback-Leibler divergence of log probabilities `input` from `target`, as in torch.

    `reduction` may also be "batchmean": the sum over the size of dim 0. Raises OnefoldValueError
    for an unknown reduction.

    Example: `kl_div(log_softmax(x, 1), softmax(z, 1), reduction="batchmean")`.
    """
    if reduction != "batchmean":
        check_reduction(reduction)
    y = _kl(input, target, log_target)
    if reduction == "batchmean":
        return div(sum(y), input.shape[0] if input.ndim else 1)
    return reduced(y, reduction)


@register_function
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between x1 and x2 along `dim`; lengths are not less than eps.

    The gradient is that of the lengths also where these are less, as in torch.

    Example: `cosine_similarity(a, b, dim=-1)`.
    """
    dtype, shape = torch.promote_types(x1.dtype, x2.dtype), x1.shape
    if x2.shape != shape:  # the length of what is repeated is that of the repetition
        shape = torch.broadcast_shapes(x1.shape, x2.shape)
        x1, x2 = (x if x.shape == shape else expand(x, shape) for x in (x1, x2))
    wide = [widened(x if x.dtype is dtype else cast(x, dtype)) for x in (x1, x2)]
    a, b = (div(x, at_least(vector_norm(x, 2, dim, True), eps)) for x in wide)
    return narrowed(without_partials(sum(mul(a, b), dim)), dtype)

"""Layers: ops with variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..engine.convert import to_global
from ..engine.ops.arithmetic import add, mul
from ..engine.ops.batch_norm import batch_norm
from ..engine.ops.dims import movedim
from ..engine.ops.layer_norm import layer_norm as layer_norm_op
from ..engine.ops.matmul import linear
from ..engine.sbp import broadcast as whole
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError, ShapeError
from . import nn
from .blob import Blob, each
from .distribute import Distribute, broadcast as _broadcast
from .initializers import Initializer, constant_initializer, xavier_uniform_initializer
from .regularizers import Regularizer
from .tracing import tracing
from .variables import get_variable

Activation = Callable[[Blob], Blob]


def _name(name: str | None, kind: str) -> str:
    """A layer's name: the kind itself, or in the first generation one of its own."""
    if name is not None:
        return name
    job = tracing(f"layers.{kind.lower()}")
    return job.unique_name(kind) if job.first_generation else kind


def dense(
    inputs: Blob,
    units: int,
    activation: Activation | None = None,
    use_bias: bool = True,
    kernel_initializer: Initializer | None = None,
    bias_initializer: Initializer | None = None,
    kernel_regularizer: Regularizer | None = None,
    bias_regularizer: Regularizer | None = None,
    trainable: bool = True,
    name: str | None = None,
    model_distribute: Distribute | None = None,
) -> Blob:
    """A fully connected layer on the last dim: {name}-weight (units, in) and {name}-bias.

    Both begin with zeros unless an initializer is given. `model_distribute=distribute.split(0)`
    gives each device a part of the units. Raises OnefoldValueError for another split, or a split
    with inputs of more than 2 dims.

    Example: `flow.layers.dense(x, 10, kernel_initializer=flow.truncated_normal(0.1), name="out")`
    """
    layout = model_distribute or _broadcast()
    splits = layout.sbp is not None and layout.sbp.is_split
    shape = inputs.shape
    if splits and (layout.sbp is None or layout.sbp.dim != 0 or len(shape) != 2):
        raise OnefoldValueError(
            "dense: model_distribute can be broadcast(), auto() or split(0), which splits the "
            f"units, and for split(0) inputs need 2 dims, but got {layout} and shape {shape}"
        )
    called = _name(name, "Dense")
    weight = get_variable(
        f"{called}-weight", (units, shape[-1]), inputs.dtype,
        kernel_initializer or constant_initializer(0), kernel_regularizer, trainable, "weight",
        distribute=layout, reuse=False,
    )  # fmt: skip
    bias = None
    if use_bias:
        bias = get_variable(
            f"{called}-bias", (units,), inputs.dtype, bias_initializer or constant_initializer(0),
            bias_regularizer, trainable, "bias", distribute=layout, reuse=False,
        )  # fmt: skip
    made: Blob = each(_linear_of_parts if splits else linear, inputs, weight, bias)
    return made if activation is None else activation(made)


def _linear_of_parts(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Every device takes the whole input, and makes its part of the outputs."""
    return linear(to_global(x, x.placement, whole), weight, bias)


def conv2d(
    inputs: Blob,
    filters: int,
    kernel_size: int | Sequence[int] = 1,
    strides: int | Sequence[int] = 1,
    padding: nn.Padding = "VALID",
    data_format: str = "NCHW",
    dilation_rate: int | Sequence[int] | None = None,
    groups: int = 1,
    activation: Activation | None = None,
    use_bias: bool = True,
    kernel_initializer: Initializer | None = None,
    bias_initializer: Initializer | None = None,
    kernel_regularizer: Regularizer | None = None,
    bias_regularizer: Regularizer | None = None,
    trainable: bool = True,
    name: str | None = None,
    weight_name: str | None = None,
    bias_name: str | None = None,
) -> Blob:
    """A convolution of images, with variables {name}-weight and {name}-bias.

    The weight is (filters, channels / groups, height, width), for "NHWC" with the channels last,
    and begins as Glorot and Bengio's unless an initializer is given.
    """
    nn.check_format("conv2d", data_format)
    called = _name(name, "Conv2d")
    height, width = nn.pair("conv2d: kernel_size", kernel_size)
    channels = inputs.shape[1 if data_format == "NCHW" else -1]
    if channels % groups or filters % groups:
        raise ShapeError(
            f"conv2d: {channels} channels and {filters} filters cannot be cut into {groups} groups"
        )
    field = (channels // groups, height, width)
    if data_format == "NHWC":
        field = (height, width, channels // groups)
    weight = get_variable(
        weight_name or f"{called}-weight", (filters, *field), inputs.dtype,
        kernel_initializer or xavier_uniform_initializer(data_format), kernel_regularizer,
        trainable, "weight", reuse=False,
    )  # fmt: skip
    made = nn.conv2d(inputs, weight, strides, padding, data_format, dilation_rate or 1, groups)
    if use_bias:
        bias = get_variable(
            bias_name or f"{called}-bias", (filters,), inputs.dtype,
            bias_initializer or constant_initializer(0), bias_regularizer, trainable, "bias",
            reuse=False,
        )  # fmt: skip
        made = nn.bias_add(made, bias, data_format)
    return made if activation is None else activation(made)


def layer_norm(
    inputs: Blob,
    center: bool = True,
    scale: bool = True,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Blob:
    """Each element of the batch with mean 0 and variance 1, with {name}-gamma and {name}-beta.

    Over the dims from `begin_norm_axis` on; the variables have those from `begin_params_axis` on.
    """
    called = _name(name, "LayerNorm")
    ndim = len(inputs.shape)
    over = tuple(range(begin_norm_axis % ndim, ndim))
    shape = inputs.shape[begin_params_axis % ndim :]
    gamma = _of_value(f"{called}-gamma", shape, inputs, 1, trainable) if scale else None
    beta = _of_value(f"{called}-beta", shape, inputs, 0, trainable) if center else None

    def one(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        if shape == tuple(x.shape[over[0] :]):
            return layer_norm_op(x, shape, weight, bias, epsilon)
        y = layer_norm_op(x, tuple(x.shape[over[0] :]), None, None, epsilon)
        y = y if weight is None else mul(y, weight)
        return y if bias is None else add(y, bias)

    return each(one, inputs, gamma, beta)


def batch_normalization(
    inputs: Blob,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 0.001,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Initializer | None = None,
    gamma_initializer: Initializer | None = None,
    beta_regularizer: Regularizer | None = None,
    gamma_regularizer: Regularizer | None = None,
    moving_mean_initializer: Initializer | None = None,
    moving_variance_initializer: Initializer | None = None,
    trainable: bool = True,
    training: bool = True,
    name: str | None = None,
) -> Blob:
    """Each channel with mean 0 and variance 1 over the batch, in jobs that train.

    In others over the batches before: {name}-moving_mean and {name}-moving_variance, which keep a
    share `momentum` of themselves at each step. With {name}-gamma and {name}-beta. The batch is
    the whole one of all devices. Raises OnefoldValueError in the mirrored view while training,
    where devices would disagree on what moves.
    """
    called = _name(name, "BatchNorm")
    dim = axis % len(inputs.shape)
    shape = (inputs.shape[dim],)
    trains = training and trainable and tracing("layers.batch_normalization").trains
    if trains and len(inputs.parts) > 1:
        raise OnefoldValueError(
            "batch_normalization trains on one blob of all devices; take the consistent view, "
            "whose statistics are those of the whole batch"
        )
    begins = {
        "gamma": (scale, trainable, gamma_initializer, 1, gamma_regularizer),
        "beta": (center, trainable, beta_initializer, 0, beta_regularizer),
        "moving_mean": (True, False, moving_mean_initializer, 0, None),
        "moving_variance": (True, False, moving_variance_initializer, 1, None),
    }
    found = {
        part: _of_value(f"{called}-{part}", shape, inputs, value, learns, initializer, regularizer)
        if wanted
        else None
        for part, (wanted, learns, initializer, value, regularizer) in begins.items()
    }

    def one(x: Tensor, *given: Tensor | None) -> Tensor:
        weight, bias, mean, variance = given
        moved = movedim(x, dim, 1)
        y = batch_norm(moved, mean, variance, weight, bias, trains, 1 - momentum, epsilon)
        return movedim(y, 1, dim)

    return each(one, inputs, *found.values())


def _of_value(
    name: str,
    shape: Sequence[int],
    like: Blob,
    value: float,
    trainable: bool,
    initializer: Initializer | None = None,
    regularizer: Regularizer | None = None,
) -> Blob:
    """A variable that begins with one value, unless an initializer is given."""
    return get_variable(
        name, tuple(shape), like.dtype, initializer or constant_initializer(value), regularizer,
        trainable, "weight", reuse=False,
    )  # fmt: skip

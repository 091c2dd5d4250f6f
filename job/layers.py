"""Layers: ops with variables of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..engine.names import names
from ..engine.sbp import broadcast as whole
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError, ShapeError
from . import nn
from .blob import Blob, each
from .distribute import Distribute
from .distribute import broadcast as _broadcast
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
    made: Blob = each(_linear_of_parts if splits else names.linear, inputs, weight, bias)
    return made if activation is None else activation(made)


def _linear_of_parts(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Every device takes the whole input, and makes its part of the outputs."""
    return names.linear(names.to_global(x, x.placement, whole), weight, bias)  # type: ignore[no-any-return]


def conv2d(
    inputs: Blob,
    filters: int,
    kernel_size: int | Sequence[int] = 1,
    strides: int | Sequence[int] = 1,
    padding: Any = "VALID",
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

"""Initialization of parameters in place. The values are the same for every layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..engine.generator import Generator
from ..engine.grad_mode import no_grad
from ..engine.inplace import assign
from ..engine.ops.creation import empty
from ..engine.ops.like import full_like
from ..engine.ops.random_creation import random_source
from ..engine.ops.ranges import eye
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from ..kernels import random_ref as random_kernels


@no_grad
def _fill(
    x: Tensor, what: str, fill: Callable[..., Any], generator: Generator | None, **options: float
) -> Tensor:
    layout: dict[str, Any]
    layout = {"device": x.device} if x.is_local else {"placement": x.placement, "sbp": x.sbp}
    made = random_source(what, x.shape, x.dtype, fill, generator, layout, **options)
    return assign(x, made, what)


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform numbers in [a, b)."""
    return _fill(tensor, "uniform_", random_kernels.uniform, generator, low=a, high=b)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Normal numbers of this mean and standard deviation."""
    return _fill(tensor, "normal_", random_kernels.normal, generator, mean=mean, std=std)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers restricted to [a, b]."""
    options = {"mean": mean, "std": std, "low": a, "high": b}
    return _fill(tensor, "trunc_normal_", random_kernels.trunc_normal, generator, **options)


@no_grad
def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value everywhere."""
    return assign(tensor, full_like(tensor, val), "constant_")


def zeros_(tensor: Tensor) -> Tensor:
    """0 everywhere."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere."""
    return constant_(tensor, 1.0)


@no_grad
def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix."""
    rows, columns = _matrix(tensor, "eye_")
    layout: dict[str, Any]
    layout = (
        {"device": tensor.device}
        if tensor.is_local
        else {"placement": tensor.placement, "sbp": tensor.sbp}
    )
    return assign(tensor, eye(rows, columns, dtype=tensor.dtype, **layout), "eye_")


def _matrix(tensor: Tensor, what: str) -> tuple[int, int]:
    if tensor.ndim != 2:
        raise OnefoldValueError(
            f"{what}: only tensors with 2 dimensions are supported, but got {tuple(tensor.shape)}"
        )
    return tensor.shape[0], tensor.shape[1]


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The gain that keeps variances equal through a nonlinearity; as in torch."""
    gains = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}
    plain = ("linear", "sigmoid", "conv1d", "conv2d", "conv3d")
    if nonlinearity in plain:
        return 1.0
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity in gains:
        return gains[nonlinearity]
    allowed = ", ".join([*plain, *gains, "leaky_relu"])
    raise OnefoldValueError(f"unsupported nonlinearity {nonlinearity!r}; allowed are {allowed}")


def fan_in_and_out(tensor: Tensor) -> tuple[int, int]:
    """(fan in, fan out) of a weight (out, in, *receptive field)."""
    if tensor.ndim < 2:
        raise OnefoldValueError(
            "fan in and fan out can not be computed for a tensor with fewer than 2 dimensions, "
            f"but got {tuple(tensor.shape)}"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fan(tensor: Tensor, mode: str) -> int:
    fan_in, fan_out = fan_in_and_out(tensor)
    if mode not in ("fan_in", "fan_out"):
        raise OnefoldValueError(f"mode must be 'fan_in' or 'fan_out', but got {mode!r}")
    return fan_in if mode == "fan_in" else fan_out


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """He et al. (2015): uniform with variance gain^2 / fan."""
    bound = math.sqrt(3.0 / _fan(tensor, mode)) * calculate_gain(nonlinearity, a)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """He et al. (2015): normal with variance gain^2 / fan."""
    std = calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    return normal_(tensor, 0.0, std, generator)


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Glorot and Bengio (2010): uniform with variance 2 gain^2 / (fan in + fan out)."""
    bound = gain * math.sqrt(6.0 / sum(fan_in_and_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Glorot and Bengio (2010): normal with variance 2 gain^2 / (fan in + fan out)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fan_in_and_out(tensor))), generator)


def default_bound(fan_in: int) -> float:
    """The bound of torch's default uniform initialisation of linear and conv layers."""
    return 1.0 / math.sqrt(fan_in) if fan_in > 0 else 0.0


def empty_parameter(
    shape: tuple[int, ...],
    dtype: torch.dtype | None,
    device: Any,
    placement: Any,
    sbp: Any,
) -> Tensor:
    """An unset tensor for a layer's parameter, local or global."""
    layout: dict[str, Any] = {"device": device}
    if placement is not None or sbp is not None:
        layout = {"placement": placement, "sbp": sbp}
    return empty(shape, dtype=dtype, **layout)


def bias_like(weight: Tensor, size: int) -> Tensor:
    """An unset bias on the weight's device; of a global weight, split where its dim 0 is."""
    if weight.is_local:
        return empty(size, dtype=weight.dtype, device=weight.device)
    layout = tuple(s if s.is_split and s.dim == 0 else broadcast for s in weight.sbp)
    return empty(size, dtype=weight.dtype, placement=weight.placement, sbp=layout)

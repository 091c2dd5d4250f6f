"""Initializers of new variables. The numbers are the same for every layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from ..engine.generator import Generator
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from ..nn import init


@dataclass(frozen=True)
class Initializer:
    """A way to fill a variable; it prints as the call that made it."""

    name: str
    options: dict[str, object]
    fill: Callable[[Tensor, Generator | None], object] = field(repr=False, compare=False)

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.options.items())
        return f"{self.name}({given})"


def constant_initializer(value: float = 0, dtype: torch.dtype = torch.float32) -> Initializer:
    """One value everywhere."""
    return Initializer(
        "constant_initializer", {"value": value}, lambda x, _: init.constant_(x, value)
    )


def zeros_initializer(dtype: torch.dtype = torch.float32) -> Initializer:
    """0 everywhere."""
    return constant_initializer(0, dtype)


def ones_initializer(dtype: torch.dtype = torch.float32) -> Initializer:
    """1 everywhere."""
    return constant_initializer(1, dtype)


def truncated_normal_initializer(mean: float = 0.0, stddev: float = 1.0) -> Initializer:
    """Normal numbers within two standard deviations of the mean."""
    low, high = mean - 2 * stddev, mean + 2 * stddev
    return Initializer(
        "truncated_normal_initializer",
        {"mean": mean, "stddev": stddev},
        lambda x, source: init.trunc_normal_(x, mean, stddev, low, high, source),
    )


def truncated_normal(stddev: float = 1.0) -> Initializer:
    """`truncated_normal_initializer` around 0."""
    return truncated_normal_initializer(0.0, stddev)


def random_normal_initializer(mean: float = 0.0, stddev: float = 1.0) -> Initializer:
    """Normal numbers."""
    return Initializer(
        "random_normal_initializer",
        {"mean": mean, "stddev": stddev},
        lambda x, source: init.normal_(x, mean, stddev, source),
    )


def random_uniform_initializer(
    minval: float = 0, maxval: float = 1, dtype: torch.dtype = torch.float32
) -> Initializer:
    """Uniform numbers in [minval, maxval)."""
    return Initializer(
        "random_uniform_initializer",
        {"minval": minval, "maxval": maxval},
        lambda x, source: init.uniform_(x, minval, maxval, source),
    )


def variance_scaling_initializer(
    scale: float = 1.0,
    mode: str = "fan_in",
    distribution: str = "truncated_normal",
    data_format: str = "",
) -> Initializer:
    """Numbers of variance scale / fan; mode is fan_in, fan_out or fan_avg.

    distribution is random_normal, truncated_normal or random_uniform. Raises OnefoldValueError for
    another mode or distribution. Source: Glorot and Bengio (2010), He et al. (2015).
    """
    modes, kinds = ("fan_in", "fan_out", "fan_avg"), tuple(_DISTRIBUTIONS)
    if mode not in modes:
        raise OnefoldValueError(f"mode must be one of {', '.join(modes)}, but got {mode!r}")
    if distribution not in kinds:
        raise OnefoldValueError(
            f"distribution must be one of {', '.join(kinds)}, but got {distribution!r}"
        )

    def fill(x: Tensor, source: Generator | None) -> None:
        fan_in, fan_out = _fans(x, data_format)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]
        _DISTRIBUTIONS[distribution](x, scale / max(fan, 1.0), source)

    options = {"scale": scale, "mode": mode, "distribution": distribution}
    return Initializer("variance_scaling_initializer", options, fill)


# The standard deviation of normal numbers that are cut at two of theirs, which they are drawn with.
_CUT = 0.87962566103423978


def _cut_normal(x: Tensor, variance: float, source: Generator | None) -> None:
    std = math.sqrt(variance) / _CUT
    init.trunc_normal_(x, 0.0, std, -2 * std, 2 * std, source)


def _normal(x: Tensor, variance: float, source: Generator | None) -> None:
    init.normal_(x, 0.0, math.sqrt(variance), source)


def _uniform(x: Tensor, variance: float, source: Generator | None) -> None:
    bound = math.sqrt(3 * variance)
    init.uniform_(x, -bound, bound, source)


_DISTRIBUTIONS = {
    "truncated_normal": _cut_normal,
    "random_normal": _normal,
    "random_uniform": _uniform,
}


def _fans(x: Tensor, data_format: str) -> tuple[int, int]:
    """Fan in and fan out of a weight (out, in, *field), or for NHWC (out, *field, in)."""
    shape = tuple(x.shape)
    if len(shape) < 2:
        raise OnefoldValueError(
            f"an initializer by fan needs a weight of 2 dims or more, but got shape {shape}"
        )
    inner = shape[-1] if data_format == "NHWC" else shape[1]
    field = math.prod(shape[1:]) // max(inner, 1)
    return inner * field, shape[0] * field


def glorot_uniform_initializer(data_format: str = "") -> Initializer:
    """Glorot and Bengio (2010), uniform."""
    return variance_scaling_initializer(1.0, "fan_avg", "random_uniform", data_format)


def glorot_normal_initializer(data_format: str = "") -> Initializer:
    """Glorot and Bengio (2010), normal."""
    return variance_scaling_initializer(1.0, "fan_avg", "random_normal", data_format)


xavier_uniform_initializer = glorot_uniform_initializer
xavier_normal_initializer = glorot_normal_initializer


def kaiming_initializer(
    shape: tuple[int, ...] | None = None,
    distribution: str = "random_normal",
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    negative_slope: float = 0.0,
    data_format: str = "NCHW",
) -> Initializer:
    """He et al. (2015): variance gain^2 / fan; the shape is the variable's own."""
    gain = init.calculate_gain(nonlinearity, negative_slope)
    return variance_scaling_initializer(gain**2, mode, distribution, data_format)

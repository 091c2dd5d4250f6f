"""Initialization of parameters in place. The values are the same for every layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec

import torch

from ..distributed.world import world
from ..engine.argument_types import TypedLayout
from ..engine.boundaries import wrap_functions
from ..engine.generator import Generator
from ..engine.grad_mode import no_grad
from ..engine.inplace import assign, fitted
from ..engine.ops.creation import eye as identity
from ..engine.ops.like import full_like
from ..engine.ops.random_creation import random_source
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor
from ..engine.values import whole
from ..errors import OnefoldValueError, warn
from ..kernels import random_ref as random_kernels

_unset: ContextVar[bool] = ContextVar("_unset", default=False)


@contextmanager
def unset() -> Iterator[None]:
    """A block in which the functions of this file return tensors uninitialized."""
    token = _unset.set(True)
    try:
        yield
    finally:
        _unset.reset(token)


def _stays(x: Tensor) -> bool:
    """Whether a tensor is left as it is: inside `unset`, and on the meta device as in torch.

    While planning the numbers of random calls are those of a run.
    """
    return _unset.get() or not (x.meta.has_data or world().planned)


@no_grad
def _fill(
    x: Tensor, what: str, fill: Callable[..., Any], generator: Generator | None, **options: float
) -> Tensor:
    if _stays(x):
        return x
    made = random_source(what, x.shape, fill, generator, _layout_of(x), **options)
    return assign(x, made, what)


def _layout_of(x: Tensor) -> TypedLayout:
    if x.is_local:
        return {"dtype": x.dtype, "device": x.device}
    return {"dtype": x.dtype, "placement": x.placement, "sbp": x.sbp}


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
    if _stays(tensor):
        return tensor
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
    if tensor.ndim != 2:
        raise OnefoldValueError(
            f"eye_: only tensors with 2 dimensions are supported, but got {tuple(tensor.shape)}"
        )
    if not tensor.meta.has_data:
        return tensor
    return assign(tensor, identity(*tensor.shape, **_layout_of(tensor)), "eye_")


@no_grad
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The Dirac delta: a convolution with this weight (out, in, *field) keeps its input channels.

    Each of `groups` groups of output channels keeps as many as it can. Raises OnefoldValueError
    unless there are 3 to 5 dims, and groups that divide the first.
    """
    if tensor.ndim not in (3, 4, 5):
        raise OnefoldValueError(
            "dirac_: only tensors with 3, 4, or 5 dimensions are supported, but got "
            f"{tuple(tensor.shape)}"
        )
    if tensor.shape[0] % groups:
        raise OnefoldValueError(
            f"dirac_: dim 0 must be divisible by groups, but got {tuple(tensor.shape)} and {groups}"
        )
    if not tensor.meta.has_data:
        return tensor
    made = torch.zeros(tensor.shape, dtype=tensor.dtype)
    return assign(tensor, fitted(torch.nn.init.dirac_(made, groups), tensor), "dirac_")


def _drawn(
    tensor: Tensor,
    what: str,
    fill: Callable[..., Any],
    shape: tuple[int, ...],
    generator: Generator | None,
    **options: float,
) -> torch.Tensor | None:
    """Random numbers that are whole on every process, and the same for every layout.

    None for a tensor without data.
    """
    if _stays(tensor):
        return None
    layout = _layout_of(tensor)
    if tensor.is_global:
        layout["sbp"] = (broadcast,) * tensor.placement.ndim
    made = random_source(what, shape, fill, generator, layout, **options)
    return whole(made) if tensor.meta.has_data else None


@no_grad
def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Saxe et al. (2013): a matrix (rows, all the rest) with orthonormal rows or columns, * gain.

    Every process computes it. Raises OnefoldValueError for fewer than 2 dims.
    """
    if tensor.ndim < 2:
        raise OnefoldValueError(
            "orthogonal_: only tensors with 2 or more dimensions are supported, but got "
            f"{tuple(tensor.shape)}"
        )
    if not tensor.numel():
        return tensor
    rows = tensor.shape[0]
    shape = rows, tensor.numel() // rows
    drawn = _drawn(tensor, "orthogonal_", random_kernels.normal, shape, generator, mean=0, std=1)
    if drawn is None:
        return tensor
    wide = rows < shape[1]
    q, r = torch.linalg.qr(drawn.T if wide else drawn)
    q = q * r.diagonal().sign()  # uniform over orthogonal matrices: Mezzadri (2007)
    made = (q.T if wide else q).reshape(tensor.shape) * gain
    return assign(tensor, fitted(made, tensor), "orthogonal_")


@no_grad
def sparse_(
    tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None
) -> Tensor:
    """Martens (2010): normal numbers, and the fraction `sparsity` of each column is 0.

    Every process computes it. Raises OnefoldValueError unless there are 2 dims.
    """
    if tensor.ndim != 2:
        raise OnefoldValueError(
            f"sparse_: only tensors with 2 dimensions are supported, but got {tuple(tensor.shape)}"
        )
    shape = tensor.shape[0], tensor.shape[1]
    normal, uniform = random_kernels.normal, random_kernels.uniform
    drawn = _drawn(tensor, "sparse_", normal, shape, generator, mean=0.0, std=std)
    ranks = _drawn(tensor, "sparse_", uniform, shape, generator, low=0.0, high=1.0)
    if drawn is None or ranks is None:
        return tensor
    zeros = ranks.argsort(0)[: math.ceil(sparsity * shape[0])]
    return assign(tensor, fitted(drawn.scatter(0, zeros, 0.0), tensor), "sparse_")


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The gain that keeps variances equal through a nonlinearity; as in torch."""
    gains = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}
    convolutions = [f"{kind}{n}d" for kind in ("conv", "conv_transpose") for n in (1, 2, 3)]
    plain = ("linear", "sigmoid", *convolutions)
    if nonlinearity in plain:
        return 1.0
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity in gains:
        return gains[nonlinearity]
    allowed = ", ".join([*plain, *gains, "leaky_relu"])
    raise OnefoldValueError(f"unsupported nonlinearity {nonlinearity!r}; allowed are {allowed}")


_CHANNELS_LAST = ("NLC", "NHWC", "NDHWC")


def fan_in_and_out(tensor: Tensor, data_format: str = "NCHW") -> tuple[int, int]:
    """(fan in, fan out) of a weight (out, in, *receptive field).

    With the data formats NLC, NHWC and NDHWC it is (out, *receptive field, in).
    """
    if tensor.ndim < 2:
        raise OnefoldValueError(
            "fan in and fan out can not be computed for a tensor with fewer than 2 dimensions, "
            f"but got {tuple(tensor.shape)}"
        )
    sizes = tensor.shape[1:-1] if data_format in _CHANNELS_LAST else tensor.shape[2:]
    return math.prod(tensor.shape[1:]), tensor.shape[0] * math.prod(sizes)


_calculate_fan_in_and_fan_out = fan_in_and_out  # torch's name, which programs use


def _fan(tensor: Tensor, mode: str, data_format: str = "NCHW") -> int:
    fan_in, fan_out = fan_in_and_out(tensor, data_format)
    if mode not in ("fan_in", "fan_out"):
        raise OnefoldValueError(f"mode must be 'fan_in' or 'fan_out', but got {mode!r}")
    return fan_in if mode == "fan_in" else fan_out


def _is_empty(tensor: Tensor) -> bool:
    """Whether there is nothing to draw, perhaps no fan either; warns of it, as torch does."""
    if tensor.numel():
        return False
    warn("Initializing zero-element tensors is a no-op", UserWarning)
    return True


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
    *,
    data_format: str = "NCHW",
) -> Tensor:
    """He et al. (2015): uniform with variance gain^2 / fan."""
    if _is_empty(tensor):
        return tensor
    bound = math.sqrt(3.0 / _fan(tensor, mode, data_format)) * calculate_gain(nonlinearity, a)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
    *,
    data_format: str = "NCHW",
) -> Tensor:
    """He et al. (2015): normal with variance gain^2 / fan."""
    if _is_empty(tensor):
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode, data_format))
    return normal_(tensor, 0.0, std, generator)


def xavier_uniform_(
    tensor: Tensor,
    gain: float = 1.0,
    generator: Generator | None = None,
    *,
    data_format: str = "NCHW",
) -> Tensor:
    """Glorot and Bengio (2010): uniform with variance 2 gain^2 / (fan in + fan out)."""
    bound = gain * math.sqrt(6.0 / sum(fan_in_and_out(tensor, data_format)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(
    tensor: Tensor,
    gain: float = 1.0,
    generator: Generator | None = None,
    *,
    data_format: str = "NCHW",
) -> Tensor:
    """Glorot and Bengio (2010): normal with variance 2 gain^2 / (fan in + fan out)."""
    fans = sum(fan_in_and_out(tensor, data_format))
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / fans), generator)


_calculate_correct_fan = _fan  # torch's name


def default_bound(fan_in: int) -> float:
    """The bound of torch's default uniform initialization of linear and conv layers."""
    return 1.0 / math.sqrt(fan_in) if fan_in > 0 else 0.0


# The names before functions that change their argument ended with "_".

wrap_functions(globals())

P = ParamSpec("P")


def _old_name(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """The function by its name without the last character; warns, as torch does."""
    name = function.__name__

    @wraps(function)
    def old(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        warn(
            f"`nn.init.{name[:-1]}` is now deprecated in favor of `nn.init.{name}`.",
            FutureWarning,
        )
        return function(*args, **kwargs)

    return old


uniform = _old_name(uniform_)
normal = _old_name(normal_)
constant = _old_name(constant_)
eye = _old_name(eye_)
dirac = _old_name(dirac_)
xavier_uniform = _old_name(xavier_uniform_)
xavier_normal = _old_name(xavier_normal_)
kaiming_uniform = _old_name(kaiming_uniform_)
kaiming_normal = _old_name(kaiming_normal_)
orthogonal = _old_name(orthogonal_)
sparse = _old_name(sparse_)

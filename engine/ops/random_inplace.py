"""In-place filling with random numbers, which depend on the logical index and not on the layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import EllipsisType

import torch

from ...errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, warn
from ...kernels import random_ref as random_kernels
from ...kernels.host_memory import on_host
from .. import interpreter
from ..captures import shards_of
from ..generator import Generator
from ..inplace import overwrite
from ..names import register_function
from ..tensor import Tensor
from ..values import item
from ..view_writes import check_change
from .arithmetic import add, mul
from .cast import cast
from .compare import ge, le, logical_and, lt
from .creation import is_plain
from .extremum import all
from .like import layout_like
from .random_creation import random_like
from .reduce import without_partials
from .unary import ceil, exp, tan


def _drawn(
    self: Tensor,
    name: str,
    fill: Callable[..., torch.Tensor],
    generator: Generator | None,
    dtype: torch.dtype | None = None,
    **options: float,
) -> Tensor:
    """Random numbers in the shape and layout of a tensor that will take them."""
    check_change(self, name)
    return random_like(name, self, fill, generator, layout_like, dtype, **options)


def _taken(self: Tensor, value: Tensor, name: str) -> Tensor:
    return overwrite(self, cast(value, self.dtype), name)


def _number_of_from(start: dict[str, float], given: float, name: str) -> float:
    """The lower bound, which may be given as `from=`: a keyword of Python, so not a parameter."""
    unknown = start.keys() - {"from"}
    if unknown:
        raise OnefoldTypeError(f"{name}() got an unexpected keyword argument {min(unknown)!r}")
    return start.get("from", given)


@register_function
def uniform_(
    self: Tensor,
    low: float = 0.0,
    to: float = 1.0,
    *,
    generator: Generator | None = None,
    **start: float,
) -> Tensor:
    """Every element becomes a number uniform in [low, to); `low` may be given as `from=`.

    Raises OnefoldValueError unless low <= to, OnefoldTypeError for a dtype that is not floating.
    """
    low = _number_of_from(start, low, "uniform_")
    fill = random_kernels.uniform
    return _taken(self, _drawn(self, "uniform_", fill, generator, low=low, high=to), "uniform_")


@register_function
def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Every element becomes a normal number of this mean and standard deviation.

    Raises OnefoldValueError if std < 0, OnefoldTypeError for a dtype that is not floating.
    """
    fill = random_kernels.normal
    return _taken(self, _drawn(self, "normal_", fill, generator, mean=mean, std=std), "normal_")


@register_function
def log_normal_(
    self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Tensor:
    """Every element becomes the exponential of a normal number of this mean and deviation.

    Raises OnefoldValueError unless std > 0, OnefoldTypeError for a dtype that is not floating.
    """
    if not std > 0.0:
        raise OnefoldValueError(f"log_normal_ expects std > 0.0, but found std={std}")
    drawn = _drawn(self, "log_normal_", random_kernels.normal, generator, mean=mean, std=std)
    return _taken(self, exp(drawn), "log_normal_")


@register_function
def cauchy_(
    self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Every element becomes a number of the Cauchy distribution: median + sigma tan(pi (u - 1/2)).

    Raises OnefoldValueError unless sigma > 0, OnefoldTypeError for a dtype that is not floating.
    """
    if not sigma > 0.0:
        raise OnefoldValueError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    u = _drawn(self, "cauchy_", random_kernels.uniform, generator, low=-0.5, high=0.5)
    return _taken(self, add(mul(tan(mul(u, math.pi)), sigma), median), "cauchy_")


@register_function
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Every element becomes a number of the exponential distribution of rate `lambd`, above 0.

    Raises OnefoldValueError unless lambd > 0, OnefoldTypeError for a dtype that is not floating.
    """
    if not lambd > 0.0:
        raise OnefoldValueError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    fill = random_kernels.exponential
    drawn = _drawn(self, "exponential_", fill, generator, scale=1.0 / lambd)
    return _taken(self, drawn, "exponential_")


@register_function
def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Every element becomes the number of trials until one succeeds, with probability `p` each.

    Raises OnefoldValueError unless 0 < p < 1.
    """
    if not 0.0 < p < 1.0:
        raise OnefoldValueError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    fill, dtype = random_kernels.exponential, _computed_in(self)
    drawn = _drawn(self, "geometric_", fill, generator, dtype, scale=-1.0 / math.log1p(-p))
    return _taken(self, ceil(drawn), "geometric_")


def check_values(valid: Tensor, message: str) -> None:
    """Raise OnefoldRuntimeError unless every element is true; not checked during a capture.

    On a GPU the device reports it later, so that nothing waits for the values.
    """
    if interpreter.capturing():
        return
    kind = valid.device.type if valid.is_local else valid.placement.device_type
    if kind == "cpu":
        if not item(all(valid)):
            raise OnefoldRuntimeError(message)
        return
    for shard in valid.shards:
        torch._assert_async(shard.all(), message)


def check_within(x: Tensor, least: float, most: float, message: str) -> None:
    """`check_values`, whether every element is in [least, most]; NaN is not."""
    extremes = extremes_on_host(x)
    if extremes is None:
        valid = ge(x, least)
        check_values(valid if most == math.inf else logical_and(valid, le(x, most)), message)
    elif not (least <= extremes[0] and extremes[1] <= most):
        raise OnefoldRuntimeError(message)


def extremes_on_host(x: Tensor) -> tuple[float, float] | None:
    """The least and the greatest element, NaN if one is; None where that is not known at once."""
    if not is_plain(x.meta):
        return None
    (part,) = shards_of(x)
    if not on_host(part) or not part.numel() or not part.dtype.is_floating_point:
        return None
    least, most = torch.aminmax(part)
    return least.item(), most.item()


def _computed_in(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype is torch.float64 else torch.float32


@register_function
def bernoulli_(
    self: Tensor, p: Tensor | float = 0.5, *, generator: Generator | None = None
) -> Tensor:
    """Every element becomes 1 with probability `p`, which may be a tensor, else 0.

    Raises OnefoldValueError for a number p outside of [0, 1], OnefoldRuntimeError for a tensor with
    such elements (on a GPU, where that is not waited for, the device reports it, as in torch).
    """
    check_change(self, "bernoulli_")
    return _taken(self, draw_bernoulli(self, p, generator), "bernoulli_")


def draw_bernoulli(x: Tensor, p: Tensor | float, generator: Generator | None) -> Tensor:
    """Bools in the shape of `x`, true with probability `p`; raises as `bernoulli_` does."""
    if isinstance(p, Tensor):
        p = without_partials(p)
        check_within(p, 0, 1, "bernoulli_ expects all elements of p to be in [0, 1]")
    elif not 0.0 <= p <= 1.0:
        raise OnefoldValueError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    double = isinstance(p, Tensor) and p.dtype is torch.float64
    dtype = torch.float64 if double else _computed_in(x)
    u = random_like("bernoulli_", x, random_kernels.uniform, generator, layout_like, dtype)
    return lt(u, p)


@register_function
def random_(
    self: Tensor,
    low: int | None = None,
    to: int | EllipsisType | None = ...,
    *,
    generator: Generator | None = None,
    **start: float,
) -> Tensor:
    """Every element becomes an integer of [low, to); `random_(to)` starts at 0.

    Where `to` is None, as in `random_(3, None)` and in `random_()`, they reach to the dtype's
    largest number, of a floating dtype to that up to which it has every integer; bounds beyond
    those warn. `low` may be given as `from=`. Raises OnefoldRuntimeError unless low < to,
    OnefoldValueError for numbers out of the dtype's range.
    """
    if start or to is not ...:
        low = int(_number_of_from(start, low or 0, "random_"))
        to = None if to is ... else to
    else:
        low, to = 0, low
    if to is None:
        to = _most(self.dtype) + 1
    if not low < to:
        raise OnefoldRuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={to}"
        )
    drawn = _drawn(self, "random_", random_kernels.randint, generator, low=low, high=to)
    most = _most(self.dtype)
    if self.dtype.is_floating_point and not -most <= low < to <= most + 1:
        warn(
            f"random_: [{low}, {to}) is not inside of [-{most}, {most}], where {self.dtype} has "
            "every integer: others are rounded",
            UserWarning,
        )
    return _taken(self, drawn, "random_")


def _most(dtype: torch.dtype) -> int:
    """The largest integer up to which the dtype represents all integers."""
    if dtype is torch.bool:
        return 1
    if dtype.is_floating_point:
        return round(2 / torch.finfo(dtype).eps)
    return torch.iinfo(dtype).max

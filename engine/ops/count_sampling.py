"""Samples of counts, whose parameters are tensors: poisson and binomial.

The work for each element is fixed, so that no value is waited for and graphs can hold the steps.
"""

from __future__ import annotations

from math import inf

import torch

from ...errors import OnefoldTypeError
from ..generator import Generator
from ..grad_mode import no_grad
from ..names import register_function
from ..tensor import Tensor
from .cast import cast
from .elementwise_nary import xlogy
from .like import empty_like
from .random_inplace import check_within, uniform_
from .reduce import without_partials
from .rejection_rounds import RejectionRounds
from .torch_rows import FUNCTIONS
from .unary import lgamma
from .where import minimum, where

# A quantile of the Poisson distribution is at most so far before and after its expansion.
_BEFORE, _AFTER = 12, 4
# Binomial numbers of means below 10 are below this but for a probability of 2^-53.
_FEW = 49
# Rejection keeps more than 0.7 of the candidates: 1 in 10^8 numbers has none, and is the mode.
_ROUNDS = 16
# So many steps and rounds are one op: small tensors are bound by the number of ops.
_TOGETHER = 4


@register_function
@no_grad
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Samples of Poisson distributions with these rates, in the dtype and layout of `input`.

    The inverse of the distribution function at a uniform number: the first k that reaches it, from
    a little before the Cornish-Fisher expansion on. Raises OnefoldRuntimeError for negative rates,
    OnefoldTypeError for a dtype that is not floating.

    >>> import onefold as flow
    >>> flow.poisson(flow.tensor([0.0, 1e-9]))
    tensor([0., 0.])
    """
    _check_floating("poisson", input)
    rate = without_partials(input)
    check_within(rate, 0, inf, "poisson expects all elements of input to be >= 0")
    rate = cast(rate, torch.float64)
    u = uniform_(empty_like(rate), generator=generator)
    z = FUNCTIONS["special.ndtri"](u).clamp(min=-9, max=9)
    middle = rate + rate.sqrt() * z + (z.square() + 2) / 6
    count = start = (middle.floor() - _BEFORE).clamp(min=0)
    reached = FUNCTIONS["igammac"](start + 1, rate)
    mass = (xlogy(start, rate) - rate - lgamma(start + 1)).exp()
    for step in range(1, _BEFORE + _AFTER + 1):
        count = count + (reached < u)
        mass = mass * rate / (start + step)
        reached = reached + mass
    return cast(count, input.dtype)


@register_function
@no_grad
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of `count` trials succeed, each with probability `prob`, in the dtype of `count`.

    The two broadcast. Small means by a search through the distribution function, others by
    rejection: Hörmann, "The generation of binomial random variates" (1993), algorithm BTRS. Raises
    OnefoldRuntimeError for negative counts and probabilities outside of [0, 1], OnefoldTypeError
    for dtypes that are not floating, or differ.

    >>> import onefold as flow
    >>> flow.binomial(flow.tensor([3.0, 4.0]), flow.tensor([1.0, 0.0]))
    tensor([3., 0.])
    """
    _check_floating("binomial", count)
    if prob.dtype is not count.dtype:
        raise OnefoldTypeError(
            f"binomial: count and prob must have one dtype, but got {count.dtype} and {prob.dtype}"
        )
    n, p = without_partials(count), without_partials(prob)
    check_within(n, 0, inf, "binomial expects all elements of count to be >= 0")
    check_within(p, 0, 1, "binomial expects all elements of prob to be in [0, 1]")
    n, p = cast(n.floor(), torch.float64), cast(p, torch.float64)
    rare = minimum(p, 1 - p)
    few = _few(n, rare, generator)
    found = where(n * rare < 10, few, _many(n, rare, few, generator))
    return cast(where(p > 0.5, n - found, found), count.dtype)


def _few(n: Tensor, p: Tensor, generator: Generator | None) -> Tensor:
    """Binomial samples of means below 10: the first k whose distribution function reaches u."""
    mass = reached = (n * (-p).log1p()).exp()
    u = uniform_(empty_like(mass), generator=generator)
    odds = p / (1 - p)
    count = cast(reached < u, u.dtype)
    for first in range(1, _FEW, _TOGETHER):
        numbers = list(range(first, first + _TOGETHER))
        k = n.new_tensor(numbers).reshape((_TOGETHER, *[1] * mass.ndim))
        masses = mass * (odds * ((n + 1) / k - 1)).cumprod(0)
        sums = reached + masses.cumsum(0)
        count = count + (sums < u).sum(0)
        mass, reached = masses[-1], sums[-1]
    return minimum(count, n)


def _many(n: Tensor, p: Tensor, other: Tensor, generator: Generator | None) -> Tensor:
    """Binomial samples of means from 10 on, p at most 1/2; `other` has the shape of the result.

    The names are those of the paper. Smaller means are raised to 10, so that all is finite.
    """
    n = n.clamp(min=20)
    p = where(n * p < 10, 10 / n, p)
    spread = (n * p * (1 - p)).sqrt()
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = n * p + 0.5
    alpha = (2.83 + 5.1 / b) * spread
    v_r = 0.92 - 4.2 / b
    m = ((n + 1) * p).floor()
    h = lgamma(m + 1) + lgamma(n - m + 1)
    log_odds = p.log() - (-p).log1p()
    found, missing = m.expand(other.shape), other >= 0
    wide = other.expand((_TOGETHER, *other.shape))
    rounds = RejectionRounds(_ROUNDS // _TOGETHER, 2, generator)
    while rounds.again(missing):
        u = uniform_(empty_like(wide), generator=generator) - 0.5
        v = uniform_(empty_like(wide), generator=generator)
        us = 0.5 - u.abs()
        k = ((2 * a / us + b) * u + c).floor()
        inside = (k >= 0) & (k <= n)
        k = where(inside, k, m)
        density = h - lgamma(k + 1) - lgamma(n - k + 1) + (k - m) * log_odds
        exact = (v * alpha / (a / us.square() + b)).log() <= density
        taken = inside & (((us >= 0.07) & (v <= v_r)) | exact)
        earliest = taken & (taken.cumsum(0) == 1)
        some = taken.any(0)
        found = where(missing & some, where(earliest, k, 0.0).sum(0), found)
        missing = missing & ~some
    return found


def _check_floating(name: str, x: Tensor) -> None:
    if not x.dtype.is_floating_point:
        raise OnefoldTypeError(f"{name} needs a floating dtype, but got {x.dtype}")

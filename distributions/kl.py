"""kl_divergence: the Kullback-Leibler divergence of pairs of distributions, by their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..engine.tensor import Tensor
from ..errors import OnefoldNotImplementedError
from ..nn import functional as F
from .bernoulli import Bernoulli
from .categorical import Categorical
from .distribution import Distribution
from .normal import Normal
from .uniform import Uniform

Formula = TypeVar("Formula", bound=Callable[..., Tensor])

_FORMULAS: dict[tuple[type[Any], type[Any]], Callable[..., Tensor]] = {}


def register_kl(type_p: type[Any], type_q: type[Any]) -> Callable[[Formula], Formula]:
    """Decorates the function (p, q) that gives KL(p || q) for two types and their subclasses."""

    def register(function: Formula) -> Formula:
        _FORMULAS[type_p, type_q] = function
        return function

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q), the mean of log(p(x) / q(x)) under p; of shape `batch_shape`.

    Raises OnefoldNotImplementedError for a pair of types that has no formula.

    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
    tensor(0.5000)
    """
    for kind_p in type(p).__mro__:
        for kind_q in type(q).__mro__:
            formula = _FORMULAS.get((kind_p, kind_q))
            if formula is not None:
                return formula(p, q)
    raise OnefoldNotImplementedError(
        f"kl_divergence: No KL(p || q) is implemented for p type {type(p).__name__} and q type "
        f"{type(q).__name__}; define one with register_kl"
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return found.masked_fill((q.low > p.low) | (q.high < p.high), float("inf"))


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    ones = _weighed(p.probs, p.logits, q.probs, q.logits)
    return ones + _weighed(1 - p.probs, -p.logits, 1 - q.probs, -q.logits)


def _weighed(p: Tensor, p_logits: Tensor, q: Tensor, q_logits: Tensor) -> Tensor:
    """p log(p / q): 0 where p is 0, and infinite where q alone is.

    The logarithms are those of sigmoids: logits are finite, so gradients are.
    """
    found = p * (F.softplus(-q_logits) - F.softplus(-p_logits))
    return found.masked_fill(q == 0, float("inf")).masked_fill(p == 0, 0.0)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    found = p.probs * (p.logits - q.logits)
    found = found.masked_fill((q.probs == 0).expand(found.shape), float("inf"))
    return found.masked_fill((p.probs == 0).expand(found.shape), 0.0).sum(-1)

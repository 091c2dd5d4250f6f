"""KL divergences of distributions of two types: the mean of -log q under p, less the entropy of p.

The logarithm of q is linear in functions of x (x, x^2, log x, ...), whose means under p are known.
Where p has values that q has not, the divergence is infinite.
"""

from __future__ import annotations

import math
from typing import Any

from ..engine.ops.elementwise_nary import xlogy
from ..engine.tensor import Tensor
from ..errors import OnefoldNotImplementedError
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .broadcast_parameters import broadcast_all
from .continuous_bernoulli import ContinuousBernoulli
from .distribution import Distribution
from .exponential import Exponential
from .gamma import Gamma
from .gumbel import EULER, Gumbel
from .kl import register_kl
from .laplace import Laplace
from .normal import Normal
from .pareto import Pareto
from .poisson import Poisson
from .uniform import Uniform

# The types of q to which the divergence of a p is infinite: they lack some of its values.
_INFINITE: dict[type[Distribution], tuple[type[Distribution], ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    one, _ = broadcast_all(p.mean, q.mean)
    return one.new_full(one.shape, math.inf)


for _p, _kinds in _INFINITE.items():
    for _q in _kinds:
        register_kl(_p, _q)(_infinite)


# The means of functions of x under p.


def _mean_log(p: Any) -> Tensor:
    """The mean of log(x)."""
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Gamma):
        return p.concentration.digamma() - p.rate.log()
    if isinstance(p, Exponential):
        return -EULER - p.rate.log()
    if isinstance(p, Pareto):
        return p.scale.log() + 1 / p.alpha
    if isinstance(p, Uniform):
        return _mean_log_between(p.low, p.high)
    raise OnefoldNotImplementedError(f"the mean of log(x) under {type(p).__name__}")


def _mean_log_between(low: Tensor, high: Tensor) -> Tensor:
    return (xlogy(high, high) - xlogy(low, low)) / (high - low) - 1


def _mean_falling(p: Any, t: Tensor) -> Tensor:
    """The mean of exp(-t x)."""
    if isinstance(p, Exponential):
        return p.rate / (p.rate + t)
    if isinstance(p, Gamma):
        return (p.concentration * (p.rate.log() - (p.rate + t).log())).exp()
    if isinstance(p, Normal):
        return (0.5 * (p.scale * t).square() - p.loc * t).exp()
    if isinstance(p, Uniform):
        return ((-t * p.low).exp() - (-t * p.high).exp()) / (t * (p.high - p.low))
    raise OnefoldNotImplementedError(f"the mean of exp(-t x) under {type(p).__name__}")


def _at_least(p: Any, bound: Tensor | float, divergence: Tensor) -> Tensor:
    """The divergence, infinite where p is uniform and has values below what q allows."""
    return divergence.masked_fill(p.low < bound, math.inf) if isinstance(p, Uniform) else divergence


# The divergences, by the type of q.


@register_kl(Beta, Normal)
@register_kl(ContinuousBernoulli, Normal)
@register_kl(Exponential, Normal)
@register_kl(Gamma, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Laplace, Normal)
@register_kl(Pareto, Normal)
@register_kl(Uniform, Normal)
def _to_normal(p: Distribution, q: Normal) -> Tensor:
    distance = (p.variance + (p.mean - q.loc).square()) / (2 * q.variance)
    return distance + q.scale.log() + 0.5 * math.log(2 * math.pi) - p.entropy()


@register_kl(Beta, Exponential)
@register_kl(ContinuousBernoulli, Exponential)
@register_kl(Gamma, Exponential)
@register_kl(Pareto, Exponential)
@register_kl(Uniform, Exponential)
def _to_exponential(p: Distribution, q: Exponential) -> Tensor:
    return _at_least(p, 0.0, q.rate * p.mean - q.rate.log() - p.entropy())


@register_kl(Beta, Gamma)
@register_kl(Exponential, Gamma)
@register_kl(Pareto, Gamma)
@register_kl(Uniform, Gamma)
def _to_gamma(p: Distribution, q: Gamma) -> Tensor:
    a = q.concentration
    scale = a.lgamma() - a * q.rate.log()
    shaped = q.rate * p.mean - (a - 1) * _mean_log(p)
    return _at_least(p, 0.0, scale + shaped - p.entropy())


@register_kl(Exponential, Gumbel)
@register_kl(Gamma, Gumbel)
@register_kl(Normal, Gumbel)
@register_kl(Uniform, Gumbel)
def _to_gumbel(p: Distribution, q: Gumbel) -> Tensor:
    tail = (q.loc / q.scale).exp() * _mean_falling(p, 1 / q.scale)
    return q.scale.log() + (p.mean - q.loc) / q.scale + tail - p.entropy()


@register_kl(Beta, Uniform)
@register_kl(ContinuousBernoulli, Uniform)
def _to_uniform(p: Distribution, q: Uniform) -> Tensor:
    found = (q.high - q.low).log() - p.entropy()
    return found.masked_fill((q.low > 0) | (q.high < 1), math.inf)


@register_kl(Normal, Laplace)
def _normal_to_laplace(p: Normal, q: Laplace) -> Tensor:
    shift = p.loc - q.loc
    ratio = shift / (p.scale * math.sqrt(2))
    distance = p.scale * math.sqrt(2 / math.pi) * (-ratio.square()).exp() + shift * ratio.erf()
    return (2 * q.scale).log() + distance / q.scale - p.entropy()


@register_kl(Beta, ContinuousBernoulli)
@register_kl(Uniform, ContinuousBernoulli)
def _to_continuous_bernoulli(p: Distribution, q: ContinuousBernoulli) -> Tensor:
    likely = p.mean * q.logits + (-q.probs).log1p() + q._log_constant()
    return _inside_unit(p, -likely - p.entropy())


@register_kl(Uniform, Beta)
def _uniform_to_beta(p: Uniform, q: Beta) -> Tensor:
    ones = (q.concentration1 - 1) * _mean_log_between(p.low, p.high)
    zeros = (q.concentration0 - 1) * _mean_log_between(1 - p.high, 1 - p.low)
    return _inside_unit(p, q._log_beta() - ones - zeros - p.entropy())


def _inside_unit(p: Any, divergence: Tensor) -> Tensor:
    if not isinstance(p, Uniform):
        return divergence
    return divergence.masked_fill((p.low < 0) | (p.high > 1), math.inf)


@register_kl(Uniform, Pareto)
def _uniform_to_pareto(p: Uniform, q: Pareto) -> Tensor:
    likely = q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _mean_log(p)
    return _at_least(p, q.scale, -likely - p.entropy())


@register_kl(Bernoulli, Poisson)
def _bernoulli_to_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    found: Tensor = q.rate - p.probs * q.rate.log() - p.entropy()
    return found

"""KL divergences of two distributions of one type."""

from __future__ import annotations

import math
from typing import Any

from ..engine import interpreter
from ..engine.tensor import Tensor
from ..errors import OnefoldNotImplementedError
from ..nn import functional as F
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily, event_sum, normalizer_of
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import EULER, Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .kl import kl_divergence, register_kl, without_formula
from .laplace import Laplace
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transform import sum_rightmost
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return found.masked_fill((q.low > p.low) | (q.high < p.high), float("inf"))


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Tensor:
    ones = _weighed(p.probs, p.logits, q.probs, q.logits)
    return ones + _weighed(1 - p.probs, -p.logits, 1 - q.probs, -q.logits)


def _weighed(p: Tensor, p_logits: Tensor, q: Tensor, q_logits: Tensor) -> Tensor:
    """p log(p / q): 0 where p is 0, and infinite where q alone is.

    The logarithms are those of sigmoids: logits are finite, so gradients are.
    """
    found = p * (F.softplus(-q_logits) - F.softplus(-p_logits))
    return found.masked_fill(q == 0, float("inf")).masked_fill(p == 0, 0.0)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if not interpreter.capturing() and bool((p.total_count < q.total_count).any()):
        raise OnefoldNotImplementedError(
            "kl_divergence: KL between Binomials where q.total_count > p.total_count is not "
            f"implemented, but they are {q.total_count} and {p.total_count}"
        )
    found = p.total_count * _bernoulli(p, q)
    return found.masked_fill(p.total_count > q.total_count, float("inf"))


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    found = p.probs * (p.logits - q.logits)
    found = found.masked_fill((q.probs == 0).expand(found.shape), float("inf"))
    return found.masked_fill((p.probs == 0).expand(found.shape), 0.0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    found: Tensor = -p.entropy() - (-q.probs).log1p() / p.probs - q.logits
    return found


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    rates = b * (p.rate / q.rate).log() + (q.rate - p.rate) * (a / p.rate)
    return rates + b.lgamma() - a.lgamma() + (a - b) * a.digamma()


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlets(p._both, q._both)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    return _dirichlets(p.concentration, q.concentration)


def _dirichlets(a: Tensor, b: Tensor) -> Tensor:
    """The divergence of Dirichlet distributions of these concentrations."""
    total = a.sum(-1)
    scales = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return scales + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio = p.scale / q.scale
    distance = (p.loc - q.loc).abs()
    return distance / q.scale + ratio * (-distance / p.scale).exp() - 1 - ratio.log()


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    """Source: Chyzak and Nielsen, "A closed-form formula for the KL of Cauchy densities" (2019)."""
    width = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return width.log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio = p.scale / q.scale
    shift = (p.loc - q.loc) / q.scale
    tail = ((1 + ratio).lgamma() - shift).exp()
    return shift + tail + EULER * (ratio - 1) - 1 - ratio.log()


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() + ratio - 1 - ratio.log()
    return found.masked_fill(p.scale < q.scale, math.inf)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    normalizers = p._log_constant() - q._log_constant()
    misses: Tensor = (-p.probs).log1p() - (-q.probs).log1p()
    return p.mean * (p.logits - q.logits) + normalizers + misses


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise OnefoldNotImplementedError(
            "kl_divergence: Independent distributions of as many reinterpreted_batch_ndims, but "
            f"got {p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}"
        )
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise OnefoldNotImplementedError(
            "kl_divergence: TransformedDistributions of the same transforms and event shape only; "
            "define others with register_kl"
        )
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    if type(p) is not type(q):
        raise without_formula(p, q)
    natural, normalizer, slopes = normalizer_of(p)
    others = q._natural_params
    found = q._log_normalizer(*others) - normalizer
    for own, other, slope in zip(natural, others, slopes, strict=True):
        found = found - event_sum((other - own) * slope, normalizer.ndim)
    return found

"""kl_divergence: the Kullback-Leibler divergence of pairs of distributions, by their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..engine.tensor import Tensor
from ..errors import OnefoldNotImplementedError
from .distribution import Distribution

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

    >>> from onefold.distributions import Normal
    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
    tensor(0.5000)
    """
    for kind_p in type(p).__mro__:
        for kind_q in type(q).__mro__:
            formula = _FORMULAS.get((kind_p, kind_q))
            if formula is not None:
                return formula(p, q)
    raise without_formula(p, q)


def without_formula(p: Distribution, q: Distribution) -> OnefoldNotImplementedError:
    """The error for a pair of types that has no formula."""
    return OnefoldNotImplementedError(
        f"kl_divergence: No KL(p || q) is implemented for p type {type(p).__name__} and q type "
        f"{type(q).__name__}; define one with register_kl"
    )

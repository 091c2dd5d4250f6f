"""ExponentialFamily: distributions whose density is h(x) exp(t(x) . natural - log_normalizer)."""

from __future__ import annotations

from ..engine.autograd_api import grad
from ..engine.grad_mode import enable_grad
from ..engine.tensor import Tensor
from .distribution import Distribution


class ExponentialFamily(Distribution):
    """Subclasses define `_natural_params`, `_log_normalizer` and `_mean_carrier_measure`.

    From these come an entropy, and the divergence of two distributions of one type, by Bregman
    divergences: Nielsen and Nock, "Entropies and cross-entropies of exponential families" (2010).
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        """The natural parameters."""
        raise self._lacks("_natural_params")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        """The logarithm of the normalizer, of the natural parameters."""
        raise self._lacks("_log_normalizer")

    @property
    def _mean_carrier_measure(self) -> float | Tensor:
        """The mean of log h(x)."""
        raise self._lacks("_mean_carrier_measure")

    def entropy(self) -> Tensor:
        natural, normalizer, slopes = normalizer_of(self)
        found = normalizer - self._mean_carrier_measure
        for value, slope in zip(natural, slopes, strict=True):
            found = found - event_sum(value * slope, normalizer.ndim)
        return found


def normalizer_of(p: ExponentialFamily) -> tuple[tuple[Tensor, ...], Tensor, tuple[Tensor, ...]]:
    """The natural parameters, their log normalizer, and its gradients: the means of t(x).

    Gradients flow through all of them to the parameters of the distribution.
    """
    natural = p._natural_params
    with enable_grad():
        leaves = [x if x.requires_grad else x.detach().requires_grad_() for x in natural]
        normalizer = p._log_normalizer(*leaves)
        slopes = grad(normalizer.sum(), leaves, create_graph=True)
    return natural, normalizer, tuple([slope for slope in slopes if slope is not None])


def event_sum(x: Tensor, batch_dims: int) -> Tensor:
    """The sum over all dims after those of the batch."""
    return x.sum(tuple(range(batch_dims, x.ndim))) if x.ndim > batch_dims else x

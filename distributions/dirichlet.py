"""The Dirichlet distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..engine.ops.elementwise_nary import xlogy
from ..engine.tensor import Tensor, tensor_ops
from ..errors import ShapeError
from . import constraints
from .exp_family import ExponentialFamily
from .standard_gamma import standard_dirichlet


class Dirichlet(ExponentialFamily):
    """Vectors of K shares that add up to 1, of `concentration` > 0, of shape (..., K).

    >>> import onefold as flow
    >>> Dirichlet(flow.tensor([1.0, 3.0])).mean
    tensor([0.2500, 0.7500])
    """

    has_rsample = True
    arg_constraints: ClassVar = {
        "concentration": constraints.independent(constraints.positive, 1),
    }
    support = constraints.simplex

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ShapeError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        batch_shape, event_shape = concentration.shape[:-1], concentration.shape[-1:]
        super().__init__(batch_shape, event_shape, validate_args)

    @property
    def _total(self) -> Tensor:
        return self.concentration.sum(-1, keepdim=True)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self._total

    @property
    def mode(self) -> Tensor:
        return dirichlet_mode(self.concentration)

    @property
    def variance(self) -> Tensor:
        a, total = self.concentration, self._total
        return a * (total - a) / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Gamma numbers over their sums, with implicit gradients."""
        return standard_dirichlet(self._extended(self.concentration, sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        return xlogy(self.concentration - 1, value).sum(-1) - self._log_beta()

    def _log_beta(self) -> Tensor:
        a = self.concentration
        return a.lgamma().sum(-1) - a.sum(-1).lgamma()

    def entropy(self) -> Tensor:
        a = self.concentration
        total = a.sum(-1)
        found = self._log_beta() + (total - a.shape[-1]) * total.digamma()
        return found - ((a - 1) * a.digamma()).sum(-1)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration - 1,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        a = natural_params[0] + 1
        return a.lgamma().sum(-1) - a.sum(-1).lgamma()

    @property
    def _mean_carrier_measure(self) -> float:
        return 0.0


def dirichlet_mode(concentration: Tensor) -> Tensor:
    """The most likely shares; where every corner has infinite density, the first, as in torch."""
    above = (concentration - 1).clamp(min=0)
    inner = above / above.sum(-1, keepdim=True)
    corner = inner.new_tensor([1.0] + [0.0] * (inner.shape[-1] - 1))
    everywhere = (concentration < 1).all(-1).unsqueeze(-1)
    return tensor_ops.where(everywhere, corner, inner)

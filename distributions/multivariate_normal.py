"""The multivariate normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from ..engine.tensor import Tensor, tensor_ops
from ..errors import ShapeError
from ..kernels.common_shapes import broadcast_shapes
from . import constraints
from .covariance_parameters import (
    FACTORS,
    WithCovariance,
    half_log_det,
    one_matrix,
    squared_distance_of,
    times_vector,
)


class MultivariateNormal(WithCovariance):
    """Vectors of n normal variables, of means `loc` (..., n) and one of three matrices (..., n, n).

    These are `covariance_matrix`, its inverse `precision_matrix`, and `scale_tril`, the lower
    Cholesky factor of the covariance, from which the others are computed. Raises OnefoldValueError
    unless one is given, ShapeError for shapes that do not fit.

    >>> import onefold as flow
    >>> MultivariateNormal(flow.zeros(2), flow.eye(2)).log_prob(flow.zeros(2))
    tensor(-1.8379)
    """

    has_rsample = True
    arg_constraints: ClassVar = {
        "loc": constraints.real_vector,
        **WithCovariance.matrix_constraints,
    }
    support = constraints.real_vector

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = one_matrix(covariance_matrix, precision_matrix, scale_tril)
        if loc.ndim < 1:
            raise ShapeError("loc must be at least one-dimensional.")
        batch = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.loc = loc.expand((*batch, loc.shape[-1]))
        self._set_matrix(name, matrix, batch)
        super().__init__(batch, self.loc.shape[-1:], validate_args)
        self._factor = FACTORS[name](matrix)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._factor.square().sum(-1).expand(self._extended_shape())

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """loc + the factor times standard normal vectors."""
        loc = self._extended(self.loc, sample_shape)
        return loc + times_vector(self._factor, tensor_ops.randn_like(loc))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        distance = squared_distance_of(self._factor, value - self.loc)
        constant = self.event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + distance) - half_log_det(self._factor)

    def entropy(self) -> Tensor:
        constant = 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi))
        return (half_log_det(self._factor) + constant).expand(self.batch_shape)

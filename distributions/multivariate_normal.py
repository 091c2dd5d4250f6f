"""The multivariate normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Self

from .. import linalg
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldValueError, ShapeError
from ..kernels.common_shapes import broadcast_shapes
from . import constraints
from .distribution import Distribution
from .lazy_property import lazy_property


class MultivariateNormal(Distribution):
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
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
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
        named = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = [(name, matrix) for name, matrix in named.items() if matrix is not None]
        if len(given) != 1:
            raise OnefoldValueError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                f"specified, but got {len(given)}."
            )
        if loc.ndim < 1:
            raise ShapeError("loc must be at least one-dimensional.")
        ((name, matrix),) = given
        if matrix.ndim < 2:
            raise ShapeError(
                f"{name} matrix must be at least two-dimensional, with optional leading batch "
                "dimensions"
            )
        batch = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.loc = loc.expand((*batch, loc.shape[-1]))
        setattr(self, name, matrix.expand((*batch, *matrix.shape[-2:])))
        super().__init__(batch, self.loc.shape[-1:], validate_args)
        self._factor = _FACTORS[name](matrix)  # not broadcast, so that it is computed once

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        new._factor = self._factor

    def _of_batch(self, matrix: Tensor) -> Tensor:
        return matrix.expand((*self.batch_shape, *self.event_shape, *self.event_shape))

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance."""
        return self._of_batch(self._factor)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        return self._of_batch(self._factor @ self._factor.transpose(-1, -2))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return self._of_batch(tensor_ops.cholesky_inverse(self._factor))

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
        loc = self.loc.expand(self._extended_shape(sample_shape))
        return loc + times_vector(self._factor, tensor_ops.randn_like(loc))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        distance = squared_distance_of(self._factor, value - self.loc)
        constant = self.event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + distance) - half_log_det(self._factor)

    def entropy(self) -> Tensor:
        constant = 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi))
        return (half_log_det(self._factor) + constant).expand(self.batch_shape)


def times_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    """The product of matrices and vectors; batches broadcast."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def half_log_det(factor: Tensor) -> Tensor:
    """log of the determinant of a triangular matrix: half that of the matrix it is a factor of."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def squared_distance_of(factor: Tensor, difference: Tensor) -> Tensor:
    """x^T (L L^T)^-1 x of vectors x; of one factor L, all vectors are solved for together."""
    if factor.ndim == 2:
        columns = difference.reshape((-1, difference.shape[-1])).transpose(0, 1)
        solved = linalg.solve_triangular(factor, columns, upper=False)
        return solved.square().sum(0).reshape(difference.shape[:-1])
    solved = linalg.solve_triangular(factor, difference.unsqueeze(-1), upper=False)
    return solved.squeeze(-1).square().sum(-1)


def _factor_of_inverse(precision: Tensor) -> Tensor:
    """The lower Cholesky factor of the inverse: that of the reversed matrix, reversed, inverted."""
    reversed_factor = linalg.cholesky(precision.flip((-2, -1)))
    upper = reversed_factor.flip((-2, -1)).transpose(-2, -1)
    ones = tensor_ops.ones_like(precision[..., 0]).diag_embed()
    return linalg.solve_triangular(upper, ones, upper=False)


_FACTORS = {
    "covariance_matrix": linalg.cholesky,
    "precision_matrix": _factor_of_inverse,
    "scale_tril": lambda matrix: matrix,
}

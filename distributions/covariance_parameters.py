"""A covariance that is given as itself, by its inverse or by its Cholesky factor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from .. import linalg
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldValueError, ShapeError
from . import constraints
from .distribution import Distribution
from .lazy_property import lazy_property


class WithCovariance(Distribution):
    """Distributions that are given one of three matrices, and compute the others when asked."""

    matrix_constraints: ClassVar = {
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    _factor: Tensor  # the Cholesky factor, not broadcast, so that it is computed once

    def _set_matrix(self, name: str, matrix: Tensor, batch_shape: Sequence[int]) -> None:
        setattr(self, name, matrix.expand((*batch_shape, *matrix.shape[-2:])))

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        new._factor = self._factor

    def _of_batch(self, matrix: Tensor) -> Tensor:
        return matrix.expand((*self.batch_shape, *matrix.shape[-2:]))

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
        inverse = inverse_of_tril(self._factor)
        return self._of_batch(inverse.transpose(-1, -2) @ inverse)


def one_matrix(
    covariance_matrix: Tensor | None, precision_matrix: Tensor | None, scale_tril: Tensor | None
) -> tuple[str, Tensor]:
    """The name and the value of the one that is given.

    Raises OnefoldValueError for several or none, ShapeError for what is no matrix.
    """
    named = {
        "covariance_matrix": covariance_matrix,
        "precision_matrix": precision_matrix,
        "scale_tril": scale_tril,
    }
    given = [(name, matrix) for name, matrix in named.items() if matrix is not None]
    if len(given) != 1:
        raise OnefoldValueError(
            "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified, "
            f"but got {len(given)}."
        )
    name, matrix = given[0]
    if matrix.ndim < 2:
        raise ShapeError(
            f"{name} must be at least two-dimensional, with optional leading batch dimensions, but "
            f"has shape {tuple(matrix.shape)}"
        )
    return name, matrix


def inverse_of_tril(factor: Tensor) -> Tensor:
    """The inverse of a lower triangular matrix."""
    return linalg.solve_triangular(factor, identity_like(factor), upper=False)


def identity_like(matrix: Tensor) -> Tensor:
    """Identity matrices of the shape and layout of square matrices."""
    return tensor_ops.ones_like(matrix[..., 0]).diag_embed()


def half_log_det(factor: Tensor) -> Tensor:
    """log of the determinant of a triangular matrix: half that of the matrix it is a factor of."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def times_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    """The product of matrices and vectors; batches broadcast, those of one matrix are its rows."""
    if matrix.ndim == 2:
        return vector @ matrix.transpose(0, 1)
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def squared_distance_of(factor: Tensor, difference: Tensor) -> Tensor:
    """x^T (L L^T)^-1 x of vectors x, by the inverse of L, whose product fits every layout of x."""
    return times_vector(inverse_of_tril(factor), difference).square().sum(-1)


def _factor_of_inverse(precision: Tensor) -> Tensor:
    """The lower Cholesky factor of the inverse: that of the reversed matrix, reversed, inverted."""
    reversed_factor = linalg.cholesky(precision.flip((-2, -1)))
    return inverse_of_tril(reversed_factor.flip((-2, -1)).transpose(-2, -1))


FACTORS: dict[str, Callable[[Tensor], Tensor]] = {
    "covariance_matrix": linalg.cholesky,
    "precision_matrix": _factor_of_inverse,
    "scale_tril": lambda matrix: matrix,
}

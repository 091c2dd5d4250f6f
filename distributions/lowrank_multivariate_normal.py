"""The multivariate normal distribution with a covariance of low rank plus a diagonal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Self

from .. import linalg
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldValueError, ShapeError
from ..kernels.common_shapes import broadcast_shapes
from . import constraints
from .covariance_parameters import half_log_det, identity_like, times_vector
from .distribution import Distribution
from .lazy_property import lazy_property


class LowRankMultivariateNormal(Distribution):
    """Vectors of n normal variables, whose covariance is W W^T + D.

    loc: the means (..., n); cov_factor: W, (..., n, m); cov_diag: the diagonal of D > 0, (..., n).
    The work is that of matrices of size m, by Woodbury's identity and the lemma on determinants.
    Raises ShapeError for shapes that do not fit.

    >>> import onefold as flow
    >>> LowRankMultivariateNormal(flow.zeros(2), flow.ones(2, 1), flow.ones(2)).variance
    tensor([2., 2.])
    """

    has_rsample = True
    arg_constraints: ClassVar = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector

    def __init__(
        self,
        loc: Tensor,
        cov_factor: Tensor,
        cov_diag: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        if loc.ndim < 1:
            raise ShapeError("loc must be at least one-dimensional.")
        n = loc.shape[-1]
        if cov_factor.ndim < 2 or cov_factor.shape[-2] != n:
            raise ShapeError(
                f"cov_factor must be a batch of matrices with shape {n} x m, but has shape "
                f"{tuple(cov_factor.shape)}"
            )
        if cov_diag.shape[-1:] != loc.shape[-1:]:
            raise ShapeError(
                f"cov_diag must be a batch of vectors with shape {n}, but has shape "
                f"{tuple(cov_diag.shape)}"
            )
        given = (loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        try:
            batch = broadcast_shapes(*given)
        except (RuntimeError, ValueError) as error:
            raise OnefoldValueError(f"Incompatible batch shapes: {given}") from error
        self.loc = loc.expand((*batch, n))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        self.cov_diag = cov_diag.expand((*batch, n))
        super().__init__(batch, (n,), validate_args)
        self._keep(cov_factor, cov_diag)

    def _keep(self, factor: Tensor, diagonal: Tensor) -> None:
        """The parameters that are not broadcast, and the Cholesky factor of I + W^T D^-1 W."""
        self._w, self._d = factor, diagonal
        self._tril = capacitance_tril(factor, diagonal)

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        new._w, new._d, new._tril = self._w, self._d, self._tril

    def _of_batch(self, matrix: Tensor) -> Tensor:
        return matrix.expand((*self.batch_shape, *self.event_shape, *self.event_shape))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (self._w.square().sum(-1) + self._d).expand(self._extended_shape())

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance, by that of one with a unit diagonal."""
        root = self._d.sqrt().unsqueeze(-1)
        scaled = self._w / root
        outer = scaled @ scaled.transpose(-1, -2)
        return self._of_batch(root * linalg.cholesky(outer + identity_like(outer)))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """W W^T + D"""
        return self._of_batch(self._w @ self._w.transpose(-1, -2) + self._d.diag_embed())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance: D^-1 - D^-1 W (I + W^T D^-1 W)^-1 W^T D^-1."""
        scaled = self._w.transpose(-1, -2) / self._d.unsqueeze(-2)
        solved = linalg.solve_triangular(self._tril, scaled, upper=False)
        return self._of_batch((1 / self._d).diag_embed() - solved.transpose(-1, -2) @ solved)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """loc + W times normal vectors of length m + the root of D times normal numbers."""
        shape = self._extended_shape(sample_shape)
        factor_shape = (*shape[:-1], self._w.shape[-1])
        noise = tensor_ops.randn_like(self.cov_factor[..., 0, :].expand(factor_shape))
        own = tensor_ops.randn_like(self.loc.expand(shape))
        return self.loc + times_vector(self._w, noise) + self._d.sqrt() * own

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        distance = low_rank_distance(self._w, self._d, value - self.loc, self._tril)
        constant = self.event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + low_rank_log_det(self._d, self._tril) + distance)

    def entropy(self) -> Tensor:
        constant = self.event_shape[0] * (1 + math.log(2 * math.pi))
        found = 0.5 * (constant + low_rank_log_det(self._d, self._tril))
        return found.expand(self.batch_shape)


def capacitance_tril(factor: Tensor, diagonal: Tensor) -> Tensor:
    """The lower Cholesky factor of I + W^T D^-1 W."""
    scaled = factor.transpose(-1, -2) / diagonal.unsqueeze(-2)
    inner = scaled @ factor
    return linalg.cholesky(inner + identity_like(inner))


def low_rank_log_det(diagonal: Tensor, tril: Tensor) -> Tensor:
    """log of the determinant of W W^T + D, where `tril` is that of `capacitance_tril`."""
    return 2 * half_log_det(tril) + diagonal.log().sum(-1)


def low_rank_distance(factor: Tensor, diagonal: Tensor, x: Tensor, tril: Tensor) -> Tensor:
    """x^T (W W^T + D)^-1 x of vectors x."""
    scaled = times_vector(factor.transpose(-1, -2) / diagonal.unsqueeze(-2), x)
    solved = linalg.solve_triangular(tril, scaled.unsqueeze(-1), upper=False).squeeze(-1)
    return (x.square() / diagonal).sum(-1) - solved.square().sum(-1)

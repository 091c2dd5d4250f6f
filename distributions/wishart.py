"""The Wishart distribution of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch

from .. import linalg
from ..engine.tensor import Tensor, tensor_ops
from ..errors import warn
from ..kernels.common_shapes import broadcast_shapes
from . import constraints
from .broadcast_parameters import Parameter
from .covariance_parameters import (
    FACTORS,
    WithCovariance,
    half_log_det,
    inverse_of_tril,
    one_matrix,
)
from .exp_family import ExponentialFamily
from .standard_gamma import standard_gamma


class Wishart(WithCovariance, ExponentialFamily):
    """Sums of x x^T over `df` normal vectors x of n numbers, whose covariance is one of three.

    These are `covariance_matrix`, `precision_matrix` and `scale_tril`, of shape (..., n, n), as in
    MultivariateNormal. `df` > n - 1 need not be whole; below n, which warns, samples are nearly
    singular. Raises OnefoldValueError unless one matrix is given.

    >>> import onefold as flow
    >>> Wishart(3.0, flow.eye(2)).mean
    tensor([[3., 0.],
            [0., 3.]])
    """

    has_rsample = True
    arg_constraints: ClassVar = {
        **WithCovariance.matrix_constraints,
        "df": constraints.dependent(is_discrete=False, event_dim=0),
    }
    support = constraints.positive_definite

    def __init__(
        self,
        df: Parameter,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = one_matrix(covariance_matrix, precision_matrix, scale_tril)
        if not isinstance(df, Tensor):
            df = tensor_ops.full_like(matrix[..., 0, 0], df)
        batch = broadcast_shapes(matrix.shape[:-2], df.shape)
        self.df = df.expand(batch)
        self._set_matrix(name, matrix, batch)
        super().__init__(batch, matrix.shape[-2:], validate_args)
        n = matrix.shape[-1]
        self._check("df", df, df > n - 1, f"greater than {n - 1}, the size of the matrices less 1")
        if self._checks and bool((df < n).any()):
            warn(
                "Low df values detected. Singular samples are highly likely to occur for "
                "ndim - 1 < df < ndim.",
                UserWarning,
            )
        self._factor = FACTORS[name](matrix)

    @property
    def _size(self) -> int:
        return self.event_shape[-1]

    def _of_matrix(self, number: Tensor) -> Tensor:
        return number.unsqueeze(-1).unsqueeze(-1)

    @property
    def mean(self) -> Tensor:
        return self._of_matrix(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        """NaN up to df = n + 1."""
        factor = self.df - self._size - 1
        factor = factor.masked_fill(factor <= 0, math.nan)
        return self._of_matrix(factor) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        covariance: Tensor = self.covariance_matrix
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        products = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self._of_matrix(self.df) * (covariance.square() + products)

    def rsample(
        self, sample_shape: Sequence[int] = (), max_try_correction: int | None = None
    ) -> Tensor:
        """Normal numbers below a diagonal of roots of chi-squared ones: Bartlett's decomposition.

        `max_try_correction` is torch's, which draws again what is singular. Here the diagonal is
        never 0, so that nothing is.
        """
        scale: Tensor = self.scale_tril
        lower = tensor_ops.randn_like(self._extended(scale, sample_shape)).tril(-1)
        less = self.df.new_tensor(list(range(self._size)))
        df = (self.df.unsqueeze(-1) - less).expand(lower.shape[:-1])
        root = (2 * standard_gamma(0.5 * df)).sqrt().clamp(min=torch.finfo(df.dtype).eps)
        factor = self._factor @ (lower + root.diag_embed())
        return factor @ factor.transpose(-1, -2)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        n, df = self._size, self.df
        inverse = inverse_of_tril(self._factor)
        trace = ((inverse.transpose(-1, -2) @ inverse) * value).sum((-1, -2))
        log_det = linalg.slogdet(value).logabsdet
        return 0.5 * ((df - n - 1) * log_det - trace) - self._log_scale(df)

    def _log_scale(self, times: Tensor | int) -> Tensor:
        """The logarithm of 2^(n / 2) |V|^(1 / 2), so often, and of the multivariate gamma."""
        half = self._size * math.log(2) / 2 + half_log_det(self._factor)
        return times * half + tensor_ops.mvlgamma(0.5 * self.df, self._size)

    def entropy(self) -> Tensor:
        n, df = self._size, self.df
        halves = 0.5 * self.df.new_tensor(list(range(n)))
        slope = (0.5 * df.unsqueeze(-1) - halves).digamma().sum(-1)
        return self._log_scale(n + 1) - 0.5 * (df - n - 1) * slope + 0.5 * df * n

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -0.5 * self.precision_matrix, 0.5 * (self.df - self._size - 1)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        n = x.shape[-1]
        half = y + 0.5 * (n + 1)
        log_det = n * math.log(2) - linalg.slogdet(-2 * x).logabsdet
        return half * log_det + tensor_ops.mvlgamma(half, n)

    @property
    def _mean_carrier_measure(self) -> float:
        return 0.0

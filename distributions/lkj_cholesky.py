"""The LKJ distribution of Cholesky factors of correlation matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Self

import torch

from ..engine.grad_mode import no_grad
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldValueError
from . import constraints
from .beta import Beta
from .broadcast_parameters import Parameter, broadcast_all
from .distribution import Distribution


class LKJCholesky(Distribution):
    """Factors of correlation matrices of size `dim` >= 2, of `concentration` > 0.

    The density of a matrix is proportional to its determinant to the power concentration - 1.
    Source: Lewandowski, Kurowicka and Joe, "Generating random correlation matrices based on vines
    and extended onion method" (2009). Raises OnefoldValueError for a smaller size.

    >>> import onefold as flow
    >>> LKJCholesky(3, 1.0).sample().shape
    torch.Size([3, 3])
    """

    arg_constraints: ClassVar = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Parameter = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise OnefoldValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        new.dim = self.dim

    @no_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The onion method: in each row a direction, and a beta number for its squared length."""
        rows = [0, *range(self.dim - 1)]
        offset = 0.5 * self.concentration.new_tensor(rows)
        last = self.concentration.unsqueeze(-1) + 0.5 * (self.dim - 2)
        squared = Beta(offset + 0.5, last - offset, False).sample(sample_shape).unsqueeze(-1)
        shape = self._extended_shape(sample_shape)
        normal = tensor_ops.randn_like(squared.expand(shape)).tril(-1)
        length = normal.square().sum(-1, keepdim=True).sqrt()
        below = squared.sqrt() * normal / length.masked_fill(length == 0, 1.0)
        rest = 1 - below.square().sum(-1)
        return below + rest.clamp(min=torch.finfo(rest.dtype).tiny).sqrt().diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        n = self.dim
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = self.concentration.new_tensor(list(range(n - 2, -1, -1)))
        powers = 2 * (self.concentration - 1).unsqueeze(-1) + order
        return (powers * diagonal.log()).sum(-1) - self._log_normalizer()

    def _log_normalizer(self) -> Tensor:
        n = self.dim - 1
        alpha = self.concentration + 0.5 * n
        gammas = tensor_ops.mvlgamma(alpha - 0.5, n) - n * alpha.lgamma()
        return gammas + 0.5 * n * math.log(math.pi)

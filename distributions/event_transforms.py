"""Transforms of vectors and matrices: to simplices, Cholesky factors and other shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .. import linalg
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldValueError, ShapeError
from ..nn import functional as F
from . import constraints
from .constraints import Constraint
from .elementwise_transforms import _Fixed, clipped_sigmoid
from .transform import Shape, Transform


def _at_least(shape: Sequence[int], dims: int) -> Shape:
    if len(shape) < dims:
        raise ShapeError(f"Too few dimensions on input: {tuple(shape)} has less than {dims}")
    return tuple(shape)


class SoftmaxTransform(_Fixed):
    """y = softmax(x) over the last dim; not bijective, the inverse is log(y)."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return _at_least(shape, 1)

    inverse_shape = forward_shape


class StickBreakingTransform(_Fixed):
    """Vectors of K numbers to simplices of K + 1: each number breaks off a share of what is left.

    Source: Stan Reference Manual, "Unit simplex" (zeros are the center of the simplex).
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        share = clipped_sigmoid(x - _left(x).log())
        rest = (1 - share).cumprod(-1)
        return F.pad(share, [0, 1], value=1) * F.pad(rest, [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        pieces = y[..., :-1]
        rest = (1 - pieces.cumsum(-1)).clamp(min=torch.finfo(y.dtype).tiny)
        return pieces.log() - rest.log() + _left(pieces).log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - _left(x).log()
        return (-x + F.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        shape = _at_least(shape, 1)
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        shape = _at_least(shape, 1)
        return (*shape[:-1], shape[-1] - 1)


def _left(x: Tensor) -> Tensor:
    """The number of pieces that are left after each: K, K - 1, ..., 1."""
    return x.new_tensor(list(range(x.shape[-1], 0, -1)))


class LowerCholeskyTransform(_Fixed):
    """Square matrices to lower triangular ones, whose diagonals are exponentials."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Fixed):
    """Square matrices to positive definite ones, by their Cholesky factors."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.transpose(-1, -2)

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(linalg.cholesky(y))


class CorrCholeskyTransform(_Fixed):
    """Vectors of D (D - 1) / 2 numbers to Cholesky factors of correlation matrices of size D.

    Source: Stan Reference Manual, "Cholesky factors of correlation matrices".
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        eps = torch.finfo(x.dtype).eps
        partial = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), -1)
        rest = (1 - partial.square()).sqrt().cumprod(-1)
        with_ones = partial + tensor_ops.ones_like(partial[..., 0]).diag_embed()
        return with_ones * F.pad(rest[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        rest = F.pad(1 - y.square().cumsum(-1)[..., :-1], [1, 0], value=1)
        return (tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(rest, -1).sqrt()).atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        rest = tril_matrix_to_vec(1 - y.square().cumsum(-1), -2)
        slope = 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))
        return 0.5 * rest.log().sum(-1) + slope.sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        shape = _at_least(shape, 1)
        size = _size_of(shape[-1])
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        shape = _at_least(shape, 2)
        if shape[-1] != shape[-2]:
            raise ShapeError(f"CorrCholeskyTransform: not square matrices: {tuple(shape)}")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


def _size_of(length: int, diag: int = -1) -> int:
    """The size of a matrix with so many numbers up to the diagonal `diag`; ShapeError for none."""
    size = max(0, -diag)
    while len(_up_to(diag, size)) < length:
        size += 1
    if len(_up_to(diag, size)) != length:
        raise ShapeError(f"{length} numbers do not fill a matrix up to its diagonal {diag}")
    return size


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Matrices with these numbers up to the diagonal `diag`, row by row."""
    size = _size_of(vec.shape[-1], diag)
    places = {place: i + 1 for i, place in enumerate(_up_to(diag, size))}
    index = vec.new_tensor([places.get(i, 0) for i in range(size * size)], dtype=torch.int64)
    return F.pad(vec, [1, 0]).index_select(-1, index).unflatten(-1, (size, size))


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The numbers of matrices up to the diagonal `diag`, row by row."""
    index = mat.new_tensor(_up_to(diag, mat.shape[-1]), dtype=torch.int64)
    return mat.flatten(-2).index_select(-1, index)


def _up_to(diag: int, size: int) -> list[int]:
    """The places, in a flat matrix, up to a diagonal."""
    return [i * size + j for i in range(size) for j in range(min(size, i + diag + 1))]


class ReshapeTransform(Transform):
    """Events of `in_shape` as events of `out_shape`, which have as many numbers."""

    bijective = True

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0):
        self.in_shape = torch.Size(in_shape)
        self.out_shape = torch.Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise OnefoldValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size)

    @property
    def domain(self) -> Constraint:
        return constraints.independent(constraints.real, len(self.in_shape))

    @property
    def codomain(self) -> Constraint:
        return constraints.independent(constraints.real, len(self.out_shape))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ReshapeTransform)
            and self.in_shape == other.in_shape
            and self.out_shape == other.out_shape
        )

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return _replaced(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        return _replaced(shape, self.out_shape, self.in_shape)


def _replaced(shape: Sequence[int], old: torch.Size, new: torch.Size) -> Shape:
    shape = _at_least(shape, len(old))
    batch = len(shape) - len(old)
    if shape[batch:] != tuple(old):
        raise ShapeError(
            f"ReshapeTransform: Shape mismatch: expected {tuple(old)} but got {shape[batch:]}"
        )
    return (*shape[:batch], *new)

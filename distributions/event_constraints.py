"""Constraints of events that are vectors and matrices, and of events made of others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch

from .. import linalg
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldTypeError, OnefoldValueError, ShapeError, kind_of
from .broadcast_parameters import Bound
from .scalar_constraints import Constraint, _Bounded, real


def _constraint(given: object) -> Constraint:
    if not isinstance(given, Constraint):
        raise OnefoldTypeError(f"a constraint must be a Constraint, but got {kind_of(given)}")
    return given


class _IndependentConstraint(Constraint):
    """Events of more dims, each number (or smaller event) of which lies in the base constraint."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = _constraint(base_constraint)
        if reinterpreted_batch_ndims < 0:
            raise OnefoldValueError(
                f"reinterpreted_batch_ndims must be at least 0, got {reinterpreted_batch_ndims}"
            )
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:
        return bool(self.base_constraint.is_discrete)

    @property
    def event_dim(self) -> int:
        return int(self.base_constraint.event_dim) + self.reinterpreted_batch_ndims

    @property
    def rule(self) -> str:
        return str(self.base_constraint.rule)

    def check(self, value: Tensor) -> Tensor:
        if value.ndim < self.event_dim:
            raise ShapeError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        return _all_of_last(self.base_constraint.check(value), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        inside = f"{self.base_constraint!r}, {self.reinterpreted_batch_ndims}"
        return f"{type(self).__name__.lstrip('_')}({inside})"


def _all_of_last(allowed: Tensor, dims: int) -> Tensor:
    for _ in range(dims):
        allowed = allowed.all(-1)
    return allowed


class MixtureSameFamilyConstraint(Constraint):
    """The values of a mixture: those that every component may have."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = _constraint(base_constraint)

    @property
    def is_discrete(self) -> bool:
        return bool(self.base_constraint.is_discrete)

    @property
    def event_dim(self) -> int:
        return int(self.base_constraint.event_dim)

    @property
    def rule(self) -> str:
        return str(self.base_constraint.rule)

    def check(self, value: Tensor) -> Tensor:
        if value.ndim < self.event_dim:
            raise ShapeError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        allowed = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return _all_of_last(allowed, allowed.ndim - (value.ndim - self.event_dim))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_constraint!r})"


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1
    rule = "one-hot: one 1 and zeros in the last dim"

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Simplex(Constraint):
    event_dim = 1
    rule = "numbers of at least 0 that add up to 1 along the last dim"

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(_Bounded):
    is_discrete = True
    event_dim = 1
    words = "numbers of at least 0 that add up to at most {upper_bound} along the last dim"

    def __init__(self, upper_bound: Bound) -> None:
        super().__init__(None, upper_bound)

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    event_dim = 2
    rule = "lower triangular matrices"

    def check(self, value: Tensor) -> Tensor:
        return _all_of_last(value.tril() == value, 2)


class _LowerCholesky(_LowerTriangular):
    rule = "lower triangular matrices with positive diagonals"

    def check(self, value: Tensor) -> Tensor:
        diagonal = value.diagonal(dim1=-2, dim2=-1)
        return super().check(value) & (diagonal > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    rule = "lower triangular matrices with positive diagonals and rows of length 1"

    def check(self, value: Tensor) -> Tensor:
        tolerance = torch.finfo(value.dtype).eps * value.shape[-1] * 10
        length = value.detach().square().sum(-1).sqrt()
        return super().check(value) & ((length - 1).abs() <= tolerance).all(-1)


class _Square(Constraint):
    event_dim = 2
    rule = "square matrices"

    def check(self, value: Tensor) -> Tensor:
        is_square = value.shape[-1] == value.shape[-2]
        return tensor_ops.full_like(value[..., 0, 0], is_square, dtype=torch.bool)


class _Symmetric(_Square):
    rule = "symmetric matrices"

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-1] != value.shape[-2]:
            return super().check(value)
        other = value.transpose(-1, -2)
        return _all_of_last((value - other).abs() <= 1e-6 + 1e-5 * other.abs(), 2)


class _PositiveSemidefinite(_Symmetric):
    rule = "symmetric matrices without negative eigenvalues"

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-1] != value.shape[-2]:
            return super().check(value)
        return super().check(value) & (linalg.eigvalsh(value.nan_to_num()) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    rule = "symmetric matrices with positive eigenvalues"

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-1] != value.shape[-2]:
            return super().check(value)
        return super().check(value) & (linalg.cholesky_ex(value).info == 0)


class _Parts(Constraint):
    """Parts of a tensor along one dim, each with a constraint of its own."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq = [_constraint(part) for part in cseq]
        self.dim = dim

    @property
    def is_discrete(self) -> bool:
        return any(part.is_discrete for part in self.cseq)

    @cached_property
    def rule(self) -> str:
        return "; ".join(f"part {i}: {part.rule}" for i, part in enumerate(self.cseq))


class _Cat(_Parts):
    """Parts of these lengths, as of `flow.cat`."""

    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise OnefoldValueError(
                f"cat: needs a length for each of {len(self.cseq)} constraints, but got "
                f"{len(self.lengths)}"
            )

    @property
    def event_dim(self) -> int:
        return max(int(part.event_dim) for part in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        parts = value.split(self.lengths, self.dim)
        checks = [c.check(part) for c, part in zip(self.cseq, parts, strict=True)]
        return tensor_ops.cat(checks, self.dim)


class _Stack(_Parts):
    """Parts of one index each, as of `flow.stack`."""

    @property
    def event_dim(self) -> int:
        dim = max(int(part.event_dim) for part in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Tensor) -> Tensor:
        parts = value.unbind(self.dim)
        if len(parts) != len(self.cseq):
            raise ShapeError(
                f"stack: {len(self.cseq)} constraints need as many parts along dim {self.dim}, but "
                f"got {len(parts)}"
            )
        checks = [c.check(part) for c, part in zip(self.cseq, parts, strict=True)]
        return tensor_ops.stack(checks, self.dim)


independent = _IndependentConstraint
real_vector = _IndependentConstraint(real, 1)
one_hot = _OneHot()
simplex = _Simplex()
multinomial = _Multinomial
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack

"""Linear algebra, under the names of `torch.linalg`.

Written by `make stubs`; do not edit.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .engine.ops.torch_results import (
    LinalgCholeskyEx,
    LinalgEig,
    LinalgEigh,
    LinalgInvEx,
    LinalgLdlFactor,
    LinalgLdlFactorEx,
    LinalgLstsq,
    LinalgLu,
    LinalgLuFactor,
    LinalgLuFactorEx,
    LinalgQr,
    LinalgSlogdet,
    LinalgSolveEx,
    LinalgSvd,
)
from .engine.tensor import Tensor
from .errors import LinAlgError as LinAlgError

__all__ = [
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "ldl_factor",
    "ldl_factor_ex",
    "ldl_solve",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]

def cholesky(input: Tensor, *, upper: bool = False, out: Tensor | None = None) -> Tensor:
    """torch.linalg.cholesky on every shard; see torch's documentation."""

def cholesky_ex(
    input: Tensor,
    *,
    upper: bool = False,
    check_errors: bool = False,
    out: Sequence[Tensor] | None = None,
) -> LinalgCholeskyEx:
    """torch.linalg.cholesky_ex on every shard; see torch's documentation."""

def cond(input: Tensor, p: float | str | None = None, *, out: Tensor | None = None) -> Tensor:
    """torch.linalg.cond on every shard; see torch's documentation."""

def cross(
    input: Tensor,
    other: Tensor | complex | np.number[Any],
    *,
    dim: int | Sequence[int] = -1,
    out: Tensor | None = None,
) -> Tensor:
    """torch.linalg.cross on every shard; see torch's documentation."""

def det(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.linalg.det on every shard; see torch's documentation."""

def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices, as a view; see `diagonal`."""

def eig(input: Tensor, *, out: Sequence[Tensor] | None = None) -> LinalgEig:
    """torch.linalg.eig on every shard; see torch's documentation."""

def eigh(input: Tensor, UPLO: str = "L", *, out: Sequence[Tensor] | None = None) -> LinalgEigh:
    """torch.linalg.eigh on every shard; see torch's documentation."""

def eigvals(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.linalg.eigvals on every shard; see torch's documentation."""

def eigvalsh(input: Tensor, UPLO: str = "L", *, out: Tensor | None = None) -> Tensor:
    """torch.linalg.eigvalsh on every shard; see torch's documentation."""

def householder_product(input: Tensor, tau: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.linalg.householder_product on every shard; see torch's documentation."""

def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.linalg.inv on every shard; see torch's documentation."""

def inv_ex(
    A: Tensor, *, check_errors: bool = False, out: Sequence[Tensor] | None = None
) -> LinalgInvEx:
    """torch.linalg.inv_ex on every shard; see torch's documentation."""

def ldl_factor(
    input: Tensor, *, hermitian: bool = False, out: Sequence[Tensor] | None = None
) -> LinalgLdlFactor:
    """torch.linalg.ldl_factor on every shard; see torch's documentation."""

def ldl_factor_ex(
    input: Tensor,
    *,
    hermitian: bool = False,
    check_errors: bool = False,
    out: Sequence[Tensor] | None = None,
) -> LinalgLdlFactorEx:
    """torch.linalg.ldl_factor_ex on every shard; see torch's documentation."""

def ldl_solve(
    LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False, out: Tensor | None = None
) -> Tensor:
    """torch.linalg.ldl_solve on every shard; see torch's documentation."""

def lstsq(
    input: Tensor,
    b: Tensor,
    rcond: Tensor | complex | np.number[Any] | None = None,
    *,
    driver: str | None = None,
) -> LinalgLstsq:
    """torch.linalg.lstsq on every shard; see torch's documentation."""

def lu(A: Tensor, *, pivot: bool = True, out: Sequence[Tensor] | None = None) -> LinalgLu:
    """torch.linalg.lu on every shard; see torch's documentation."""

def lu_factor(
    A: Tensor, *, pivot: bool = True, out: Sequence[Tensor] | None = None
) -> LinalgLuFactor:
    """torch.linalg.lu_factor on every shard; see torch's documentation."""

def lu_factor_ex(
    A: Tensor,
    *,
    pivot: bool = True,
    check_errors: bool = False,
    out: Sequence[Tensor] | None = None,
) -> LinalgLuFactorEx:
    """torch.linalg.lu_factor_ex on every shard; see torch's documentation."""

def lu_solve(
    LU: Tensor,
    pivots: Tensor,
    B: Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """torch.linalg.lu_solve on every shard; see torch's documentation."""

def matmul(
    input: Tensor,
    other: Tensor,
    *,
    out: Tensor | None = None,
    transpose_a: bool | None = None,
    transpose_b: bool | None = None,
    alpha: complex | np.number[Any] | None = None,
) -> Tensor:
    """The matrix product of two tensors, as torch.matmul: vectors, matrices, batches of them."""

def matrix_exp(input: Tensor) -> Tensor:
    """torch.matrix_exp on every shard; see torch's documentation."""

def matrix_norm(
    input: Tensor,
    ord: float | str = "fro",
    dim: int | Sequence[int] = ...,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """torch.linalg.matrix_norm on every shard; see torch's documentation."""

def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """The n-th power of square matrices (batch dims in front), by repeated squaring."""

def matrix_rank(
    input: Tensor,
    tol: Tensor | complex | np.number[Any] | None = None,
    *,
    atol: Tensor | complex | np.number[Any] | None = None,
    rtol: Tensor | complex | np.number[Any] | None = None,
    hermitian: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """torch.linalg.matrix_rank on every shard; see torch's documentation."""

def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """torch.linalg.multi_dot on every shard; see torch's documentation."""

def norm(
    input: Tensor,
    ord: float | str | None = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """torch.linalg.norm on every shard; see torch's documentation."""

def pinv(
    input: Tensor,
    rcond: Tensor | complex | np.number[Any] | None = None,
    *,
    atol: Tensor | complex | np.number[Any] | None = None,
    rtol: Tensor | complex | np.number[Any] | None = None,
    hermitian: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """torch.linalg.pinv on every shard; see torch's documentation."""

def qr(A: Tensor, mode: str = "reduced", *, out: Sequence[Tensor] | None = None) -> LinalgQr:
    """torch.linalg.qr on every shard; see torch's documentation."""

def slogdet(A: Tensor, *, out: Sequence[Tensor] | None = None) -> LinalgSlogdet:
    """torch.linalg.slogdet on every shard; see torch's documentation."""

def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Tensor | None = None) -> Tensor:
    """torch.linalg.solve on every shard; see torch's documentation."""

def solve_ex(
    A: Tensor,
    B: Tensor,
    *,
    left: bool = True,
    check_errors: bool = False,
    out: Sequence[Tensor] | None = None,
) -> LinalgSolveEx:
    """torch.linalg.solve_ex on every shard; see torch's documentation."""

def solve_triangular(
    input: Tensor,
    B: Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """torch.linalg.solve_triangular on every shard; see torch's documentation."""

def svd(
    A: Tensor,
    full_matrices: bool = True,
    *,
    driver: str | None = None,
    out: Sequence[Tensor] | None = None,
) -> LinalgSvd:
    """torch.linalg.svd on every shard; see torch's documentation."""

def svdvals(A: Tensor, *, driver: str | None = None, out: Tensor | None = None) -> Tensor:
    """torch.linalg.svdvals on every shard; see torch's documentation."""

def tensorinv(input: Tensor, ind: int = 2, *, out: Tensor | None = None) -> Tensor:
    """torch.linalg.tensorinv on every shard; see torch's documentation."""

def tensorsolve(
    input: Tensor,
    other: Tensor | complex | np.number[Any],
    dims: int | Sequence[int] | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.linalg.tensorsolve on every shard; see torch's documentation."""

def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """torch.linalg.vander on every shard; see torch's documentation."""

def vecdot(
    x: Tensor, y: Tensor, *, dim: int | Sequence[int] = -1, out: Tensor | None = None
) -> Tensor:
    """torch.linalg.vecdot on every shard; see torch's documentation."""

def vector_norm(
    input: Tensor,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The vector norm of order `ord` over `dim` (None: over all), as torch.linalg.vector_norm."""

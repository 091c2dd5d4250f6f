"""Singular value decompositions of low rank, and principal components, by random projections."""

from __future__ import annotations

from ...errors import OnefoldValueError
from ..names import Function, find_name, register_function
from ..tensor import Tensor
from .arithmetic import sub
from .matmul import matmul
from .random_creation import randn
from .reduce import mean


@register_function
def svd_lowrank(
    A: Tensor, q: int = 6, niter: int = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The `q` largest singular values of A - M, with their vectors: U, S and V, approximately.

    Halko, Martinsson and Tropp, "Finding structure with randomness" (2011). The random numbers are
    those of the default generator.

    A: (..., m, n); M is broadcast to it. U is (..., m, q), S (..., q), and V (..., n, q).
    niter: how often the projection is improved by a product with A and its adjoint.

    Raises OnefoldValueError for a rank that the matrices cannot have.
    """
    matrices = A if M is None else sub(A, M)
    m, n = matrices.shape[-2:]
    _check(q, niter, min(m, n), "svd_lowrank")
    wide = m < n
    if wide:
        matrices = matrices.mH
    start = randn(matrices.shape[-1], q, dtype=matrices.dtype, device=matrices.device)
    basis = _orthonormal(matmul(matrices, start))
    for _ in range(niter):
        basis = _orthonormal(matmul(matrices.mH, basis))
        basis = _orthonormal(matmul(matrices, basis))
    left, values, right = _function("linalg.svd")(matmul(basis.mH, matrices), full_matrices=False)
    left, right = matmul(basis, left), right.mH
    return (right, values, left) if wide else (left, values, right)


@register_function
def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """The principal components of the rows of A: U, S and V of `svd_lowrank` of A less its mean.

    A: (..., m, n). `q` is min(6, m, n) if it is not given; without `center` the mean stays.

    Raises OnefoldValueError for a rank that the matrices cannot have.
    """
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    _check(q, niter, min(m, n), "pca_lowrank")
    return svd_lowrank(sub(A, mean(A, -2, True)) if center else A, q, niter)


def _orthonormal(matrices: Tensor) -> Tensor:
    basis: Tensor = _function("linalg.qr")(matrices)[0]
    return basis


def _function(name: str) -> Function:
    found = find_name(name)
    assert found is not None
    return found


def _check(q: int, niter: int, most: int, what: str) -> None:
    if not 0 <= q <= most:
        raise OnefoldValueError(
            f"{what}: q must be between 0 and {most}, the smaller size of a matrix, but got {q}"
        )
    if niter < 0:
        raise OnefoldValueError(f"{what}: niter must not be negative, but got {niter}")

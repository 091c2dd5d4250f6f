"""Matrix products with transposed operands on local tensors."""

from __future__ import annotations

from torch import Tensor


def mm_tn(a: Tensor, b: Tensor) -> Tensor:
    """`a.T @ b` for matrices of shapes (k, m) and (k, n)."""
    return a.t().mm(b)


def matmul_nt(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b.T` on the last two dims; the others broadcast."""
    return a.matmul(b.mT)


def matmul_tn(a: Tensor, b: Tensor) -> Tensor:
    """`a.T @ b` on the last two dims; the others broadcast."""
    return a.mT.matmul(b)


def rows_tn(a: Tensor, b: Tensor) -> Tensor:
    """The (m, n) sum over all rows of a[..., m] * b[..., n]."""
    # Sizes are named rather than -1, which cannot be inferred when there are no elements.
    rows = a.shape[:-1].numel()
    return a.reshape(rows, a.shape[-1]).t().mm(b.reshape(rows, b.shape[-1]))

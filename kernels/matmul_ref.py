"""Matrix products of matrices, vectors and batches on local tensors, also added to a matrix."""

from __future__ import annotations

import torch
from torch import Tensor


def mm(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` for matrices."""
    return torch.mm(a, b)


def mm_nt(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b.T` for matrices of shapes (m, k) and (n, k)."""
    return torch._C._nn.linear(a, b)


def bmm(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` for batches of matrices, of as many each."""
    return torch.bmm(a, b)


def mv(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` for a matrix and a vector."""
    return torch.mv(a, b)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The sum of a[k] * b[k]."""
    return torch.dot(a, b)


def outer(a: Tensor, b: Tensor) -> Tensor:
    """The (m, n) products a[m] * b[n]."""
    return torch.outer(a, b)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` for vectors, matrices and batches of them, whose dims broadcast."""
    return torch.matmul(a, b)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias` on the last dim."""
    return torch._C._nn.linear(x, weight, bias)


def contraction(a: Tensor, b: Tensor, equation: str) -> Tensor:
    """The einsum of two operands, each letter of one being in the other or in the output."""
    return torch._VF.einsum(equation, (a, b))  # type: ignore[attr-defined, no-any-return]


def mm_tn(a: Tensor, b: Tensor) -> Tensor:
    """`a.T @ b` for matrices of shapes (k, m) and (k, n)."""
    return torch.mm(a.mT, b)  # mT takes less time than t()


def matmul_nt(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b.T` on the last two dims; the others broadcast."""
    return a.matmul(b.mT)


def matmul_tn(a: Tensor, b: Tensor) -> Tensor:
    """`a.T @ b` on the last two dims; the others broadcast."""
    return a.mT.matmul(b)


def rows_tn(a: Tensor, b: Tensor) -> Tensor:
    """The (m, n) sum over all rows of a[..., m] * b[..., n]."""
    return a.flatten(0, -2).mT.mm(b.flatten(0, -2))


def addmm(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`x + a @ b`."""
    return torch.addmm(x, a, b)


def addmm_nt(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`x + a @ b.T`."""
    return torch.addmm(x, a, b.t())


def addmm_tn(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`x + a.T @ b`."""
    return torch.addmm(x, a.t(), b)

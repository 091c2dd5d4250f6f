"""Matrix products: matrices, vectors, batches, linear, and sums over rows for gradients."""

from __future__ import annotations

from math import prod

from torch import Tensor

from ... import matmul_ref as reference
from .gemm import NOTHING, Epilogue, left_out, product
from .gemv import by_vector

# Left to torch: complex numbers, float8, the errors for bools and for operands of two dtypes, and a
# bias that is not a vector along the outputs.


mm = bmm = product
mv = by_vector


def mm_nt(a: Tensor, b: Tensor) -> Tensor:
    return product(a, b.t())


def mm_tn(a: Tensor, b: Tensor) -> Tensor:
    return product(a.t(), b)


def dot(a: Tensor, b: Tensor) -> Tensor:
    return reference.dot(a, b) if left_out(a) else by_vector(a[None], b)[0]


def outer(a: Tensor, b: Tensor) -> Tensor:
    if left_out(a) or a.dtype is not b.dtype:
        return reference.outer(a, b)
    return product(a[:, None], b[None], exact=True)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    if b.ndim == 1:
        lead = a.shape[:-1]
        return by_vector(a.reshape(prod(lead), a.shape[-1]), b).view(lead)
    if a.ndim == 1:
        if b.ndim == 2:
            return by_vector(b.t(), a)
        return product(a[None], b).squeeze(-2)
    return product(a, b)


def matmul_nt(a: Tensor, b: Tensor) -> Tensor:
    return matmul(a, b.mT)


def matmul_tn(a: Tensor, b: Tensor) -> Tensor:
    return matmul(a.mT, b)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if weight.ndim == 1 and bias is None:
        return matmul(x, weight)
    if left_out(x) or weight.ndim == 1 or (bias is not None and bias.ndim > 1):
        return reference.linear(x, weight, bias)
    if bias is None and x.ndim == 1:
        return by_vector(weight, x)
    lead, n = x.shape[:-1], weight.shape[0]
    end = NOTHING if bias is None else Epilogue(bias)
    if x.ndim == 2:
        return product(x, weight.t(), end)
    return product(x.reshape(prod(lead), x.shape[-1]), weight.t(), end).view(*lead, n)


def rows_tn(a: Tensor, b: Tensor) -> Tensor:
    rows = prod(a.shape[:-1])
    return mm_tn(a.reshape(rows, a.shape[-1]), b.reshape(rows, b.shape[-1]))


def contraction(a: Tensor, b: Tensor, equation: str) -> Tensor:
    if left_out(a):
        return reference.contraction(a, b, equation)
    terms, out = equation.split("->")
    of_a, of_b = terms.split(",")
    batch = [x for x in of_a if x in of_b and x in out]
    summed = [x for x in of_a if x in of_b and x not in out]
    rows = [x for x in of_a if x not in of_b]
    columns = [x for x in of_b if x not in of_a]
    sizes = dict(zip(of_a + of_b, (*a.shape, *b.shape), strict=True))
    lead, m, n, k = ([sizes[x] for x in some] for some in (batch, rows, columns, summed))
    left = _permuted(a, of_a, batch + rows + summed).reshape(*lead, prod(m), prod(k))
    right = _permuted(b, of_b, batch + summed + columns).reshape(*lead, prod(k), prod(n))
    y = product(left, right).view([*lead, *m, *n])
    return _permuted(y, "".join(batch + rows + columns), list(out))


def _permuted(x: Tensor, letters: str, order: list[str]) -> Tensor:
    return x.permute([letters.index(letter) for letter in order])


def addmm(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if left_out(a):
        return reference.addmm(x, a, b)
    return product(a, b, Epilogue(x=x.expand(a.shape[0], b.shape[1])))


def addmm_nt(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return addmm(x, a, b.t())


def addmm_tn(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return addmm(x, a.t(), b)

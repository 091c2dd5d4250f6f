"""Matrix products that are added to a matrix, as an epilogue of the product."""

from __future__ import annotations

from torch import Tensor

from ... import addmm_ref as reference
from .gemm import Epilogue, product

TORCH = {"complex numbers": "Triton has none"}


def nn(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.is_complex:
        return reference.nn(x, a, b)
    return product(a, b, Epilogue(x=x.expand(a.shape[0], b.shape[1])))


def nt(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.is_complex:
        return reference.nt(x, a, b)
    return nn(x, a, b.t())


def tn(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.is_complex:
        return reference.tn(x, a, b)
    return nn(x, a.t(), b)

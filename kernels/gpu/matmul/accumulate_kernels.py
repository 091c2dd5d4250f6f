"""Sums of matrix products: a product is added to the sum before it is stored.

It is not rounded before. The sum is read and written once, where a tile of the product is made.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

from ... import matmul_ref as products
from ...pointwise_chain_ref import Function
from .epilogue_kernels import BY_COLUMNS, BY_ROWS
from .gemm import Epilogue, product


def accumulate(made: Function, dtype: torch.dtype) -> Callable[..., Tensor]:
    def run(a: Tensor, b: Tensor, total: Tensor | None = None) -> Tensor:
        if made is products.rows_tn:
            a, b = (x.reshape(prod(x.shape[:-1]), x.shape[-1]) for x in (a, b))
        a = a.t() if made in BY_COLUMNS else a
        b = b.t() if made in BY_ROWS else b
        if total is None:
            return product(a, b, dtype=dtype)
        return product(a, b, Epilogue(x=total), out=total)

    return run

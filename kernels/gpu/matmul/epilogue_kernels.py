"""Matrix products with a pointwise epilogue, which is computed from the tile in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor

from ... import epilogue_ref as reference, matmul_ref as products
from ...pointwise_chain_ref import Chain, Function
from ...select import triton_kernel
from ..pointwise.pointwise_chain_kernels import expression_of, one
from ..pointwise.prologue import function_of
from ..update.pointer_table import DTYPES
from .gemm import Epilogue, product

BY_COLUMNS = (products.mm_tn, products.rows_tn)  # of the left operand
BY_ROWS = (products.linear, products.matmul_nt, products.mm_nt)  # of the right operand


def with_epilogue(
    made: Function, operands: int, chain: Chain, kept: bool
) -> Callable[..., Tensor | tuple[Tensor, Tensor]]:
    alone = triton_kernel(made)
    assert alone is not None
    by_parts = reference.in_parts(alone, one(chain), operands, kept)
    functions: dict[tuple[torch.dtype, ...], tuple[object, torch.dtype]] = {}

    def run(*tensors: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        a, b, *bias = tensors[:operands]
        if made is products.rows_tn:
            a, b = (x.reshape(prod(x.shape[:-1]), x.shape[-1]) for x in (a, b))
        a = a.t() if made in BY_COLUMNS else a
        b = b.t() if made in BY_ROWS else b
        shape = (*a.shape[:-1], b.shape[1])
        rows = [_as_rows(x, shape) for x in tensors[operands:]]
        vectors = all(x.ndim == 1 for x in bias)
        if a.dtype not in DTYPES or not vectors or None in rows or 0 in shape:
            return by_parts(*tensors)
        dtypes = tuple([x.dtype for x in (a, *tensors[operands:])])
        found = functions.get(dtypes)
        if found is None:
            expression, numbers = expression_of(chain, [a, *tensors[operands:]])
            output = expression.dtype(expression.outputs[0])
            found = functions[dtypes] = function_of(expression, tuple(numbers)), output
        function, output = found
        value = torch.empty(shape, dtype=a.dtype, device=a.device) if kept else None
        x, z = (*rows, None, None)[:2]
        end = Epilogue(bias[0] if bias else None, x, z, value, function, a.dtype)
        matrix = a.reshape(prod(a.shape[:-1]), a.shape[-1])
        result = product(matrix, b, end, dtype=output).view(shape)
        return result if value is None else (result, value)

    return run


def _as_rows(x: Tensor, shape: Sequence[int]) -> Tensor | None:
    """x as rows of the product, or as one row for all of them. None for other layouts."""
    if x.shape == tuple(shape):
        return x.reshape(-1, shape[-1]) if x.is_contiguous() else None
    return x.reshape(shape[-1]) if x.ndim and x.numel() == x.shape[-1] == shape[-1] else None

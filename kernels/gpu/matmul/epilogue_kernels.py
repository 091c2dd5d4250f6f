"""Matrix products with a pointwise epilogue, which is computed from the tile in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from ... import matmul_ref as products
from ...pointwise_chain_ref import Chain
from ...select import triton_kernel
from ..launch.aot_cases import Case
from ..pointwise.pointwise_chain_kernels import expression_of, one
from ..pointwise.prologue import function_of
from ..update.pointer_table import DTYPES
from .gemm import Epilogue, product

TORCH = {"nothing by itself": "what has no such ending is made by the Triton kernels of both parts"}
CASES: list[Case] = []  # its kernels are those of `gemm_tiles` and `gemm_tma`

_BY_ROWS = (products.linear, products.matmul_nt, products.mm_nt)  # of the right operand


def with_epilogue(
    made: Callable[..., Tensor], operands: int, chain: Chain, kept: bool
) -> Callable[..., Any]:
    by_parts = _by_parts(made, operands, chain, kept)
    functions: dict[tuple[torch.dtype, ...], tuple[Any, torch.dtype]] = {}

    def run(*tensors: Tensor) -> Any:
        a, b, *bias = tensors[:operands]
        a = a.t() if made is products.mm_tn else a
        b = b.t() if made in _BY_ROWS else b
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
        return (result, value) if kept else result

    return run


def _by_parts(
    made: Callable[..., Tensor], operands: int, chain: Chain, kept: bool
) -> Callable[..., Any]:
    """The same result with one kernel for the product and one for the chain."""
    alone, end = triton_kernel(made), one(chain)
    assert alone is not None

    def run(*tensors: Tensor) -> Any:
        value = alone(*tensors[:operands])
        result = end(value, *tensors[operands:])
        return (result, value) if kept else result

    return run


def _as_rows(x: Tensor, shape: Sequence[int]) -> Tensor | None:
    """x as rows of the product, or as one row for all of them. None for other layouts."""
    if x.shape == tuple(shape):
        return x.reshape(-1, shape[-1]) if x.is_contiguous() else None
    return x.reshape(shape[-1]) if x.ndim and x.numel() == x.shape[-1] == shape[-1] else None

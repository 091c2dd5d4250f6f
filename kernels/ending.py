"""Endings: a matrix product and the pointwise chain that takes it, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from . import matmul
from .chain import Chain, one

# The products that may have endings, where the right operand is a matrix.
PRODUCTS: tuple[Callable[..., Tensor], ...] = (
    matmul.linear, matmul.matmul, matmul.matmul_nt, matmul.mm, matmul.mm_nt, matmul.mm_tn,
)  # fmt: skip
MOST_BESIDE = 2  # tensors that the chain takes beside the product


def ended(
    product: Callable[..., Tensor], operands: int, chain: Chain, kept: bool
) -> Callable[..., Any]:
    """The function from the operands, and the chain's inputs after its first, to its output.

    The first input is the product, which is an output too if `kept`.
    """
    end = one(chain)

    def run(*tensors: Tensor) -> Any:
        value = product(*tensors[:operands])
        result = end(value, *tensors[operands:])
        return (result, value) if kept else result

    return run

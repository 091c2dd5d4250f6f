"""Matrix products with an epilogue: a pointwise chain that is applied to the product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from . import matmul_ref
from .pointwise_chain_ref import Chain, one

# The products that may have endings, where the right operand is a matrix.
PRODUCTS: tuple[Callable[..., Tensor], ...] = (
    matmul_ref.linear,
    matmul_ref.matmul,
    matmul_ref.matmul_nt,
    matmul_ref.mm,
    matmul_ref.mm_nt,
    matmul_ref.mm_tn,
)
MOST_BESIDE = 2  # tensors that the chain takes beside the product


def with_epilogue(
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

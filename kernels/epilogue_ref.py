"""Matrix products with an epilogue: a pointwise chain that is applied to the product."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from . import matmul_ref
from .pointwise_chain_ref import Chain, Function, one

# The products that may have endings: of rows with a matrix, or of rows with rows.
PRODUCTS: tuple[Function, ...] = (
    matmul_ref.linear,
    matmul_ref.matmul,
    matmul_ref.matmul_nt,
    matmul_ref.mm,
    matmul_ref.mm_nt,
    matmul_ref.mm_tn,
    matmul_ref.rows_tn,
)
MAX_EXTRA = 2  # tensors that the chain takes besides the product


def with_epilogue(
    product: Function, operands: int, chain: Chain, kept: bool
) -> Callable[..., Tensor | tuple[Tensor, Tensor]]:
    """The function from the operands, and the chain's inputs after its first, to its output.

    The first input is the product, which is an output too if `kept`.
    """
    return in_parts(product, one(chain), operands, kept)


def in_parts(
    product: Function, end: Function, operands: int, kept: bool
) -> Callable[..., Tensor | tuple[Tensor, Tensor]]:
    """`with_epilogue` by one function for the product and one for the chain."""

    def run(*tensors: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        value = product(*tensors[:operands])
        result = end(value, *tensors[operands:])
        return (result, value) if kept else result

    return run

"""Sums of matrix products over several calls, such as a weight's gradient over micro-batches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .pointwise_chain_ref import Function


def accumulate(product: Function, dtype: torch.dtype) -> Callable[..., Tensor]:
    """The function that adds a product to a sum of this dtype, in the sum's memory.

    Without a sum it gives the product, in memory of its own. The product is one of two matrices.

    >>> add = accumulate(torch.mm, torch.float32)
    >>> a = torch.ones(2, 2, dtype=torch.bfloat16)
    >>> add(a, a, add(a, a))
    tensor([[4., 4.],
            [4., 4.]])
    """

    def run(a: Tensor, b: Tensor, total: Tensor | None = None) -> Tensor:
        value = product(a, b)
        return value.to(dtype) if total is None else total.add_(value)

    return run

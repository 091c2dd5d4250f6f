"""Cross entropy of the outputs of a linear layer, in chunks of rows.

One kernel computes the losses and the gradient of a chunk's logits. The product for the weight's
gradient accumulates in its epilogue.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ... import linear_cross_entropy_ref as torchs
from ..pointwise.copy_kernels import cat, reshape
from ..reduce.cross_entropy_kernels import row_losses, row_losses_and_grad
from ..reduce.reduce_kernels import total
from ..reduce.reduction_tiles import wide_of
from .gemm import Epilogue, product

# Left to torch: the loss of nothing.


def _chunks(x: Tensor, target: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Some rows, and their targets."""
    size = torchs.rows_of_chunk(target.numel())
    rows = reshape(x, (x.shape[:-1].numel(), x.shape[-1])).split(size)
    return list(zip(rows, reshape(target, (-1,)).split(size), strict=True))


def linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, ignore_index: int, dtype: torch.dtype | None
) -> Tensor:
    if not x.numel() or not weight.numel():
        return torchs.linear_cross_entropy(x, weight, target, ignore_index, dtype)
    losses = [
        row_losses(product(rows, weight.t()), wanted, ignore_index)
        for rows, wanted in _chunks(x, target)
    ]
    return total(cat(losses), None, False, dtype or x.dtype)


def linear_cross_entropy_with_grads(
    x: Tensor, weight: Tensor, target: Tensor, ignore_index: int, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor, Tensor]:
    if not x.numel() or not weight.numel():
        return torchs.linear_cross_entropy_with_grads(x, weight, target, ignore_index, dtype)
    chunks = _chunks(x, target)
    dx = torch.empty((target.numel(), x.shape[-1]), dtype=x.dtype, device=x.device)
    dw: Tensor | None = None
    losses = []
    for number, ((rows, wanted), part) in enumerate(
        zip(chunks, dx.split(chunks[0][1].numel()), strict=True), 1
    ):
        each, slope = row_losses_and_grad(product(rows, weight.t()), wanted, ignore_index)
        losses.append(each)
        product(slope, weight, out=part)
        wide = wide_of(weight.dtype)
        made = dtype or weight.dtype if number == len(chunks) else wide
        dw = product(slope.t(), rows, Epilogue(x=dw), dtype=made)
    assert dw is not None
    return total(cat(losses), None, False, dtype or x.dtype), dx.view(x.shape), dw

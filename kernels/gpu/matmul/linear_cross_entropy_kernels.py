"""Cross entropy of the outputs of a linear layer, in chunks of rows.

One kernel computes the losses and the gradient of a chunk's logits. The product for the weight's
gradient accumulates in its epilogue.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ... import linear_cross_entropy_ref as torchs
from ..pointwise.copy_kernels import cat, copy_into, reshape
from ..pointwise.pointwise_kernels import of_torch
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
    x: Tensor, weight: Tensor, target: Tensor, count: Tensor | None, ignore_index: int,
    dtype: torch.dtype | None,
) -> Tensor:  # fmt: skip
    if not x.numel() or not weight.numel():
        return torchs.linear_cross_entropy(x, weight, target, count, ignore_index, dtype)
    losses = [
        row_losses(product(rows, weight.t()), wanted, ignore_index)
        for rows, wanted in _chunks(x, target)
    ]
    return _whole(losses, count, dtype or x.dtype)


def linear_cross_entropy_with_grads(
    x: Tensor, weight: Tensor, target: Tensor, count: Tensor | None, ignore_index: int,
    dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    if not x.numel() or not weight.numel():
        return torchs.linear_cross_entropy_with_grads(x, weight, target, count, ignore_index, dtype)
    loss, dx, dw = _with_grads(x, weight, target, count, ignore_index, dtype, True)
    assert dw is not None
    return loss, dx, dw


def linear_cross_entropy_with_input_grad(
    x: Tensor, weight: Tensor, target: Tensor, count: Tensor | None, ignore_index: int,
    dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    args = x, weight, target, count, ignore_index, dtype
    if not x.numel() or not weight.numel():
        return torchs.linear_cross_entropy_with_input_grad(*args)
    return _with_grads(*args, False)[:2]


def _with_grads(
    x: Tensor, weight: Tensor, target: Tensor, count: Tensor | None, ignore_index: int,
    dtype: torch.dtype | None, of_weight: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """The loss and the gradients for x and, if asked for, the weight."""
    chunks = _chunks(x, target)
    dx = torch.empty((target.numel(), x.shape[-1]), dtype=x.dtype, device=x.device)
    dw: Tensor | None = None
    early, late = (count, None) if torchs.divides_logits(x) else (None, _at_least_one(count))
    losses = []
    for number, ((rows, wanted), part) in enumerate(
        zip(chunks, dx.split(chunks[0][1].numel()), strict=True), 1
    ):
        logits = product(rows, weight.t())
        each, slope = row_losses_and_grad(logits, wanted, early, ignore_index)
        losses.append(each)
        product(slope, weight, out=part)
        if of_weight:
            wide = wide_of(weight.dtype)
            made = dtype or weight.dtype if number == len(chunks) else wide
            dw = product(slope.t(), rows, Epilogue(x=dw), dtype=made)
    loss = _whole(losses, count, dtype or x.dtype)
    return loss, _divided(dx.view(x.shape), late), None if dw is None else _divided(dw, late)


def _whole(losses: list[Tensor], count: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The sum of the losses over a count, rounded once: in float16 the sum may be infinite."""
    exact = _divided(total(cat(losses), None, False, None), count)
    if exact.dtype is dtype:
        return exact
    loss = torch.empty((), dtype=dtype, device=exact.device)
    copy_into(loss, exact)
    return loss


def _at_least_one(count: Tensor | None) -> Tensor | None:
    """What gradients are divided by: without targets they are 0."""
    clamp = of_torch(torch.clamp_min)
    assert clamp is not None
    return None if count is None else clamp(count, 1)


def _divided(x: Tensor, count: Tensor | None) -> Tensor:
    divide = of_torch(torch.div)
    assert divide is not None
    return x if count is None else divide(x, count)

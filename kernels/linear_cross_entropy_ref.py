"""Cross entropy of the outputs of a linear layer, in chunks of rows, without all logits at once."""

from __future__ import annotations

import torch
from torch import Tensor

from .cross_entropy_ref import whole_cross_entropy, whole_cross_entropy_grad

CHUNK = 2048  # rows at least; enough for a matrix product to be as fast as a large one
_SHARE = 4  # chunks at most: the sum over them is read and written with each


def rows_of_chunk(rows: int) -> int:
    """The rows of a chunk: `CHUNK`, or more where there are many.

    >>> from onefold.kernels.linear_cross_entropy_ref import rows_of_chunk
    >>> rows_of_chunk(2048), rows_of_chunk(65536)
    (2048, 16384)
    """
    return CHUNK * max(1, -(-rows // (CHUNK * _SHARE)))


def divides_logits(x: Tensor) -> bool:
    """Whether the gradient of logits is divided by a count, which takes no pass of its own.

    In float16 that of many rows would be 0: the products are divided instead.
    """
    return x.dtype is not torch.float16


def in_chunks(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    count: Tensor | None,
    ignore_index: int,
    dtype: torch.dtype | None,
    of_x: bool = False,
    of_weight: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of the losses, and its gradients for x and weight, which are empty unless asked for.

    `x` is (..., h), `weight` (classes, h). All three are divided by `count`, if there is one. Sums
    over chunks are kept in float32 at least. The loss and the gradient of the weight are made in
    `dtype`; None: in those of x and the weight.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    rows = x.reshape(x.shape[:-1].numel(), x.shape[-1])
    target = target.reshape(-1)
    loss = torch.zeros((), dtype=wide, device=x.device)
    dx = torch.empty_like(rows) if of_x else x.new_empty(0)
    dw = torch.zeros(weight.shape if of_weight else 0, dtype=wide, device=x.device)
    share = torch.ones((), dtype=wide, device=x.device)
    if count is not None and divides_logits(x):
        share = share / count
    size = rows_of_chunk(rows.shape[0])
    for start in range(0, rows.shape[0], size):
        part, wanted = rows[start : start + size], target[start : start + size]
        logits = part.matmul(weight.mT)
        each = whole_cross_entropy(logits, wanted, None, False, "none", ignore_index, 0.0, dtype)
        loss += each.sum(dtype=wide)
        if of_x:
            attrs = (None, False, "sum", ignore_index, 0.0)
            slope = whole_cross_entropy_grad(share, logits, wanted, *attrs)
            del logits
            dx[start : start + size] = slope.matmul(weight)
            if of_weight:
                dw += slope.t().mm(part)
    dx = dx.view(x.shape) if of_x else dx
    if count is not None:
        loss = loss / count
        if not divides_logits(x):
            held = count.clamp(min=1)  # without targets the gradients are 0
            dx, dw = dx / held, dw / held
    return loss.to(dtype or x.dtype), dx, dw.to(dtype or weight.dtype)


def linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, count: Tensor | None, ignore_index: int,
    dtype: torch.dtype | None,
) -> Tensor:  # fmt: skip
    """The sum of the cross entropies of x @ weight.T, divided by a count, if there is one.

    x is (..., h), the target lacks h.
    """
    return in_chunks(x, weight, target, count, ignore_index, dtype)[0]


def linear_cross_entropy_with_grads(
    x: Tensor, weight: Tensor, target: Tensor, count: Tensor | None, ignore_index: int,
    dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The same, with its gradients for x and weight, for which the logits are at hand."""
    return in_chunks(x, weight, target, count, ignore_index, dtype, True, True)


def linear_cross_entropy_with_input_grad(
    x: Tensor, weight: Tensor, target: Tensor, count: Tensor | None, ignore_index: int,
    dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The same with the gradient for x alone, where the weight is frozen."""
    return in_chunks(x, weight, target, count, ignore_index, dtype, True)[:2]

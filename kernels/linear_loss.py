"""The cross entropy of a linear layer's outputs in chunks of rows: the logits are never whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from . import loss, matmul, reduce

CHUNK = 2048  # rows; enough for a matrix product to be as fast as a large one


@dataclass(frozen=True, slots=True)
class Parts:
    """What a chunk is worked on with."""

    matmul_nt: Callable[..., Tensor]
    matmul: Callable[..., Tensor]
    mm_tn: Callable[..., Tensor]
    loss: Callable[..., Tensor]
    grad: Callable[..., Tensor]
    total: Callable[..., Tensor]


_TORCH = Parts(
    matmul.matmul_nt, torch.matmul, matmul.mm_tn, loss.whole_class_loss,
    loss.whole_class_loss_grad, reduce.total,
)  # fmt: skip


def in_chunks(
    x: Tensor, weight: Tensor, target: Tensor, ignore_index: int, with_grads: bool, parts: Parts
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of the losses, and (empty without `with_grads`) its gradients for x and weight.

    `x` is (..., h), `weight` (classes, h). Sums over chunks are kept in float32 at least.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    rows = x.reshape(x.shape[:-1].numel(), x.shape[-1])
    target = target.reshape(-1)
    loss = torch.zeros((), dtype=wide, device=x.device)
    dx = torch.empty_like(rows) if with_grads else x.new_empty(0)
    dw = torch.zeros(weight.shape if with_grads else 0, dtype=wide, device=x.device)
    one = torch.ones((), dtype=x.dtype, device=x.device)
    for start in range(0, rows.shape[0], CHUNK):
        part, wanted = rows[start : start + CHUNK], target[start : start + CHUNK]
        logits = parts.matmul_nt(part, weight)
        attrs = (None, False, "sum", ignore_index, 0.0)
        each = parts.loss(logits, wanted, None, False, "none", ignore_index, 0.0)
        loss += parts.total(each, None, False, wide)
        if with_grads:
            slope = parts.grad(one, logits, wanted, *attrs)
            del logits
            dx[start : start + CHUNK] = parts.matmul(slope, weight)
            dw += parts.mm_tn(slope, part)
    dx = dx.view(x.shape) if with_grads else dx
    return loss.to(x.dtype), dx, dw.to(weight.dtype)


def linear_class_loss(x: Tensor, weight: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    """The sum of the cross entropies of x @ weight.T; x is (..., h), the target lacks h."""
    return in_chunks(x, weight, target, ignore_index, False, _TORCH)[0]


def linear_class_loss_kept(
    x: Tensor, weight: Tensor, target: Tensor, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The same, with its gradients for x and weight, for which the logits are at hand."""
    return in_chunks(x, weight, target, ignore_index, True, _TORCH)

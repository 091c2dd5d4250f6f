"""Cross entropy and nll loss on local tensors, which may hold only some of the classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_nll_loss: Callable[..., Tensor] = torch._C._nn.nll_loss_nd
_cross_entropy_loss: Callable[..., Tensor] = torch._C._nn.cross_entropy_loss
_log_softmax_grad: Callable[..., Tensor] = torch._log_softmax_backward_data
_aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Classes:
    """Which classes a shard holds, and what the loss makes of the targets.

    The shard's class dim counts `first`, `first + 1`, ... of `total` classes.
    """

    first: int
    total: int
    ignore_index: int
    smoothing: float


def check_targets(target: Tensor, classes: Classes) -> None:
    """Raise IndexError for a target that is no class; on the CPU only, where looking is cheap."""
    if target.device.type != "cpu" or target.numel() == 0:
        return
    wrong = (target != classes.ignore_index) & ((target < 0) | (target >= classes.total))
    if bool(wrong.any()):
        raise IndexError(f"Target {target[wrong].flatten()[0].item()} is out of bounds.")


def target_weights(
    target: Tensor, weight: Tensor | None, classes: Classes, dtype: torch.dtype
) -> Tensor:
    """How much each target weighs: its class's weight (default 1), 0 where it is ignored.

    With label smoothing, the sum of what all classes weigh for this target.
    """
    valid = (target != classes.ignore_index).to(dtype)
    if weight is None:
        return valid
    own = weight[torch.where(target == classes.ignore_index, 0, target)]
    smoothing = classes.smoothing
    if smoothing == 0.0:
        return own * valid
    return (own * (1.0 - smoothing) + weight.sum() * (smoothing / classes.total)) * valid


def _place(target: Tensor, classes: Classes, held: int) -> tuple[Tensor, Tensor]:
    """Where each target lies in the shard's class dim, and whether it does."""
    index = target - classes.first
    inside = (target != classes.ignore_index) & (index >= 0) & (index < held)
    return torch.where(inside, index, 0), inside


def cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, lse: Tensor | None, classes: Classes
) -> Tensor:
    """The part of each target's loss that the shard's classes give; parts of all shards add up.

    `x` is (N, C, ...) or (C,), target and `lse` (the logarithm of the sum of exponentials over all
    classes; None: x is log probabilities already) lack the class dim. `weight` has all classes.
    The parts are in the dtype of `lse`: rounded to halves their sum would be far off.
    """
    check_targets(target, classes)
    dim = 1 if x.ndim > 1 else 0
    held = x.shape[dim]
    offset = torch.zeros((), dtype=x.dtype, device=x.device) if lse is None else lse
    if held == 0:
        return torch.zeros_like(target, dtype=offset.dtype)
    index, inside = _place(target, classes, held)
    loss = offset - x.gather(dim, index.unsqueeze(dim)).squeeze(dim)
    if weight is not None:
        loss = loss * weight[torch.where(inside, target, 0)]
    # where, not a product: an infinite logit of another class must not turn into nan.
    loss = torch.where(inside, loss * (1.0 - classes.smoothing), 0.0)
    if classes.smoothing == 0.0:
        return loss
    every = offset.unsqueeze(dim) - x
    if weight is not None:
        every = every * _along(weight[classes.first : classes.first + held], x.ndim, dim)
    smooth = every.sum(dim) * (classes.smoothing / classes.total)
    return loss + torch.where(target == classes.ignore_index, 0.0, smooth)


def cross_entropy_grad(
    dy: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, lse: Tensor | None,
    classes: Classes,
) -> Tensor:  # fmt: skip
    """The gradient of `cross_entropy` for x, where dy is that of each target's loss (or of all)."""
    dim = 1 if x.ndim > 1 else 0
    held = x.shape[dim]
    if held == 0:
        return torch.zeros_like(x)
    if lse is None:
        dx = torch.zeros_like(x)
    else:
        dy = dy.to(lse.dtype)
        # where, not a product: dy may be infinite, where all targets of a mean are ignored.
        counted = torch.where(target == classes.ignore_index, 0.0, dy)
        every = counted * target_weights(target, weight, classes, x.dtype)
        dx = (x - lse.unsqueeze(dim)).exp_().mul_(every.unsqueeze(dim))
    index, inside = _place(target, classes, held)
    own = torch.where(inside, dy, 0.0) * (classes.smoothing - 1.0)
    if weight is not None:
        own = own * weight[torch.where(inside, target, 0)]
    dx.scatter_add_(dim, index.unsqueeze(dim), own.unsqueeze(dim))
    if classes.smoothing != 0.0:
        share = torch.where(target == classes.ignore_index, 0.0, dy).unsqueeze(dim)
        share = share * (classes.smoothing / classes.total)
        if weight is not None:
            share = share * _along(weight[classes.first : classes.first + held], x.ndim, dim)
        dx -= share
    return dx.to(x.dtype)


def whole_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, log_input: bool, reduction: str,
    ignore_index: int, smoothing: float, dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """torch's cross_entropy, or its nll_loss when `log_input`, for a shard with all classes.

    The loss is made in `dtype`, to which x is widened first; None: in that of x.
    """
    number = _REDUCTIONS[reduction]
    x = x if dtype is None else x.to(dtype)
    if log_input:
        return _nll_loss(x, target, weight, number, ignore_index)
    return _cross_entropy_loss(x, target, weight, number, ignore_index, smoothing)


def whole_cross_entropy_with_lse(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int,
    smoothing: float, dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The same for logits, with the logarithms of the sums of exponentials, in float32 at least."""
    attrs = (False, reduction, ignore_index, smoothing, dtype)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    dim = 1 if x.ndim > 1 else 0
    return whole_cross_entropy(x, target, weight, *attrs), torch.logsumexp(wide, dim)


def whole_cross_entropy_grad(
    dy: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, log_input: bool, reduction: str,
    ignore_index: int, smoothing: float, lse: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `whole_cross_entropy` for x, made in the dtype of dy.

    By torch's own kernels, forward run again; or from `lse` as `whole_cross_entropy_with_lse` gave
    it.
    """
    if x.numel() == 0:
        return torch.zeros_like(x)
    if lse is not None:
        classes = Classes(0, x.shape[1 if x.ndim > 1 else 0], ignore_index, smoothing)
        if reduction == "mean":
            own = replace(classes, smoothing=0.0)
            dy = dy / target_weights(target, weight, own, lse.dtype).sum()
        return cross_entropy_grad(dy, x, target, weight, lse, classes)
    if x.ndim == 2 and smoothing == 0.0:
        logs = x.detach().to(dy.dtype)
        return _by_logs(dy, logs, target, weight, log_input, reduction, ignore_index).to(x.dtype)
    wide = x.detach().to(dy.dtype).requires_grad_()
    attrs = (log_input, reduction, ignore_index, smoothing)
    with torch.enable_grad():
        loss = whole_cross_entropy(wide, target, weight, *attrs)
    return torch.autograd.grad(loss, wide, dy)[0].to(x.dtype)


def _by_logs(
    dy: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, log_input: bool, reduction: str,
    ignore_index: int,
) -> Tensor:  # fmt: skip
    """The gradient of rows, by the kernels that torch's autograd runs for it."""
    logs = x if log_input else torch.log_softmax(x, 1)
    number = _REDUCTIONS[reduction]
    _, total = _aten.nll_loss_forward(logs, target, weight, number, ignore_index)
    dlogs = _aten.nll_loss_backward(dy, logs, target, weight, number, ignore_index, total)
    return dlogs if log_input else _log_softmax_grad(dlogs, logs, 1, x.dtype)


def _along(vector: Tensor, ndim: int, dim: int) -> Tensor:
    return vector.view([-1 if i == dim else 1 for i in range(ndim)])


def whole_cross_entropy_and_grad(
    dy: Tensor | None, x: Tensor, target: Tensor, reduction: str, ignore_index: int,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The loss of `whole_cross_entropy_with_lse` and its gradient for x, as one after the other.

    There are no weights and no smoothing. `dy` is the gradient of the loss; None: it is 1.
    """
    y, lse = whole_cross_entropy_with_lse(x, target, None, reduction, ignore_index, 0.0, dtype)
    dy = torch.ones_like(y) if dy is None else dy
    attrs = (False, reduction, ignore_index, 0.0, lse)
    return y, whole_cross_entropy_grad(dy, x, target, None, *attrs)

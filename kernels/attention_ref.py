"""Scaled dot product attention and its gradient on local tensors."""

from __future__ import annotations

import torch
from torch import Tensor

WIDEST = 256  # features of a head in the Triton kernels: a tile of more does not fit the registers

_attention = torch._C._nn.scaled_dot_product_attention
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def causal_mask(rows: int, columns: int, first: int, device: torch.device) -> Tensor:
    """Whether query `first + i` may see key j: True where j <= first + i."""
    return torch.ones(rows, columns, dtype=torch.bool, device=device).tril_(first)


def causal_fill(x: Tensor, value: float, first: int) -> Tensor:
    """x[..., i, j] where key j <= first + i, else a value."""
    return torch.where(causal_mask(x.shape[-2], x.shape[-1], first, x.device), x, value)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    grouped: bool,
    first: int,
) -> Tensor:
    """softmax(q k^T * scale + mask) v; `first` is the logical index of the first query.

    A row whose keys are all masked gives zeros. `grouped` lets several query heads share one head
    of keys and values.
    """
    if causal and first:
        mask = causal_mask(q.shape[-2], k.shape[-2], first, q.device)
        causal = False
    if 0 in (q.numel(), k.numel(), v.numel()):
        batch = torch.broadcast_shapes(q.shape[:-2], (() if grouped else k.shape[:-2]))
        return q.new_zeros(*batch, q.shape[-2], v.shape[-1])
    return _attention(q, k, v, mask, 0.0, causal, scale=scale, enable_gqa=grouped)


def attention_grad(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    grouped: bool,
    first: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `attention` for q, k and v, by torch's own kernels, forward run again."""
    if 0 in (q.numel(), k.numel(), v.numel()):
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    with torch.enable_grad():
        y = attention(inputs[0], inputs[1], inputs[2], mask, causal, scale, grouped, first)
    dq, dk, dv = torch.autograd.grad(y, inputs, dy)
    return dq, dk, dv


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """What `attention` gives on the CPU for (batch, heads, length, features) without a mask.

    With the logarithm of each row's sum, of shape (batch, heads, length), from which the gradient
    is computed without the forward.
    """
    assert q.shape[:2] == k.shape[:2] and k.shape == v.shape  # the kernel does not look
    sums = q.dtype if q.dtype is torch.float64 else torch.float32
    if 0 in (q.numel(), k.numel()):
        return torch.zeros_like(q), q.new_zeros(q.shape[:-1], dtype=sums)
    y, logs = _flash(*map(_in_rows, (q, k, v)), 0.0, causal, scale=scale)
    return y, logs


def flash_attention_grad(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, logs: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `flash_attention` for q, k and v."""
    assert q.shape[:2] == k.shape[:2] and k.shape == v.shape  # the kernel does not look
    assert dy.shape == y.shape == q.shape and logs.shape == q.shape[:-1]
    if 0 in (q.numel(), k.numel()):
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    tensors = map(_in_rows, (dy, q, k, v, y))
    dq, dk, dv = _flash_backward(*tensors, logs, 0.0, causal, scale=scale)
    return dq, dk, dv


def _in_rows(x: Tensor) -> Tensor:
    """The tensor with its last dim dense, as the fused kernels read it."""
    return x if x.stride(-1) == 1 else x.contiguous()

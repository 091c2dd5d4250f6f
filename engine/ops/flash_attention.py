"""Fused attention that keeps what its gradient needs, so that forward is not run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...kernels import attention as kernels
from ...kernels.select import uses_triton
from .. import interp
from ..dispatch import general
from ..meta import Meta
from ..op import Op
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .attention_parts import gradients
from .attention_shapes import FLOATS, device_type


def fits(q: Meta, k: Meta, v: Meta, mask: object, grouped: bool) -> bool:
    """Whether the op can do attention on these: batch and heads split at most, and a kernel."""
    plain = mask is None and not grouped and q.dtype in FLOATS and q.dtype == k.dtype == v.dtype
    alike = q.ndim == 4 and k.shape == v.shape and q.shape[:2] == k.shape[:2]
    if not plain or not alike or q.shape[-1] != k.shape[-1]:
        return False
    return all(_rows_whole(meta) and _has_kernel(meta) for meta in (q, k, v))


def _rows_whole(meta: Meta) -> bool:
    return not meta.partial and all(sbp.dim < 2 for sbp in meta.nd_sbp)


def _has_kernel(meta: Meta) -> bool:
    """torch has one for the CPU alone; that of Triton has a widest head."""
    device = device_type(meta)
    if uses_triton(device):
        return meta.shape[-1] <= kernels.WIDEST
    return device == "cpu"


class FlashAttention(Op):
    """y = softmax(q k^T * scale) v, and the logarithms of the softmax's sums"""

    name = "flash_attention"
    num_outputs = 2
    saves_output = True

    kernel = staticmethod(kernels.flash_attention)

    def infer(self, q: Meta, k: Meta, v: Meta, *attrs: Any) -> tuple[Meta, Meta]:
        sums = q.dtype if q.dtype is torch.float64 else torch.float32
        return q, q.like(shape=q.shape[:-1], dtype=sums)

    def rule(self, axis: Axis, q: Meta, k: Meta, v: Meta, causal: bool, scale: float) -> Rule:
        found = [Signature((split(dim),) * 3, (split(dim),) * 2) for dim in (0, 1)]
        if not causal:
            found.append(Signature((split(2), broadcast, broadcast), (split(2),) * 2))
        found.append(Signature((broadcast, broadcast, partial_sum), (partial_sum, broadcast)))
        return found

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        k = inputs[1]
        assert k is not None
        return 4.0 * k.shape[-2] * outputs[0].numel

    def vjp(
        self,
        needs: Sequence[object],
        dy: tuple[Tensor | None, ...],
        y: tuple[Tensor, Tensor],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        causal: bool,
        scale: float,
    ) -> Any:
        assert dy[0] is not None  # the logarithms are for the gradient only
        if interp.grad_enabled:  # the fused gradient cannot be differentiated again
            return gradients(dy[0], q, k, v, None, (causal, scale, False))[:3]
        return _flash_attention_grad((dy[0], q, k, v, *y), causal, scale)


class FlashAttentionGrad(Op):
    """Gradients of fused attention for q, k and v"""

    name = "flash_attention_grad"
    num_outputs = 3
    differentiable = False

    kernel = staticmethod(kernels.flash_attention_grad)

    def infer(self, dy: Meta, q: Meta, k: Meta, v: Meta, *others: Any) -> tuple[Meta, ...]:
        return q, k, v

    def rule(self, axis: Axis, *args: Any) -> Rule:
        return [Signature((split(dim),) * 6, (split(dim),) * 3) for dim in (0, 1)]

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        q, k, _ = outputs
        return 8.0 * k.shape[-2] * q.numel


flash_attention = general(FlashAttention(), only_first=True)
_flash_attention_grad = general(FlashAttentionGrad())

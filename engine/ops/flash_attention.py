"""Attention of whole rows without a mask, for which torch has a kernel on the CPU too."""

from __future__ import annotations

from typing import Any

from ...kernels import attention_ref as kernels
from ..dispatcher import several
from ..meta import Meta
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .attention_base import AttendsGrad, Keeping, logs_of
from .attention_decomposition import gradients
from .attention_shapes import FLOATS, device_type


def fits(q: Meta, k: Meta, v: Meta, triton: bool) -> bool:
    """Whether the op can do attention on these: batch and heads split at most, and a kernel.

    torch has one for the CPU alone; that of Triton has a widest head.
    """
    alike = q.ndim == 4 and k.shape == v.shape and q.shape[:2] == k.shape[:2]
    if not alike or q.shape[-1] != k.shape[-1]:
        return False
    if q.dtype not in FLOATS or not q.dtype == k.dtype == v.dtype:
        return False
    has_kernel = q.shape[-1] <= kernels.WIDEST if triton else device_type(q) == "cpu"
    return has_kernel and all(map(_rows_whole, (q, k, v)))


def _rows_whole(meta: Meta) -> bool:
    return not meta.partial and all(sbp.dim < 2 for sbp in meta.nd_sbp)


class FlashAttention(Keeping):
    """y = softmax(q k^T * scale) v, and the logarithms of the softmax's sums"""

    name = "flash_attention"
    kernel = staticmethod(kernels.flash_attention)

    def infer(self, q: Meta, k: Meta, v: Meta, *attrs: Any) -> tuple[Meta, Meta]:
        return q, logs_of(q, q.shape[:-1])

    def rule(self, axis: Axis, q: Meta, k: Meta, v: Meta, causal: bool, scale: float) -> Rule:
        found = [Signature((split(dim),) * 3, (split(dim),) * 2) for dim in (0, 1)]
        if not causal:
            found.append(Signature((split(2), broadcast, broadcast), (split(2),) * 2))
        found.append(Signature((broadcast, broadcast, partial_sum), (partial_sum, broadcast)))
        return found

    def gradients_in_parts(
        self, dy: Tensor, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float
    ) -> Any:
        return gradients(dy, q, k, v, None, (causal, scale, False))[:3]

    def gradients_at_once(self, dy: Tensor, y: tuple[Tensor, Tensor], *args: Any) -> Any:
        *tensors, causal, scale = args
        return _flash_attention_grad((dy, *tensors, *y), causal, scale)


class FlashAttentionGrad(AttendsGrad):
    """Gradients of flash attention for q, k and v"""

    name = "flash_attention_grad"
    kernel = staticmethod(kernels.flash_attention_grad)

    def rule(self, axis: Axis, *args: Any) -> Rule:
        return [Signature((split(dim),) * 6, (split(dim),) * 3) for dim in (0, 1)]


flash_attention = several(FlashAttention(), only_first=True)
_flash_attention_grad = several(FlashAttentionGrad())

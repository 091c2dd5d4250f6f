"""Attention by torch's own kernels, of any shape and mask; its gradient runs the forward again.

That is what the CPU has beside `flash_attention`, and any device for the widest heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from ...errors import OnefoldRuntimeError
from ...kernels import attention_ref as kernels
from .. import interpreter
from ..dispatcher import general, several
from ..meta import Meta
from ..op import Kernel, Local
from ..sbp import Sbp, broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .attention_base import Attends, AttendsGrad
from .attention_decomposition import gradients

Shape = tuple[int, ...]


@lru_cache(maxsize=4096)
def _letters(
    q: Shape, k: Shape, v: Shape, mask: Shape | None, grouped: bool, parts: int
) -> tuple[tuple[str, ...], ...]:
    """A letter per dim of q, k, v, mask and y; upper case where the dim must stay whole."""
    batch = max(len(q), len(k), len(v)) - 2
    letters = [f"b{i}" for i in range(batch)]
    sizes = [1] * batch
    for shape in (q, k, v):
        for i in range(len(shape) - 2):
            at = batch - len(shape) + 2 + i
            sizes[at] = max(sizes[at], shape[i])
    if grouped and k[-3] % parts:
        letters[-1] = "H"  # query heads would be cut off from their keys

    def own(shape: Shape, rows: str, columns: str) -> tuple[str, ...]:
        start = batch - (len(shape) - 2)
        found = [
            letters[start + i]
            if shape[i] == sizes[start + i] or (grouped and i == len(shape) - 3)
            else "X"
            for i in range(len(shape) - 2)
        ]
        return (*found, rows, columns)

    terms = [own(q, "s", "D"), own(k, "T", "D"), own(v, "T", "e")]
    if mask is not None:
        rows = "s" if len(mask) > 1 and mask[-2] == q[-2] else "X"
        terms.append(own((1, 1, *mask)[-max(len(mask), 2) :], rows, "T")[-len(mask) :])
    terms.append((*letters, "s", "e"))
    return tuple(terms)


def _split_letters(terms: Sequence[Sequence[str]]) -> list[str]:
    return [x for x in dict.fromkeys(x for term in terms for x in term) if x[0].islower()]


def _at(term: Sequence[str], letter: str, otherwise: Sbp) -> Sbp:
    return split(term.index(letter)) if letter in term else otherwise


class Attention(Attends):
    """y = softmax(q k^T * scale + mask) v"""

    name = "attention"

    def kernel(self, q: Any, k: Any, v: Any, mask: Any, *attrs: Any) -> torch.Tensor:
        causal, scale, grouped = attrs
        return kernels.attention(q, k, v, mask, causal, scale, grouped, 0)

    def infer(self, q: Meta, k: Meta, v: Meta, mask: Meta | None, *attrs: Any) -> Meta:
        if mask is not None and attrs[0]:
            raise OnefoldRuntimeError("explicit attn_mask should not be set when is_causal=True")
        plain = q.dtype == k.dtype == v.dtype and q.ndim == k.ndim == v.ndim and k.shape == v.shape
        if mask is None and plain and q.shape[:-2] == k.shape[:-2] and q.shape[-1] == k.shape[-1]:
            return q
        blanks = [
            None if m is None else torch.empty(m.shape, dtype=m.dtype, device="meta")
            for m in (q, k, v, mask)
        ]
        y = self.kernel(*blanks, *attrs)
        return Meta.of(y.shape, y.dtype, device=y.device)

    def rule(self, axis: Axis, q: Meta, k: Meta, v: Meta, mask: Meta | None, *attrs: Any) -> Rule:
        *inputs, out = _terms(axis, q, k, v, mask, attrs)
        found = [
            Signature(tuple(_at(t, x, broadcast) for t in inputs), (_at(out, x, broadcast),))
            for x in _split_letters([out])
        ]
        rest = () if mask is None else (broadcast,)
        found.append(Signature((broadcast, broadcast, partial_sum, *rest), (partial_sum,)))
        return found

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        first = local.input_offset(0)[-2]
        causal, scale, grouped = attrs
        kernel = local.pick(kernels.attention)
        return lambda q, k, v, mask: kernel(q, k, v, mask, causal, scale, grouped, first)

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        causal: bool,
        scale: float,
        grouped: bool,
    ) -> Any:
        # The fused gradient cannot be differentiated again, and leaves the mask out.
        if interpreter.grad_enabled or (mask is not None and needs[3]):
            return gradients(dy, q, k, v, mask, (causal, scale, grouped))
        return _attention_grad((dy, q, k, v, mask), causal, scale, grouped)


class AttentionGrad(AttendsGrad):
    """Gradients of attention for q, k and v"""

    name = "attention_grad"

    def rule(
        self, axis: Axis, dy: Meta, q: Meta, k: Meta, v: Meta, mask: Meta | None, *attrs: Any
    ) -> Rule:
        *inputs, out = _terms(axis, q, k, v, mask, attrs)
        inputs = [out, *inputs]
        # What lacks the split dim is summed over it.
        found = [
            Signature(
                tuple(_at(t, x, broadcast) for t in inputs),
                tuple(_at(t, x, partial_sum) for t in inputs[1:4]),
            )
            for x in _split_letters([out])
        ]
        rest = (broadcast,) * (len(inputs) - 1)
        return [*found, Signature((partial_sum, *rest), (partial_sum,) * 3)]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        first = local.input_offset(1)[-2]
        causal, scale, grouped = attrs
        kernel = local.pick(kernels.attention_grad)
        return lambda dy, q, k, v, mask: kernel(dy, q, k, v, mask, causal, scale, grouped, first)


def _terms(
    axis: Axis, q: Meta, k: Meta, v: Meta, mask: Meta | None, attrs: Sequence[Any]
) -> tuple[tuple[str, ...], ...]:
    shape = None if mask is None else tuple(mask.shape)
    return _letters(tuple(q.shape), tuple(k.shape), tuple(v.shape), shape, attrs[2], axis.parts)


attention = general(Attention())
_attention_grad = several(AttentionGrad())

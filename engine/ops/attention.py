"""Scaled dot product attention: one op for masks, windows, shared heads and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import OnefoldRuntimeError, OnefoldValueError
from ...kernels import attention_ref as kernels
from ...kernels.attention_ref import Dropped, Pairs
from ...kernels.philox import Seed
from ...kernels.select import uses_triton
from .. import interpreter
from ..dispatcher import several_of
from ..meta import Meta, Shape
from ..names import register_function
from ..op import Arg, Gradients, Kernel, Local, Needs, Op, required
from ..sbp import Sbp, broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .attention_decomposition import gradients, windowed
from .attention_shapes import check_dtypes, in_four_dims
from .dropout import DropoutKey, is_off, next_draw
from .reduce import sum_to
from .view import view


class Attends(Op):
    """y = softmax(q k^T * scale ...) v, and what its gradient needs besides

    These are the logarithms of the softmax's sums, or its weights (see `_keeps_weights`).
    """

    num_outputs = 2
    saves_output = True
    one_gradient = True

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        q, k = map(required, inputs[:2])
        return 2.0 * k.shape[-2] * (outputs[0].numel + q.numel)

    def flops_fraction(self, inputs: Sequence[Meta | None], attrs: object) -> float:
        return share_of_pairs(required(inputs[1]).shape[-2], attrs)

    def vjp(self, needs: Needs, dy: Sequence[Tensor], y: Sequence[Tensor], *args: Arg) -> Gradients:
        # What is made at once cannot be differentiated again, and leaves a mask out.
        if interpreter.is_grad_enabled() or any(needs[3:]):
            return self.gradients_in_parts(dy[0], *args)
        return self.gradients_at_once(dy[0], y, *args)

    def gradients_in_parts(self, dy: Tensor, *args: Arg) -> Gradients:
        """Gradients for the inputs, by ops that have gradients themselves."""
        raise NotImplementedError

    def gradients_at_once(self, dy: Tensor, y: Sequence[Tensor], *args: Arg) -> Gradients:
        """Gradients for q, k and v by one op."""
        raise NotImplementedError


class AttendsGrad(Op):
    """The gradients of one for q, k and v; its inputs are dy, q, k, v and others"""

    num_outputs = 3
    like = (1, 2, 3)
    differentiable = False

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        q, k, v = outputs
        rows = q.numel // max(q.shape[-1], 1)
        return 4.0 * rows * k.shape[-2] * (q.shape[-1] + v.shape[-1])

    def flops_fraction(self, inputs: Sequence[Meta | None], attrs: object) -> float:
        """With the scores, which it recomputes: five products, not four."""
        return 1.25 * share_of_pairs(required(inputs[2]).shape[-2], attrs)


_TILE = 64  # queries or keys: about as many as the tiles of most kernels have


def share_of_pairs(keys: float, pairs: object) -> float:
    """The share of all query-key pairs that kernels compute, in whole tiles.

    `pairs` is a `Pairs` or has its fields. Queries are taken to be as many as keys.
    """
    causal, window = getattr(pairs, "causal", False), getattr(pairs, "window", 0)
    edge = _TILE / max(keys, 1)  # of the tiles at the edge of what is seen
    near = window * (1 if causal else 2) / max(keys, 1) + edge if window else 1.0
    return min(near, 0.5 * (1.0 + edge) if causal else 1.0, 1.0)


def kept_of(q: Meta, shape: Sequence[int]) -> Meta:
    """The logarithms of sums, or the weights, of this shape."""
    return q.like(shape=shape, dtype=kernels.wide(q.dtype))


def heads_may_split(axis: Axis, q: Meta, k: Meta) -> bool:
    """Whether dim 1 may be split: not if query heads would be separated from their keys."""
    return q.shape[1] == k.shape[1] or k.shape[1] % axis.parts == 0


def _mask_at(mask: Meta, dim: int, size: int) -> Sbp:
    """The layout of a mask if dim `dim` of the scores, of that size, is split."""
    own = dim - 4 + mask.ndim
    return split(own) if own >= 0 and mask.shape[own] == size else broadcast


def _rows(axis: Axis, q: Meta, k: Meta, mask: Meta | None) -> list[tuple[int, tuple[Sbp, ...]]]:
    """The dims of q that may be split, with the layouts of k, v and the mask."""
    found = []
    for dim in range(3):
        if dim == 1 and not heads_may_split(axis, q, k):
            continue
        own: Sbp = broadcast if dim == 2 else split(dim)
        masks = () if mask is None else (_mask_at(mask, dim, q.shape[dim]),)
        found.append((dim, (own, own, *masks)))
    return found


class AttentionAttributes(NamedTuple):
    """The pairs of queries and keys (see `Pairs`), and the scale of their scores."""

    causal: bool
    scale: float
    window: int


def _keeps_weights(q: Meta, dropout: DropoutKey | None) -> bool:
    """Whether the weights are saved: on the CPU it is slow to draw the dropout mask again."""
    return dropout is not None and q.device_type == "cpu" and not uses_triton("cpu")


def bound(
    kernel: Kernel, local: Local, at: int, attrs: AttentionAttributes, *settings: object
) -> Kernel:
    """A kernel that takes tensors and then a DropoutKey, on the shard of q, which is input `at`.

    It is given the `settings` as its last arguments.
    """
    q, k, v = (local.input_shape(at + i) for i in range(3))
    masked = local.inputs[at + 3] is not None
    assert kernels.fit(q, k, v, local.input_shape(at + 3) if masked else None)
    batch, head, first, _ = local.input_offset(at)
    pairs = Pairs(attrs.causal, attrs.scale, attrs.window, first)
    shape, offset = (*local.input(at).shape[:3], k[2]), (batch, head, first, 0)

    def attend(*inputs: Arg) -> object:
        return kernel(*inputs[:-1], pairs, None, *settings)

    def drop(p: float, seed: Seed, call: int, whole: Shape, start: Shape, *tensors: Arg) -> object:
        return kernel(*tensors, pairs, Dropped(p, seed, call, whole, start), *settings)

    attended, dropped = local.around(kernel, attend), local.around(kernel, drop)

    def run(*inputs: Arg) -> object:
        dropout = inputs[-1]
        if dropout is None:
            return attended(*inputs)
        draw = dropout.draw
        if draw.memory is not None:  # the call site is for numbers of the host
            return drop(dropout.p, *draw.key, *draw.within(shape, offset), *inputs[:-1])
        return dropped(dropout.p, draw.seed, draw.call, *draw.within(shape, offset), *inputs[:-1])

    return run


class Attention(Attends):
    """y = dropout(softmax(q k^T * scale + mask)) v, and what its gradient needs besides"""

    name = "attention"
    attributes = AttentionAttributes

    def infer(
        self,
        q: Meta,
        k: Meta,
        v: Meta,
        mask: Meta | None,
        dropout: DropoutKey | None,
        attrs: AttentionAttributes,
    ) -> tuple[Meta, Meta]:
        check_dtypes(q, k, v, mask)
        rows = q.shape[:-1]
        kept = (*rows, k.shape[2]) if _keeps_weights(q, dropout) else rows
        return q.like(shape=(*rows, v.shape[-1])), kept_of(q, kept)

    def rule(self, axis: Axis, q: Meta, k: Meta, v: Meta, mask: Meta | None, *others: Arg) -> Rule:
        found = [
            Signature((split(dim), *others), (split(dim),) * 2)
            for dim, others in _rows(axis, q, k, mask)
        ]
        rest = () if mask is None else (broadcast,)
        whole = (broadcast, broadcast, partial_sum, *rest)
        return [*found, Signature(whole, (partial_sum, broadcast))]

    def bind(self, local: Local, attrs: AttentionAttributes) -> Kernel:
        if local.outputs[1].ndim == 4:
            return bound(kernels.attention_with_weights, local, 0, attrs)
        return bound(local.pick(kernels.attention), local, 0, attrs)

    def gradients_in_parts(
        self,
        dy: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        dropout: DropoutKey | None,
        attrs: AttentionAttributes,
    ) -> Gradients:
        full, causal = windowed(q, k, mask, attrs.causal, attrs.window)
        parts = causal, attrs.scale, q.shape[1] != k.shape[1]
        *found, d_mask = gradients(dy, q, k, v, full, parts, dropout)
        if mask is not None and d_mask is not None:
            d_mask = sum_to(d_mask, mask.meta)  # a window widens a mask
        return (*found, d_mask)

    def gradients_at_once(self, dy: Tensor, y: Sequence[Tensor], *args: Arg) -> Gradients:
        q, k, v, mask, dropout, attrs = args
        return _attention_grad(dy, q, k, v, mask, *y, dropout, *attrs)


class AttentionGrad(AttendsGrad):
    """Gradients of attention for q, k and v"""

    name = "attention_grad"
    attributes = AttentionAttributes

    def rule(
        self, axis: Axis, dy: Meta, q: Meta, k: Meta, v: Meta, mask: Meta | None, *others: Arg
    ) -> Rule:
        found = []
        for dim, rest in _rows(axis, q, k, mask):
            own = split(dim)
            inputs = (own, own, *rest, own, own)
            sums = partial_sum if dim == 2 else own  # keys and values are seen by all queries
            found.append(Signature(inputs, (own, sums, sums)))
        whole = (broadcast,) * (5 if mask is None else 6)
        return [*found, Signature((partial_sum, *whole), (partial_sum,) * 3)]

    def bind(self, local: Local, attrs: AttentionAttributes) -> Kernel:
        if local.input(6).ndim == 4:
            return bound(kernels.attention_with_weights_grad, local, 1, attrs)
        return bound(local.pick(kernels.attention_grad), local, 1, attrs)


_attention = several_of(Attention(), "q k v mask? dropout#", only_first=True)
_attention_grad = several_of(AttentionGrad(), "dy q k v mask? y lse dropout#")


@register_function
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    window: int | None = None,
) -> Tensor:
    """softmax(query key^T * scale + mask) value, as in torch.

    The shapes are (..., L, E), (..., S, E) and (..., S, Ev).

    `attn_mask` is bool (True: take part) or added to the scores; `scale` defaults to 1 / sqrt(E).
    A `window` leaves query i the keys j with |i - j| < window. Batch, heads and queries may be
    split. Dropout drops the same probabilities for every layout. A matrix of scores is made only
    for the gradient of a mask, which is as large as one before it is summed, for gradients of
    gradients, and where no kernel does without: on a GPU for heads of more than 256 features, on
    the CPU for dropout and for values of other features than the keys. Raises ShapeError when
    shapes do not fit, OnefoldTypeError for dtypes that do not go together, and
    OnefoldRuntimeError for a mask together with `is_causal`.

    Example: `scaled_dot_product_attention(q, k, v, is_causal=True)` with (2, 8, 16, 64) each.
    """
    off = is_off(dropout_p)
    near = check_window(window)
    if attn_mask is not None and is_causal:
        raise OnefoldRuntimeError("explicit attn_mask should not be set when is_causal=True")
    four = in_four_dims(query, key, value, attn_mask, enable_gqa)
    dropout = None if off else next_draw(dropout_p)
    causal = bool(is_causal)  # the kernels take no number, and a plan with one would be found again
    y = _attention(*four.tensors, dropout, causal, scale_of(query, scale), near)[0]
    return y if y.shape == four.shape else view(y, four.shape)


def check_window(window: object) -> int:
    """The window, 0 for none. Raises OnefoldValueError unless it is an integer above 0."""
    if window is None:
        return 0
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise OnefoldValueError(
            "attention needs a window of at least 1, the places from a query to the first key "
            f"that it does not see, or None for all keys; got {window!r}"
        )
    return window


def scale_of(query: Tensor, scale: float | None) -> float:
    """The scale, or 1 / sqrt(features)."""
    if scale is not None:
        return float(scale)
    features = query.shape[-1]
    return float(features) ** -0.5 if features else 1.0

"""MultiheadAttention: attention of several heads, with projections of its own."""

from __future__ import annotations

from typing import Any

import torch

from ..engine.argument_types import DeviceLike, Layout
from ..engine.ops.creation import empty
from ..engine.ops.multi_head_attention import HeadOptions, HeadWeights, attend_with_heads
from ..engine.placement import Placement
from ..engine.sbp import SbpLike
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError, ShapeError
from . import init
from .linear import Linear
from .module import Module
from .parameter import Parameter


class NonDynamicallyQuantizableLinear(Linear):
    """Linear, under the name that torch shows in the repr of attention."""


class MultiheadAttention(Module):
    """Concat(head_1, ..., head_h) W^O with head_i = attention(q W_i^q, k W_i^k, v W_i^v).

    query is (L, N, E), key (S, N, kdim) and value (S, N, vdim); (N, L, E) and so on with
    `batch_first`, and none has N where nothing is batched. Returns the output, of the query's
    shape, and the weights, averaged over heads: (N, L, S), or None without `need_weights`. Then
    no matrix of scores is made. Where a bool mask is True, a key is not seen; a float mask is
    added to the scores. `is_causal` says that `attn_mask` is causal, and may replace it.

    Heads are computed where they lie if `in_proj_weight` is split by rows and the ranks divide the
    heads. Raises OnefoldValueError for sizes below 1, ShapeError for shapes that do not fit.
    Vaswani et al., "Attention is all you need" (2017).

    >>> import onefold as flow
    >>> x = flow.ones(5, 3, 8)
    >>> [y.shape for y in flow.nn.MultiheadAttention(8, 2)(x, x, x)]
    [torch.Size([5, 3, 8]), torch.Size([3, 5, 5])]
    """

    _reads_children = True  # the weights of the output's projection

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise OnefoldValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and "
                f"num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise OnefoldValueError(
                "embed_dim must be divisible by num_heads, but got "
                f"embed_dim={embed_dim} and num_heads={num_heads}"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        where: Layout = {"device": device, "placement": placement, "sbp": sbp}

        def add(name: str, *shape: int, wanted: bool = True) -> None:
            unset = empty(shape, dtype=dtype, **where) if wanted else None
            self.register_parameter(name, None if unset is None else Parameter(unset))

        apart = not self._qkv_same_embed_dim
        add("q_proj_weight", embed_dim, embed_dim, wanted=apart)
        add("k_proj_weight", embed_dim, self.kdim, wanted=apart)
        add("v_proj_weight", embed_dim, self.vdim, wanted=apart)
        add("in_proj_weight", 3 * embed_dim, embed_dim, wanted=not apart)
        add("in_proj_bias", 3 * embed_dim, wanted=bias)
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias, device, dtype, placement=placement, sbp=sbp
        )
        add("bias_k", 1, 1, embed_dim, wanted=add_bias_kv)
        add("bias_v", 1, 1, embed_dim, wanted=add_bias_kv)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        weights = (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        for weight in weights:
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for row in (self.bias_k, self.bias_v):
            if row is not None:
                init.xavier_normal_(row)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"_qkv_same_embed_dim": True, **state})

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if query.shape[-1] != self.embed_dim:
            raise ShapeError(
                f"was expecting embedding dimension of {self.embed_dim}, but got {query.shape[-1]}"
            )
        weights = HeadWeights(
            self._in_weight(),
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.out_proj.weight,
            self.out_proj.bias,
        )
        options = HeadOptions(
            self.num_heads,
            self.add_zero_attn,
            self.dropout if self.training else 0.0,
            need_weights,
            average_attn_weights,
            is_causal,
            self.batch_first,
        )
        return attend_with_heads(query, key, value, key_padding_mask, attn_mask, weights, options)

    def _in_weight(self) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        if self.in_proj_weight is not None:
            return self.in_proj_weight
        q, k, v = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        assert q is not None and k is not None and v is not None
        return q, k, v

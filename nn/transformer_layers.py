"""The layers of a Transformer: one of the encoder, and one of the decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypedDict

import torch

from ..engine.argument_types import DeviceLike
from ..engine.ops.activation import gelu, relu
from ..engine.placement import Placement
from ..engine.sbp import SbpLike
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError
from .linear import Linear
from .module import Module
from .multihead_attention import MultiheadAttention
from .normalization import LayerNorm
from .table_layers import Dropout

Activation: TypeAlias = str | Callable[[Tensor], Tensor]


class Where(TypedDict):
    """The layout and dtype of new parameters."""

    device: DeviceLike | None
    dtype: torch.dtype | None
    placement: Placement | None
    sbp: SbpLike | None


def _activation(given: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(given, str):
        return given
    if given not in ("relu", "gelu"):
        raise OnefoldRuntimeError(f"activation should be relu/gelu, not {given}")
    return relu if given == "relu" else gelu


class _Layer(Module):
    """What both layers share: self-attention, and the two linear layers behind it."""

    activation: Callable[[Tensor], Tensor]
    self_attn: MultiheadAttention
    dropout1: Dropout

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = relu

    def _add_feed_forward(
        self, d_model: int, hidden: int, dropout: float, bias: bool, where: Where
    ) -> None:
        self.linear1 = Linear(d_model, hidden, bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(hidden, d_model, bias, **where)

    def _ff_block(self, x: Tensor) -> Tensor:
        hidden = self.dropout(self.activation(self.linear1(x)))
        y: Tensor = self._last_dropout()(self.linear2(hidden))
        return y

    def _last_dropout(self) -> Dropout:
        raise NotImplementedError

    def _sa_block(
        self,
        x: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        y: Tensor = self.dropout1(
            _attended(self.self_attn, x, x, attn_mask, key_padding_mask, is_causal)
        )
        return y


def _attended(
    attention: Module,
    x: Tensor,
    memory: Tensor,
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    is_causal: bool,
) -> Tensor:
    y: Tensor = attention(
        x,
        memory,
        memory,
        attn_mask=attn_mask,
        key_padding_mask=key_padding_mask,
        need_weights=False,
        is_causal=is_causal,
    )[0]
    return y


class TransformerEncoderLayer(_Layer):
    """Self-attention and two linear layers, each added to its input and normalized.

    `src` is (S, N, E), (N, S, E) with `batch_first`, or (S, E); so is the result. `activation` is
    "relu", "gelu" or a function. `norm_first` normalizes before each part instead of after it.
    `is_causal` says that `src_mask` is causal. Raises OnefoldRuntimeError for other names of
    activations, ShapeError for shapes that do not fit. Vaswani et al. (2017).

    >>> import onefold as flow
    >>> flow.nn.TransformerEncoderLayer(8, 2, 16)(flow.ones(5, 3, 8)).shape
    torch.Size([5, 3, 8])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        where: Where = {"device": device, "dtype": dtype, "placement": placement, "sbp": sbp}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, **where
        )
        self._add_feed_forward(d_model, dim_feedforward, dropout, bias, where)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **where)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        masks = src_mask, src_key_padding_mask, is_causal
        if self.norm_first:
            x = src + self._sa_block(self.norm1(src), *masks)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(src + self._sa_block(src, *masks))
        y: Tensor = self.norm2(x + self._ff_block(x))
        return y

    def _last_dropout(self) -> Dropout:
        return self.dropout2


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's result and two linear layers.

    `tgt` is (T, N, E) and `memory` (S, N, E), with N first for `batch_first`, or without N; the
    result is as `tgt`. The arguments and errors are those of TransformerEncoderLayer, the masks
    those of MultiheadAttention. Vaswani et al. (2017).

    >>> import onefold as flow
    >>> flow.nn.TransformerDecoderLayer(8, 2, 16)(flow.ones(4, 3, 8), flow.ones(5, 3, 8)).shape
    torch.Size([4, 3, 8])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        where: Where = {"device": device, "dtype": dtype, "placement": placement, "sbp": sbp}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, **where
        )
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, **where
        )
        self._add_feed_forward(d_model, dim_feedforward, dropout, bias, where)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **where)
        self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias, **where)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        own = tgt_mask, tgt_key_padding_mask, tgt_is_causal
        other = memory_mask, memory_key_padding_mask, memory_is_causal
        if self.norm_first:
            x = tgt + self._sa_block(self.norm1(tgt), *own)
            x = x + self._mha_block(self.norm2(x), memory, *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(tgt + self._sa_block(tgt, *own))
        x = self.norm2(x + self._mha_block(x, memory, *other))
        y: Tensor = self.norm3(x + self._ff_block(x))
        return y

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        y: Tensor = self.dropout2(
            _attended(self.multihead_attn, x, mem, attn_mask, key_padding_mask, is_causal)
        )
        return y

    def _last_dropout(self) -> Dropout:
        return self.dropout3

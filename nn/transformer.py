"""Transformer: stacks of encoder and decoder layers, and the model of both."""

from __future__ import annotations

import copy
from typing import Any

import torch

from ..engine.argument_types import DeviceLike
from ..engine.ops.activation import relu
from ..engine.ops.creation import full
from ..engine.ops.flip_repeat import triu
from ..engine.placement import Placement
from ..engine.sbp import SbpLike
from ..engine.tensor import Tensor
from ..errors import ShapeError
from . import init
from .container import ModuleList
from .module import Module
from .normalization import LayerNorm
from .transformer_layers import (
    Activation,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    Where,
)


def _clones(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


class TransformerEncoder(Module):
    """`num_layers` copies of a layer, one after the other, and `norm` after them.

    `src` is what the layer takes. A mask is used as it is given: pass `is_causal=True` for one that
    is causal, and attention skips what it hides. There are no nested tensors, so
    `enable_nested_tensor` and `mask_check` change nothing: rows of padding keep the values that
    torch sets to 0 where it uses nested tensors, in evaluation without gradients.

    >>> import onefold as flow
    >>> layer = flow.nn.TransformerEncoderLayer(8, 2, 16)
    >>> flow.nn.TransformerEncoder(layer, 2)(flow.ones(5, 3, 8)).shape
    torch.Size([5, 3, 8])
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = False
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        x = src
        for layer in self.layers:
            x = layer(
                x,
                src_mask=mask,
                is_causal=bool(is_causal),
                src_key_padding_mask=src_key_padding_mask,
            )
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """`num_layers` copies of a layer, one after the other, and `norm` after them.

    `tgt` and `memory` are what the layer takes. A mask is used as it is given: pass
    `tgt_is_causal=True` for one that is causal, and attention skips what it hides.

    >>> import onefold as flow
    >>> layer = flow.nn.TransformerDecoderLayer(8, 2, 16)
    >>> flow.nn.TransformerDecoder(layer, 2)(flow.ones(4, 3, 8), flow.ones(5, 3, 8)).shape
    torch.Size([4, 3, 8])
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = tgt
        for layer in self.layers:
            x = layer(
                x,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """An encoder and a decoder: Vaswani et al., "Attention is all you need" (2017).

    `src` is (S, N, E) and `tgt` (T, N, E), with N first for `batch_first`, or without N; the result
    is as `tgt`. Raises ShapeError for batches or features that do not fit.

    >>> import onefold as flow
    >>> model = flow.nn.Transformer(8, 2, 1, 1, 16)
    >>> model(flow.ones(5, 3, 8), flow.ones(4, 3, 8)).shape
    torch.Size([4, 3, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = relu,
        custom_encoder: Any | None = None,
        custom_decoder: Any | None = None,
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
        sizes = d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps
        modes = batch_first, norm_first, bias
        if custom_encoder is None:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, **where)
            own = TransformerEncoderLayer(*sizes, *modes, **where)
            self.encoder = TransformerEncoder(own, num_encoder_layers, norm)
        else:
            self.encoder = custom_encoder
        if custom_decoder is None:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, **where)
            other = TransformerDecoderLayer(*sizes, *modes, **where)
            self.decoder = TransformerDecoder(other, num_decoder_layers, norm)
        else:
            self.decoder = custom_decoder
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def _reset_parameters(self) -> None:
        for param in self.parameters():
            if param.ndim > 1:
                init.xavier_uniform_(param)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise ShapeError(
                "the batch number of src and tgt must be equal, but got "
                f"{tuple(src.shape)} and {tuple(tgt.shape)}"
            )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ShapeError(
                f"the feature number of src and tgt must be equal to d_model={self.d_model}, but "
                f"got {src.shape[-1]} and {tgt.shape[-1]}"
            )
        memory = self.encoder(
            src,
            mask=src_mask,
            src_key_padding_mask=src_key_padding_mask,
            is_causal=src_is_causal,
        )
        y: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
        return y

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> Tensor:
        """A causal mask (sz, sz): -inf above the diagonal, 0 elsewhere."""
        hidden = full(
            (sz, sz), float("-inf"), dtype=dtype, device=device, placement=placement, sbp=sbp
        )
        return triu(hidden, 1)

"""Layers with parameters that call one function: PReLU, Bilinear and EmbeddingBag."""

from __future__ import annotations

import torch

from ..engine.argument_types import DeviceLike, Layout
from ..engine.ops.activation import prelu
from ..engine.ops.creation import empty
from ..engine.ops.torch_rows import FUNCTIONS
from ..engine.placement import Placement
from ..engine.sbp import SbpLike
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from . import init
from .linear import Affine, draw_table, of_table
from .module import Module
from .parameter import Parameter


class PReLU(Module):
    """x where it is positive, weight * x elsewhere; one weight, or one for each channel."""

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        where: Layout = {"device": device, "placement": placement, "sbp": sbp}
        self.weight = Parameter(empty(num_parameters, dtype=dtype, **where))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Bilinear(Affine):
    """x1^T W x2 + b with W of shape (out_features, in1_features, in2_features)."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise OnefoldValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self._make_parameters(shape, bias, dtype, device, placement, sbp)

    def reset_parameters(self) -> None:
        """Draw weight and bias uniformly within 1 / sqrt(in1_features), as torch does."""
        bound = self.weight.shape[1] ** -0.5
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        y: Tensor = FUNCTIONS["bilinear"](input1, input2, self.weight, self.bias)
        return y

    def extra_repr(self) -> str:
        return torch.nn.Bilinear.extra_repr(self)  # type: ignore[arg-type]


class EmbeddingBag(Module):
    """Rows of a table, reduced over bags of indices by "sum", "mean" or "max"."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        if max_norm is not None or sparse:
            raise OnefoldValueError(
                "EmbeddingBag: max_norm and sparse are not supported; renormalize the rows of "
                "`weight` after each step, and use dense gradients"
            )
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise OnefoldValueError(
                f"EmbeddingBag: padding_idx must be within num_embeddings={num_embeddings}, but "
                f"got {padding_idx}"
            )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        where: Layout = {"device": device, "placement": placement, "sbp": sbp}
        shape = (num_embeddings, embedding_dim)
        if _weight is None:
            self.weight = Parameter(empty(shape, dtype=dtype, **where))
            self.reset_parameters()
        else:
            self.weight = Parameter(of_table(_weight, shape, "EmbeddingBag"))

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """Bags of these rows, which are not trained if `freeze`."""
        if embeddings.ndim != 2:
            raise OnefoldValueError(
                f"EmbeddingBag: embeddings must be 2-dimensional, but have {embeddings.ndim} dims"
            )
        rows, width = embeddings.shape
        how = (max_norm, norm_type, scale_grad_by_freq, mode, sparse)
        made = cls(rows, width, *how, embeddings, include_last_offset, padding_idx)
        made.weight.requires_grad_(not freeze)
        return made

    def reset_parameters(self) -> None:
        draw_table(self.weight, self.padding_idx)

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        y: Tensor = FUNCTIONS["embedding_bag"](
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.mode, self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip
        return y

    def extra_repr(self) -> str:
        return torch.nn.EmbeddingBag.extra_repr(self)  # type: ignore[arg-type]

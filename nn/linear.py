"""Linear, Embedding, Identity, Flatten."""

from __future__ import annotations

from typing import Any

import torch

from ..engine.grad_mode import no_grad
from ..engine.ops.embedding import embedding
from ..engine.ops.matmul import linear
from ..engine.ops.view import flatten
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from . import init
from .affine import Affine
from .module import Module
from .parameter import Parameter


class Linear(Affine):
    """y = x W^T + b with W of shape (out_features, in_features).

    >>> import onefold as flow
    >>> flow.nn.Linear(4, 2)(flow.ones(3, 4)).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Any = None,
        sbp: Any = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        shape = (out_features, in_features)
        self._make_parameters(shape, bias, dtype, device, placement, sbp)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Embedding(Module):
    """A table of num_embeddings rows looked up by index; split(0) makes it vocabulary-parallel."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Any = None,
        sbp: Any = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise OnefoldValueError(
                f"Embedding: padding_idx must be within num_embeddings={num_embeddings}, but got "
                f"{padding_idx}"
            )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = (
            padding_idx + num_embeddings
            if padding_idx is not None and padding_idx < 0
            else padding_idx
        )
        shape = (num_embeddings, embedding_dim)
        self.weight = Parameter(init.empty_parameter(shape, dtype, device, placement, sbp))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

    def forward(self, indices: Tensor) -> Tensor:
        return embedding(indices, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class Identity(Module):
    """x."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Flatten(Module):
    """Join the dims from start_dim to end_dim."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, x: Tensor) -> Tensor:
        return flatten(x, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"

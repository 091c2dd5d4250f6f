"""Linear, Embedding, Identity, Flatten, and the base of Linear and of convolutions."""

from __future__ import annotations

import torch

from ..engine.argument_types import DeviceLike
from ..engine.grad_mode import no_grad
from ..engine.ops.creation import empty
from ..engine.ops.embedding import embedding
from ..engine.ops.matmul import linear
from ..engine.ops.view import flatten
from ..engine.placement import Placement
from ..engine.sbp import SbpLike, broadcast
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from . import init
from .module import Module
from .parameter import Parameter


class Affine(Module):
    """Owns `weight`, whose dim 0 is the outputs, and `bias` (outputs,) or None."""

    weight: Parameter
    bias: Parameter | None

    def _make_parameters(
        self,
        shape: tuple[int, ...],
        bias: bool,
        dtype: torch.dtype | None,
        device: DeviceLike | None,
        placement: Placement | None,
        sbp: SbpLike | None,
    ) -> None:
        unset = empty(shape, dtype=dtype, device=device, placement=placement, sbp=sbp)
        self.weight = Parameter(unset)
        self.register_parameter("bias", Parameter(bias_of(unset)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias uniformly within 1 / sqrt(inputs per output), as torch does."""
        bound = init.default_bound(init.fan_in_and_out(self.weight)[0])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)


def bias_of(weight: Tensor) -> Tensor:
    """An unset bias on the weight's device; of a global weight, split where its dim 0 is."""
    size = weight.shape[0]
    if weight.is_local:
        return empty(size, dtype=weight.dtype, device=weight.device)
    layout = tuple(s if s.is_split and s.dim == 0 else broadcast for s in weight.sbp)
    return empty(size, dtype=weight.dtype, placement=weight.placement, sbp=layout)


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
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        shape = (out_features, in_features)
        self._make_parameters(shape, bias, dtype, device, placement, sbp)

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


def of_table(weight: Tensor, shape: tuple[int, int], who: str) -> Tensor:
    """The rows of an embedding, which must have this shape."""
    if tuple(weight.shape) != shape:
        raise OnefoldValueError(
            f"{who}: _weight must have the shape {shape}, but has {tuple(weight.shape)}"
        )
    return weight


def draw_table(weight: Tensor, padding_idx: int | None) -> None:
    """Normal rows of an embedding, zeros for the padding."""
    init.normal_(weight)
    if padding_idx is not None:
        with no_grad():
            weight[padding_idx] = 0


class Embedding(Module):
    """A table of num_embeddings rows looked up by index; split(0) makes it vocabulary-parallel."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise OnefoldValueError(
                f"Embedding: padding_idx must be within num_embeddings={num_embeddings}, but got "
                f"{padding_idx}"
            )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        shape = (num_embeddings, embedding_dim)
        unset = _weight
        if unset is None:
            unset = empty(shape, dtype=dtype, device=device, placement=placement, sbp=sbp)
        self.weight = Parameter(of_table(unset, shape, "Embedding"), requires_grad=not _freeze)
        if _weight is None:
            self.reset_parameters()

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """An embedding with these rows, which are not trained if `freeze`."""
        if embeddings.ndim != 2:
            raise OnefoldValueError(
                f"Embedding: embeddings must be 2-dimensional, but have {embeddings.ndim} dims"
            )
        rows, width = embeddings.shape
        how = (max_norm, norm_type, scale_grad_by_freq, sparse)
        return cls(rows, width, padding_idx, *how, _weight=embeddings, _freeze=freeze)

    def reset_parameters(self) -> None:
        draw_table(self.weight, self.padding_idx)

    def forward(self, input: Tensor) -> Tensor:
        return embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
            self.scale_grad_by_freq, self.sparse,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return torch.nn.Embedding.extra_repr(self)  # type: ignore[arg-type]


class Identity(Module):
    """x; any arguments of the constructor are ignored, as in torch."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Flatten(Module):
    """Join the dims from start_dim to end_dim."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"

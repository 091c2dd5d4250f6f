"""Embedding: rows of a weight by index. The weight is whole, or split by rows or columns."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...errors import OnefoldRuntimeError, OnefoldValueError
from ...kernels import gather_scatter_ref as kernels
from ..dispatcher import binary, unary
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Local, Op
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..values import whole
from .arithmetic import div_by_count
from .data_movement import IndexedOp, follows, passes_first, untouched
from .dims import unsqueeze
from .like import ones_like
from .slicing import set_slice
from .where import clamp


class EmbeddingAttributes(NamedTuple):
    """The row without a gradient (-1: none), and whether gradients are divided by counts."""

    padding: int
    by_frequency: bool


class Embedding(IndexedOp[EmbeddingAttributes]):
    """y[..., h] = weight[index[...], h]; `padding` is the row without a gradient, or -1."""

    name = "embedding"
    attributes = EmbeddingAttributes
    order = "row-major"
    flops_per_element = 0.0

    def kernel(
        self, weight: torch.Tensor, index: torch.Tensor, padding: int, by_frequency: bool
    ) -> torch.Tensor:
        return torch.embedding(weight, index)

    def deduce(self, weight: Meta, index: Meta, attrs: EmbeddingAttributes) -> Meta | None:
        ordinary = weight.ndim == 2 and index.dtype in (torch.int32, torch.int64)
        return weight.like((*index.shape, weight.shape[1])) if ordinary else None

    def rule(self, axis: Axis, weight: Meta, index: Meta, attrs: EmbeddingAttributes) -> Rule:
        last = index.ndim
        return [
            *[Signature((broadcast, split(d)), (split(d),)) for d in range(last)],
            Signature((split(1), broadcast), (split(last),)),
            Signature((split(0), broadcast), (partial_sum,)),
            *passes_first(weight, 1),
        ]

    def bind(self, local: Local, attrs: EmbeddingAttributes) -> Kernel:
        weight = local.input(0)
        if local.input_shape(0)[0] == weight.shape[0]:
            return local.bind(kernels.embedding)
        return local.bind(kernels.embedding_held, local.input_offset(0)[0], weight.shape[0])

    def gradient(self, dy: Tensor, x: Meta, index: Tensor, attrs: EmbeddingAttributes) -> Tensor:
        return _embedding_grad(dy, index, x.shape[0], *attrs)


class EmbeddingGradAttributes(NamedTuple):
    """The number of rows, and as in `EmbeddingAttributes`."""

    rows: int
    padding: int
    by_frequency: bool


class EmbeddingGrad(IndexedOp[EmbeddingGradAttributes]):
    """dw[r, h] = sum of dy[..., h] where index[...] is r."""

    name = "embedding_grad"
    attributes = EmbeddingGradAttributes
    order = "row-major"

    def infer(self, dy: Meta, index: Meta, attrs: EmbeddingGradAttributes) -> Meta:
        return dy.like((attrs.rows, dy.shape[-1]))

    def rule(self, axis: Axis, dy: Meta, index: Meta, attrs: EmbeddingGradAttributes) -> Rule:
        last = index.ndim
        found = [
            Signature((split(last), broadcast), (split(1),)),
            Signature((partial_sum, broadcast), (partial_sum,)),
            Signature((broadcast, broadcast), (split(0),)),
        ]
        if not attrs.by_frequency:  # how often an index occurs is known only where all of them are
            found += [Signature((split(d), split(d)), (partial_sum,)) for d in range(last)]
        return found

    def bind(self, local: Local, attrs: EmbeddingGradAttributes) -> Kernel:
        shape, offset = local.output_shape(), local.output_offset()[0]
        rows, padding, by_frequency = attrs
        bound = local.bind(kernels.embedding_grad, shape, offset, padding, by_frequency)
        plain = shape[0] == rows and padding < 0 and not by_frequency
        if plain and bound.kernel is kernels.embedding_grad:
            return local.bind(kernels.embedding_grad_of_all, shape)
        return bound

    def gradient(
        self, dy: Tensor, x: Meta, index: Tensor, attrs: EmbeddingGradAttributes
    ) -> Tensor:
        rows, padding, by_frequency = attrs
        if by_frequency:
            ones = unsqueeze(ones_like(index, dtype=dy.dtype), -1)
            count = _embedding_grad(ones, index, rows, -1, False)
            dy = div_by_count(dy, clamp(count, min=1))
        if padding >= 0:
            dy = set_slice(dy, None, (padding, None))
        return _embedding(dy, index, padding, False)


_embedding = binary(Embedding())
_embedding_grad = binary(EmbeddingGrad())


@register_function
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of a [rows, width] weight at [...] indices: [..., width].

    The indices may be split in any dim, the weight by columns (the result is split in its last
    dim) or by rows (vocabulary parallel: the result is a partial sum). The gradient adds in a
    fixed order. `sparse` is accepted and ignored. Raises OutOfRangeError naming an index that has
    no row, OnefoldValueError for `max_norm`, which would change the weight in place.
    """
    if max_norm is not None:
        raise OnefoldValueError(
            f"embedding: max_norm={max_norm} would change the weight in place, which is not "
            "supported; normalize the weight after each step of the optimizer instead"
        )
    if weight.ndim != 2:
        raise OnefoldRuntimeError(f"embedding: 'weight' must be 2-D, but got {weight.ndim}-D")
    if input.dtype not in (torch.int64, torch.int32):
        raise OnefoldRuntimeError(
            f"embedding: indices must have dtype int64 or int32, but got {input.dtype}"
        )
    rows = weight.shape[0]
    padding = -1 if padding_idx is None else padding_idx
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise OnefoldValueError(
                f"Padding_idx must be within num_embeddings: got {padding_idx} for {rows} rows"
            )
        padding = padding_idx % rows
    return _embedding(weight, input, padding, scale_grad_by_freq)


class OneHotAttributes(NamedTuple):
    """The number of classes."""

    classes: int


class OneHot(Op):
    """1 where the class is the index, else 0."""

    name = "one_hot"
    attributes = OneHotAttributes
    differentiable = False

    def infer(self, index: Meta, attrs: OneHotAttributes) -> Meta:
        return index.like((*index.shape, attrs.classes), torch.int64)

    def rule(self, axis: Axis, index: Meta, attrs: OneHotAttributes) -> Rule:
        new = Signature((broadcast,), (split(index.ndim),))
        return [*follows(untouched(index.ndim, ())), new]

    def bind(self, local: Local, attrs: OneHotAttributes) -> Kernel:
        size, offset = local.output_shape()[-1], local.output_offset()[-1]
        return local.bind(kernels.one_hot, offset, size, attrs.classes)


_one_hot = unary(OneHot())


@register_function
def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """[...] of classes to [..., num_classes] of 0 and 1 (int64); -1: the largest class plus one.

    Raises OutOfRangeError for a class that is negative or not below `num_classes`.
    """
    if input.dtype is not torch.int64:
        raise OnefoldRuntimeError(
            f"one_hot is only applicable to index tensor of type LongTensor, not {input.dtype}"
        )
    if num_classes == -1:
        if not input.numel():
            raise OnefoldRuntimeError(
                "Can not infer total number of classes from empty tensor; give num_classes"
            )
        num_classes = int(whole(input, "Give num_classes").max()) + 1
    if num_classes < 1:
        raise OnefoldRuntimeError(f"num_classes should be positive, but got {num_classes}")
    return _one_hot(input, num_classes)

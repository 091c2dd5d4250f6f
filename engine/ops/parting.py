"""Parting: split, chunk, tensor_split, unbind and their kin."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch

from ...errors import OnefoldRuntimeError
from ..dispatch import general
from ..meta import Meta
from ..names import named
from ..op import Op
from ..sbp import split as split_sbp
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .join import join_parts, stack_parts
from .moving import passes, together, wrap
from .view import reshape

Parts = tuple[Tensor | None, ...]


class Split(Op):
    """Parts of given sizes along a dim; one op for each number of parts."""

    name = "split"
    saves = ()
    aliases = True
    flops_per_element = 0.0

    def __init__(self, num_outputs: int) -> None:
        self.num_outputs = num_outputs

    def kernel(self, x: torch.Tensor, sizes: tuple[int, ...], dim: int) -> Any:
        return torch.split(x, list(sizes), dim)

    def rule(self, axis: Axis, x: Meta, sizes: tuple[int, ...], dim: int) -> Rule:
        count = self.num_outputs
        others = [i for i in range(x.ndim) if i != dim]
        return [*together(others, 1, count), *passes([x], count)]

    def vjp(self, needs: Sequence[object], dy: Parts, y: Any, x: Meta, *attrs: Any) -> Any:
        sizes, dim = attrs
        return (join_parts(dy, dim, sizes),)


class Unbind(Op):
    """The slices along a dim; one op for each size of the dim."""

    name = "unbind"
    saves = ()
    aliases = True
    flops_per_element = 0.0

    def __init__(self, num_outputs: int) -> None:
        self.num_outputs = num_outputs

    def kernel(self, x: torch.Tensor, dim: int) -> Any:
        return torch.unbind(x, dim)

    def rule(self, axis: Axis, x: Meta, dim: int) -> Rule:
        count = self.num_outputs
        kept = [i for i in range(x.ndim) if i != dim]
        found = [Signature((split_sbp(i),), (split_sbp(j),) * count) for j, i in enumerate(kept)]
        return [*found, *passes([x], count)]

    def vjp(self, needs: Sequence[object], dy: Parts, y: Any, x: Meta, dim: int) -> Any:
        return (stack_parts(dy, dim),)


@lru_cache(maxsize=256)
def _split_op(count: int) -> Any:
    return general(Split(count))


@lru_cache(maxsize=256)
def _unbind_op(count: int) -> Any:
    return general(Unbind(count))


def _split_by(x: Tensor, sizes: tuple[int, ...], dim: int) -> tuple[Tensor, ...]:
    if len(sizes) == 1:
        if sizes[0] != x.shape[dim]:
            raise OnefoldRuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {x.shape[dim]} (input "
                f"tensor's size at dimension {dim}), but got split_sizes={list(sizes)}"
            )
        return (reshape(x, x.shape),)  # a tensor of its own, as each part is
    return _split_op(len(sizes))((x,), sizes, dim)  # type: ignore[no-any-return]


def _chunk_sizes(size: int, length: int) -> tuple[int, ...]:
    """`size` in pieces of `length`, the last one smaller."""
    if not size:
        return (0,)
    return tuple(min(length, size - start) for start in range(0, size, length))


@named
def split(
    tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Parts along `dim`: of one size (the last may be smaller), or of the sizes given.

    Splits of other dims stay; along a split dim the tensor is gathered. Raises OnefoldRuntimeError
    when sizes do not add up.
    """
    if not tensor.ndim:
        raise OnefoldRuntimeError("split expects at least a 1-dimensional tensor")
    dim = wrap(dim, tensor.ndim)
    if not isinstance(split_size_or_sections, int):
        return split_with_sizes(tensor, split_size_or_sections, dim)
    length, size = split_size_or_sections, tensor.shape[dim]
    if length < 0 or (length == 0 and size):
        raise OnefoldRuntimeError(
            f"split expects split_size be {'non-negative' if length else 'positive'}, but got "
            f"split_size={length}"
        )
    return _split_by(tensor, _chunk_sizes(size, length), dim)


@named
def split_with_sizes(
    tensor: Tensor, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Parts of the sizes given along `dim`."""
    sizes = tuple(split_sizes)
    if not sizes:
        raise OnefoldRuntimeError("split_with_sizes needs at least one size, but got none")
    return _split_by(tensor, sizes, wrap(dim, tensor.ndim))


@named
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` parts of one size along `dim`; the last may be smaller."""
    if not input.ndim:
        raise OnefoldRuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise OnefoldRuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    dim = wrap(dim, input.ndim)
    size = input.shape[dim]
    sizes = _chunk_sizes(size, -(-size // chunks)) if size else (0,) * chunks
    return _split_by(input, sizes, dim)


@named
def tensor_split(
    input: Tensor, indices_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Parts along `dim`: that many, the first ones larger by one, or those between the indices."""
    if not input.ndim:
        raise OnefoldRuntimeError("tensor_split expected at least a 1-dimensional tensor")
    dim = wrap(dim, input.ndim)
    size = input.shape[dim]
    if isinstance(indices_or_sections, int):
        count = indices_or_sections
        if count <= 0:
            raise OnefoldRuntimeError(f"number of sections must be larger than 0, got {count}")
        sizes = tuple(size // count + (i < size % count) for i in range(count))
        return _split_by(input, sizes, dim)
    bounds = [0, *[slice(i).indices(size)[1] for i in indices_or_sections], size]
    if any(a > b for a, b in pairwise(bounds)):
        # Parts that overlap or are empty because the indices go back: each is a slice of its own.
        stops = [max(a, b) for a, b in pairwise(bounds)]
        pairs = zip(bounds, stops, strict=False)
        return tuple(input[(slice(None),) * dim + (slice(a, b),)] for a, b in pairs)
    return _split_by(input, tuple(b - a for a, b in pairwise(bounds)), dim)


def _split_along(x: Tensor, how: int | Sequence[int], dim: int, what: str) -> tuple[Tensor, ...]:
    if isinstance(how, int) and (how <= 0 or x.shape[dim] % how):
        raise OnefoldRuntimeError(
            f"{what} attempted to split along dimension {dim}, but the size of the dimension "
            f"{x.shape[dim]} is not divisible by the split_size {how}!"
        )
    return tensor_split(x, how, dim)


@named
def hsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 1, of vectors along dim 0, in equal parts."""
    if not input.ndim:
        raise OnefoldRuntimeError("torch.hsplit requires a tensor with at least 1 dimension")
    return _split_along(input, indices_or_sections, int(input.ndim > 1), "torch.hsplit")


@named
def vsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 0 of a tensor with at least 2 dims, in equal parts."""
    if input.ndim < 2:
        raise OnefoldRuntimeError("torch.vsplit requires a tensor with at least 2 dimension")
    return _split_along(input, indices_or_sections, 0, "torch.vsplit")


@named
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`, which goes away."""
    if not input.ndim:
        raise OnefoldRuntimeError("unbind: Dimension specified as 0 but tensor has no dimensions")
    dim = wrap(dim, input.ndim)
    count = input.shape[dim]
    if count == 0:
        return ()
    if count == 1:
        return (reshape(input, *input.shape[:dim], *input.shape[dim + 1 :]),)
    return _unbind_op(count)((input,), dim)  # type: ignore[no-any-return]

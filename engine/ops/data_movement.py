"""What ops that only move data share: their signatures, and the parsing of dims and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ...errors import OnefoldIndexError, OnefoldRuntimeError
from ..meta import Meta
from ..sbp import Sbp, broadcast, partial_max, partial_min, partial_sum, split
from ..signature import Signature
from ..tensor import Tensor
from .cast import cast

Dims = tuple[int, ...]


def reductions(*metas: Meta) -> tuple[Sbp, ...]:
    """The partial layouts that tensors of these dtypes can have."""
    if any(meta.dtype.is_complex for meta in metas):
        return (partial_sum,)
    if any(meta.dtype is torch.bool for meta in metas):
        return (partial_max, partial_min)  # bool has no sum
    return (partial_sum, partial_max, partial_min)


def passes(metas: Sequence[Meta], num_outputs: int = 1) -> list[Signature]:
    """All inputs partial together, and so the outputs: a copied addend is an addend of the copy."""
    return [Signature((sbp,) * len(metas), (sbp,) * num_outputs) for sbp in reductions(*metas)]


def passes_first(x: Meta, others: int, num_outputs: int = 1) -> list[Signature]:
    """Input 0 partial and so the outputs, the `others` (indices, say) broadcast."""
    return [
        Signature((sbp,) + (broadcast,) * others, (sbp,) * num_outputs) for sbp in reductions(x)
    ]


def follows(pairs: Iterable[tuple[int, int]]) -> list[Signature]:
    """One input and one output: where input dim i goes to output dim j, its split goes along."""
    return [Signature((split(i),), (split(j),)) for i, j in pairs]


def together(dims: Iterable[int], num_inputs: int, num_outputs: int = 1) -> list[Signature]:
    """All inputs and outputs split at the same dim."""
    return [Signature((split(dim),) * num_inputs, (split(dim),) * num_outputs) for dim in dims]


def contribution(x: Meta) -> Sbp:
    """The partial layout of a result to which each rank adds its part, zeros (False) elsewhere."""
    return partial_max if reductions(x)[0] is partial_max else partial_sum


def wrap(dim: int, ndim: int) -> int:
    """A dim counted from the end as one counted from the start; 0-d tensors count as 1-d.

    Raises OnefoldIndexError when there is no such dim.
    """
    size = max(ndim, 1)
    if not -size <= dim < size:
        raise OnefoldIndexError(
            f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], "
            f"but got {dim})"
        )
    return dim % size


def wrap_all(dims: int | Sequence[int], ndim: int) -> Dims:
    """Several dims by `wrap`; one int means that dim."""
    return tuple(wrap(dim, ndim) for dim in ((dims,) if isinstance(dims, int) else dims))


def unpack(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Variable arguments given as numbers or as one sequence."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        return tuple(sizes[0])
    return sizes


def overlapping(name: str) -> OnefoldRuntimeError:
    """The error for a write to a view in which one element of the base is several times."""
    return OnefoldRuntimeError(
        f"{name}: unsupported operation: more than one element of the written-to tensor refers to "
        "a single memory location. Please clone() the tensor before performing the operation."
    )


def match(gradient: Tensor, meta: Meta) -> Tensor:
    """A gradient in the dtype of its input, which the op may have promoted."""
    if gradient.meta.dtype is meta.dtype:
        return gradient
    return cast(gradient, meta.dtype)

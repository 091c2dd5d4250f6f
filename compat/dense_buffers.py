"""torch._utils (`flow._utils`): tensors in one buffer and back, as programs reduce gradients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch._utils import ExceptionWrapper

from ..engine.ops.cat_split import cat
from ..engine.tensor import Tensor

__all__ = [
    "ExceptionWrapper",
    "_flatten_dense_tensors",
    "_take_tensors",
    "_unflatten_dense_tensors",
]


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements in one dim, tensor by tensor."""
    return cat([tensor.reshape(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Views of a buffer that have the shapes of tensors."""
    found, first = [], 0
    for tensor in tensors:
        count = tensor.numel()
        found.append(flat[first : first + count].view(tensor.shape))
        first += count
    return tuple(found)


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Lists of tensors of one dtype, of at most so many bytes, or of one tensor."""
    held: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    sizes: dict[torch.dtype, int] = defaultdict(int)
    for tensor in tensors:
        dtype, size = tensor.dtype, tensor.numel() * tensor.element_size()
        if held[dtype] and sizes[dtype] + size > size_limit:
            yield held.pop(dtype)
            sizes[dtype] = 0
        held[dtype].append(tensor)
        sizes[dtype] += size
    yield from filter(None, held.values())

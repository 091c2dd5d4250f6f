"""TensorDataset, and random_split by onefold's generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch.utils import data as torch_data
from torch.utils._pytree import tree_map_only
from torch.utils.data import Dataset, Subset

from ...engine.tensor import Tensor, tensor_ops
from ...engine.values import from_torch
from ...errors import ShapeError
from .samplers import AnyGenerator, torch_generator

Index = int | slice | list[int] | Tensor
T_co = TypeVar("T_co", covariant=True)


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """The rows of tensors: a sample is the tuple of the tensors' parts along the first dim.

    Torch's tensors become local ones. Samples share memory with the tensors, but a write to a
    sample leaves the tensors as they are. Raises ShapeError where the tensors differ in
    their number of rows.

    >>> import onefold as flow
    >>> len(TensorDataset(flow.ones(3, 2), flow.zeros(3)))
    3
    """

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor | torch.Tensor) -> None:
        ours: tuple[Tensor, ...] = tree_map_only(torch.Tensor, from_torch, tensors)
        sizes = [x.shape[:1] for x in ours]
        if not sizes or not sizes[0] or any(size != sizes[0] for size in sizes):
            raise ShapeError(
                "TensorDataset needs tensors with the same size in their first dim, but got shapes "
                f"{[tuple(x.shape) for x in ours]}"
            )
        self.tensors = ours

    def __getitem__(self, index: Index) -> tuple[Tensor, ...]:
        return tuple([_row(x, index) for x in self.tensors])

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


def _row(x: Tensor, index: Index) -> Tensor:
    if x.is_global or x.requires_grad or isinstance(index, Tensor):
        return tensor_ops.getitem(x, index)
    return from_torch(x.to_torch()[index])  # a tenth of the time: no view that a write follows


def random_split(
    dataset: Dataset[T_co],
    lengths: Sequence[int | float],
    generator: AnyGenerator | None = None,
) -> list[Subset[T_co]]:
    """Disjoint random parts of a data set, of these lengths (or fractions that sum to 1).

    `generator` is a `flow.Generator` (None: the default one) or torch's. Raises ValueError where
    the lengths do not sum to the size of the data set.

    >>> [len(part) for part in random_split(range(10), [0.3, 0.7])]
    [3, 7]
    """
    return torch_data.random_split(dataset, lengths, torch_generator(generator))

"""Forms: the shape and strides with which a shard lies in its storage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch


@dataclass(frozen=True, slots=True)
class Form:
    """The shape and strides of a shard in its storage."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_row_major(self) -> bool:
        """Whether the strides are those of new memory.

        >>> Form((3, 4), (4, 1)).is_row_major, Form((3, 4), (1, 3)).is_row_major
        (True, False)
        """
        return self.strides == row_major(self.shape)

    @property
    def was_row_major(self) -> bool:
        """Whether it is in row-major order, or expanded from such a tensor.

        >>> Form((2, 3, 4), (4, 0, 1)).was_row_major, Form((3, 4), (1, 3)).was_row_major
        (True, False)
        """
        if self.is_row_major:
            return True
        pairs = zip(self.shape, self.strides, strict=True)
        own = tuple([size if stride else 1 for size, stride in pairs])
        wanted = zip(self.strides, row_major(own), strict=True)
        return 0 not in self.shape and all(stride in (0, new) for stride, new in wanted)

    @property
    def is_dense(self) -> bool:
        """Whether the elements are contiguous in the order of some permutation of the dims.

        >>> Form((3, 4), (1, 3)).is_dense, Form((3, 4), (8, 1)).is_dense
        (True, False)
        """
        step = 1
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size != 1 and stride != step:
                return False
            step *= size
        return True


@lru_cache(1 << 12)
def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor of this shape in row-major order.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    return torch.empty(shape, device="meta").stride()

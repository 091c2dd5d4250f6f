"""Tensors of Onefold for einops: its functions take them, as they take those of torch.

einops finds what computes with a tensor among the subclasses of its `AbstractBackend`. This module
is imported when einops is, by `compat.import_paths`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from einops._backends import AbstractBackend

from ..engine.tensor import Tensor, tensor_ops
from ..engine.values import from_numpy

__all__ = ["OnefoldBackend"]

_PACKAGE = __name__.partition(".")[0]


class OnefoldBackend(AbstractBackend):  # type: ignore[misc]
    """What einops calls for tensors of Onefold; they keep their layouts as ops do."""

    framework_name = _PACKAGE

    def is_appropriate_type(self, tensor: object) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: np.ndarray) -> Tensor:
        made = from_numpy(x)
        return made.requires_grad_() if self.is_float_type(made) else made

    def to_numpy(self, x: Tensor) -> np.ndarray:
        return x.detach().numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        return tensor_ops.arange(start, stop)

    def reduce(self, x: Tensor, operation: str, reduced_axes: Sequence[int]) -> Tensor:
        if operation in ("max", "min"):
            operation = f"a{operation}"
        elif operation in ("any", "all", "prod"):  # which take one dim
            for dim in sorted(reduced_axes, reverse=True):
                x = getattr(x, operation)(dim=dim)
            return x
        reduced: Tensor = getattr(x, operation)(dim=tuple(reduced_axes))
        return reduced

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        return x.permute(*axes)

    def stack_on_zeroth_dimension(self, tensors: Sequence[Tensor]) -> Tensor:
        return tensor_ops.stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        return x.unsqueeze(new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: Mapping[int, int]) -> Tensor:
        sizes = [-1] * n_axes
        for position, length in pos2len.items():
            x = x.unsqueeze(position)
            sizes[position] = length
        return x.expand(*sizes)

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        return x.repeat(*repeats)

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        return tensor_ops.cat(tensors, axis)

    def is_float_type(self, x: Tensor) -> bool:
        return x.is_floating_point()

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        return tensor_ops.einsum(pattern, *x)

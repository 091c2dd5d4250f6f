"""Methods of pruning: random elements or channels, the smallest ones, or those of a mask."""

from __future__ import annotations

import numbers
from typing import ClassVar

from ...engine.ops.random_creation import rand
from ...engine.ops.sorting import topk
from ...engine.ops.unary import abs
from ...engine.ops.vector_norm import norm
from ...engine.tensor import Tensor
from ...errors import OnefoldIndexError, OnefoldTypeError, OnefoldValueError, ShapeError
from .pruning_base import BasePruningMethod, local_value


class Identity(BasePruningMethod):
    """Prunes nothing."""

    PRUNING_TYPE: ClassVar[str] = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _Amount(BasePruningMethod):
    """Prunes a number of elements or channels, or a fraction of them."""

    def __init__(self, amount: int | float) -> None:
        self.amount = amount
        self._is_count = isinstance(amount, numbers.Integral)  # numpy's too
        is_number = isinstance(amount, numbers.Real)
        if not is_number:
            raise OnefoldTypeError(f"Invalid type for amount: {amount}. Must be int or float.")
        if amount < 0 or (amount > 1 and not self._is_count):
            raise OnefoldValueError(
                f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
                "integer"
            )

    def _count(self, total: int) -> int:
        """How many of `total` elements are pruned. Raises OnefoldValueError if there are fewer."""
        if not self._is_count:
            return round(self.amount * total)
        if self.amount > total:
            raise OnefoldValueError(
                f"amount={self.amount} should be smaller than the number of parameters to "
                f"prune={total}"
            )
        return int(self.amount)


class _Elements(_Amount):
    """Prunes the elements that have the least scores."""

    PRUNING_TYPE: ClassVar[str] = "unstructured"

    def _scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = self._count(t.numel())
        mask = default_mask.clone()
        if count:
            least = topk(self._scores(t).reshape(-1), count, largest=False).indices
            mask.view(-1)[least] = 0
        return mask


class RandomUnstructured(_Elements):
    """Prunes random elements: `amount` of them, or that fraction."""

    def _scores(self, t: Tensor) -> Tensor:
        return rand(t.shape)


class L1Unstructured(_Elements):
    """Prunes the elements of the least absolute value: `amount` of them, or that fraction."""

    def _scores(self, t: Tensor) -> Tensor:
        return abs(t)


class _Channels(_Amount):
    """Prunes the channels, the indices of one dim, that have the least scores."""

    PRUNING_TYPE: ClassVar[str] = "structured"

    def __init__(self, amount: int | float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim <= 1:
            raise OnefoldValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor "
                f"of shape {tuple(t.shape)} with {t.ndim} dims"
            )
        if not -t.ndim <= self.dim < t.ndim:
            raise OnefoldIndexError(f"Invalid index {self.dim} for tensor of size {tuple(t.shape)}")
        count = self._count(t.shape[self.dim])
        if not count:
            return default_mask
        least = topk(self._scores(t), count, largest=False).indices
        mask = default_mask.clone()
        mask.movedim(self.dim, 0)[least] = 0
        return mask


class RandomStructured(_Channels):
    """Prunes random channels of a dim: `amount` of them, or that fraction."""

    def _scores(self, t: Tensor) -> Tensor:
        return rand(t.shape[self.dim])


class LnStructured(_Channels):
    """Prunes the channels of a dim that have the least norm of order n."""

    def __init__(self, amount: int | float, n: float | str, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor) -> Tensor:
        others = [dim for dim in range(t.ndim) if dim != self.dim % t.ndim]
        return norm(t, self.n, others)


class CustomFromMask(BasePruningMethod):
    """Prunes the elements for which a mask has 0."""

    PRUNING_TYPE: ClassVar[str] = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise ShapeError(
                f"the mask has the shape {tuple(self.mask.shape)}, but the parameter "
                f"{tuple(default_mask.shape)}"
            )
        mask = local_value(self.mask)
        return default_mask * mask.to(default_mask.dtype)

"""LocalBatch: calls of a global module with the local tensors of this rank's part of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...engine.autograd_function import Function
from ...engine.convert import to_global, to_local
from ...engine.local_shards import joined_by_members
from ...engine.placement import Placement
from ...engine.sbp import broadcast, split, without_partial
from ...engine.tensor import Tensor
from ...graph.pytree import tree_map


class LocalBatch:
    """Joins the parts of a batch that ranks have, and gives each of them its part of the results.

    The batch is split along the dim `dim` over `axes` of the placement; along other axes ranks have
    the same part. If the loss of each rank is a mean over its part, gradients are means over ranks.
    With `members_alone` the ranks of the placement call it, and those outside do something else.
    """

    def __init__(
        self,
        placement: Placement,
        axes: Sequence[int] = (0,),
        dim: int = 0,
        members_alone: bool = False,
    ) -> None:
        self.placement = placement
        self.members_alone = members_alone
        self.dim = dim
        self._split = tuple(
            [split(dim) if axis in axes else broadcast for axis in range(placement.ndim)]
        )
        self._whole = (broadcast,) * placement.ndim
        self._axes = frozenset(axes)

    def joined(self, given: Any, check: bool = True) -> tuple[Any, bool]:
        """A pytree with its local tensors joined, and whether there was one.

        With `check` the ranks compare the shapes of their parts.
        """
        found = False

        def read(x: Tensor) -> Tensor:
            nonlocal found
            if x.is_global:
                return x
            found = True
            return self._join(x, check)

        with joined_by_members(self.members_alone):
            return tree_map(given, read), found

    def own_parts(self, result: Any) -> Any:
        """A pytree with this rank's parts of its global tensors."""
        return tree_map(result, self._own_part)

    def _join(self, x: Tensor, check: bool) -> Tensor:
        if x.requires_grad:
            x = scaled(x, float(self.placement.num_ranks))
        sbp = self._split if x.ndim > self.dim else self._whole
        return to_global(x, self.placement, sbp, check_meta=check)

    def _own_part(self, y: Tensor) -> Tensor:
        """A result as a local tensor, whose gradient is one of as many as there are ranks.

        Along axes over which the batch is not split, ranks get all of it.
        """
        if y.is_local:
            return y
        sbp = without_partial(y.sbp)
        own = [each if axis in self._axes else broadcast for axis, each in enumerate(sbp)]
        y = to_local(to_global(y, sbp=own))
        return scaled(y, 1.0 / self.placement.num_ranks) if y.requires_grad else y


class _Scale(Function):
    """x, with a gradient that is multiplied."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        return dy * ctx.factor, None


def scaled(x: Tensor, factor: float) -> Tensor:
    """x, with a gradient that is multiplied."""
    y: Tensor = _Scale.apply(x, factor)
    return y

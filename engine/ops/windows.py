"""Windows of a dim: unfold and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...kernels import arrange as kernels
from ..dispatch import unary
from ..meta import Meta
from ..names import named
from ..op import Op
from ..signature import Axis, Rule
from ..tensor import Tensor
from .arrange import others
from .moving import follows, passes, wrap


class Unfold(Op):
    """Windows of a dim as a new last dim."""

    name = "unfold"
    saves = ()
    aliases = True
    flops_per_element = 0.0

    def kernel(self, x: torch.Tensor, dim: int, size: int, step: int) -> torch.Tensor:
        return x.unfold(dim, size, step)

    def rule(self, axis: Axis, x: Meta, dim: int, size: int, step: int) -> Rule:
        return [*follows(others(x.ndim, (dim,))), *passes([x])]

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, dim: int, size: int, step: int
    ) -> Any:
        return (_windows_back(dy, dim, x.shape[dim], step),)


class WindowsBack(Op):
    """Windows added where they overlap: the gradient of Unfold."""

    name = "unfold_grad"
    saves = ()

    kernel = staticmethod(kernels.windows_back)

    def infer(self, dy: Meta, dim: int, length: int, step: int) -> Meta:
        return dy.like((*dy.shape[:dim], length, *dy.shape[dim + 1 : -1]))

    def rule(self, axis: Axis, dy: Meta, dim: int, length: int, step: int) -> Rule:
        found = follows(others(dy.ndim - 1, (dim,)))
        return [*found, *passes([dy])[:1]]

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        x: Meta,
        dim: int,
        length: int,
        step: int,
    ) -> Any:
        return (_unfold(dy, dim, x.shape[-1], step),)


_unfold = unary(Unfold())
_windows_back = unary(WindowsBack())


@named
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of `size` elements along a dim, every `step` elements, as a new last dim."""
    return _unfold(self, wrap(dimension, self.ndim), size, step)  # type: ignore[no-any-return]

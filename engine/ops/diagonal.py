"""Diagonals of two dims, as vectors and back: diagonal, diag, diag_embed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import OnefoldRuntimeError
from ..dispatch import unary
from ..meta import Meta
from ..names import named
from ..op import Kernel, Local, Op
from ..signature import Axis, Rule
from ..tensor import Tensor
from .moving import follows, passes, wrap

Shape = tuple[int, ...]


class Diagonal(Op):
    """The diagonal of two dims, as the last dim."""

    name = "diagonal"
    saves = ()
    aliases = True
    flops_per_element = 0.0

    kernel = staticmethod(torch.diagonal)

    def rule(self, axis: Axis, x: Meta, offset: int, dim1: int, dim2: int) -> Rule:
        return [*follows(_beside(x.ndim, dim1, dim2)), *passes([x])]

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, offset: int, *dims: int
    ) -> Any:
        return (_on_diagonal(dy, tuple(x.shape), offset, *dims),)


class OnDiagonal(Op):
    """Zeros of a shape, with the last dim of the input on the diagonal of two dims."""

    name = "on_diagonal"
    saves = ()

    def kernel(
        self, x: torch.Tensor, shape: Shape, offset: int, dim1: int, dim2: int
    ) -> torch.Tensor:
        return torch.diagonal_scatter(x.new_zeros(shape), x, offset, dim1, dim2)

    def rule(self, axis: Axis, x: Meta, shape: Shape, offset: int, dim1: int, dim2: int) -> Rule:
        pairs = _beside(len(shape), dim1, dim2)
        return [*follows((j, i) for i, j in pairs), *passes([x])]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        kernel, shape, rest = self.kernel, local.output_shape(), attrs[1:]
        return lambda x: kernel(x, shape, *rest)

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        x: Meta,
        shape: Shape,
        offset: int,
        *dims: int,
    ) -> Any:
        return (_diagonal(dy, offset, *dims),)


def _beside(ndim: int, dim1: int, dim2: int) -> list[tuple[int, int]]:
    """For each dim but these two, its place in `diagonal`'s output."""
    gone = (wrap(dim1, ndim), wrap(dim2, ndim))
    kept = [dim for dim in range(ndim) if dim not in gone]
    return [(i, j) for j, i in enumerate(kept)]


_diagonal = unary(Diagonal())
_on_diagonal = unary(OnDiagonal())


@named
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of dims `dim1` and `dim2`, as the last dim; `offset` > 0 lies above."""
    return _diagonal(input, offset, dim1, dim2)  # type: ignore[no-any-return]


@named
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Zeros with the last dim on the diagonal of two new dims `dim1` and `dim2`."""
    if not input.ndim:
        raise OnefoldRuntimeError("diag_embed needs a tensor of at least 1 dim, but got a 0-d one")
    i, j = wrap(dim1, input.ndim + 1), wrap(dim2, input.ndim + 1)
    if i == j:
        raise OnefoldRuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    batch = iter(input.shape[:-1])
    side = input.shape[-1] + abs(offset)
    shape = tuple(side if dim in (i, j) else next(batch) for dim in range(input.ndim + 1))
    return _on_diagonal(input, shape, offset, i, j)  # type: ignore[no-any-return]


@named
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as the diagonal of a matrix, or the diagonal of a matrix as a vector."""
    if input.ndim not in (1, 2):
        raise OnefoldRuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    return diag_embed(input, diagonal) if input.ndim == 1 else _diagonal(input, diagonal, 0, 1)

"""Running sums, products and extrema along a dim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...kernels import reduce as kernels
from ..dispatch import binary, general, unary
from ..meta import Meta
from ..names import named
from ..op import Op
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .cast import cast
from .pointwise import fitting

Needs = Sequence[object]


def _others(ndim: int, dim: int, inputs: int = 1, outputs: int = 1) -> list[Signature]:
    """Every dim can be split but the one along which the scan runs."""
    along = dim % ndim if ndim else 0
    return [
        Signature((split(d),) * inputs, (split(d),) * outputs) for d in range(ndim) if d != along
    ]


class RunningSum(Op):
    """Sums of each element and those before it, or (`back`) behind it."""

    name = "cumsum"
    saves = ()
    kernel = staticmethod(kernels.cumsum)

    def rule(self, axis: Axis, x: Meta, dim: int, back: bool) -> Rule:
        passes = Signature((partial_sum,), (partial_sum,))
        return fitting([*_others(x.ndim, dim), passes], [x])

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Meta, dim: int, back: bool
    ) -> tuple[Tensor]:
        return (_cumsum(dy, dim, not back),)


_cumsum = unary(RunningSum())


@named
def cumsum(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """The sum of each element and all before it along `dim`; integers and bools give int64.

    The dim must be whole: a split one is gathered first.
    """
    x = input if dtype is None else cast(input, dtype)
    return _cumsum(x, dim, False)  # type: ignore[no-any-return]


class RunningProduct(Op):
    """The product of each element and all before it."""

    name = "cumprod"
    kernel = staticmethod(kernels.cumprod)

    def rule(self, axis: Axis, x: Meta, dim: int) -> Rule:
        return _others(x.ndim, dim)

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Tensor, dim: int) -> tuple[Tensor]:
        return (_cumprod_backward(dy, x, dim),)


class RunningProductBackward(Op):
    """The gradient of cumprod: (dy, x, dim)."""

    name = "cumprod_backward"
    kernel = staticmethod(kernels.cumprod_backward)

    def infer(self, dy: Meta, x: Meta, dim: int) -> Meta:
        return x

    def rule(self, axis: Axis, dy: Meta, x: Meta, dim: int) -> Rule:
        linear = Signature((partial_sum, broadcast), (partial_sum,))
        return [*_others(x.ndim, dim, inputs=2), linear]

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, weight: Tensor, x: Tensor, dim: int) -> Any:
        return _cumprod_second((dy, weight, x), dim)


class RunningProductSecond(Op):
    """The gradients of that for dy and x: (ddx, dy, x, dim). They have no gradients themselves."""

    name = "cumprod_backward_backward"
    num_outputs = 2
    saves = ()
    kernel = staticmethod(kernels.cumprod_backward_backward)

    def infer(self, ddx: Meta, dy: Meta, x: Meta, dim: int) -> tuple[Meta, Meta]:
        return dy, x

    def rule(self, axis: Axis, ddx: Meta, dy: Meta, x: Meta, dim: int) -> Rule:
        return [
            *_others(x.ndim, dim, inputs=3, outputs=2),
            Signature((partial_sum, broadcast, broadcast), (partial_sum, partial_sum)),
            Signature((broadcast, partial_sum, broadcast), (broadcast, partial_sum)),
        ]


_cumprod = unary(RunningProduct())
_cumprod_backward = binary(RunningProductBackward())
_cumprod_second = general(RunningProductSecond())


@named
def cumprod(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """The product of each element and all before it along `dim`.

    The dim must be whole: a split one is gathered first. There is no third derivative.
    """
    x = input if dtype is None else cast(input, dtype)
    return _cumprod(x, dim)  # type: ignore[no-any-return]

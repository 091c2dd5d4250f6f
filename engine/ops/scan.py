"""Running sums, products and extrema along a dim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...kernels import reduce as kernels
from ..dispatch import binary, general, unary
from ..meta import Meta
from ..names import named
from ..op import Kernel, Op
from ..sbp import partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .arithmetic import add, div, mul, neg
from .cast import cast
from .pointwise import conj_of

Needs = Sequence[object]


def _others(ndim: int, dim: int, inputs: int = 1, outputs: int = 1) -> list[Signature]:
    """Every dim can be split but the one along which the scan runs."""
    along = dim % ndim if ndim else 0
    return [
        Signature((split(d),) * inputs, (split(d),) * outputs) for d in range(ndim) if d != along
    ]


class RunningSum(Op):
    """Sums of each element and those before it, or behind it."""

    saves = ()

    def __init__(self, name: str, whole: Kernel, back: Callable[[], Callable[..., Any]]) -> None:
        self.name = name
        self.kernel = whole  # type: ignore[method-assign]
        self.back = back  # the entry of the sum in the other direction

    def rule(self, axis: Axis, x: Meta, dim: int) -> Rule:
        passes = Signature((partial_sum,), (partial_sum,))
        exact = [] if x.dtype is torch.bool else [passes]
        return [*_others(x.ndim, dim), *exact]

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta, dim: int) -> tuple[Tensor]:
        return (self.back()(dy, dim),)


_cumsum = unary(RunningSum("cumsum", torch.cumsum, lambda: _reversed_cumsum))
_reversed_cumsum = unary(RunningSum("reversed_cumsum", kernels.reversed_cumsum, lambda: _cumsum))


@named
def cumsum(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """The sum of each element and all before it along `dim`; integers and bools give int64.

    The dim must be whole: a split one is gathered first.
    """
    x = input if dtype is None else cast(input, dtype)
    return _cumsum(x, dim)  # type: ignore[no-any-return]


class RunningProduct(Op):
    """The product of each element and all before it."""

    name = "cumprod"
    kernel = staticmethod(torch.cumprod)  # type: ignore[assignment]

    def rule(self, axis: Axis, x: Meta, dim: int) -> Rule:
        return _others(x.ndim, dim)

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Tensor, dim: int) -> tuple[Tensor]:
        return (_cumprod_backward(dy, x, dim),)


class RunningProductBackward(Op):
    """The gradient of cumprod: (dy, x, dim)."""

    name = "cumprod_backward"

    def infer(self, dy: Meta, x: Meta, dim: int) -> Meta:
        return x

    def kernel(self, dy: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
        return kernels.cumprod_backward(dy, x, dim)

    def rule(self, axis: Axis, dy: Meta, x: Meta, dim: int) -> Rule:
        return _others(x.ndim, dim, inputs=2)

    def vjp(self, needs: Needs, ddx: Tensor, dx: Meta, dy: Tensor, x: Tensor, dim: int) -> Any:
        return _cumprod_second((ddx, dy, x), dim)


class RunningProductSecond(Op):
    """The gradients of that for dy and x: (ddx, dy, x, dim). They have no gradients themselves."""

    name = "cumprod_backward_backward"
    num_outputs = 2
    saves = ()

    def infer(self, ddx: Meta, dy: Meta, x: Meta, dim: int) -> tuple[Meta, Meta]:
        return dy, x

    def kernel(
        self, ddx: torch.Tensor, dy: torch.Tensor, x: torch.Tensor, dim: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return kernels.cumprod_backward_backward(ddx, dy, x, dim)

    def rule(self, axis: Axis, ddx: Meta, dy: Meta, x: Meta, dim: int) -> Rule:
        return _others(x.ndim, dim, inputs=3, outputs=2)


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

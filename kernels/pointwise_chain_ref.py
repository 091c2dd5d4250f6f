"""Chains of pointwise functions, of which only some values are kept.

The torch references call one function after the other; the Triton kernels are one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

Function = Callable[..., Tensor]


class At(NamedTuple):
    """An argument that is the value with this number."""

    number: int


class Link(NamedTuple):
    """A pointwise function, of torch or of `kernels/pointwise_ref.py`, and its arguments."""

    function: Function
    arguments: tuple[object, ...]  # `At` for values; numbers and attributes as they are


@dataclass(frozen=True, eq=False, slots=True)
class Chain:
    """Values: `inputs` tensors first, then what each link gives; `outputs` are the kept ones.

    What links give has one shape, to which the inputs broadcast.

    >>> import torch
    >>> chain = Chain(2, (Link(torch.mul, (At(0), At(1))), Link(torch.add, (At(2), 1.0))), (3,))
    >>> one(chain)(torch.tensor([1.0, 2.0]), torch.tensor(3.0))
    tensor([4., 7.])
    """

    inputs: int
    links: tuple[Link, ...]
    outputs: tuple[int, ...]


def several(chain: Chain) -> Callable[..., tuple[Tensor, ...]]:
    """The function from the inputs to the outputs."""

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        values = list(tensors)
        for function, arguments in chain.links:
            values.append(function(*[values[a.number] if type(a) is At else a for a in arguments]))
        return tuple([values[number] for number in chain.outputs])

    return run


def one(chain: Chain) -> Callable[..., Tensor]:
    """The function from the inputs to the only output."""
    run = several(chain)
    return lambda *tensors: run(*tensors)[0]


def as_prologue(chain: Chain, kept: bool) -> Callable[..., tuple[Any, Tensor | None]]:
    """The only output for the sum, mean, maximum or minimum that takes it, and to be kept.

    Its Triton kernel does not compute it: the reduction does from what it loads, and writes it if
    `kept`.
    """
    run = one(chain)

    def twice(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        value = run(*tensors)
        return value, value

    return twice


def why_not(function: Function, arguments: tuple[object, ...]) -> str:
    """Why a function of such arguments cannot be a link; "" if it can."""
    return ""

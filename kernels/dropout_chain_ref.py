"""Dropout and a pointwise chain that takes what it gives, such as a cast and a residual."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from .philox import Seed
from .pointwise_chain_ref import Chain, one
from .random_ref import dropout

MAX_EXTRA = 2  # tensors that the chain takes besides what dropout gives


def with_chain(chain: Chain) -> Callable[..., Tensor]:
    """The function from dropout's input, and the chain's inputs after its first, to the output.

    It takes the other arguments of `random_ref.dropout` by name.
    """
    return in_parts(dropout, one(chain))


def in_parts(dropped: Callable[..., Tensor], end: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`with_chain` by one function for dropout and one for the chain."""

    def run(x: Tensor, *extra: Tensor, shape: tuple[int, ...], offset: tuple[int, ...],
            p: float, seed: Seed, call: int) -> Tensor:  # fmt: skip
        return end(dropped(x, shape, offset, p=p, seed=seed, call=call), *extra)

    return run

"""The sums of batch norm's gradient over channels, with the pointwise chain that makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from .batch_norm_ref import channel_sums
from .pointwise_chain_ref import Chain, one

MAX_TENSORS = 3  # tensors like x that the chain takes besides it
MAX_VECTORS = 2  # vectors of channels that it takes besides mean and rstd


@dataclass(frozen=True, eq=False, slots=True)
class ChannelChain:
    """A chain of `tensors` tensors like x, then x, mean, rstd, and other vectors of channels.

    It gives the gradient that is summed, which is given too if it is `kept`.
    """

    chain: Chain
    tensors: int
    kept: bool


def with_chain(made: ChannelChain) -> Callable[..., tuple[Tensor, ...]]:
    """The function from what a chain takes to `channel_sums`, and the gradient if it is kept."""
    return in_parts(made, one(made.chain), channel_sums)


def in_parts(
    made: ChannelChain,
    run: Callable[..., Tensor],
    sums: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> Callable[..., tuple[Tensor, ...]]:
    """`with_chain` by a function for the chain and one for the sums."""

    def call(*tensors: Tensor) -> tuple[Tensor, ...]:
        x, mean, rstd = tensors[made.tensors : made.tensors + 3]
        dy = run(*tensors)
        along, level = sums(dy, x, mean, rstd)
        return (along, level, dy) if made.kept else (along, level)

    return call

"""The sums of a norm's gradient over channels or groups, with the pointwise chain that makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from .batch_norm_ref import channel_sums
from .group_norm_ref import group_sums
from .pointwise_chain_ref import Chain, one

MAX_TENSORS = 3  # tensors like x that the chain takes besides it
MAX_VECTORS = 2  # vectors of channels that it takes besides mean and rstd


@dataclass(frozen=True, eq=False, slots=True)
class ChannelChain:
    """A chain of `tensors` tensors like x, then x, mean, rstd, and other vectors of channels.

    It gives the gradient that is summed, which is given too if it is `kept`. For group norm `size`
    is the number of channels of a group, and `weight` the place of the norm's weight, if it has
    one, among what the chain takes, or behind that.
    """

    chain: Chain
    tensors: int
    kept: bool
    size: int = 0
    weight: int | None = None


def with_chain(made: ChannelChain) -> Callable[..., tuple[Tensor, ...]]:
    """The function from what a chain takes to `channel_sums` or `group_sums`, and what is kept."""
    return in_parts(made, one(made.chain), group_sums if made.size else channel_sums)


def in_parts(
    made: ChannelChain, run: Callable[..., Tensor], sums: Callable[..., tuple[Tensor, ...]]
) -> Callable[..., tuple[Tensor, ...]]:
    """`with_chain` by a function for the chain and one for the sums."""

    def call(*tensors: Tensor) -> tuple[Tensor, ...]:
        x, mean, rstd = tensors[made.tensors : made.tensors + 3]
        dy = run(*tensors[: made.chain.inputs])
        rest = (weight_of(made, tensors), made.size) if made.size else ()
        found = sums(dy, x, mean, rstd, *rest)
        return (*found, dy) if made.kept else found

    return call


def weight_of(made: ChannelChain, tensors: tuple[Tensor, ...]) -> Tensor | None:
    """The weight of group norm among the tensors."""
    return None if made.weight is None else tensors[made.weight]

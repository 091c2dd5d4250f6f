"""Norms and their gradients between pointwise chains, of which only some values are kept.

The torch references call one after the other; the Triton kernels are one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from . import norm_ref
from .pointwise_chain_ref import At, Chain, several

Norm = Callable[..., "Tensor | tuple[Tensor, ...]"]

# The norms that may stand between chains.
NORMS: dict[str, Norm] = {
    function.__name__: function
    for function in (
        norm_ref.layer_norm,
        norm_ref.layer_norm_grad,
        norm_ref.layer_norm_input_grad,
        norm_ref.layer_norm_with_stats,
        norm_ref.layer_norm_with_stats_grad,
        norm_ref.layer_norm_with_stats_input_grad,
        norm_ref.rms_norm,
        norm_ref.rms_norm_grad,
        norm_ref.rms_norm_input_grad,
    )
}
MAX_BEFORE = 4  # tensors that the chain before takes
MAX_EXTRA = 2  # tensors that the chain after takes besides the norm's result
MAX_AFTER = 2  # values that it gives


@dataclass(frozen=True, eq=False, slots=True)
class NormChain:
    """A norm (or a gradient of one), what makes its first input, and what becomes of its first
    result: chains or, where there is none, the tensor itself.

    It takes the inputs of the chain before, the norm's other tensors, and the inputs of the chain
    after but its first. It gives the outputs of the chain after, the norm's other results, and the
    norm's first result and its first input, if they are kept. The first result is given in any case
    where no chain follows.
    """

    norm: Norm
    arguments: tuple[object, ...]  # after its first: `At` for a tensor; else as they are
    before: Chain | None = None
    after: Chain | None = None
    keeps_result: bool = False
    keeps_input: bool = False

    @property
    def counts(self) -> tuple[int, int]:
        """How many tensors there are before the norm, and besides its first input."""
        before = 1 if self.before is None else self.before.inputs
        return before, sum(type(argument) is At for argument in self.arguments)

    def parted(self, tensors: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], ...]:
        """The tensors of the chain before, of the norm, and of the chain after."""
        first, own = self.counts
        return tensors[:first], tensors[first : first + own], tensors[first + own :]

    def filled(self, tensors: tuple[Tensor, ...]) -> list[object]:
        """The norm's arguments after its first."""
        return [tensors[a.number] if type(a) is At else a for a in self.arguments]


def with_chains(chain: NormChain) -> Callable[..., tuple[Tensor, ...]]:
    """The function from the tensors to the outputs of a norm between chains."""
    return in_parts(chain, chain.norm, several)


def in_parts(
    chain: NormChain, norm: Norm, make: Callable[[Chain], Callable[..., tuple[Tensor, ...]]]
) -> Callable[..., tuple[Tensor, ...]]:
    """`with_chains` by one function for the norm and one for each chain."""
    before = None if chain.before is None else make(chain.before)
    after = None if chain.after is None else make(chain.after)

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        first, own, extra = chain.parted(tensors)
        (x,) = first if before is None else before(*first)
        made = norm(x, *chain.filled(own))
        y, *others = [made] if isinstance(made, Tensor) else made
        results = () if after is None else after(y, *extra)
        return arranged(chain, results, others, y, x)

    return run


def arranged(
    chain: NormChain,
    results: tuple[Tensor, ...],
    others: list[Tensor],
    y: Tensor | None,
    x: Tensor | None,
) -> tuple[Tensor, ...]:
    """The outputs in order, from those of the chain after, the norm's, and what may be kept."""
    kept_y = chain.keeps_result or chain.after is None
    values = (*results, *others, y if kept_y else None, x if chain.keeps_input else None)
    return tuple([value for value in values if value is not None])

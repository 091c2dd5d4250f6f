"""The sums of a norm's gradient with the chain that makes it, in one kernel.

The bits are those of one kernel after the other.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ... import batch_norm_ref, channel_chain_ref as reference
from ...channel_chain_ref import ChannelChain
from ...pointwise_chain_ref import At, Chain, Link
from ...pointwise_ref import relu_backward
from ..launch.aot_cases import Case
from ..pointwise.channels_last import empty, is_channels_last
from ..pointwise.pointwise_chain_kernels import expression_of, one
from ..pointwise.prologue import function_of
from .batch_norm_kernels import (
    LAYOUTS,
    MAX_SLOPES,
    MAX_VECTORS,
    _sums,
    channel_sums,
    parts_of_sums,
    suits,
    summed,
)
from .group_norm_kernels import group_sums, joined

# Left to torch: what is left to it of batch norm and of chains.

assert reference.MAX_TENSORS == MAX_SLOPES and reference.MAX_VECTORS + 2 == MAX_VECTORS


def with_chain(made: ChannelChain) -> Callable[..., tuple[Tensor, ...]]:
    sums_of = group_sums if made.size else channel_sums
    by_parts = reference.in_parts(made, one(made.chain), sums_of)
    functions: dict[tuple[torch.dtype, ...], tuple[object, torch.dtype]] = {}

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        first, x = tensors[: made.tensors], tensors[made.tensors]
        vectors = tensors[made.tensors + 1 : made.chain.inputs]
        statistics = x.shape[0] * x.shape[1] if made.size else x.shape[1]
        alike = all(each.shape == x.shape for each in first)
        alike = alike and all(each.numel() == statistics for each in vectors[:2])
        if not alike or not suits(x) or any(each.numel() != x.shape[1] for each in vectors[2:]):
            return by_parts(*tensors)
        chained = tensors[: made.chain.inputs]
        dtypes = tuple([each.dtype for each in chained])
        found = functions.get(dtypes)
        if found is None:
            found = functions[dtypes] = _function(made, chained)
        function, dtype = found
        last = is_channels_last(x)
        kept = empty(x.shape, last, dtype, x.device) if made.kept else None
        sums: tuple[Tensor, ...]
        if made.size:
            parts = parts_of_sums(first, x, vectors, function, kept, True)
            sums = joined(parts, x, reference.weight_of(made, tensors), made.size)
        else:
            sums = summed(first, x, vectors, function, kept)
        return sums if kept is None else (*sums, kept)

    return run


def _function(made: ChannelChain, tensors: tuple[Tensor, ...]) -> tuple[object, torch.dtype]:
    """The Triton function of the chain for tensors of these dtypes, and the dtype it gives."""
    expression, numbers = expression_of(made.chain, tensors)
    others = range(MAX_SLOPES, MAX_SLOPES + len(tensors) - made.tensors)
    places = (*range(made.tensors), *others)
    function = function_of(expression, tuple(numbers), places, MAX_SLOPES + 1 + MAX_VECTORS)
    return function, expression.dtype(expression.outputs[0])


def _example(dtype: torch.dtype) -> object:
    """The gradient of relu(batch_norm(x)), from x."""
    norm = Link(batch_norm_ref.batch_normalized, (*[At(i) for i in range(1, 6)], 1e-5))
    links = (norm, Link(torch.relu, (At(6),)), Link(relu_backward, (At(0), At(7))))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    given = [torch.empty((), dtype=each) for each in (dtype, dtype, wide, wide, wide, wide)]
    return _function(ChannelChain(Chain(6, links, (8,)), 1, False), tuple(given))[0]


CASES = [
    Case(
        _sums,
        (x, None, None, x, *("*fp32",) * 4, None, "*fp32", *sizes),
        (_example(dtype), *constants),
        fused=False,
    )
    for x, dtype in (("*bf16", torch.bfloat16), ("*fp32", torch.float32))
    for sizes, constants in LAYOUTS
]

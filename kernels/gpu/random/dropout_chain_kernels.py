"""Dropout with the pointwise chain that follows in one kernel, with the bits of the two."""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap

import torch
from torch import Tensor

from ... import dropout_chain_ref as reference, random_ref
from ...dropout_chain_ref import MAX_EXTRA
from ...philox import Seed
from ...pointwise_chain_ref import Chain
from ...random_ref import Plan
from ..launch.aot_cases import Case, tensors
from ..pointwise.pointwise_chain_kernels import expression_of, one
from ..pointwise.prologue import function_of, gelu_and_sum
from .random_kernels import GROUPS, _fill, dropout, fill_box

# Left to torch: what is left to it of dropout and of chains.


def with_chain(chain: Chain) -> Callable[..., Tensor]:
    by_parts = reference.in_parts(dropout, one(chain))
    functions: dict[tuple[torch.dtype, ...], tuple[object, torch.dtype]] = {}

    def run(x: Tensor, *extra: Tensor, shape: tuple[int, ...], offset: tuple[int, ...],
            p: float, seed: Seed, call: int) -> Tensor:  # fmt: skip
        given = (x, *extra)
        dense = all(
            each.shape == x.shape and each.is_contiguous() and each.device == x.device
            for each in given
        )
        if not dense or len(extra) > MAX_EXTRA or x.numel() == 0:
            return by_parts(*given, shape=shape, offset=offset, p=p, seed=seed, call=call)
        dtypes = tuple([each.dtype for each in given])
        found = functions.get(dtypes)
        if found is None:
            expression, numbers = expression_of(chain, given)
            dtype = expression.dtype(expression.outputs[0])
            found = functions[dtypes] = function_of(expression, tuple(numbers)), dtype
        function, dtype = found
        plan: Plan = unwrap(random_ref.dropout_mask)(p=p, dtype=x.dtype)
        y = torch.empty(x.shape, dtype=dtype, device=x.device)
        return fill_box(plan, y, shape, offset, seed, call, x, extra, function)

    return run


_CHAIN = function_of(gelu_and_sum(torch.bfloat16), ())
_POINTERS = (*tensors("bf16", "out", "x", "x1"), None)
CASES = [
    Case(
        _fill,
        (*_POINTERS, drawn),
        ("mask", False, False, True, whole, True, _CHAIN, GROUPS),
        fused=False,
    )
    for whole, drawn in ((True, None), (False, None), (True, "*i64"))
]

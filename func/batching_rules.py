"""Batching rules: by the name of an op, how a call runs once for the rows of its tensors.

Ops without a rule of their own are folded: where a signature splits the tensors that have rows and
all results, the rows may be joined along the split dims, as the shards of ranks are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..engine.op import Op
from ..engine.ops.pointwise import Elementwise
from ..engine.ops.torch_op import TorchOp
from ..engine.tensor import Tensor
from .batched_call import BatchedCall, Results, Rule
from .batching_by_folding import fold
from .batching_rules_dims import RULES as DIMS
from .batching_rules_indexing import RULES as INDEXING
from .batching_rules_network import RULES as NETWORK, SMALL_FORMS
from .batching_rules_pointwise import RULES as POINTWISE, pointwise
from .batching_rules_products import RULES as PRODUCTS

Form: TypeAlias = Callable[..., Any]

# Pointwise ops whose gradients are for a batch of channels, and no dims more.
_OF_CHANNELS = frozenset(
    "standardized group_normalized batch_normalized standard_slope group_norm_slope "
    "batch_norm_slope".split()
)

RULES: dict[str, Rule] = {**POINTWISE, **DIMS, **PRODUCTS, **INDEXING, **NETWORK}


def small_form(op: Op, attrs: Any) -> Form | None:
    """The form of a call in smaller ops, by which it is made on rows; None if it needs none."""
    made = SMALL_FORMS.get(op.name)
    return None if made is None else made(attrs)


def rules_for(op: Op) -> list[Rule]:
    """The rules to try for an op, in this order."""
    own = RULES.get(op.name)
    if isinstance(op, TorchOp):
        own = None
    elif own is None and isinstance(op, Elementwise) and op.name not in _OF_CHANNELS:
        own = pointwise
    return [fold] if own is None else [own, fold]


def run_by_rule(call: BatchedCall) -> Results | None:
    """The results for all rows by the first rule that covers the call; None without any."""
    for rule in rules_for(call.op):
        try:
            results = rule(call)
        except Exception:  # noqa: BLE001 - row by row it works, or raises the error of a row
            continue
        if _fits(call, results):
            return results
    return None


def _fits(call: BatchedCall, results: Results) -> bool:
    """Whether results have the shapes and dtypes that the results of each row have."""
    found = [results] if isinstance(results, Tensor) else results
    return all(
        y.shape == (call.size, *meta.shape) and y.dtype is meta.dtype
        for y, meta in zip(found, call.metas, strict=False)
    )

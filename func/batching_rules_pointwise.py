"""Batching rules of pointwise ops: the dims of a row are aligned at the end, as they broadcast."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch

from ..engine.ops.cast import cast
from ..engine.tensor import Tensor
from .batched_call import BatchedCall, NoRule, Results, Rule


def _kind(dtype: torch.dtype) -> int:
    """Of bools, integers, real and complex numbers the later ones decide the dtype of results."""
    return 0 if dtype is torch.bool else 3 if dtype.is_complex else 1 + dtype.is_floating_point


def _cast_scalars(call: BatchedCall, slots: list[Any], places: list[int]) -> None:
    """Cast tensors without dims, which count less for the dtype of a result than others.

    With rows they have a dim, and would count as much.
    """
    dtypes = [call.rows[i].dtype for i in places if call.rows[i].ndim]
    wide = reduce(torch.promote_types, dtypes)
    for i in places:
        dtype = call.rows[i].dtype
        if not call.rows[i].ndim and dtype is not wide:
            if _kind(dtype) > _kind(wide):
                raise NoRule
            slots[i] = cast(slots[i], wide)


def pointwise(call: BatchedCall) -> Results:
    """A pointwise op of broadcasting tensors and numbers."""
    places = call.places()
    if call.op.name in ("where", "masked_fill"):  # the dtype of the condition does not count
        counting = [i for i in places if call.rows[i].dtype is not torch.bool]
    else:
        counting = places
    ndims = [call.rows[i].ndim for i in places]
    ndim = max(ndims)
    slots = [
        call.aligned(index, ndim) if isinstance(x, Tensor) else x
        for index, x in enumerate(call.slots)
    ]
    if len({call.rows[i].dtype for i in counting}) > 1:
        if not ndim:
            slots = call.all_at_front()
        elif 0 in ndims:
            _cast_scalars(call, slots, counting)
    return call.run(slots, *call.attrs)


RULES: dict[str, Rule] = dict.fromkeys(
    "cast constant_like where masked_fill clamp maximum minimum one_hot target_weights".split(),
    pointwise,
)

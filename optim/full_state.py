"""State that starts as some value, laid out as a parameter is."""

from __future__ import annotations

import torch

from ..engine.convert import box
from ..engine.inplace import writable
from ..engine.sbp import without_partial
from ..engine.tensor import Tensor, from_shards


def full_for(param: Tensor, value: float) -> Tensor:
    """State of one value; for a partial parameter one addend has it, the others are 0."""
    meta = param.meta
    unique = {id(part): _full_like(part, value) for part in param.shards}
    if not meta.partial or not value:
        return from_shards(tuple([unique[id(part)] for part in param.shards]), meta)
    plain = meta.like(nd_sbp=without_partial(meta.nd_sbp))
    made = tuple([_full_like(part, value) for part in box(param, plain).shards])
    found = from_shards(box(from_shards(made, plain), meta).shards, meta)
    found.shared = True
    writable(found)
    return found


def _full_like(part: torch.Tensor, value: float) -> torch.Tensor:
    """The value in each element, in both parts of complex ones, as in torch."""
    return torch.full_like(part, complex(value, value) if part.is_complex() else value)

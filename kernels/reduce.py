"""Reductions that take more than one torch call, and those of empty shards."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def partial_mean(
    x: torch.Tensor,
    dim: int | Sequence[int] | None,
    keepdim: bool,
    dtype: torch.dtype | None,
    count: int,
) -> torch.Tensor:
    """The sum over `dim` divided by `count`, the size of the whole of which `x` is a part.

    Summed in float32 when the result is of half precision: the sum of a part may overflow it.
    """
    wanted = dtype or x.dtype
    wide = torch.float32 if wanted in (torch.float16, torch.bfloat16) else wanted
    total = torch.sum(x, dim, keepdim, dtype=wide)
    return total.div_(count).to(wanted) if count else total.div_(0.0).to(wanted)

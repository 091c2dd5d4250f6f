"""Rotary position embedding: pairs of features are rotated by angles that grow with the position.

Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021).
"""

from __future__ import annotations

import torch
from torch import Tensor


def rotary(
    x: Tensor, cos: Tensor, sin: Tensor, seq_dim: int, interleaved: bool, back: bool
) -> Tensor:
    """Pairs (a, b) of the last dim become (a cos - b sin, b cos + a sin); turned `back`: -sin.

    The tables are (length, pairs) or (batch, length, pairs), of which length is dim `seq_dim` of x
    and batch dim 0. Pairs are neighbors where `interleaved`, else they stand `pairs` apart.
    Features after all pairs stay. Computed in float32 at least.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = (_fitting(table, x, seq_dim).to(wide) for table in (cos, sin))
    sin = -sin if back else sin
    count = cos.shape[-1]
    turned, rest = x[..., : 2 * count], x[..., 2 * count :]
    pairs = turned.unflatten(-1, (count, 2) if interleaved else (2, count)).to(wide)
    a, b = pairs.unbind(-1 if interleaved else -2)
    both = torch.stack((a * cos - b * sin, b * cos + a * sin), -1 if interleaved else -2)
    y = torch.empty_like(
        x
    )  # in the order of the dims of x: heads that were split off join for free
    return torch.cat((both.flatten(-2).to(x.dtype), rest), -1, out=y)


def _fitting(table: Tensor, x: Tensor, seq_dim: int) -> Tensor:
    """The table with dims of size 1 where x has dims that it does not know."""
    shape = [1] * x.ndim
    shape[seq_dim], shape[-1] = table.shape[-2:]
    if table.ndim == 3:
        shape[0] = table.shape[0]
    return table.reshape(shape)

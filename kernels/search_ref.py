"""Searches in rows that are in order, as torch's functions of these names."""

from __future__ import annotations

import torch
from torch import Tensor


def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where each number would be inserted in its row, or in the only row, to keep the order."""
    return torch.searchsorted(
        sorted_sequence, input, out_int32=out_int32, right=right, side=side, sorter=sorter
    )


def bucketize(
    input: Tensor | float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The same between the boundaries, which are one row."""
    return torch.bucketize(input, boundaries, out_int32=out_int32, right=right)

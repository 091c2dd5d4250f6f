"""Rows: tensors as matrices whose rows one program works on, and how wide its block is."""

from __future__ import annotations

from math import prod

from torch import Tensor

from .tiles import power_of_2

WIDEST = 32768  # columns of one block; wider rows spill registers, so kernels loop over blocks


def as_rows(x: Tensor, last: int) -> Tensor:
    """The tensor with dense rows: its last dims as columns, all dims before as rows."""
    columns = prod(x.shape[x.ndim - last :])
    rows = prod(x.shape[: x.ndim - last])
    return x.contiguous().view(rows, columns)


def block_of(columns: int) -> int:
    """The width of a block that holds a row, or the widest one."""
    return min(power_of_2(max(columns, 1)), WIDEST)


def warps_of(block: int) -> int:
    """Warps for a block of this width, of which each thread has 8 to 32 elements."""
    return min(max(block // 512, 1), 16)

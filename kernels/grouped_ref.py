"""Products of matrices in groups, whose rows lie one after the other: of experts."""

from __future__ import annotations

import torch
from torch import Tensor


def _groups(ends: Tensor, rows: int) -> list[slice]:
    """The rows of each group. Ends that fall, or lie after the last row, give fewer rows."""
    found, low = [], 0
    for end in ends.tolist():
        high = min(max(int(end), low), rows)
        found.append(slice(low, high))
        low = high
    return found


def grouped_rows(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    """The rows of each group of a (m, k) times its matrix in b (groups, k, n): (m, n).

    `ends` (groups) are the rows after each group. Rows after the last one give zeros.
    """
    y = a.new_zeros(a.shape[0], b.shape[2])
    for rows, matrix in zip(_groups(ends, a.shape[0]), b, strict=True):
        y[rows] = a[rows] @ matrix
    return y


def grouped_sums(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    """`a.T @ b` over the rows of each group of a (m, k) and b (m, n): (groups, k, n)."""
    found = [a[rows].t() @ b[rows] for rows in _groups(ends, a.shape[0])]
    return torch.stack(found) if found else a.new_zeros(0, a.shape[1], b.shape[1])

"""Operands of matrix products as the kernels read them: one dense dim, a step, two batch
strides.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ...common_shapes import broadcast_shapes

Shape = tuple[int, ...]


def dense(x: Tensor) -> tuple[Tensor, bool, int]:
    """A matrix, or a batch, with dense rows (or columns: True), and the step between them.

    It is copied only if neither dim is dense.
    """
    row, column = x.stride()[-2:]
    if column == 1 or x.shape[-1] == 1:
        return x, False, row
    if row == 1 or x.shape[-2] == 1:
        return x, True, column
    return x.contiguous(), False, x.shape[-1]


class Pair(NamedTuple):
    """a (m, k) and b (k, n) in batches; batch i has the strides of (i // inner, i % inner)."""

    a: Tensor
    b: Tensor
    m: int
    n: int
    k: int
    a_columns: bool  # whether the columns of a are dense, and not its rows
    b_columns: bool
    a_step: int
    b_step: int
    batches: int = 1
    inner: int = 1
    strides: tuple[int, int, int, int] = (0, 0, 0, 0)  # of a: outer, inner; of b: outer, inner


def pair(a: Tensor, b: Tensor) -> Pair:
    """Two matrices, or batches of matrices that broadcast."""
    a, a_columns, a_step = dense(a)
    b, b_columns, b_step = dense(b)
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if a.ndim == 2 and b.ndim == 2:
        return Pair(a, b, m, n, k, a_columns, b_columns, a_step, b_step)
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    dims = _merged(lead, _strides(a, lead), _strides(b, lead))
    if len(dims) > 2:  # what two strides cannot say is copied
        count = lead.numel()
        a = a.expand(*lead, m, k).reshape(count, m, k)
        b = b.expand(*lead, k, n).reshape(count, k, n)
        return pair(a, b)
    if dims and not a_columns and dims[-1][1:] == (m * a_step, 0):  # more rows of one matrix
        m *= dims.pop()[0]
    outer, inner = [(1, 0, 0)] * (2 - len(dims)) + dims
    strides = (outer[1], inner[1], outer[2], inner[2])
    batches = outer[0] * inner[0]
    return Pair(a, b, m, n, k, a_columns, b_columns, a_step, b_step, batches, inner[0], strides)


def _strides(x: Tensor, lead: Shape) -> Shape:
    """The strides along the batch dims, 0 where it is broadcast."""
    own = x.ndim - 2
    missing = len(lead) - own
    found = [s if size != 1 else 0 for size, s in zip(x.shape[:own], x.stride(), strict=False)]
    return (*[0] * missing, *found)


def _merged(lead: Shape, a: Shape, b: Shape) -> list[tuple[int, int, int]]:
    """Size and strides of the batch dims; dims that are contiguous in both operands are merged."""
    dims: list[tuple[int, int, int]] = []
    for size, of_a, of_b in zip(lead, a, b, strict=True):
        if size == 1:
            continue
        if dims and dims[-1][1] == size * of_a and dims[-1][2] == size * of_b:
            size *= dims.pop()[0]
        dims.append((size, of_a, of_b))
    return dims

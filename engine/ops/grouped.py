"""Products of matrices in groups, as of experts: rows of each group times a matrix of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...errors import OnefoldTypeError, ShapeError
from ...kernels import grouped_ref as kernels
from ..dispatcher import ternary
from ..meta import Meta
from ..names import register_name
from ..op import Gradients, Needs, Op, required
from ..tensor import Tensor
from .dims import transpose


class Grouped(Op):
    """The base of both products: operands of one dtype, and the groups' ends as integers."""

    saves = ((1, 2), (0, 2), ())

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        rows, columns = required(inputs[0]).shape
        return 2.0 * rows * columns * outputs[0].shape[-1]


class GroupedRows(Grouped):
    """y[m, n] = sum over k of a[m, k] * b[g, k, n], g being the group of row m"""

    name = "grouped_rows"
    spec = "m* k, g* k n, g* -> m* n"
    linear = "0 1"
    kernel = staticmethod(kernels.grouped_rows)

    def infer(self, a: Meta, b: Meta, ends: Meta) -> Meta:
        if (a.ndim, b.ndim) != (2, 3) or a.shape[1] != b.shape[1] or ends.shape != b.shape[:1]:
            raise ShapeError(
                f"grouped_rows needs rows (m, k), matrices (groups, k, n) and ends (groups,), but "
                f"got shapes {tuple(a.shape)}, {tuple(b.shape)} and {tuple(ends.shape)}"
            )
        _check(self.name, a, b, ends)
        return a.like(shape=(a.shape[0], b.shape[2]))

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor, ends: Tensor
    ) -> Gradients:
        da = needs[0] and grouped_rows(dy, transpose(b, 1, 2), ends)
        return da, needs[1] and grouped_sums(a, dy, ends), None


class GroupedSums(Grouped):
    """y[g, k, n] = sum over the rows m of group g of a[m, k] * b[m, n]"""

    name = "grouped_sums"
    spec = "m* k, m* n, g* -> g* k n"
    linear = "0 1"
    kernel = staticmethod(kernels.grouped_sums)

    def infer(self, a: Meta, b: Meta, ends: Meta) -> Meta:
        if (a.ndim, b.ndim, ends.ndim) != (2, 2, 1) or a.shape[0] != b.shape[0]:
            raise ShapeError(
                f"grouped_sums needs rows (m, k) and (m, n), and ends (groups,), but got shapes "
                f"{tuple(a.shape)}, {tuple(b.shape)} and {tuple(ends.shape)}"
            )
        _check(self.name, a, b, ends)
        return a.like(shape=(*ends.shape, a.shape[1], b.shape[1]))

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor, ends: Tensor
    ) -> Gradients:
        da = needs[0] and grouped_rows(b, transpose(dy, 1, 2), ends)
        return da, needs[1] and grouped_rows(a, dy, ends), None


def _check(name: str, a: Meta, b: Meta, ends: Meta) -> None:
    if a.dtype is not b.dtype or ends.dtype not in (torch.int32, torch.int64):
        raise OnefoldTypeError(
            f"{name} needs operands of one dtype and ends of int32 or int64, but got {a.dtype}, "
            f"{b.dtype} and {ends.dtype}"
        )


grouped_rows = register_name("grouped_rows", ternary(GroupedRows()))
grouped_sums = register_name("grouped_sums", ternary(GroupedSums()))

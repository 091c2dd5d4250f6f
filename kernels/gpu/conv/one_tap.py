"""Convolutions with windows of one position: matrix products of all positions and the weight."""

from __future__ import annotations

import torch
from torch import Tensor

from ..matmul import gemm_config
from ..matmul.gemm import Epilogue, product
from ..pointwise.channels_last import dense
from ..pointwise.copy_kernels import contiguous
from .conv_geometry import Sizes, Triple, Volumes, kind_of

_ONCE = Sizes((1, 1, 1), (0, 0, 0), (1, 1, 1))


def is_product(dtype: torch.dtype, v: Volumes, taps: Triple, sizes: Sizes, groups: int) -> bool:
    """Whether a convolution is one product, with the precision that torch's flags ask for."""
    alone = taps == (1, 1, 1) and sizes._replace(dilation=_ONCE.dilation) == _ONCE
    exact = kind_of(dtype) == gemm_config.kind_of(dtype)
    return alone and groups == 1 and v.source == v.output and exact


def _rows(x: Tensor) -> Tensor:
    """(positions, channels)."""
    return dense(x, True).view(-1, x.shape[1])


def convolution(x: Tensor, w: Tensor, bias: Tensor | None, transposed: bool, y: Tensor) -> Tensor:
    """Compute the convolution into y, which is channels-last."""
    matrix = contiguous(w).view(w.shape[:2])
    end = Epilogue(bias=bias)
    product(_rows(x), matrix if transposed else matrix.t(), end, out=_rows(y))
    return y


def weight_grad(rows: Tensor, columns: Tensor) -> Tensor:
    """(channels of rows, channels of columns): their products, summed over all positions."""
    return product(_rows(rows).t(), _rows(columns))

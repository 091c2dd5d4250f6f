"""Convolutions that are one matrix product: of all positions and the weight.

Their windows are single positions, or patches of a transposed convolution that do not overlap.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from ..matmul import gemm_config
from ..matmul.gemm import Epilogue, product
from ..pointwise.channels_last import dense
from ..pointwise.copy_kernels import contiguous, copy_into
from .conv_geometry import Sizes, Triple, Volumes, kind_of

_ONCE = Sizes((1, 1, 1), (0, 0, 0), (1, 1, 1))


def is_product(dtype: torch.dtype, v: Volumes, taps: Triple, sizes: Sizes, groups: int) -> bool:
    """Whether a convolution is one product, with the precision that torch's flags ask for."""
    alone = taps == (1, 1, 1) and sizes._replace(dilation=_ONCE.dilation) == _ONCE
    return alone and groups == 1 and v.source == v.output and _is_exact(dtype)


def has_patches(dtype: torch.dtype, v: Volumes, taps: Triple, sizes: Sizes, groups: int) -> bool:
    """The same of a transposed convolution whose windows lie side by side."""
    adjacent = taps == sizes.stride and sizes._replace(stride=_ONCE.stride) == _ONCE
    ends = tuple(size * step for size, step in zip(v.source, taps, strict=True))
    return adjacent and groups == 1 and v.output == ends and _is_exact(dtype)


def _is_exact(dtype: torch.dtype) -> bool:
    return kind_of(dtype) == gemm_config.kind_of(dtype)


def _rows(x: Tensor) -> Tensor:
    """(positions, channels)."""
    return dense(x, True).view(-1, x.shape[1])


def convolution(x: Tensor, w: Tensor, bias: Tensor | None, transposed: bool, y: Tensor) -> Tensor:
    """Compute the convolution into y, which is channels-last."""
    matrix = w.view(w.shape[:2])
    end = Epilogue(bias=bias)
    product(_rows(x), matrix if transposed else matrix.t(), end, out=_rows(y))
    return y


def patches(x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor) -> Tensor:
    """Compute a transposed convolution with patches into y, which is channels-last.

    All of these have three dims of positions.
    """
    n, channels, d, height, width = x.shape
    outs, (a, b, c) = w.shape[1], w.shape[2:]
    matrix = contiguous(w.permute(0, 2, 3, 4, 1)).view(channels, -1)
    each = None if bias is None else contiguous(bias.expand(prod((a, b, c)), outs)).view(-1)
    made = product(_rows(x), matrix, Epilogue(bias=each))
    made = made.view(n, d, height, width, a, b, c, outs).permute(0, 1, 4, 2, 5, 3, 6, 7)
    copy_into(dense(y, True).view(made.shape), made)
    return y


def weight_grad(rows: Tensor, columns: Tensor) -> Tensor:
    """(channels of rows, channels of columns): their products, summed over all positions."""
    return product(_rows(rows).t(), _rows(columns))

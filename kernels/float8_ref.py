"""float8 in blocks: 8-bit numbers with a float32 scale per block, and their matrix product.

Source: Liu et al., "DeepSeek-V3 Technical Report" (2024), section 3.3.
"""

from __future__ import annotations

import torch
from torch import Tensor

Block = tuple[int, int]  # rows and columns that share a scale

LEAST = torch.finfo(torch.float32).tiny  # the least scale: zeros have it


def quantize_fp8(x: Tensor, block: Block, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(values, scales) with x about values * scales, the last two dims of x cut into blocks.

    A scale makes the largest number of its block the largest of `dtype`.
    """
    top = torch.finfo(dtype).max
    rows, columns = x.shape[-2:]
    high, wide = -(-rows // block[0]), -(-columns // block[1])
    padded = x.new_zeros((*x.shape[:-2], high * block[0], wide * block[1]), dtype=torch.float32)
    padded[..., :rows, :columns] = x
    parts = padded.unflatten(-1, (wide, block[1])).unflatten(-3, (high, block[0]))
    if x.numel():
        largest = parts.abs().amax((-3, -1))
        # By a tensor: of a number torch multiplies with the reciprocal on a GPU, which is inexact.
        scales = (largest / torch.full_like(largest, top)).clamp_(min=LEAST)
    else:
        scales = padded.new_empty((*x.shape[:-2], high, wide))
    values = (parts / scales[..., :, None, :, None]).clamp_(-top, top)
    values = values.flatten(-4, -3).flatten(-2, -1)[..., :rows, :columns]
    return values.contiguous().to(dtype), scales


def dequantize(values: Tensor, scales: Tensor, block: Block, dtype: torch.dtype) -> Tensor:
    """values * scales in `dtype`."""
    rows, columns = values.shape[-2:]
    spread = scales.to(dtype).repeat_interleave(block[0], -2)[..., :rows, :]
    return values.to(dtype) * spread.repeat_interleave(block[1], -1)[..., :columns]


def scaled_matmul(
    a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, block: int, a_rows: int,
    b_columns: int, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """The product of two quantized matrices, (m, k) and (k, n), summed in float32.

    Scales are for `block` terms of the sum and `a_rows` rows of a, or `b_columns` columns of b.
    """
    left = dequantize(a, a_scale, (a_rows, block), torch.float32)
    right = dequantize(b, b_scale, (block, b_columns), torch.float32)
    return torch.matmul(left, right).to(dtype)

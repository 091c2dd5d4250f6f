"""Statistics of groups of channels, and the sums of the gradient of group norm.

The kernels are those of batch norm, for which each sample is a batch; see `batch_norm_kernels.py`.
They give numbers of the channels of each sample. These are joined into those of groups, which are
written for each channel, so that the elementwise work after it does not see groups.
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from ... import group_norm_ref as reference
from ...group_norm_ref import shape_of_statistics
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..pointwise.channels_last import dense, is_channels_last
from .batch_norm_kernels import (
    as_channels,
    block_of,
    copied,
    joined_moments,
    moments,
    numbers_of,
    parts_of_sums,
    shared_out,
    suits,
)
from .reduction_tiles import TRITON, cdiv, power_of_2

# Left to torch: dtypes that are not floating, and tensors of no elements.


@Kernel
def _join_group_sums(
    parts, weight, along, level, d_weight, d_bias, samples, groups, size, splits,
    WIDE: tl.constexpr, BC: tl.constexpr, BS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The first programs sum parts over the channels of groups, the others over samples."""
    kept = samples * groups
    blocks = tl.cdiv(kept, BC)
    first = tl.zeros((BC, BS), WIDE)
    second = tl.zeros((BC, BS), WIDE)
    if tl.program_id(0) < blocks:
        c, known = block_of(tl.program_id(0), kept, BC)
        for start in range(0, splits * size, BS):
            at = start + tl.arange(0, BS)
            mask = known[:, None] & (at < splits * size)[None, :]
            split, member = (at // size).to(tl.int64), at % size
            w = 1.0
            if weight is not None:
                place = (c % groups * size)[:, None] + member[None, :]
                w = tl.load(weight + place, mask=mask, other=0).to(WIDE)
            one = numbers_of(parts + member, split, kept, size, c)
            first += w * tl.load(one, mask=mask, other=0)
            one = numbers_of(parts + member, split + splits, kept, size, c)
            second += w * tl.load(one, mask=mask, other=0)
        copied(along, tl.sum(first, 1), c, known, size, BC, BK)
        copied(level, tl.sum(second, 1), c, known, size, BC, BK)
    else:
        channels, rows = groups * size, splits * samples
        c, known = block_of(tl.program_id(0) - blocks, channels, BC)
        for start in range(0, rows, BS):
            row = (start + tl.arange(0, BS)).to(tl.int64)
            mask = known[:, None] & (row < rows)[None, :]
            one = parts + row[None, :] * channels + c[:, None]
            first += tl.load(one, mask=mask, other=0)
            one = parts + (row + rows)[None, :] * channels + c[:, None]
            second += tl.load(one, mask=mask, other=0)
        tl.store(d_weight + c, tl.sum(first, 1), mask=known)
        tl.store(d_bias + c, tl.sum(second, 1), mask=known)


def group_statistics(x: Tensor, size: int, eps: float) -> tuple[Tensor, Tensor]:
    if not suits(x):
        return reference.group_statistics(x, size, eps)
    samples, channels = x.shape[:2]
    kept = samples * channels // size
    count = x.numel() // kept
    if is_channels_last(x):
        parts, t = moments(*as_channels(x, True, by_sample=True))
        members = size
    else:  # a group is one stretch of memory
        parts, t = moments(dense(x, False), shared_out(1, 1, kept, count))
        members = 1
    return joined_moments(parts, shape_of_statistics(x), kept, t.splits, members, count, eps)


def group_sums(
    dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if not suits(x):
        return reference.group_sums(dy, x, mean, rstd, weight, size)
    return joined(parts_of_sums((dy,), x, (mean, rstd), None, None, True), x, weight, size)


def joined(
    parts: Tensor, x: Tensor, weight: Tensor | None, size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`group_sums` from the sums of channels."""
    samples, channels = x.shape[:2]
    groups, splits, wide = channels // size, parts.shape[1] // samples, parts.dtype
    of_groups = shape_of_statistics(x)
    along, level = (torch.empty(of_groups, dtype=wide, device=x.device) for _ in range(2))
    d_weight, d_bias = (
        torch.empty((1, *of_groups[1:]), dtype=wide, device=x.device) for _ in range(2)
    )
    kept = samples * groups
    block = min(power_of_2(max(kept, channels)), 32)
    across = min(power_of_2(splits * max(size, samples)), 64)
    given = None if weight is None else weight.contiguous()
    _join_group_sums.launch(
        (cdiv(kept, block) + cdiv(channels, block),),
        (parts, given, along, level, d_weight, d_bias, samples, groups, size, splits),
        (TRITON[wide], block, across, min(power_of_2(size), 64)),
    )
    return along, level, d_weight, d_bias


_TYPES = ("*fp32",) * 4
CASES = [
    Case(
        _join_group_sums,
        ("*fp32", weight, *_TYPES, "i32?", "i32?", "i32?", "i32?"),
        (tl.float32, 32, 64, 8),
    )
    for weight in ("*fp32", "*bf16", None)
]

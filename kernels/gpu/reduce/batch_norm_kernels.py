"""Statistics of channels, and the two sums of the gradient of batch norm, in one pass each.

A tensor is read as it lies, as (batch, channels, inner): channels-last with inner size 1. Every
lane keeps Welford's mean and sum of squares. Those of lanes, and then those of programs, are
combined by Chan's formula, always in the same order.

Source: Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample
variances (1979); Welford, Note on a method for calculating corrected sums of squares and products
(1962).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import batch_norm_ref as reference
from ...batch_norm_ref import shape_of_statistics
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..launch.symbolic_numbers import runtime_scalars, through
from ..pointwise.channels_last import dense, is_channels_last
from .reduction_tiles import NUMBERS, TRITON, cdiv, power_of_2, wide_of
from .reductions import reduce_dims
from .variance_kernels import combined, taken_in

# Left to torch: dtypes that are not floating, and batches of no elements.

_TILE = 2048  # elements: 16 for each thread, with three numbers kept for each
_PROGRAMS = 1024
# What a chain takes besides x: tensors like it, and vectors of channels.
MAX_SLOPES, MAX_VECTORS = 3, 4


class _Channels(NamedTuple):
    """A dense tensor as (batch, channels, inner), and how programs share it out.

    A program has `block` channels and `chunk` tiles of `batches` x `inners` elements of each.
    """

    batch: int
    channels: int
    inner: int
    block: int
    batches: int
    inners: int
    tiles: int
    chunk: int

    @property
    def splits(self) -> int:
        return cdiv(self.tiles, self.chunk)

    @property
    def grid(self) -> tuple[int, int]:
        return cdiv(self.channels, self.block), self.splits

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        return self.batch, self.channels, self.inner, self.tiles, self.chunk

    @property
    def tile(self) -> tuple[int, int, int]:
        return self.block, self.batches, self.inners


@lru_cache(maxsize=4096)
def _shared_out(batch: int, channels: int, inner: int) -> _Channels:
    """The sizes of tiles: they depend on the shape only, so every GPU gives the same bits."""
    block = min(power_of_2(channels), 64) if inner == 1 else 1
    inners = min(power_of_2(inner), _TILE)
    batches = min(power_of_2(batch), max(_TILE // (block * inners), 1))
    tiles = cdiv(batch, batches) * cdiv(inner, inners)
    wanted = max(_PROGRAMS // cdiv(channels, block), 1)
    chunk = min(max(cdiv(tiles, wanted), 4), tiles)
    return _Channels(batch, channels, inner, block, batches, inners, tiles, chunk)


def _as_channels(x: Tensor, channels_last: bool) -> tuple[Tensor, _Channels]:
    """Dense memory of x, and how programs share it out."""
    batch, channels, *rest = x.shape
    if channels_last:
        batch, rest = batch * prod(rest), []
    return dense(x, channels_last), _shared_out(batch, channels, prod(rest))


@triton.jit
def _channel_block(channels, BC: tl.constexpr):
    """The channels of this program, which exist."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    return c, c < channels


@triton.jit
def _tile(
    number, c, known, batch, channels, inner, BB: tl.constexpr, BI: tl.constexpr
):  # fmt: skip
    """Where the elements of a tile lie, and which exist in it, for every channel and of it."""
    at = tl.arange(0, BB * BI)
    if BI == 1:
        b = number * BB + at
        exists = (b < batch)[None, :]
        where = b[None, :].to(tl.int64) * channels + c[:, None]
    else:
        across = tl.cdiv(inner, BI)
        b = number // across * BB + at // BI
        i = number % across * BI + at % BI
        exists = ((b < batch) & (i < inner))[None, :]
        where = (b[None, :].to(tl.int64) * channels + c[:, None]) * inner + i[None, :]
    return where, exists & known[:, None], exists


@Kernel
def _moments(
    x, parts, batch, channels, inner, tiles, chunk,
    WIDE: tl.constexpr, BC: tl.constexpr, BB: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    """parts[0:3, split, channel]: mean, sum of (v - mean)**2, and count."""
    c, known = _channel_block(channels, BC)
    split = tl.program_id(1)
    end = tl.minimum((split + 1) * chunk, tiles)
    seen = tl.zeros((1, BB * BI), WIDE)
    mean = tl.zeros((BC, BB * BI), WIDE)
    squares = tl.zeros((BC, BB * BI), WIDE)
    for number in range(split * chunk, end):
        where, mask, exists = _tile(number, c, known, batch, channels, inner, BB, BI)
        v = tl.load(x + where, mask=mask, other=0).to(WIDE)
        seen, mean, squares = taken_in(v, mask, exists, seen, mean, squares)
    count, average, m2 = combined(seen, mean, squares)
    out = parts + split * channels + c
    step = tl.num_programs(1) * channels
    tl.store(out, average, mask=known)
    tl.store(out + step, m2, mask=known)
    tl.store(out + 2 * step, tl.zeros((BC,), WIDE) + count, mask=known)


@Kernel
def _join_moments(
    parts, mean, rstd, running_mean, running_var, moved_mean, moved_var, channels, splits, count,
    momentum: tl.float64, eps: tl.float64,
    RUNNING: tl.constexpr, WIDE: tl.constexpr, BC: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    c, known = _channel_block(channels, BC)
    seen = tl.zeros((BC, BS), WIDE)
    average = tl.zeros((BC, BS), WIDE)
    squares = tl.zeros((BC, BS), WIDE)
    for start in range(0, splits, BS):
        split = start + tl.arange(0, BS)
        mask = known[:, None] & (split < splits)[None, :]
        at = parts + split[None, :] * channels + c[:, None]
        more = tl.load(at + 2 * splits * channels, mask=mask, other=0)
        apart = tl.load(at, mask=mask, other=0) - average
        both = seen + more
        share = more / tl.maximum(both, 1.0)
        average += apart * share
        m2 = tl.load(at + splits * channels, mask=mask, other=0)
        squares += m2 + apart * apart * seen * share
        seen = both
    _, middle, m2 = combined(seen, average, squares)
    tl.store(mean + c, middle, mask=known)
    variance = m2 / tl.full((BC,), count, WIDE)
    tl.store(rstd + c, 1.0 / tl.sqrt(variance + eps.to(WIDE)), mask=known)
    unbiased = m2 / tl.full((BC,), tl.maximum(count - 1, 1), WIDE)
    if RUNNING:
        step = momentum.to(WIDE)
        before = tl.load(running_mean + c, mask=known, other=0).to(WIDE)
        middle = before + step * (middle - before)
        before = tl.load(running_var + c, mask=known, other=0).to(WIDE)
        unbiased = before + step * (unbiased - before)
    tl.store(moved_mean + c, middle.to(moved_mean.dtype.element_ty), mask=known)
    tl.store(moved_var + c, unbiased.to(moved_var.dtype.element_ty), mask=known)


@triton.jit
def _vector(vector, c, known):
    """A number for each channel."""
    return tl.load(vector + c, mask=known, other=0)[:, None]


@Kernel
def _sums(
    dy, dy1, dy2, x, mean, rstd, weight, bias, whole, parts, batch, channels, inner, tiles, chunk,
    CHAIN: tl.constexpr, WIDE: tl.constexpr, BC: tl.constexpr, BB: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    """parts[0:2, split, channel]: the sums of dy * (x - mean) * rstd, and of dy.

    CHAIN gives dy from the tensors and vectors that there are. It is written if there is `whole`.
    """
    c, known = _channel_block(channels, BC)
    split = tl.program_id(1)
    end = tl.minimum((split + 1) * chunk, tiles)
    middle, r = _vector(mean, c, known), _vector(rstd, c, known)
    w, b = middle, middle
    if weight is not None:
        w = _vector(weight, c, known)
    if bias is not None:
        b = _vector(bias, c, known)
    along = tl.zeros((BC, BB * BI), WIDE)
    level = tl.zeros((BC, BB * BI), WIDE)
    for number in range(split * chunk, end):
        where, mask, _ = _tile(number, c, known, batch, channels, inner, BB, BI)
        g = tl.load(dy + where, mask=mask, other=0)
        v = tl.load(x + where, mask=mask, other=0)
        if CHAIN is not None:
            g1, g2 = g, g
            if dy1 is not None:
                g1 = tl.load(dy1 + where, mask=mask, other=0)
            if dy2 is not None:
                g2 = tl.load(dy2 + where, mask=mask, other=0)
            g = CHAIN(g, g1, g2, v, middle, r, w, b)
            if whole is not None:
                tl.store(whole + where, g, mask=mask)
            g = tl.where(mask, g, 0)
        slope = g.to(WIDE)
        along += slope * (v.to(WIDE) - middle)
        level += slope
    out = parts + split * channels + c
    tl.store(out, tl.sum(along, 1) * tl.reshape(r, (BC,)), mask=known)
    tl.store(out + tl.num_programs(1) * channels, tl.sum(level, 1), mask=known)


def suits(x: Tensor) -> bool:
    """Whether the kernels support this tensor."""
    return x.numel() > 0 and x.dtype.is_floating_point and x.dtype in NUMBERS


@runtime_scalars("momentum")
def channel_statistics(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if not suits(x):
        return reference.channel_statistics(x, running_mean, running_var, momentum, eps)
    whole, t = _as_channels(x, is_channels_last(x))
    wide = wide_of(x.dtype)
    parts = torch.empty((3, t.splits, t.channels), dtype=wide, device=x.device)
    _moments.launch(t.grid, (whole, parts, *t.numbers), (TRITON[wide], *t.tile))
    mean, rstd = (
        torch.empty(shape_of_statistics(x), dtype=wide, device=x.device) for _ in range(2)
    )
    running = [None if old is None else old.contiguous() for old in (running_mean, running_var)]
    moved = [
        torch.empty(t.channels, dtype=wide if old is None else old.dtype, device=x.device)
        for old in running
    ]
    block, across = min(power_of_2(t.channels), 32), min(power_of_2(t.splits), 64)
    args = (parts, mean, rstd, *running, *moved, t.channels, t.splits, t.batch * t.inner)
    _join_moments.launch(
        (cdiv(t.channels, block),),
        (*args, through(float, momentum), eps),
        (running_mean is not None, TRITON[wide], block, across),
    )
    return mean, rstd, moved[0], moved[1]


def channel_sums(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    if not suits(x):
        return reference.channel_sums(dy, x, mean, rstd)
    return summed((dy,), x, (mean, rstd), None, None)


def summed(
    slopes: Sequence[Tensor],
    x: Tensor,
    vectors: Sequence[Tensor],
    chain: object,
    whole: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """`channel_sums` of what a chain gives from `slopes`, x and the vectors; None: of the first.

    It is written to `whole`, in the order of x. The vectors are mean, rstd and up to two more.
    """
    channels_last = is_channels_last(x)
    given, t = _as_channels(x, channels_last)
    wide = wide_of(x.dtype)
    parts = torch.empty((2, t.splits, t.channels), dtype=wide, device=x.device)
    first = [dense(slope, channels_last) for slope in slopes]
    numbers = [vector.contiguous() for vector in vectors]
    pointers = (
        *first, *[None] * (MAX_SLOPES - len(first)), given,
        *numbers, *[None] * (MAX_VECTORS - len(numbers)), whole, parts,
    )  # fmt: skip
    # Without contraction, so that each value of a chain has the bits of a kernel of its own.
    _sums.launch(t.grid, (*pointers, *t.numbers), (chain, TRITON[wide], *t.tile), fused=False)
    along, level = reduce_dims(parts, (1,), False, "sum", wide).unbind()
    shape = shape_of_statistics(x)
    return along.view(shape), level.view(shape)


# The sizes of channels-last memory and of row-major order, and their tiles.
LAYOUTS = (
    (("i32?", "i32", "i32?", "i32?", "i32?"), (tl.float32, 64, 32, 1)),
    (("i32?", "i32?", "i32", "i32?", "i32?"), (tl.float32, 1, 2, 1024)),
)


def _case(x: str, sizes: tuple[str, ...], constants: tuple[object, ...]) -> Case:
    types = (x, None, None, x, "*fp32", "*fp32", None, None, None, "*fp32")
    return Case(_sums, (*types, *sizes), (None, *constants), fused=False)


CASES = [
    case
    for x in ("*bf16", "*fp32")
    for sizes, constants in LAYOUTS
    for case in (
        Case(_moments, (x, "*fp32", *sizes), constants),
        _case(x, sizes, constants),
    )
]
CASES += [Case(_join_moments, ("*fp32",) * 7, (True, tl.float32, 32, 64))]

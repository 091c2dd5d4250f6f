"""Statistics of channels, and the two sums of the gradient of batch norm, in one pass each.

A tensor is read as it lies, as (samples, batch, channels, inner): channels-last with inner size 1.
Each sample has statistics of its own; to batch norm the whole batch is one sample. Every lane keeps
Welford's mean and sum of squares. Those of lanes, and then those of programs, are combined by
Chan's formula, always in the same order.

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


class Channels(NamedTuple):
    """A dense tensor as (samples, batch, channels, inner), and how programs share it out.

    A program has `block` channels of a sample, and `chunk` tiles of `batches` x `inners` elements
    of each.
    """

    samples: int
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
        return self.samples * cdiv(self.channels, self.block), self.splits

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        return self.batch, self.channels, self.inner, self.tiles, self.chunk

    @property
    def tile(self) -> tuple[int, int, int]:
        return self.block, self.batches, self.inners


@lru_cache(maxsize=4096)
def shared_out(samples: int, batch: int, channels: int, inner: int) -> Channels:
    """The sizes of tiles: they depend on the shape only, so every GPU gives the same bits."""
    block = min(power_of_2(channels), 64) if inner == 1 else 1
    inners = min(power_of_2(inner), _TILE)
    batches = min(power_of_2(batch), max(_TILE // (block * inners), 1))
    # Small planes of many samples: several channels, so that there are not too many programs.
    room = min(_TILE // (batches * inners), samples * channels // _PROGRAMS)
    block = max(block, min(power_of_2(channels), power_of_2(room + 1) // 2))
    tiles = cdiv(batch, batches) * cdiv(inner, inners)
    wanted = max(_PROGRAMS // (samples * cdiv(channels, block)), 1)
    chunk = min(max(cdiv(tiles, wanted), 4), tiles)
    return Channels(samples, batch, channels, inner, block, batches, inners, tiles, chunk)


def as_channels(x: Tensor, channels_last: bool, by_sample: bool = False) -> tuple[Tensor, Channels]:
    """Dense memory of x, and how programs share it out."""
    samples, channels, *rest = x.shape
    batch, inner = (prod(rest), 1) if channels_last else (1, prod(rest))
    if not by_sample:
        samples, batch = 1, samples * batch
    return dense(x, channels_last), shared_out(samples, batch, channels, inner)


@triton.jit
def block_of(number, count, BC: tl.constexpr):
    """Of `count` channels those of a block, which exist."""
    c = number * BC + tl.arange(0, BC)
    return c, c < count


@triton.jit
def _sample_and_channels(channels, APART: tl.constexpr, BC: tl.constexpr):
    """The sample of this program, how many there are, and its channels, which exist."""
    number, sample, samples = tl.program_id(0), 0, 1
    if APART:
        blocks = tl.cdiv(channels, BC)
        sample, samples = (number // blocks).to(tl.int64), tl.num_programs(0) // blocks
        number %= blocks
    c, known = block_of(number, channels, BC)
    return sample, samples, c, known


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


@triton.jit
def _part(parts, number, sample, samples, channels):
    """Where a program puts one of its numbers, in parts[number, split, sample, channel]."""
    return parts + ((number * tl.num_programs(1) + tl.program_id(1)) * samples + sample) * channels


@Kernel
def _moments(
    x, parts, batch, channels, inner, tiles, chunk, APART: tl.constexpr,
    WIDE: tl.constexpr, BC: tl.constexpr, BB: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    """parts[0:3, split, sample, channel]: mean, sum of (v - mean)**2, and count."""
    sample, samples, c, known = _sample_and_channels(channels, APART, BC)
    split = tl.program_id(1)
    end = tl.minimum((split + 1) * chunk, tiles)
    x += sample * batch * channels * inner
    seen = tl.zeros((1, BB * BI), WIDE)
    mean = tl.zeros((BC, BB * BI), WIDE)
    squares = tl.zeros((BC, BB * BI), WIDE)
    for number in range(split * chunk, end):
        where, mask, exists = _tile(number, c, known, batch, channels, inner, BB, BI)
        v = tl.load(x + where, mask=mask, other=0).to(WIDE)
        seen, mean, squares = taken_in(v, mask, exists, seen, mean, squares)
    count, average, m2 = combined(seen, mean, squares)
    tl.store(_part(parts, 0, sample, samples, channels) + c, average, mask=known)
    tl.store(_part(parts, 1, sample, samples, channels) + c, m2, mask=known)
    held = tl.zeros((BC,), WIDE) + count
    tl.store(_part(parts, 2, sample, samples, channels) + c, held, mask=known)


@triton.jit
def numbers_of(member, split, kept, members, c):
    """Where the numbers of members of groups are, in parts of a number of each channel."""
    return member[None, :] + (split[None, :] * kept + c[:, None]) * members


@Kernel
def _join_moments(
    parts, mean, rstd, running_mean, running_var, moved_mean, moved_var,
    kept, members, splits, copies, count, momentum: tl.float64, eps: tl.float64,
    WIDE: tl.constexpr, BC: tl.constexpr, BS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Statistics of `kept` groups of `members` channels, in `copies`: one for each channel.

    The running ones, where there are some, move towards those.
    """
    c, known = block_of(tl.program_id(0), kept, BC)
    seen = tl.zeros((BC, BS), WIDE)
    average = tl.zeros((BC, BS), WIDE)
    squares = tl.zeros((BC, BS), WIDE)
    for start in range(0, splits * members, BS):
        at = start + tl.arange(0, BS)
        mask = known[:, None] & (at < splits * members)[None, :]
        split, member = (at // members).to(tl.int64), parts + at % members
        more = tl.load(numbers_of(member, split + 2 * splits, kept, members, c), mask=mask, other=0)
        apart = tl.load(numbers_of(member, split, kept, members, c), mask=mask, other=0) - average
        both = seen + more
        share = more / tl.maximum(both, 1.0)
        average += apart * share
        m2 = tl.load(numbers_of(member, split + splits, kept, members, c), mask=mask, other=0)
        squares += m2 + apart * apart * seen * share
        seen = both
    _, middle, m2 = combined(seen, average, squares)
    variance = m2 / tl.full((BC,), count, WIDE)
    copied(mean, middle, c, known, copies, BC, BK)
    copied(rstd, 1.0 / tl.sqrt(variance + eps.to(WIDE)), c, known, copies, BC, BK)
    if moved_mean is not None:
        unbiased = m2 / tl.full((BC,), tl.maximum(count - 1, 1), WIDE)
        if running_mean is not None:
            rate = momentum.to(WIDE)
            before = tl.load(running_mean + c, mask=known, other=0).to(WIDE)
            middle = before + rate * (middle - before)
            before = tl.load(running_var + c, mask=known, other=0).to(WIDE)
            unbiased = before + rate * (unbiased - before)
        tl.store(moved_mean + c, middle.to(moved_mean.dtype.element_ty), mask=known)
        tl.store(moved_var + c, unbiased.to(moved_var.dtype.element_ty), mask=known)


@triton.jit
def copied(out, value, c, known, copies, BC: tl.constexpr, BK: tl.constexpr):
    """Write each value `copies` times, one after the other."""
    for start in range(0, copies, BK):
        at = start + tl.arange(0, BK)
        mask = known[:, None] & (at < copies)[None, :]
        where = c[:, None].to(tl.int64) * copies + at[None, :]
        tl.store(out + where, tl.broadcast_to(value[:, None], (BC, BK)), mask=mask)


@triton.jit
def _vector(vector, c, known):
    """A number for each channel."""
    return tl.load(vector + c, mask=known, other=0)[:, None]


@Kernel
def _sums(
    dy, dy1, dy2, x, mean, rstd, weight, bias, whole, parts, batch, channels, inner, tiles, chunk,
    CHAIN: tl.constexpr, APART: tl.constexpr,
    WIDE: tl.constexpr, BC: tl.constexpr, BB: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    """parts[0:2, split, sample, channel]: the sums of dy * (x - mean) * rstd, and of dy.

    CHAIN gives dy from the tensors and vectors that there are. It is written if there is `whole`.
    Each sample has means of its own, but no weights.
    """
    sample, samples, c, known = _sample_and_channels(channels, APART, BC)
    split = tl.program_id(1)
    end = tl.minimum((split + 1) * chunk, tiles)
    before = sample * batch * channels * inner
    dy += before
    x += before
    own = sample * channels + c
    middle, r = _vector(mean, own, known), _vector(rstd, own, known)
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
                g1 = tl.load(dy1 + before + where, mask=mask, other=0)
            if dy2 is not None:
                g2 = tl.load(dy2 + before + where, mask=mask, other=0)
            g = CHAIN(g, g1, g2, v, middle, r, w, b)
            if whole is not None:
                tl.store(whole + before + where, g, mask=mask)
            g = tl.where(mask, g, 0)
        slope = g.to(WIDE)
        along += slope * (v.to(WIDE) - middle)
        level += slope
    out = _part(parts, 0, sample, samples, channels) + c
    tl.store(out, tl.sum(along, 1) * tl.reshape(r, (BC,)), mask=known)
    tl.store(_part(parts, 1, sample, samples, channels) + c, tl.sum(level, 1), mask=known)


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
    parts, t = moments(*as_channels(x, is_channels_last(x)))
    running = [None if old is None else old.contiguous() for old in (running_mean, running_var)]
    moved = [
        torch.empty(t.channels, dtype=parts.dtype if old is None else old.dtype, device=x.device)
        for old in running
    ]
    shape = shape_of_statistics(x)
    mean, rstd = joined_moments(
        parts, shape, t.channels, t.splits, 1, t.batch * t.inner, eps, (*running, *moved), momentum
    )
    return mean, rstd, moved[0], moved[1]


def moments(x: Tensor, t: Channels) -> tuple[Tensor, Channels]:
    """Parts of the statistics of dense channels, for `joined_moments`."""
    wide = wide_of(x.dtype)
    parts = torch.empty((3, t.splits, t.samples, t.channels), dtype=wide, device=x.device)
    _moments.launch(t.grid, (x, parts, *t.numbers), (t.samples > 1, TRITON[wide], *t.tile))
    return parts, t


def joined_moments(
    parts: Tensor,
    shape: Sequence[int],
    kept: int,
    splits: int,
    members: int,
    count: int,
    eps: float,
    running: Sequence[Tensor | None] = (None,) * 4,
    momentum: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Means and reciprocals of deviations of `kept` groups of `members` channels, in a shape.

    It has a whole number of elements for each group, which are equal. `running` are the running
    mean and variance, and where those are written that have moved.
    """
    wide = parts.dtype
    mean, rstd = (torch.empty(shape, dtype=wide, device=parts.device) for _ in range(2))
    copies = mean.numel() // kept
    block, across = min(power_of_2(kept), 32), min(power_of_2(splits * members), 64)
    numbers = kept, members, splits, copies, count, through(float, momentum), eps
    _join_moments.launch(
        (cdiv(kept, block),),
        (parts, mean, rstd, *running, *numbers),
        (TRITON[wide], block, across, min(power_of_2(copies), 64)),
        8 if wide is torch.float64 else 4,  # of which three tiles take twice the registers
    )
    return mean, rstd


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
    parts = parts_of_sums(slopes, x, vectors, chain, whole)
    along, level = reduce_dims(parts, (1,), False, "sum", parts.dtype).unbind()
    shape = shape_of_statistics(x)
    return along.view(shape), level.view(shape)


def parts_of_sums(
    slopes: Sequence[Tensor],
    x: Tensor,
    vectors: Sequence[Tensor],
    chain: object,
    whole: Tensor | None,
    by_sample: bool = False,
) -> Tensor:
    """`summed` before its last sum: (2, splits of all samples, channels).

    Slopes that do not lie as x does are copied, here and nowhere else.
    """
    channels_last = is_channels_last(x)
    given, t = as_channels(x, channels_last, by_sample)
    wide = wide_of(x.dtype)
    parts = torch.empty((2, t.splits * t.samples, t.channels), dtype=wide, device=x.device)
    first = [dense(slope, channels_last) for slope in slopes]
    numbers = [vector.contiguous() for vector in vectors]
    pointers = (
        *first, *[None] * (MAX_SLOPES - len(first)), given,
        *numbers, *[None] * (MAX_VECTORS - len(numbers)), whole, parts,
    )  # fmt: skip
    # Without contraction, so that each value of a chain has the bits of a kernel of its own.
    constants = chain, t.samples > 1, TRITON[wide], *t.tile
    _sums.launch(t.grid, (*pointers, *t.numbers), constants, fused=False)
    return parts


# The sizes of channels-last memory and of row-major order, and their tiles.
_LAST = ("i32?", "i32", "i32?", "i32?", "i32?"), (tl.float32, 64, 32, 1)
_ROWS = ("i32?", "i32?", "i32", "i32?", "i32?"), (tl.float32, 1, 2, 1024)
LAYOUTS = [(sizes, (False, *constants)) for sizes, constants in (_LAST, _ROWS)]


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
# The same of several samples; in row-major order their statistics are those of more channels.
for _x in ("*bf16", "*fp32"):
    CASES += [_case(_x, sizes, (True, *constants)) for sizes, constants in (_LAST, _ROWS)]
    CASES += [Case(_moments, (_x, "*fp32", *_LAST[0]), (True, *_LAST[1]))]
_NUMBERS = ("i32", "i32?", "i32?", "i32?", "i32?")  # groups, channels of each, splits, copies, ...
CASES += [
    Case(_join_moments, (*("*fp32",) * given, *(None,) * (7 - given), *_NUMBERS), constants)
    for given, constants in (
        (7, (tl.float32, 32, 64, 1)),  # of a batch norm with running statistics
        (3, (tl.float32, 32, 64, 8)),  # of groups of channels
    )
]

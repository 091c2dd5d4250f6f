"""The gradient of cross entropy for logits: a pass over them, behind one for the logsumexp if that
was not kept.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..launch.jit_kernel import Kernel
from ..pointwise.special_functions import LOG2_E
from .reduction_tiles import block_at, first_of
from .softmax_kernels import base, exp, passed

_LONG = tl.constexpr(16384 * 8)  # bits of a block; on an H200 eviction policies helped these


@triton.jit
def below(
    x, lse, first, index, n, step, inside,
    LSE: tl.constexpr, WIDE: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
    REREAD: tl.constexpr = False,
):  # fmt: skip
    """(a, b) so that v - a - b is the logarithm of v's probability."""
    nothing = tl.zeros((BK,), WIDE)
    if LSE == "given":
        return tl.load(lse + index, mask=inside, other=0.0).to(WIDE), nothing
    elif LSE == "none":
        return nothing, nothing
    else:
        top, total = passed(x, first, n, step, inside, WIDE, BK, BR, REREAD)
        return base(top), tl.log(total)


@triton.jit
def share_of(smoothing: tl.constexpr, total, WIDE: tl.constexpr, BK: tl.constexpr):
    """What label smoothing gives to each class."""
    return tl.full((BK,), smoothing, WIDE) / tl.full((BK,), total, WIDE)


@triton.jit
def _probable(v, a, b, every, LSE: tl.constexpr, QUICK: tl.constexpr):
    """The probabilities of logits, times what each class gets."""
    if LSE == "none":
        return tl.zeros_like(v)
    elif QUICK:
        return tl.exp2((v - a) * LOG2_E - b) * every
    else:
        return exp((v - a) - b) * every


@triton.jit
def _block(
    x, dx, weight, first, start, n, step, mask, a, b, every, share, offset,
    LSE: tl.constexpr, WEIGHTED: tl.constexpr, SMOOTHING: tl.constexpr, QUICK: tl.constexpr,
    WIDE: tl.constexpr, BR: tl.constexpr, EVICTION: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a block of logits, as if none was a target's."""
    r = start + tl.arange(0, BR)
    where = first[:, None] + r[None, :].to(tl.int64) * step
    v = tl.load(x + where, mask=mask, other=0.0).to(WIDE)
    d = _probable(v, a[:, None], b[:, None], every[:, None], LSE, QUICK)
    if SMOOTHING != 0.0:
        if WEIGHTED:
            w = tl.load(weight + offset + r, mask=r < n, other=0.0).to(WIDE)
            d -= share[:, None] * w[None, :]
        else:
            d -= share[:, None]
    tl.store(dx + where, d.to(dx.dtype.element_ty), mask=mask, eviction_policy=EVICTION)


@Kernel
def logits_grad(
    x, dy, target, weight, lse, sums, dx, losses, kept, n, inner, offset, total, ignored,
    LSE: tl.constexpr, WEIGHTED: tl.constexpr, SMOOTHING: tl.constexpr, EACH: tl.constexpr,
    MEAN: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """Without dy it is 1; `losses` is where the losses themselves are wanted, too.

    Where LSE is "once", the bits are those of the loss and then of the gradient from its lse.
    """
    index, first, inside = first_of(kept, n, inner, ROWS, BK)
    step = 1 if ROWS else inner
    wanted = tl.load(target + index, mask=inside, other=ignored).to(tl.int64)
    valid = inside & (wanted != ignored)
    local = wanted - offset
    here = valid & (local >= 0) & (local < n)
    of_target = first + tl.where(here, local, 0) * step
    logit = tl.load(x + of_target, mask=here, other=0.0).to(WIDE)
    if dy is None:
        g = valid.to(WIDE)
    elif EACH:
        g = tl.load(dy + index, mask=valid, other=0.0).to(WIDE)
    else:
        g = tl.where(valid, tl.load(dy).to(WIDE), 0.0)
    if MEAN:
        g = tl.where(valid, g / tl.load(sums).to(WIDE), 0.0)  # no target may be valid
    share = g * share_of(SMOOTHING, total, WIDE, BK)
    own = g * (1.0 - SMOOTHING)
    if WEIGHTED:
        known = valid & (wanted >= 0) & (wanted < total)
        own *= tl.load(weight + tl.where(known, wanted, 0), mask=known, other=0.0).to(WIDE)
    every = own
    if SMOOTHING != 0.0:
        every += share * tl.load(sums + 1) if WEIGHTED else share * total
    # With the results evicted first, more of a long row is in the L2 cache for the second pass.
    LONG: tl.constexpr = BR * x.dtype.element_ty.primitive_bitwidth >= _LONG
    REREAD: tl.constexpr = LSE == "found" and losses is not None and LONG
    EVICTION: tl.constexpr = "evict_first" if REREAD else ""
    a, b = below(x, lse, first, index, n, step, inside, LSE, WIDE, BK, BR, REREAD)
    if losses is not None:
        lost = tl.where(here, (a - logit) + b, 0.0)
        tl.store(losses + index, lost.to(losses.dtype.element_ty), mask=inside)
    if LSE == "once":
        a += b
        b = tl.zeros((BK,), WIDE)
    # Results of 16 bits do not show in which order the logarithm's parts are subtracted.
    HALF: tl.constexpr = x.dtype.element_ty.primitive_bitwidth <= 16
    QUICK: tl.constexpr = HALF and LSE != "none" and SMOOTHING == 0.0
    if QUICK:
        b *= LOG2_E
    if losses is not None:
        tl.debug_barrier()  # x may have the memory of dx, and other threads the targets
    # From the end on: what was read last is still in the cache.
    last = (n - 1) // BR * BR
    _, mask = block_at(first, inside, last, n, step, BR)
    _block(
        x, dx, weight, first, last, n, step, mask, a, b, every, share, offset,
        LSE, WEIGHTED, SMOOTHING, QUICK, WIDE, BR, EVICTION,
    )  # fmt: skip
    STAGES: tl.constexpr = 1 if REREAD else 3 if HALF and not WEIGHTED else 2
    for done in tl.range(BR, last + BR, BR, num_stages=STAGES):
        _block(
            x, dx, weight, first, last - done, n, step, inside[:, None], a, b, every, share, offset,
            LSE, WEIGHTED, SMOOTHING, QUICK, WIDE, BR, EVICTION,
        )  # fmt: skip
    # That of the target alone, behind the others of its block.
    d = _probable(logit, a, b, every, LSE, QUICK) - own
    if SMOOTHING != 0.0:
        if WEIGHTED:
            at = offset + tl.where(here, local, 0)
            d -= share * tl.load(weight + at, mask=here, other=0.0).to(WIDE)
        else:
            d -= share
    tl.debug_barrier()
    tl.store(dx + of_target, d.to(dx.dtype.element_ty), mask=here)

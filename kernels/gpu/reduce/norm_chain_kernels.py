"""Norms and their gradients with the pointwise chains before and after them in one kernel.

The chain before is computed from what is loaded, the chain after from the result in registers. The
bits are those of one kernel after the other: also where the tensors of a chain are narrower, the
sums of a row have one order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import norm_chain_ref as reference, norm_ref, pointwise_ref
from ...norm_chain_ref import MAX_AFTER, MAX_BEFORE, MAX_EXTRA, Norm, NormChain
from ...pointwise_chain_ref import At, Chain, Link
from ...select import triton_kernel
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..pointwise.pointwise_chain_kernels import expression_of, several
from ..pointwise.prologue import MAX_INPUTS, function_of
from .norm_grad_kernels import (
    SHARED as SHARED_GRAD,
    WIDEST,
    programs_of,
    resident_of,
    slope_of,
    store_sums,
    unit_of,
)
from .norm_kernels import SHARED, normalized, scaled
from .reduction_tiles import TRITON, first_of, wide_of
from .reductions import chained, pointers, reduce_dims
from .row_configs import dense_or_none

# Left to torch: empty tensors.

assert MAX_BEFORE <= MAX_INPUTS and MAX_EXTRA < MAX_INPUTS
_ROUND = {
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
}
_INPUT_GRADS: tuple[Norm, ...] = (
    norm_ref.layer_norm_input_grad,
    norm_ref.layer_norm_with_stats_input_grad,
    norm_ref.rms_norm_input_grad,
)
_GRADS: tuple[Norm, ...] = (
    norm_ref.layer_norm_grad,
    norm_ref.layer_norm_with_stats_grad,
    norm_ref.rms_norm_grad,
    *_INPUT_GRADS,
)
_CENTERED: tuple[Norm, ...] = (
    norm_ref.layer_norm,
    norm_ref.layer_norm_grad,
    norm_ref.layer_norm_input_grad,
    norm_ref.layer_norm_with_stats,
    norm_ref.layer_norm_with_stats_grad,
    norm_ref.layer_norm_with_stats_input_grad,
)

_KEEPING: tuple[Norm, ...] = (norm_ref.layer_norm_with_stats,)
_FROM_KEPT: tuple[Norm, ...] = (
    norm_ref.layer_norm_with_stats_grad,
    norm_ref.layer_norm_with_stats_input_grad,
)


@triton.jit
def _loaded(
    x, x1, x2, x3, whole, at, mask,
    BEFORE: tl.constexpr, ROUND: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """What the chain before gives, 0 outside; it is written if there is a tensor for it."""
    EACH: tl.constexpr = 128 // ROUND.primitive_bitwidth
    v = tl.load(pointers(x, at, EACH), mask=mask, other=0)
    if BEFORE is not None:
        v = chained(v, x1, x2, x3, at, mask, BEFORE, EACH)
        if whole is not None:
            tl.store(pointers(whole, at, EACH), v, mask=mask)
        v = tl.where(mask, v, 0)
    return v.to(WIDE)


@triton.jit
def _stored(v, y, e1, e2, z1, z2, at, mask, AFTER: tl.constexpr, ROUND: tl.constexpr):
    """Write a result, and what the chain after gives, if there are tensors for them."""
    EACH: tl.constexpr = 128 // ROUND.primitive_bitwidth
    v = v.to(ROUND)
    if y is not None:
        tl.store(y + at, v, mask=mask)
    if AFTER is not None:
        v1, v2 = v, v
        if e1 is not None:
            v1 = tl.load(pointers(e1, at, EACH), mask=mask, other=0)
        if e2 is not None:
            v2 = tl.load(pointers(e2, at, EACH), mask=mask, other=0)
        if z2 is not None:
            first, second = AFTER(v, v1, v2, v)
            tl.store(pointers(z1, at, EACH), first, mask=mask)
            tl.store(pointers(z2, at, EACH), second, mask=mask)
        else:
            tl.store(pointers(z1, at, EACH), AFTER(v, v1, v2, v), mask=mask)


@Kernel
def _norm_chain(
    x, x1, x2, x3, whole, weight, bias, y, e1, e2, z1, z2, mean, rstd, rows, n, eps: tl.float64,
    BEFORE: tl.constexpr, AFTER: tl.constexpr, CENTERED: tl.constexpr, WEIGHT: tl.constexpr,
    BIAS: tl.constexpr, KEPT: tl.constexpr, ROUND: tl.constexpr, WIDE: tl.constexpr,
    BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    row, first, inside = first_of(rows, n, 1, True, BK)
    at = tl.arange(0, BR)
    mask = inside[:, None] & (at < n)[None, :]
    where = first[:, None] + at[None, :]
    v = _loaded(x, x1, x2, x3, whole, where, mask, BEFORE, ROUND, WIDE)
    v, average, r = normalized(v, mask, n, eps, CENTERED, ROUND == WIDE, WIDE)
    v = scaled(v, weight, bias, at, at < n, WEIGHT, BIAS)
    _stored(v, y, e1, e2, z1, z2, where, mask, AFTER, ROUND)
    if KEPT:
        tl.store(mean + row, average, mask=inside)
        tl.store(rstd + row, r, mask=inside)


@Kernel
def _norm_grad_chain(
    dy, x1, x2, x3, whole, x, weight, mean, rstd, dx, e1, e2, z1, z2, sums, rows, n,
    eps: tl.float64,
    BEFORE: tl.constexpr, AFTER: tl.constexpr, CENTERED: tl.constexpr, WEIGHT: tl.constexpr,
    KEPT: tl.constexpr, ROUND: tl.constexpr, WIDE: tl.constexpr, BK: tl.constexpr,
    BR: tl.constexpr,
):  # fmt: skip
    at = tl.arange(0, BR)
    exists = (at < n)[None, :]
    w = tl.full((1, BR), 1.0, WIDE)
    if WEIGHT:
        w = tl.load(weight + at, mask=at < n, other=0.0).to(WIDE)[None, :]
    dw = tl.zeros((BK, BR), WIDE)
    db = tl.zeros((BK, BR), WIDE)
    STAGES: tl.constexpr = 2 if WIDE == tl.float32 else 1
    for start in tl.range(tl.program_id(0) * BK, rows, tl.num_programs(0) * BK, num_stages=STAGES):
        row = start + tl.arange(0, BK)
        inside = row < rows
        mask = inside[:, None] & exists
        where = row.to(tl.int64)[:, None] * n + at[None, :]
        u = tl.load(x + where, mask=mask, other=0.0).to(WIDE)
        g = _loaded(dy, x1, x2, x3, whole, where, mask, BEFORE, ROUND, WIDE)
        u, r = unit_of(u, mean, rstd, row, inside, mask, n, eps, CENTERED, KEPT, WIDE)
        if sums is not None:
            dw += g * u
            if CENTERED:
                db += g
        slope = slope_of(g, u, w, r, n, CENTERED)
        _stored(slope, dx, e1, e2, z1, z2, where, mask, AFTER, ROUND)
    if sums is not None:
        store_sums(sums, dw, db, n, at, CENTERED)


def with_chains(chain: NormChain) -> Callable[..., tuple[Tensor, ...]]:
    alone = triton_kernel(chain.norm)
    assert alone is not None
    by_parts = reference.in_parts(chain, alone, several)
    made: dict[tuple[torch.dtype, ...], Functions] = {}

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        first, own, extra = chain.parted(tensors)
        dense = all(
            x.shape == first[0].shape and x.is_contiguous() and x.device == first[0].device
            for x in (*first, *extra)
        )
        if not dense or first[0].numel() == 0 or not _fits(chain, first[0], own):
            return by_parts(*tensors)
        dtypes = tuple([x.dtype for x in tensors])
        found = made.get(dtypes)
        if found is None:
            found = made[dtypes] = Functions(chain, first, own, extra)
        if found.dtype not in _ROUND:
            return by_parts(*tensors)
        forward = chain.norm not in _GRADS
        return (_run if forward else _run_grad)(chain, found, first, own, extra)

    return run


class Functions:
    """The Triton functions of the chains for tensors of some dtypes, and the dtypes they give."""

    def __init__(
        self,
        chain: NormChain,
        first: Sequence[Tensor],
        own: Sequence[Tensor],
        extra: Sequence[Tensor],
    ) -> None:
        self.before, given = _function(chain.before, first)
        self.given = given[0] if given else first[0].dtype
        # Of the norm's first result: the dtype of what is normalized.
        self.dtype = own[0].dtype if chain.norm in _GRADS else self.given
        like = torch.empty((), dtype=self.dtype, device=first[0].device)
        self.after, self.results = _function(chain.after, [like, *extra])


def _function(chain: Chain | None, tensors: Sequence[Tensor]) -> tuple[object, list[torch.dtype]]:
    if chain is None:
        return None, []
    expression, numbers = expression_of(chain, tensors)
    dtypes = [expression.dtype(value) for value in expression.outputs]
    return function_of(expression, tuple(numbers)), dtypes


def _shape_of(chain: NormChain) -> tuple[int, ...]:
    """The dims that are normalized over."""
    given = [each for each in chain.arguments if type(each) is not At]
    (shape,) = [each for each in given if isinstance(each, tuple)]
    return shape


def _fits(chain: NormChain, x: Tensor, own: Sequence[Tensor]) -> bool:
    """Whether rows fit in the registers."""
    columns = prod(_shape_of(chain))
    if chain.norm in _GRADS:
        return columns <= WIDEST and own[0].is_contiguous()
    return SHARED.of(x.dtype, x.numel() // columns, columns, 1).block >= columns


def _tensors(
    chain: NormChain, found: Functions, like: Tensor
) -> tuple[Tensor | None, Tensor | None, list[Tensor]]:
    """Memory for the norm's first input and result, if they are kept, and for what follows."""

    def empty(dtype: torch.dtype) -> Tensor:
        return torch.empty(like.shape, dtype=dtype, device=like.device)

    whole = empty(found.given) if chain.keeps_input and chain.before is not None else None
    y = empty(found.dtype) if chain.keeps_result or chain.after is None else None
    return whole, y, [empty(dtype) for dtype in found.results]


def _filled(tensors: Sequence[Tensor], count: int) -> tuple[Tensor | None, ...]:
    return (*tensors, *[None] * (count - len(tensors)))


def _run(
    chain: NormChain, found: Functions, first: Sequence[Tensor], own: tuple[Tensor, ...],
    extra: Sequence[Tensor],
) -> tuple[Tensor, ...]:  # fmt: skip
    weight, bias = [dense_or_none(given) for given in _optional(chain.filled(own)[:2])]
    x, shape = first[0], _shape_of(chain)
    columns, wide = prod(shape), wide_of(found.dtype)
    rows = x.numel() // columns
    whole, y, results = _tensors(chain, found, x)
    statistics: list[Tensor] = []
    if chain.norm in _KEEPING:
        kept = (*x.shape[: x.ndim - len(shape)], *(1,) * len(shape))
        statistics = [torch.empty(kept, dtype=wide, device=x.device) for _ in range(2)]
    t = SHARED.of(found.dtype, rows, columns, 1)
    _norm_chain.launch(
        t.grid,
        (
            *_filled(first, MAX_BEFORE), whole, weight, bias, y, *_filled(extra, MAX_EXTRA),
            *_filled(results, MAX_AFTER), *_filled(statistics, 2), rows, columns, _eps(chain),
        ),
        (
            found.before, found.after, chain.norm in _CENTERED, weight is not None,
            bias is not None, bool(statistics), _ROUND[found.dtype], TRITON[wide], t.kept_block,
            t.block,
        ),
        warps=t.warps,
        fused=False,
    )  # fmt: skip
    return reference.arranged(chain, tuple(results), statistics, y, whole)


def _run_grad(
    chain: NormChain, found: Functions, first: Sequence[Tensor], own: tuple[Tensor, ...],
    extra: Sequence[Tensor],
) -> tuple[Tensor, ...]:  # fmt: skip
    weight, *statistics = [dense_or_none(given) for given in _optional(chain.filled(own)[1:4])]
    mean, rstd = statistics if chain.norm in _FROM_KEPT else (None, None)
    x, shape = own[0], _shape_of(chain)
    columns, wide, centered = prod(shape), wide_of(x.dtype), chain.norm in _CENTERED
    rows = x.numel() // columns
    whole, dx, results = _tensors(chain, found, x)
    t = SHARED_GRAD.of(x.dtype, rows, columns, 1)
    programs = programs_of(t)
    sums = None
    if chain.norm not in _INPUT_GRADS:
        sums = torch.empty((programs, 1 + centered, columns), dtype=wide, device=x.device)
    _norm_grad_chain.launch(
        (programs,),
        (
            *_filled(first, MAX_BEFORE), whole, x, weight, mean, rstd, dx,
            *_filled(extra, MAX_EXTRA), *_filled(results, MAX_AFTER), sums, rows, columns,
            _eps(chain),
        ),
        (
            found.before, found.after, centered, weight is not None, rstd is not None,
            _ROUND[x.dtype], TRITON[wide], t.kept_block, t.block,
        ),
        warps=t.warps,
        fused=False,
        resident=resident_of(t, wide),
    )  # fmt: skip
    others: list[Tensor] = []
    if sums is not None:
        dtype = x.dtype if weight is None else weight.dtype
        others = [part.view(shape) for part in reduce_dims(sums, (0,), False, "sum", dtype, wide)]
    return reference.arranged(chain, tuple(results), others, dx, whole)


def _optional(arguments: Sequence[object]) -> list[Tensor | None]:
    return [given if isinstance(given, Tensor) else None for given in arguments]


def _eps(chain: NormChain) -> float:
    """What is added to the variance; kept statistics have it."""
    last = chain.arguments[-1]
    return last if isinstance(last, float) else 0.0


_ADDED = (Link(torch.add, (At(0), At(1))),)
_LOW = Link(pointwise_ref.cast, (At(0), torch.bfloat16))
_SUM = Chain(2, _ADDED, (2,))
_CAST = Chain(1, (_LOW,), (1,))
_SUM_AND_CAST = Chain(2, (*_ADDED, Link(pointwise_ref.cast, (At(2), torch.bfloat16))), (2, 3))


def _forward(x: str, dtype: torch.dtype, centered: bool, low: bool, tile: tuple[int, int]) -> Case:
    """A residual, then a norm; then, if `low`, a cast."""
    before, after = _example(_SUM, dtype), _example(_CAST, dtype) if low else None
    scales, kept = (x, x if centered else None), ("*fp32" if centered and not low else None,) * 2
    ends = (None if low else x, None, None, "*bf16" if low else None, None)
    return Case(
        _norm_chain,
        (x, x, None, None, x, *scales, *ends, *kept),
        (
            before, after, centered, True, centered, kept[0] is not None, _ROUND[dtype], tl.float32,
            *tile,
        ),
        max(tile[0] * tile[1] // 1024, 1),
        fused=False,
    )  # fmt: skip


def _backward(centered: bool, tile: tuple[int, int], only_x: bool = False) -> Case:
    """The gradient of a norm, to which that of the residual is added, which is then cast."""
    x, kept = "*fp32", ("*fp32" if centered else None,) * 2
    types = (x, *(None,) * 4, x, x, *kept, None, x, None, x, "*bf16", None if only_x else x)
    after = _example(_SUM_AND_CAST, torch.float32)
    constants = (None, after, centered, True, centered, tl.float32, tl.float32, *tile)
    return Case(_norm_grad_chain, types, constants, tile[0] * tile[1] // 512, fused=False)


def _example(chain: Chain, dtype: torch.dtype) -> object:
    return _function(chain, [torch.empty((), dtype=dtype)] * chain.inputs)[0]


CASES = [
    _forward("*fp32", torch.float32, False, True, (1, 4096)),
    _forward("*fp32", torch.float32, True, False, (4, 1024)),
    _forward("*bf16", torch.bfloat16, False, False, (1, 4096)),
    _backward(False, (1, 4096)),
    _backward(True, (4, 1024)),
    _backward(True, (4, 1024), only_x=True),
]

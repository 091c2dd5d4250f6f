"""Scaled dot product attention and its gradient without a matrix of scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ... import attention_ref as reference
from ...attention_ref import WIDEST, Dropped, Pairs
from ...philox import signed
from ..launch.configs import architecture
from ..launch.jit_kernel import INTERPRETED
from ..launch.launch_trace import Argument, aligned
from ..launch.symbolic_numbers import runtime_scalars, through
from ..matmul.gemm_config import kind_of
from ..matmul.gemm_tma import give_scratch
from ..pointwise.copy_kernels import fill, triangle
from ..pointwise.pointwise_kernels import of_torch
from ..reduce.reduction_tiles import cdiv, power_of_2
from .attention_backward import of_keys, of_queries
from .attention_config import COPIES, Sizes, sizes_of
from .attention_forward import forward

# Left to torch: scores that are not floating (attention makes none), and heads of more than WIDEST
# features.


def causal_fill(x: Tensor, value: float, first: int) -> Tensor:
    y = triangle(x, first, True, value) if x.dtype.is_floating_point else None
    return reference.causal_fill(x, value, first) if y is None else y


WORK = {"forward": forward, "queries": of_queries, "keys": of_keys}
_TALLEST = 128  # queries or keys of a tile
_LONG = 1024  # keys from which on that is worth its preparation, a microsecond for each program


@dataclass(frozen=True, slots=True)
class Form:
    """The pairs of a query and a key, and dropout of their weights.

    If a batch of one packs several sequences, `starts` holds the begin of each, in queries and in
    keys, and the end of the last; `longest` is the largest number of queries and of keys. In packed
    sequences the last query is at the position of the last key, and `pairs.first` is ignored.
    """

    pairs: Pairs
    drop: Dropped | None = None
    starts: tuple[Tensor, Tensor] | None = None
    longest: tuple[int, int] = (0, 0)

    @property
    def pointers(self) -> tuple[Tensor | None, ...]:
        """The last pointers of every kernel: the begins, and the numbers of a draw in memory."""
        seed = 0 if self.drop is None else self.drop.seed
        return (*(self.starts or (None, None)), seed if isinstance(seed, Tensor) else None)


class Heads(NamedTuple):
    """q, k, v with 4 dims and a dense last dim, and an expanded mask."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None

    def shape(self, form: Form) -> tuple[int, int, int, int]:
        """Batch, heads, and the queries and keys of one sequence."""
        batch, heads, rows, _ = self.q.shape
        if form.starts is None:
            return batch, heads, rows, self.k.shape[2]
        return form.starts[0].numel() - 1, heads, *form.longest

    def name(self, form: Form) -> str:
        """The kind of mask: by positions alone ("plain" or "packed"), or "apart" for others."""
        if self.mask is not None or form.drop is not None:
            return "apart"
        return "plain" if form.starts is None else "packed"

    def constants(self, form: Form, sizes: Sizes) -> tuple[object, ...]:
        """The constants of every kernel."""
        d, dv = self.q.shape[-1], self.v.shape[-1]
        mask = "" if self.mask is None else "bool" if self.mask.dtype is torch.bool else "add"
        quads = form.starts is None and self.k.shape[2] % 4 == 0
        return (
            d, dv, form.pairs.causal, form.pairs.window > 0, mask, form.starts is not None,
            form.drop is not None, quads, "tf32" if kind_of(self.q.dtype) == "tf32" else "ieee",
            sizes.queries, sizes.keys, padded(d), padded(dv),
        )  # fmt: skip

    def numbers(self, form: Form) -> tuple[Argument, ...]:
        """The last arguments of every kernel, which are numbers."""
        _, heads, rows, columns = self.shape(form)
        pitch = self.q.shape[2]  # of what is kept for each row
        pairs, drop = form.pairs, form.drop
        common = (
            heads, heads // self.k.shape[1], rows, columns, pitch, pairs.first, pairs.window,
            pairs.scale,
        )  # fmt: skip
        if drop is None:
            return (*common, 0, 0, 0, 0, 0, 0, 1.0)
        (_, all_heads, queries, _), (batch, head, _, _) = drop.shape, drop.offset
        rescale = 1.0 / (1.0 - drop.p) if drop.p < 1.0 else 0.0
        key = (0, 0)
        if not isinstance(drop.seed, Tensor):
            key = through(signed, drop.seed), through(signed, drop.call)
        return (
            *common, batch * all_heads + head, all_heads, queries, int(drop.p * 2.0**32), *key,
            rescale,
        )  # fmt: skip


def padded(features: int) -> int:
    return max(power_of_2(features), 16)


def dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _near(x: Tensor) -> Tensor:
    """`dense` with offsets inside of a tile that fit 32 bits: copied if its rows are far apart."""
    return dense(x) if x.stride(2) * _TALLEST < 2**31 else x.contiguous()


def _like(x: Tensor, features: int, packed: bool) -> Tensor:
    """An empty tensor with the dim order of x and `features` features.

    For packed sequences it is zeros, because some rows may belong to no sequence.
    """
    batch, heads, rows, _ = x.shape
    inside = x.stride(1) < x.stride(2)
    shape = (batch, rows, heads, features) if inside else (batch, heads, rows, features)
    y = torch.empty(shape, dtype=x.dtype, device=x.device)
    if packed:
        fill(y, 0)
    return y.transpose(1, 2) if inside else y


def _steps(*tensors: Tensor, packed: bool = False) -> tuple[int, ...]:
    """The strides of batches, heads and rows; packed sequences are all in batch 0."""
    return tuple([s for x in tensors for s in (0 if packed else x.stride(0), *x.stride()[1:3])])


def _mask_steps(mask: Tensor | None) -> tuple[int, ...]:
    return (0, 0, 0, 0) if mask is None else mask.stride()


def _run(work: str, args: tuple[Argument, ...], h: Heads, form: Form, sizes: Sizes | None) -> None:
    """Launch the kernel of this work, whose tile is by default that of the table or the rule."""
    batch, heads, rows, columns = h.shape(form)
    features = max(h.q.shape[-1], h.v.shape[-1])
    kind = kind_of(h.q.dtype)
    copied = _copied(args, h, form, columns)
    s = sizes or sizes_of(work, kind, features, rows, columns, h.name(form), copied)
    copied = copied and s.tma > 0
    constants = (*h.constants(form, s), copied, int(copied and s.specialized), *branch(work))
    numbers = h.numbers(form)
    if work == "keys":
        programs = cdiv(columns, s.keys) * batch * h.k.shape[1]
    else:
        programs = cdiv(rows, s.queries) * batch * heads
    if copied:
        give_scratch()
    WORK[work].launch(
        (programs,), (*args, *numbers), constants, s.warps, s.stages, resident=s.resident
    )


def branch(work: str, arch: str | None = None) -> tuple[bool, ...]:
    """The last constant of kernels that go over keys: whether one loop branches in tiles of which
    some pairs are left out, or a second loop has them.

    With two loops ptxas serializes wgmma where threads copy the tiles. On other GPUs Triton gives
    the scores another layout inside a branch, and converts them in every step.
    """
    return () if work == "keys" else ((architecture() if arch is None else arch) in COPIES,)


def _copied(args: tuple[Argument, ...], h: Heads, form: Form, keys: int) -> bool:
    """Whether to copy the tiles of queries, keys and values, and of their gradients, by TMA."""
    if architecture() not in COPIES or INTERPRETED or keys < _LONG:
        return False
    if h.q.dtype.itemsize != 2 or h.name(form) == "apart":
        return False
    return all(_aligned(x) for x in args if isinstance(x, Tensor) and x.dtype is h.q.dtype)


def _aligned(x: Tensor) -> bool:
    """Whether the address of every row is a multiple of 16 bytes, and no dim is expanded."""
    steps = x.stride()[:-1]
    return aligned(x) and 0 not in steps and not any(step * x.itemsize % 16 for step in steps)


def _with_positive_scale(h: Heads, form: Form) -> tuple[Heads, Form]:
    """The same scores by a scale that keeps their order."""
    scale = form.pairs.scale
    if scale > 0:
        return h, form
    multiply = of_torch(torch.mul)
    assert multiply is not None
    q = multiply(h.q, -1.0 if scale < 0 else 0.0)
    pairs = replace(form.pairs, scale=abs(scale) or 1.0)
    return h._replace(q=q), replace(form, pairs=pairs)


def attend(h: Heads, form: Form, sizes: Sizes | None = None) -> tuple[Tensor, Tensor]:
    """The output, and the logsumexp of each row."""
    h, form = _with_positive_scale(h, form)
    packed = form.starts is not None
    y = _like(h.q, h.v.shape[-1], packed)
    wide = torch.float64 if h.q.dtype is torch.float64 else torch.float32
    lse = torch.empty(h.q.shape[:3], dtype=wide, device=h.q.device)
    if packed:
        fill(lse, -math.inf)
    steps = (*_steps(h.q, h.k, h.v, y, packed=packed), *_mask_steps(h.mask))
    _run("forward", (*h, y, lse, *form.pointers, *steps), h, form, sizes)
    return y, lse


class Given(NamedTuple):
    """The inputs of the gradients, in the order of the kernels' parameters."""

    dy: Tensor
    h: Heads
    y: Tensor
    lse: Tensor
    of_rows: tuple[Tensor, Tensor]  # what the gradient of queries leaves for that of keys

    @classmethod
    def of(cls, dy: Tensor, h: Heads, y: Tensor, lse: Tensor) -> Given:
        lse = lse.contiguous()
        return cls(_near(dy), h, _near(y), lse, (torch.empty_like(lse), torch.empty_like(lse)))

    def args(self, work: str, form: Form, *made: Tensor) -> tuple[Argument, ...]:
        """The arguments, before the numbers, of the kernel that writes these outputs."""
        packed = form.starts is not None
        q, k, v, mask = self.h
        mine, ends = (*self.of_rows, *made), made
        if work == "queries":
            mine, ends = (self.y, self.lse, *mine), (self.y, *made)
        steps = (*_steps(self.dy, q, k, v, packed=packed), *_mask_steps(mask))
        steps = (*steps, *_steps(*ends, packed=packed))
        return (self.dy, *self.h, *mine, *form.pointers, *steps)


def fill_grads(work: str, g: Given, form: Form, *made: Tensor, sizes: Sizes | None = None) -> None:
    """Compute the gradient of the "queries", and then those of the "keys" and their values."""
    _run(work, g.args(work, form, *made), g.h, form, sizes)


def attend_grad(
    dy: Tensor, h: Heads, y: Tensor, lse: Tensor, form: Form
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    dq, dk, dv = (_like(x, x.shape[-1], form.starts is not None) for x in h[:3])
    _fill_all(Given.of(dy, h, y, lse), form, dq, dk, dv)
    return dq, dk, dv


def _fill_all(g: Given, form: Form, dq: Tensor, dk: Tensor, dv: Tensor) -> None:
    fill_grads("queries", g, form, dq)
    fill_grads("keys", g, form, dk, dv)


def left_out(q: Tensor, k: Tensor, v: Tensor) -> bool:
    return max(q.shape[-1], v.shape[-1]) > WIDEST or 0 in map(torch.numel, (q, k, v))


def _to_add(mask: Tensor) -> Tensor:
    """A mask of float32. Products of float64 do not compile behind a load of bools (Triton 3.7)."""
    where = of_torch(torch.where)
    assert where is not None
    return where(mask, 0.0, -math.inf)


def heads_of(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Heads:
    if mask is not None:
        if mask.dtype is torch.bool and q.dtype is torch.float64:
            mask = _to_add(mask)
        mask = mask.expand(*q.shape[:3], k.shape[2])
    return Heads(_near(q), _near(k), _near(v), mask)


# The numbers of a draw: what calls these functions to drop weights has them among its arguments.
_OF_A_DRAW = runtime_scalars("seed", "call")


@_OF_A_DRAW
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pairs: Pairs, drop: Dropped | None
) -> tuple[Tensor, Tensor]:
    if left_out(q, k, v):
        return reference.attention(q, k, v, mask, pairs, drop)
    return attend(heads_of(q, k, v, mask), Form(pairs, drop))


@_OF_A_DRAW
def attention_grad(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, y: Tensor, lse: Tensor,
    pairs: Pairs, drop: Dropped | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    if left_out(q, k, v):
        return reference.attention_grad(dy, q, k, v, mask, y, lse, pairs, drop)
    return attend_grad(dy, heads_of(q, k, v, mask), y, lse, Form(pairs, drop))


@_OF_A_DRAW
def attention_grad_joined(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, y: Tensor, lse: Tensor,
    pairs: Pairs, drop: Dropped | None, order: Sequence[int],
) -> Tensor:  # fmt: skip
    if left_out(q, k, v):
        return reference.attention_grad_joined(dy, q, k, v, mask, y, lse, pairs, drop, order)
    of = [(q, k, v)[place] for place in order]
    widths = [x.shape[1] * x.shape[3] for x in of]
    joined = torch.empty((q.shape[0], q.shape[2], sum(widths)), dtype=q.dtype, device=q.device)
    grads = {
        place: part.unflatten(-1, (x.shape[1], x.shape[3])).transpose(1, 2)
        for place, x, part in zip(order, of, joined.split(widths, -1), strict=True)
    }
    given = Given.of(dy, heads_of(q, k, v, mask), y, lse)
    _fill_all(given, Form(pairs, drop), grads[0], grads[1], grads[2])
    return joined

"""Scaled dot product attention and its gradient without a matrix of scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import attention as reference
from .attention_backward import of_keys, of_queries, row_sums
from .attention_forward import forward
from .attention_tile import Sizes, sizes_of
from .cases import TARGETS, Case
from .configs import architecture
from .launch import INTERPRETED, Kernel
from .movement import triangle
from .product_descriptors import give_scratch
from .product_rule import kind_of
from .tiles import cdiv, power_of_2
from .words import signed

TORCH = {
    f"heads of more than {reference.WIDEST} features": "a tile of them does not fit the registers",
    "what torch refuses": "its message says why",
}


def causal_fill(x: Tensor, value: float, first: int) -> Tensor:
    y = triangle(x, first, True, value) if x.dtype.is_floating_point else None
    return reference.causal_fill(x, value, first) if y is None else y


_COPIES = ("sm_90",)  # where tiles are copied by the hardware
_LONG = 1024  # keys from which on that is worth its preparation, a microsecond for each program


class Drop(NamedTuple):
    """Dropout of pairs of a query and a key; see `kernels/random.py`.

    The logical tensor has `heads` heads of `queries` rows; these begin at (batch, head) of it, and
    at row `first` of the `Form`.
    """

    p: float
    seed: int
    call: int
    heads: int
    queries: int
    batch: int = 0
    head: int = 0


@dataclass(frozen=True, slots=True)
class Form:
    """Which pairs of a query and a key there are: all, or of a key at most as far as the query.

    The first query is at place `first`. A `window` leaves pairs fewer than so many places apart.
    Where a batch of one holds several sequences, `starts` says where each begins, in queries and in
    keys, and where the last one ends; `longest` how many queries and keys one has at most. There
    the last query is at the place of the last key, whatever `first` says.
    """

    causal: bool
    scale: float
    first: int = 0
    window: int = 0
    drop: Drop | None = None
    starts: tuple[Tensor, Tensor] | None = None
    longest: tuple[int, int] = (0, 0)


class Heads(NamedTuple):
    """q, k, v of 4 dims whose last one is dense, and a mask that is expanded."""

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

    def plain(self, form: Form) -> bool:
        """Whether pairs differ in nothing but their places."""
        return self.mask is None and form.drop is None

    def constants(self, form: Form, sizes: Sizes) -> tuple[Any, ...]:
        """The constants of every kernel."""
        d, dv = self.q.shape[-1], self.v.shape[-1]
        mask = "" if self.mask is None else "bool" if self.mask.dtype is torch.bool else "add"
        quads = form.starts is None and self.k.shape[2] % 4 == 0
        return (
            d, dv, form.causal, form.window > 0, mask, form.starts is not None,
            form.drop is not None, quads, "tf32" if kind_of(self.q.dtype) == "tf32" else "ieee",
            sizes.queries, sizes.keys, _padded(d), _padded(dv),
        )  # fmt: skip

    def numbers(self, form: Form) -> tuple[Any, ...]:
        """The numbers with which the arguments of every kernel end."""
        _, heads, rows, columns = self.shape(form)
        pitch = self.q.shape[2]  # of what is kept for each row
        common = (
            heads, heads // self.k.shape[1], rows, columns, pitch, form.first, form.window,
            form.scale,
        )  # fmt: skip
        drop = form.drop
        if drop is None:
            return (*common, 0, 0, 0, 0, 0, 0, 1.0)
        start = drop.batch * drop.heads + drop.head
        rescale = 1.0 / (1.0 - drop.p) if drop.p < 1.0 else 0.0
        return (
            *common, start, drop.heads, drop.queries, int(drop.p * 2.0**32), signed(drop.seed),
            signed(drop.call), rescale,
        )  # fmt: skip


def _padded(features: int) -> int:
    return max(power_of_2(features), 16)


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _like(x: Tensor, features: int, packed: bool) -> Tensor:
    """A tensor of so many features to fill, whose heads lie in memory as those of x do.

    Of packed sequences it is zeros: some rows may be in none.
    """
    make = torch.zeros if packed else torch.empty
    shape = (*x.shape[:-1], features)
    if x.stride(1) < x.stride(2):
        batch, heads, rows, _ = shape
        y = make((batch, rows, heads, features), dtype=x.dtype, device=x.device)
        return y.transpose(1, 2)
    return make(shape, dtype=x.dtype, device=x.device)


def _steps(*tensors: Tensor, packed: bool = False) -> tuple[int, ...]:
    """Of batches, heads and rows; packed sequences are all in batch 0."""
    return tuple([s for x in tensors for s in (0 if packed else x.stride(0), *x.stride()[1:3])])


def _mask_steps(mask: Tensor | None) -> tuple[int, ...]:
    return (0, 0, 0, 0) if mask is None else mask.stride()


def _run(
    kernel: Kernel, programs: int, args: tuple[Any, ...], h: Heads, f: Form, s: Sizes,
    tma: bool | None = None,
) -> None:  # fmt: skip
    if tma:
        give_scratch()
    constants = h.constants(f, s) if tma is None else (*h.constants(f, s), tma)
    kernel.launch((programs,), (*args, *h.numbers(f)), constants, warps=s.warps, stages=s.stages)


def _copied(h: Heads, form: Form, keys: int) -> bool:
    """Whether the hardware copies the tiles of keys and values, and it is worth it."""
    if architecture() not in _COPIES or INTERPRETED or keys < _LONG:
        return False
    return h.q.dtype.itemsize == 2 and h.plain(form) and all(map(_aligned, (h.k, h.v)))


def _aligned(x: Tensor) -> bool:
    """Whether every row begins at a multiple of 16 bytes."""
    return x.data_ptr() % 16 == 0 and not any(step * x.itemsize % 16 for step in x.stride()[:-1])


def attend(h: Heads, form: Form) -> tuple[Tensor, Tensor]:
    """The output, and the logarithm of each row's sum."""
    batch, heads, rows, columns = h.shape(form)
    packed = form.starts is not None
    y = _like(h.q, h.v.shape[-1], packed)
    wide = torch.float64 if h.q.dtype is torch.float64 else torch.float32
    logs = torch.empty(h.q.shape[:3], dtype=wide, device=h.q.device)
    if packed:
        logs.fill_(-math.inf)
    features = max(h.q.shape[-1], h.v.shape[-1])
    sizes = sizes_of("forward", h.q.dtype, features, rows, columns, h.plain(form), architecture())
    steps = (*_steps(h.q, h.k, h.v, y, packed=packed), *_mask_steps(h.mask))
    starts = form.starts or (None, None)
    programs = cdiv(rows, sizes.queries) * batch * heads
    args = (*h, y, logs, *starts, *steps)
    _run(forward, programs, args, h, form, sizes, _copied(h, form, columns))
    return y, logs


def attend_grad(
    dy: Tensor, h: Heads, y: Tensor, logs: Tensor, form: Form
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for q, k and v."""
    batch, heads, rows, columns = h.shape(form)
    q, k, v, mask = h
    dy, y = _dense(dy), _dense(y)
    dv_features = v.shape[-1]
    features = max(q.shape[-1], dv_features)
    q_rows = q.shape[2]
    sums = torch.empty((q.shape[0], heads, q_rows), dtype=logs.dtype, device=q.device)
    block = min(64, _padded(q_rows))
    row_sums.launch(
        (cdiv(q_rows, block) * q.shape[0] * heads,),
        (dy, y, sums, *_steps(dy, y), heads, q_rows),
        (dv_features, block, _padded(dv_features)),
    )
    packed = form.starts is not None
    dq, dk, dv = (_like(x, x.shape[-1], packed) for x in (q, k, v))
    starts = form.starts or (None, None)
    steps = (*_steps(dy, q, k, v, packed=packed), *_mask_steps(mask))
    given = (dy, q, k, v, mask, logs, sums)
    sizes = sizes_of("queries", q.dtype, features, rows, columns, h.plain(form), architecture())
    programs = cdiv(rows, sizes.queries) * batch * heads
    _run(
        of_queries,
        programs,
        (*given, dq, *starts, *steps, *_steps(dq, packed=packed)),
        h,
        form,
        sizes,
        _copied(h, form, columns),
    )
    sizes = sizes_of("keys", q.dtype, features, rows, columns, h.plain(form), architecture())
    programs = cdiv(columns, sizes.keys) * batch * k.shape[1]
    args = (*given, dk, dv, *starts, *steps, *_steps(dk, dv, packed=packed))
    _run(of_keys, programs, args, h, form, sizes)
    return dq, dk, dv


def _heads(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, grouped: bool) -> Heads:
    """The tensors with 4 dims each, of which the batch dims are broadcast."""
    own = 3 if grouped else 2  # dims that do not broadcast
    lead = torch.broadcast_shapes(*[x.shape[: x.ndim - own] for x in (q, k, v)])
    wide = [x.expand(*lead, *x.shape[x.ndim - own :]) for x in (q, k, v)]
    if mask is not None:
        mask = _four(mask.expand(*wide[0].shape[:-1], k.shape[-2]))
    first, second, third = [_dense(_four(x)) for x in wide]
    return Heads(first, second, third, mask)


def _four(x: Tensor) -> Tensor:
    while x.ndim < 4:
        x = x[None]
    return x.flatten(0, -4) if x.ndim > 4 else x


def _left_out(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> bool:
    if mask is not None and mask.dtype not in (torch.bool, q.dtype):
        return True
    alike = q.dtype is k.dtype is v.dtype and q.dtype.is_floating_point
    return (
        not alike
        or max(q.shape[-1], v.shape[-1]) > reference.WIDEST
        or 0 in map(torch.numel, (q, k, v))
    )


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float,
    grouped: bool, first: int,
) -> Tensor:  # fmt: skip
    if _left_out(q, k, v, mask):
        return reference.attention(q, k, v, mask, causal, scale, grouped, first)
    h = _heads(q, k, v, mask, grouped)
    lead = torch.broadcast_shapes(q.shape[:-2], () if grouped else k.shape[:-2])
    if not grouped:
        lead = torch.broadcast_shapes(lead, v.shape[:-2])
    return attend(h, Form(causal, scale, first))[0].reshape(*lead, *h.q.shape[2:3], v.shape[-1])


def attention_grad(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float,
    grouped: bool, first: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    if _left_out(q, k, v, mask):
        return reference.attention_grad(dy, q, k, v, mask, causal, scale, grouped, first)
    h, form = _heads(q, k, v, mask, grouped), Form(causal, scale, first)
    y, logs = attend(h, form)
    grads = attend_grad(_four(dy), h, y, logs, form)
    own = 3 if grouped else 2
    lead = torch.broadcast_shapes(*[x.shape[: x.ndim - own] for x in (q, k, v)])
    dq, dk, dv = (
        d.reshape(*lead, *x.shape[x.ndim - own :]).sum_to_size(x.shape)
        for d, x in zip(grads, (q, k, v), strict=True)
    )
    return dq, dk, dv


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    if 0 in (q.numel(), k.numel()):
        return reference.flash_attention(q, k, v, causal, scale)
    return attend(Heads(_dense(q), _dense(k), _dense(v), None), Form(causal, scale))


def flash_attention_grad(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, logs: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    if 0 in (q.numel(), k.numel()):
        return reference.flash_attention_grad(dy, q, k, v, y, logs, causal, scale)
    h = Heads(_dense(q), _dense(k), _dense(v), None)
    return attend_grad(dy, h, y, logs, Form(causal, scale))


_WHY = "each has its own room in registers and in shared memory"


def _cases(
    kernel: Kernel, dtype: torch.dtype, features: int, causal: bool = True, mask: str = "",
    drop: bool = False, precision: str = "ieee", tma: bool = False,
) -> list[Case]:  # fmt: skip
    name = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}[dtype]
    work = {"forward": "forward", "of_queries": "queries", "of_keys": "keys"}[kernel.name]
    plain = not mask and not drop
    by: dict[Sizes, list[str]] = {}
    for target in _COPIES if tma else TARGETS:
        by.setdefault(sizes_of(work, dtype, features, 4096, 4096, plain, target), []).append(target)
    types: list[str | None] = []
    for parameter in kernel.names[: kernel.names.index("D")]:
        if parameter in ("logs", "sums"):
            types.append("*fp32")
        elif parameter == "mask":
            types.append({"": None, "bool": "*i1", "add": f"*{name}"}[mask])
        elif parameter in ("q_starts", "k_starts"):
            types.append(None)
        elif parameter in ("q", "k", "v", "y", "dy", "dq", "dk", "dv"):
            types.append(f"*{name}")
        elif parameter in ("scale", "rescale"):
            types.append("fp64")
        elif parameter in ("seed", "call", "least"):
            types.append("i64?")
        else:
            known = parameter.endswith(("step", "_batch", "_head", "rows", "columns", "pitch"))
            types.append("i32" if known and parameter[:2] not in ("lo", "m_") else "i32?")
    form = (features, features, causal, False, mask, False, drop, drop, precision)
    padded = _padded(features)
    copied = () if kernel is of_keys else (tma,)
    return [
        Case(
            kernel, tuple(types), (*form, sizes.queries, sizes.keys, padded, padded, *copied),
            sizes.warps, sizes.stages, targets=tuple(targets),
            why="" if len(targets) == len(TARGETS) else _WHY,
        )
        for sizes, targets in by.items()
    ]  # fmt: skip


CASES = [
    *[
        case
        for kernel in (forward, of_queries, of_keys)
        for features in (64, 128, 256)
        for case in _cases(kernel, torch.bfloat16, features)
    ],
    *[
        case
        for kernel in (forward, of_queries, of_keys)
        for case in _cases(kernel, torch.float32, 64)
    ],
    *_cases(forward, torch.bfloat16, 128, False),
    *_cases(forward, torch.bfloat16, 64, tma=True),
    *_cases(forward, torch.bfloat16, 128, tma=True),
    *_cases(of_queries, torch.bfloat16, 128, tma=True),
    *_cases(forward, torch.bfloat16, 64, False, "bool"),
    *_cases(forward, torch.bfloat16, 64, True, "", True),
    *_cases(of_queries, torch.float16, 64, False, "add"),
    *_cases(of_keys, torch.bfloat16, 64, True, "", True),
    *_cases(of_keys, torch.float32, 64, precision="tf32"),
    Case(
        row_sums,
        (*("*bf16",) * 2, "*fp32", *("i32",) * 6, "i32?", "i32"),
        (128, 64, 128),
    ),
]

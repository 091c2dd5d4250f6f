"""Samples of attention."""

from dataclasses import replace
from typing import Any

import torch

from onefold.engine.generator import manual_seed
from onefold.engine.names import names
from onefold.kernels.random_ref import dropout
from onefold.testing import Bo, Sample, T

NAME = "scaled_dot_product_attention"


def of(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], *mask: Any, **kw: Any) -> Sample:
    return Sample(NAME, (T(*q), T(*k), T(*v), *mask), kw)


SAME = ((4, 6, 5, 4),) * 3
SQUARE = (2, 2, 6, 4)
# Query 3 may see no key.
HIDDEN = torch.ones(5, 5, dtype=torch.bool).tril()
HIDDEN[3] = False


def windowed(*shapes: tuple[int, ...], window: int, p: float = 0.0, **kw: Any) -> Sample:
    """A sample with a window: in torch it is a mask. The draw of a dropout is that of seed 5."""

    def plain(q: Any, k: Any, v: Any, mask: Any = None, is_causal: bool = False, **_: Any) -> Any:
        far = torch.arange(q.shape[-2])[:, None] - torch.arange(k.shape[-2])
        seen = (far.abs() < window) & ((far >= 0) if is_causal else True)
        groups = q.shape[-3] // k.shape[-3] if q.ndim > 2 else 1
        k, v = (x if groups == 1 else x.repeat_interleave(groups, -3) for x in (k, v))
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores + (0.0 if mask.dtype is torch.bool else mask)
            seen = seen & (mask if mask.dtype is torch.bool else True)
        weights = (
            scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
            .softmax(-1)
            .masked_fill(~seen, 0.0)
        )
        if p:
            whole, draw = tuple(weights.shape), {"seed": 5, "call": 0}
            weights = dropout(weights, whole, (0,) * len(whole), p=p, **draw)
        return weights @ v

    def call(*args: Any, **kwargs: Any) -> Any:
        manual_seed(5)
        return names.scaled_dot_product_attention(*args, dropout_p=p, window=window, **kwargs)

    mask = kw.pop("mask", None)
    sample = of(*shapes, *(() if mask is None else (mask,)), **kw)
    return replace(sample, torch=plain, call=call, id=f"window {window}, dropout {p}: {NAME}")


def packed(
    q_lengths: list[int], k_lengths: list[int], heads: int = 2, groups: int = 1, **kw: Any
) -> Sample:
    """A sample of packed sequences; the reference takes one after the other."""
    starts = [torch.tensor([0, *x], dtype=torch.int32).cumsum(0) for x in (q_lengths, k_lengths)]
    longest = max(q_lengths), max(k_lengths)

    def plain(q: Any, k: Any, v: Any, *_: Any, is_causal: bool = False, window: int = 99) -> Any:
        parts = []
        for n in range(len(q_lengths)):
            rows, columns = (slice(int(s[n]), int(s[n + 1])) for s in starts)
            q_own = q[rows].transpose(0, 1)
            k_own, v_own = (x[columns].repeat_interleave(groups, 1).transpose(0, 1) for x in (k, v))
            i = torch.arange(q_lengths[n])[:, None] + k_lengths[n] - q_lengths[n]
            far = i - torch.arange(k_lengths[n])
            seen = (far.abs() < window) & ((far >= 0) if is_causal else True)
            scores = (q_own @ k_own.mT * q.shape[-1] ** -0.5).masked_fill(
                ~seen, torch.finfo(q.dtype).min
            )
            weights = scores.softmax(-1).masked_fill(~seen, 0.0)
            parts.append((weights @ v_own).transpose(0, 1))
        return torch.cat(
            [*parts, q.new_zeros(q.shape[0] - int(starts[0][-1]), *parts[0].shape[1:])]
        )

    tensors = (T(sum(q_lengths), heads * groups, 4), T(sum(k_lengths), heads, 4))
    value = T(sum(k_lengths), heads, 3)
    return Sample("attention_varlen", (*tensors, value, *starts, *longest), kw, torch=plain)


def paged(
    batch: int, heads: int, queries: int, features: tuple[int, int], groups: int = 1, **kw: Any
) -> Sample:
    """A sample of a cache with pages of 3 tokens, of which some are unused."""
    size, most = 3, 3
    lens = torch.tensor([(5 * b + queries) % (size * most) + 1 for b in range(batch)])
    table = torch.randperm(batch * most, generator=torch.Generator().manual_seed(1))
    table = table.view(batch, most).int()

    def plain(q: Any, k: Any, v: Any, table: Any, lens: Any, scale: float | None = None) -> Any:
        parts = []
        for b, n in enumerate(lens.tolist()):
            own = [x[table[b].long()].flatten(0, 1)[:n].transpose(0, 1) for x in (k, v)]
            keys, values = (x.repeat_interleave(groups, 0) for x in own)
            factor = q.shape[-1] ** -0.5 if scale is None else scale
            seen = torch.ones(queries, n, dtype=torch.bool).tril(n - queries)
            scores = (q[b] @ keys.mT * factor).masked_fill(~seen, torch.finfo(q.dtype).min)
            parts.append(scores.softmax(-1).masked_fill(~seen, 0.0) @ values)
        return torch.stack(parts)

    caches = [T(batch * most + 1, size, heads, width) for width in features]
    query = T(batch, heads * groups, queries, features[0])
    return Sample("paged_attention", (query, *caches, table, lens), kw, torch=plain, grad=False)


SAMPLES = [
    paged(4, 2, 1, (4, 4)),
    paged(2, 4, 1, (4, 3), groups=2, scale=0.3),
    paged(2, 2, 4, (5, 5), groups=3),
    of(*SAME),
    of(*((1, 2, 3, 260),) * 3, is_causal=True),  # heads that are too wide for a kernel
    of(*SAME, is_causal=True),
    of(*SAME, scale=0.3),
    of((2, 2, 6, 4), (2, 2, 5, 4), (2, 2, 5, 3), is_causal=True),
    of((3, 6, 4), (3, 5, 4), (3, 5, 2)),
    of((6, 4), (5, 4), (5, 2)),
    of(*SAME, Bo(4, 1, 5, 5)),
    of(*SAME, HIDDEN),
    of(SQUARE, SQUARE, SQUARE, T(6, 6)),
    of(SQUARE, SQUARE, SQUARE, T(2, 1, 1, 6)),
    of((2, 4, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4), enable_gqa=True),
    of((2, 6, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4), is_causal=True, enable_gqa=True),
    of((2, 6, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4), T(2, 6, 5, 5), enable_gqa=True),
    windowed(SQUARE, SQUARE, SQUARE, window=3, is_causal=True),
    windowed(SQUARE, SQUARE, SQUARE, window=3, p=0.4, is_causal=True),
    windowed((1, 4, 5, 4), (1, 2, 6, 4), (1, 2, 6, 3), window=4, p=0.3, enable_gqa=True),
    windowed(SQUARE, SQUARE, SQUARE, window=3, mask=Bo(2, 6, 6)),
    windowed(SQUARE, SQUARE, SQUARE, window=4, mask=T(2, 1, 1, 6)),
    windowed((3, 6, 4), (3, 5, 4), (3, 5, 2), window=1),
    windowed((2, 2, 6, 4), (1, 2, 5, 4), (2, 2, 5, 3), window=2),
    packed([3, 0, 4], [3, 2, 4]),
    packed([2, 5], [4, 3], is_causal=True),
    packed([4, 3], [4, 3], groups=2, is_causal=True, window=2),
]

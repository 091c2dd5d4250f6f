"""Draws the steps of random programs: one step that fits the values so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol, TypeAlias

import torch
from hypothesis import strategies as st

from ..engine.sbp import NdSbp
from .program_calls import EXTREMES, KINKED, REDUCTIONS, SMOOTH

Shape: TypeAlias = tuple[int, ...]
FLOAT = torch.float64


@dataclass(frozen=True)
class Entry:
    """What is known of a value when the next step is drawn."""

    shape: Shape
    dtype: torch.dtype
    placement: int
    exact: bool  # computed without rounding, so ops with kinks may see it

    @property
    def ndim(self) -> int:
        return len(self.shape)


class Builder(Protocol):
    """A program under construction (see `programs`)."""

    draw: Callable[..., Any]
    placements: tuple[Any, ...]
    entries: list[Entry]

    def input(
        self, shape: Sequence[int], placement: int, dtype: torch.dtype = FLOAT, high: int = 2
    ) -> int: ...

    def step(self, name: str, *inputs: int, attrs: tuple[Any, ...] = ()) -> int: ...

    def moved(self, index: int, placement: int) -> int: ...

    def layout(self, entry: Entry, placement: int) -> NdSbp: ...

    def pick(self, allowed: Callable[[Entry], bool]) -> int | None: ...


# Each function adds one step (and leaves that it needs), or nothing if none fits.


def _floating(entry: Entry) -> bool:
    return entry.dtype == FLOAT


def _with_dims(entry: Entry) -> bool:
    return entry.dtype == FLOAT and entry.ndim > 0


def _dim(b: Builder, index: int) -> int:
    """A dim of value `index`, sometimes counted from the end."""
    ndim = b.entries[index].ndim
    return int(b.draw(st.integers(-ndim, ndim - 1)))


def _leaf_like(b: Builder, index: int, shape: Sequence[int]) -> int:
    return b.input(shape, b.entries[index].placement)


def _smooth(b: Builder) -> None:
    x = b.pick(_floating)
    if x is not None:
        b.step(b.draw(st.sampled_from(SMOOTH)), x)


def _kinked(b: Builder) -> None:
    x = b.pick(lambda entry: _floating(entry) and entry.exact)
    if x is not None:
        b.step(b.draw(st.sampled_from(KINKED)), x)


def _number(b: Builder) -> None:
    x = b.pick(_floating)
    if x is not None:
        name = b.draw(st.sampled_from(("add_number", "mul_number", "from_number")))
        b.step(name, x, attrs=(b.draw(st.sampled_from((2, -1.5, 0.25))),))


def _partner(b: Builder, x: int) -> int:
    """A value that broadcasts with value `x`: one at hand, or a new leaf."""
    shape = b.entries[x].shape
    other = b.pick(lambda entry: _floating(entry) and _broadcasts(entry.shape, shape))
    if other is not None and b.draw(st.booleans()):
        return b.moved(other, b.entries[x].placement)
    kept = b.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    sizes = [size if keep else 1 for size, keep in zip(shape, kept, strict=True)]
    return _leaf_like(b, x, sizes[b.draw(st.integers(0, len(shape))) :])


def _broadcasts(one: Shape, other: Shape) -> bool:
    pairs = zip(reversed(one), reversed(other), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def _binary(b: Builder) -> None:
    x = b.pick(_floating)
    if x is not None:
        operands = [x, _partner(b, x)]
        if b.draw(st.booleans()):
            operands.reverse()
        b.step(b.draw(st.sampled_from(("add", "sub", "mul", "div"))), *operands)


def _where(b: Builder) -> None:
    x = b.pick(_floating)
    if x is not None:
        condition = b.input(b.entries[x].shape, b.entries[x].placement, torch.bool)
        b.step("where", condition, x, _partner(b, x))


def _less(b: Builder) -> None:
    x = b.pick(lambda entry: _floating(entry) and entry.exact)
    if x is not None:
        b.step("less", x, _leaf_like(b, x, b.entries[x].shape))


def _matmul(b: Builder) -> None:
    x = b.pick(_with_dims)
    if x is not None:
        k = b.entries[x].shape[-1]
        n = b.draw(st.integers(0, 5))
        form = b.draw(st.sampled_from(("matrix", "vector", "linear", "batch")))
        if form == "linear":
            b.step("linear", x, _leaf_like(b, x, (n, k)), _leaf_like(b, x, (n,)))
        elif form == "batch":
            lead = b.entries[x].shape[:-2]
            b.step("matmul", x, _leaf_like(b, x, (*lead, k, n)))
        else:
            b.step("matmul", x, _leaf_like(b, x, (k, n) if form == "matrix" else (k,)))


def _reduction(b: Builder) -> None:
    x = b.pick(_with_dims)
    if x is not None:
        ndim = b.entries[x].ndim
        dims = b.draw(st.sets(st.integers(0, ndim - 1), min_size=1))
        name = b.draw(st.sampled_from(REDUCTIONS))
        if name == "logsumexp" and 0 in b.entries[x].shape:
            return  # minus infinity, and a partial sum times infinity is not defined
        b.step(name, x, attrs=(tuple(sorted(dims)), b.draw(st.booleans())))


def _extreme(b: Builder) -> None:
    x = b.pick(lambda entry: _with_dims(entry) and entry.exact and 0 not in entry.shape)
    if x is not None:
        name = b.draw(st.sampled_from((*EXTREMES, "argmax")))
        b.step(name, x, attrs=(_dim(b, x), b.draw(st.booleans())))


def _along_dim(b: Builder) -> None:
    x = b.pick(_with_dims)
    if x is not None:
        name = b.draw(st.sampled_from(("softmax", "log_softmax", "cumsum")))
        b.step(name, x, attrs=(_dim(b, x),))


def _normalize(b: Builder) -> None:
    x = b.pick(lambda entry: _with_dims(entry) and entry.shape[-1] > 0)
    if x is not None:
        size = b.entries[x].shape[-1:]
        b.step("layer_norm", x, _leaf_like(b, x, size), _leaf_like(b, x, size))


def _reshape(b: Builder) -> None:
    x = b.pick(_floating)
    if x is None:
        return
    numel = prod(b.entries[x].shape)
    if numel == 0:
        b.step("reshape", x, attrs=((0,),))
        return
    sizes = []
    for _ in range(b.draw(st.integers(0, 3))):
        sizes.append(b.draw(st.sampled_from([n for n in range(1, numel + 1) if numel % n == 0])))
        numel //= sizes[-1]
    b.step("reshape", x, attrs=((*sizes, b.draw(st.sampled_from((numel, -1)))),))


def _reorder(b: Builder) -> None:
    x = b.pick(_with_dims)
    if x is None:
        return
    name = b.draw(st.sampled_from(("permute", "unsqueeze", "squeeze", "flip")))
    if name == "permute":
        b.step(name, x, attrs=(tuple(b.draw(st.permutations(range(b.entries[x].ndim)))),))
    elif name == "flip":
        b.step(name, x, attrs=((_dim(b, x),),))
    else:
        b.step(name, x, attrs=(_dim(b, x),))


def _expand(b: Builder) -> None:
    x = b.pick(_floating)
    if x is not None:
        shape = b.entries[x].shape
        sizes = [b.draw(st.integers(0, 4)) if size == 1 else size for size in shape]
        lead = b.draw(st.lists(st.integers(0, 3), max_size=1))
        b.step("expand", x, attrs=((*lead, *sizes),))


def _join(b: Builder) -> None:
    x = b.pick(_with_dims)
    if x is None:
        return
    shape = b.entries[x].shape
    if b.draw(st.booleans()):
        same = b.pick(lambda entry: _floating(entry) and entry.shape == shape)
        other = x if same is None else b.moved(same, b.entries[x].placement)
        b.step("stack", x, other, attrs=(b.draw(st.integers(0, len(shape))),))
    else:
        dim = _dim(b, x)
        sizes = list(shape)
        sizes[dim] = b.draw(st.integers(0, 4))
        b.step("cat", x, _leaf_like(b, x, sizes), attrs=(dim,))


def _part(b: Builder) -> None:
    x = b.pick(_with_dims)
    if x is None:
        return
    dim = _dim(b, x)
    size = b.entries[x].shape[dim]
    if size > 0 and b.draw(st.booleans()):
        b.step("chunk", x, attrs=(b.draw(st.integers(1, 3)), dim))
    else:
        start = b.draw(st.integers(0, size))
        b.step("narrow", x, attrs=(dim, start, b.draw(st.integers(0, size - start))))


def _basic_index(b: Builder, shape: Shape) -> tuple[Any, ...]:
    """A basic index of slices, numbers, None and an ellipsis."""
    words: list[Any] = []
    for size in shape:
        bound = st.none() | st.integers(-size - 1, size + 1)
        word = st.builds(slice, bound, bound, st.integers(1, 3))
        words.append(b.draw(word | st.integers(-size, size - 1) if size else word))
    kept = b.draw(st.integers(0, len(words)))
    words = words[:kept]
    if b.draw(st.booleans()):
        words.insert(b.draw(st.integers(0, len(words))), None)
    if kept < len(shape) and b.draw(st.booleans()):
        words.append(Ellipsis)
    return tuple(words)


def _index(b: Builder) -> None:
    x = b.pick(_with_dims)
    if x is not None:
        b.step("getitem", x, attrs=(_basic_index(b, b.entries[x].shape),))


def _select(b: Builder) -> None:
    x = b.pick(lambda entry: _with_dims(entry) and 0 not in entry.shape)
    if x is None:
        return
    placement = b.entries[x].placement
    count = b.draw(st.integers(0, 5))
    if b.draw(st.booleans()):
        dim = _dim(b, x)
        high = b.entries[x].shape[dim]
        b.step("index_select", x, b.input((count,), placement, torch.int64, high), attrs=(dim,))
    elif b.entries[x].ndim == 2:
        rows = b.input((count, 2), placement, torch.int64, b.entries[x].shape[0])
        b.step("embedding", rows, x)


def _change(b: Builder) -> None:
    x = b.pick(_floating)
    if x is None:
        return
    shape = b.entries[x].shape
    if shape and b.draw(st.booleans()):
        b.step("setitem", x, attrs=(_basic_index(b, shape), b.draw(st.sampled_from((0.5, -2.0)))))
    else:
        b.step(
            "change", x, _leaf_like(b, x, shape), attrs=(b.draw(st.sampled_from(("add", "mul"))),)
        )


def _relayout(b: Builder) -> None:
    x = b.pick(lambda entry: True)
    assert x is not None
    placement = b.draw(st.integers(0, len(b.placements) - 1))
    b.step("to_global", x, attrs=(placement, b.layout(b.entries[x], placement)))


BUILDERS: tuple[Callable[[Any], None], ...] = (
    _smooth,
    _binary,
    _matmul,
    _reduction,
    _reshape,
    _relayout,
    _along_dim,
    _normalize,
    _reorder,
    _join,
    _part,
    _index,
    _select,
    _number,
    _where,
    _less,
    _kinked,
    _extreme,
    _expand,
    _change,
    _relayout,
)

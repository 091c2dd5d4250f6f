"""Draws the steps of random programs: one step that fits the values so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

import torch
from hypothesis import strategies as st

from ..engine.meta import Shape
from .program_builder import FLOAT, Builder, Entry
from .program_calls import EXTREMES, KINKED, REDUCTIONS, SMOOTH

DrawStep: TypeAlias = Callable[[Builder], None]
STEP_KINDS: list[DrawStep] = []


def _of(allowed: Callable[[Entry], bool]) -> Callable[[Callable[[Builder, int], None]], DrawStep]:
    """Register a step, a function of one value: nothing is added if no value is allowed."""

    def decorate(add: Callable[[Builder, int], None]) -> DrawStep:
        def step(b: Builder) -> None:
            x = b.pick(allowed)
            if x is not None:
                add(b, x)

        STEP_KINDS.append(step)
        return step

    return decorate


def _floating(entry: Entry) -> bool:
    return entry.dtype == FLOAT


def _with_dims(entry: Entry) -> bool:
    return entry.dtype == FLOAT and entry.ndim > 0


def _exact(entry: Entry) -> bool:
    return entry.dtype == FLOAT and entry.exact


def _dim(b: Builder, index: int) -> int:
    """A dim of value `index`, sometimes counted from the end."""
    ndim = b.entries[index].ndim
    return b.draw(st.integers(-ndim, ndim - 1))


def _leaf_like(b: Builder, index: int, shape: Sequence[int]) -> int:
    return b.input(shape, b.entries[index].placement)


@_of(_floating)
def _smooth(b: Builder, x: int) -> None:
    b.step(b.draw(st.sampled_from(SMOOTH)), x)


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


@_of(_floating)
def _binary(b: Builder, x: int) -> None:
    operands = [x, _partner(b, x)]
    if b.draw(st.booleans()):
        operands.reverse()
    b.step(b.draw(st.sampled_from(("add", "sub", "mul", "div"))), *operands)


@_of(_with_dims)
def _matmul(b: Builder, x: int) -> None:
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


@_of(_with_dims)
def _reduction(b: Builder, x: int) -> None:
    ndim = b.entries[x].ndim
    dims = b.draw(st.sets(st.integers(0, ndim - 1), min_size=1))
    name = b.draw(st.sampled_from(REDUCTIONS))
    if name == "logsumexp" and 0 in b.entries[x].shape:
        return  # minus infinity, and a partial sum times infinity is not defined
    b.step(name, x, attrs=(tuple(sorted(dims)), b.draw(st.booleans())))


@_of(_floating)
def _reshape(b: Builder, x: int) -> None:
    numel = prod(b.entries[x].shape)
    if numel == 0:
        b.step("reshape", x, attrs=((0,),))
        return
    sizes: list[int] = []
    for _ in range(b.draw(st.integers(0, 3))):
        sizes.append(b.draw(st.sampled_from([n for n in range(1, numel + 1) if numel % n == 0])))
        numel //= sizes[-1]
    b.step("reshape", x, attrs=((*sizes, b.draw(st.sampled_from((numel, -1)))),))


@_of(lambda entry: True)
def _relayout(b: Builder, x: int) -> None:
    b.to_global(x, b.draw(st.integers(0, len(b.placements) - 1)))


@_of(_with_dims)
def _along_dim(b: Builder, x: int) -> None:
    name = b.draw(st.sampled_from(("softmax", "log_softmax", "cumsum")))
    b.step(name, x, attrs=(_dim(b, x),))


@_of(lambda entry: _with_dims(entry) and entry.shape[-1] > 0)
def _normalize(b: Builder, x: int) -> None:
    size = b.entries[x].shape[-1:]
    b.step("layer_norm", x, _leaf_like(b, x, size), _leaf_like(b, x, size))


@_of(_with_dims)
def _reorder(b: Builder, x: int) -> None:
    name = b.draw(st.sampled_from(("permute", "unsqueeze", "squeeze", "flip")))
    if name == "permute":
        b.step(name, x, attrs=(tuple(b.draw(st.permutations(range(b.entries[x].ndim)))),))
    elif name == "flip":
        b.step(name, x, attrs=((_dim(b, x),),))
    else:
        b.step(name, x, attrs=(_dim(b, x),))


@_of(_with_dims)
def _join(b: Builder, x: int) -> None:
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


@_of(_with_dims)
def _part(b: Builder, x: int) -> None:
    dim = _dim(b, x)
    size = b.entries[x].shape[dim]
    if size > 0 and b.draw(st.booleans()):
        b.step("chunk", x, attrs=(b.draw(st.integers(1, 3)), dim))
    else:
        start = b.draw(st.integers(0, size))
        b.step("narrow", x, attrs=(dim, start, b.draw(st.integers(0, size - start))))


def _basic_index(b: Builder, shape: Shape) -> tuple[object, ...]:
    """A basic index of slices, numbers, None and an ellipsis."""
    words: list[object] = []
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


@_of(_with_dims)
def _index(b: Builder, x: int) -> None:
    b.step("getitem", x, attrs=(_basic_index(b, b.entries[x].shape),))


@_of(lambda entry: _with_dims(entry) and 0 not in entry.shape)
def _select(b: Builder, x: int) -> None:
    placement = b.entries[x].placement
    count = b.draw(st.integers(0, 5))
    if b.draw(st.booleans()):
        dim = _dim(b, x)
        high = b.entries[x].shape[dim]
        b.step("index_select", x, b.input((count,), placement, torch.int64, high), attrs=(dim,))
    elif b.entries[x].ndim == 2:
        rows = b.input((count, 2), placement, torch.int64, b.entries[x].shape[0])
        b.step("embedding", rows, x)


@_of(_floating)
def _number(b: Builder, x: int) -> None:
    name = b.draw(st.sampled_from(("add_number", "mul_number", "from_number")))
    b.step(name, x, attrs=(b.draw(st.sampled_from((2, -1.5, 0.25))),))


@_of(_floating)
def _where(b: Builder, x: int) -> None:
    condition = b.input(b.entries[x].shape, b.entries[x].placement, torch.bool)
    b.step("where", condition, x, _partner(b, x))


@_of(_exact)
def _less(b: Builder, x: int) -> None:
    b.step("less", x, _leaf_like(b, x, b.entries[x].shape))


@_of(_exact)
def _kinked(b: Builder, x: int) -> None:
    b.step(b.draw(st.sampled_from(KINKED)), x)


@_of(lambda entry: _exact(entry) and _with_dims(entry) and 0 not in entry.shape)
def _extreme(b: Builder, x: int) -> None:
    name = b.draw(st.sampled_from((*EXTREMES, "argmax")))
    b.step(name, x, attrs=(_dim(b, x), b.draw(st.booleans())))


@_of(_floating)
def _expand(b: Builder, x: int) -> None:
    shape = b.entries[x].shape
    sizes = [b.draw(st.integers(0, 4)) if size == 1 else size for size in shape]
    lead = b.draw(st.lists(st.integers(0, 3), max_size=1))
    b.step("expand", x, attrs=((*lead, *sizes),))


@_of(_floating)
def _change(b: Builder, x: int) -> None:
    shape = b.entries[x].shape
    if b.entries[x].ndim > 0 and b.draw(st.booleans()):
        b.step("setitem", x, attrs=(_basic_index(b, shape), b.draw(st.sampled_from((0.5, -2.0)))))
    else:
        other = _leaf_like(b, x, shape)
        b.step("change", x, other, attrs=(b.draw(st.sampled_from(("add", "mul"))),))


STEP_KINDS.append(_relayout)  # twice as often as the others

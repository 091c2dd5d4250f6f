"""Reductions and scans of the repaired interpreter.

Halves of the axis are combined at once, in the order of the elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import triton.language as tl

from .repaired_builder import Block, Scalar, handle, numbers, tensor

Combine: TypeAlias = Callable[..., Block]

_AT_ONCE: dict[object, np.ufunc] = {
    tl.standard._elementwise_max: np.fmax,
    tl.standard._elementwise_min: np.fmin,
    tl.standard._sum_combine: np.add,
}


def reduce(
    input: Block, axis: Block, combine_fn: Combine, keep_dims: object = False, **_: object
) -> Block:
    """In place of `tl.reduce`."""
    given = input if isinstance(input, (tuple, tl.tuple)) else (input,)
    axis, keep_dims = (getattr(x, "value", x) for x in (axis, keep_dims))
    scalars = [x.dtype for x in given]
    shape = list(given[0].handle.data.shape)
    parts = [x.handle.data for x in given]
    if axis is None:
        parts = [x.reshape(-1) for x in parts]
    parts = [np.moveaxis(x, axis or 0, -1) for x in parts]
    ufunc = _AT_ONCE.get(combine_fn)
    exact = ufunc in {np.fmax, np.fmin} or given[0].handle.data.dtype.itemsize >= 4
    if ufunc is not None and exact and len(given) == 1:
        bits = tensor(parts[0], scalars[0]).handle
        results = [handle(np.asarray(ufunc.reduce(numbers(bits), axis=-1)), scalars[0]).data]
    else:
        while parts[0].shape[-1] > 1:
            even, odd = [x[..., 0::2] for x in parts], [x[..., 1::2] for x in parts]
            parts = _combine(combine_fn, even, odd, scalars)
        results = [x[..., 0] for x in parts]
    if keep_dims:
        kept = [1] * len(shape) if axis is None else [*shape]
        if axis is not None:
            kept[axis] = 1
        results = [x.reshape(kept) for x in results]
    return _like(input, results, scalars)


def associative_scan(
    input: Block, axis: Block, combine_fn: Combine, reverse: object = False, **_: object
) -> Block:
    """In place of `tl.associative_scan`."""
    given = input if isinstance(input, (tuple, tl.tuple)) else (input,)
    axis, reverse = (getattr(x, "value", x) for x in (axis, reverse))
    scalars = [x.dtype for x in given]
    parts = [np.moveaxis(x.handle.data, axis, -1) for x in given]
    parts = [x[..., ::-1] if reverse else x for x in parts]
    width, shift = parts[0].shape[-1], 1
    while shift < width:
        before = [np.concatenate([x[..., :shift], x[..., :-shift]], -1) for x in parts]
        merged = _combine(combine_fn, before, parts, scalars)
        started = np.arange(width) >= shift
        parts = [np.where(started, new, old) for new, old in zip(merged, parts, strict=True)]
        shift *= 2
    results = [np.moveaxis(x[..., ::-1] if reverse else x, -1, axis) for x in parts]
    return _like(input, results, scalars)


def _combine(
    function: Combine,
    a: list[np.ndarray],
    b: list[np.ndarray],
    scalars: list[Scalar],
) -> list[np.ndarray]:
    found = function(*map(tensor, a, scalars), *map(tensor, b, scalars))
    found = found if isinstance(found, (tuple, tl.tuple)) else (found,)
    shape = a[0].shape
    return [np.broadcast_to(x.handle.data, shape) for x in found]


def _like(input: Block, results: list[np.ndarray], scalars: list[Scalar]) -> Block:
    """The results as tensors, in a tuple if the input was one."""
    tensors = tuple(map(tensor, results, scalars))
    return tensors if isinstance(input, (tuple, tl.tuple)) else tensors[0]

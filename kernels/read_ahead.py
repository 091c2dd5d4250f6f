"""Small random tensors: the numbers of the calls that follow are made in the same passes.

A draw of a few elements takes a hundred passes of numpy, and nearly all of their time is that of
starting them. Numbers depend on (seed, call, index) alone, so those of the next calls can be made
before anyone asks for them. Where draws of one kind and size follow each other closely, they are
rows of a table that is made once for a range of calls. Each row has the bits of a single draw.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .philox import Ints, Philox, Transform

MAX_GROUPS = 2048  # of a table: making it takes about twice as long as making one row
_MIN_CALLS = 4  # of a table
_MAX_SERIES = 32
_MAX_TABLES = 2  # of a series: backward draws again what was drawn before


class _Series:
    """The draws of one kind, size and seed: the latest call, and tables by their number."""

    __slots__ = ("latest", "tables")

    def __init__(self, latest: int) -> None:
        self.latest = latest
        self.tables: dict[int, Tensor] = {}


_series: dict[Hashable, _Series] = {}


def drawn_ahead(
    shape: Ints, offset: Ints, size: Ints, kind: Hashable, transform: Transform, *,
    seed: int, call: int, dtype: torch.dtype, wide: bool,
) -> Tensor | None:  # fmt: skip
    """The same as `philox.fill` on the CPU, of a small `shape`; None where one draw is cheaper.

    Draws with equal `kind` have the same `transform`.
    Example: `drawn_ahead((8,), (2,), (3,), "bits", lambda w: w >> 8, seed=0, call=1,
    dtype=torch.int64, wide=False)` after the same with `call=0`.
    """
    place = _in_table(shape, 2 if wide else 4)
    if place is None:
        return None
    groups, calls, strides, width = place
    number, row = divmod(call, calls)
    key = (seed, groups, kind, dtype)
    series = _series.get(key)
    if series is None:
        _series[key] = _Series(call)
        _drop_oldest(_series, _MAX_SERIES)
        return None
    table = series.tables.get(number)
    if table is None:
        step, series.latest = abs(call - series.latest), call
        if 2 * step > calls:  # the table would serve one draw
            return None
        table = _table(number * calls, calls, groups, transform, seed, dtype, wide)
        series.tables[number] = table
        _drop_oldest(series.tables, _MAX_TABLES)
    series.latest = call
    values = table.as_strided(shape, strides, row * width)
    if size != shape:
        for dim, (start, length) in enumerate(zip(offset, size, strict=True)):
            values = values.narrow(dim, start, length)
    return values.clone(memory_format=torch.contiguous_format)


class _Place(NamedTuple):
    """Where the draws of a shape are in a table."""

    groups: int  # of a draw
    calls: int  # that a table serves
    strides: Ints  # of a draw in its row
    width: int  # of a row


@lru_cache(maxsize=1024)
def _in_table(shape: Ints, lanes: int) -> _Place | None:
    """The place of draws of a shape; None for shapes that are not drawn ahead."""
    groups = (prod(shape) + lanes - 1) // lanes
    if not 0 < groups * _MIN_CALLS <= MAX_GROUPS:
        return None
    strides = tuple([prod(shape[dim + 1 :]) for dim in range(len(shape))])
    return _Place(groups, MAX_GROUPS // groups, strides, groups * lanes)


def _drop_oldest(kept: dict[Any, Any], most: int) -> None:
    for key in list(kept)[:-most]:  # a list, since other threads may draw too
        kept.pop(key, None)


def _table(
    first: int, calls: int, groups: int, transform: Transform, seed: int, dtype: torch.dtype,
    wide: bool,
) -> Tensor:  # fmt: skip
    """A row of values for each call from `first` on."""
    call = np.arange(calls, dtype=np.uint64) + np.uint64(first)
    words = Philox(seed, 0, calls * groups).words_of_calls(
        np.tile(np.arange(groups, dtype=np.uint64), calls), np.repeat(call, groups)
    )
    values = torch.from_numpy(transform(words.view(np.uint64) if wide else words))
    return values.to(dtype).view(calls, -1)

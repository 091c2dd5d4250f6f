"""Liveness: the buffers that a rank holds during work in a given order, and for how long."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Key: TypeAlias = Hashable
Ints: TypeAlias = NDArray[np.int64]


class Event(NamedTuple):
    """One unit of work: the buffers (key, bytes) that it allocates, and those that it uses last.

    During the work both are live.
    """

    label: str
    made: tuple[tuple[Key, int], ...] = ()
    freed: tuple[Key, ...] = ()


class Buffer(NamedTuple):
    """Memory of one rank, live from the event number `first` to the event number `last`."""

    key: Key
    nbytes: int
    first: int
    last: int


def buffers_of(events: Sequence[Event]) -> list[Buffer]:
    """The buffers in the order in which they are made; one that is never freed is live to the end.

    >>> [b.last for b in buffers_of([Event("a", (("x", 4), ("y", 4))), Event("b", freed=("x",))])]
    [1, 1]
    >>> [b.last for b in buffers_of([Event("a", (("x", 4),), ("x",)), Event("b", (("y", 4),))])]
    [0, 1]
    """
    made: dict[Key, tuple[int, int]] = {}
    freed: dict[Key, int] = {}
    for index, event in enumerate(events):
        for key, nbytes in event.made:
            assert key not in made, f"{key!r} is made twice, again by {event.label}"
            made[key] = nbytes, index
        for key in event.freed:
            assert key in made, f"{key!r} is freed by {event.label} but was never made"
            assert key not in freed, f"{key!r} is freed twice, again by {event.label}"
            freed[key] = index
    end = len(events) - 1
    return [
        Buffer(key, nbytes, first, freed.get(key, end)) for key, (nbytes, first) in made.items()
    ]


def live_bytes(buffers: Sequence[Buffer], events: int) -> list[int]:
    """The bytes that are live during each event, of which there are `events`.

    >>> live_bytes([Buffer("x", 4, 0, 1), Buffer("y", 8, 1, 2)], 3)
    [4, 12, 8]
    """
    found: list[int] = live_at(*spans_of(buffers), events).tolist()
    return found


def spans_of(buffers: Sequence[Buffer]) -> tuple[Ints, Ints, Ints]:
    """The bytes of buffers, and the first and last event of each."""
    sizes, firsts, lasts = ([b[at] for b in buffers] for at in (1, 2, 3))
    return np.array(sizes, np.int64), np.array(firsts, np.int64), np.array(lasts, np.int64)


def live_at(sizes: Ints, firsts: Ints, lasts: Ints, events: int) -> Ints:
    """The bytes that are live during each event."""
    change = np.zeros(events + 1, np.int64)
    np.add.at(change, firsts, sizes)
    np.add.at(change, lasts + 1, -sizes)
    return change[:events].cumsum()

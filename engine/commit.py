"""Commit: changes that are made as a whole, although an interrupt may arrive at any line.

What changes memory is a function written in C, such as a method of a torch tensor, and many of them
are called by one that is written in C too: Python raises KeyboardInterrupt between its own
instructions only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from operator import call
from typing import TypeAlias

Change: TypeAlias = Callable[[], object]  # written in C, or safe to repeat
# Computes what changes, and changes nothing itself: it may run again after an interrupt.
Write: TypeAlias = Callable[[], Iterable[Change]]


# Functions that wait until other threads have read memory, which `finish` may then write.
readers: list[Callable[[], None]] = []


def wait_for_readers() -> None:
    """Wait until memory that is about to be written is no longer read."""
    for wait in [*readers]:
        wait()
        with suppress(ValueError):  # another thread has waited, too
            readers.remove(wait)


def finish(writes: Iterable[Write]) -> None:
    """Make all writes, in turn; an interrupt that arrives meanwhile is raised after the last.

    Any other error is raised at once. Writes that are a deque may get more while they are made.

    >>> x = [0]
    >>> finish([lambda: [lambda: x.append(1)], lambda: [lambda: x.append(2)]])
    >>> x
    [0, 1, 2]
    """
    if readers:
        wait_for_readers()
    left = writes if isinstance(writes, deque) else deque(writes)
    interrupt = None
    while left:
        try:
            while left:
                deque(map(call, (left.popleft, *left[0]())), 0)
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


@contextmanager
def restored(*changes: Callable[[], object]) -> Iterator[None]:
    """A block after which `changes` are made in any case, once or twice.

    >>> x = [0, 1]
    >>> with restored(lambda: x.__setitem__(0, 0)):
    ...     x[0] = 5
    >>> x
    [0, 1]
    """
    try:
        try:
            yield
        finally:
            for change in changes:
                change()
    finally:  # an interrupt may have kept some of them from being made
        for change in changes:
            change()


def together(writes: Iterable[Write]) -> Write:
    """One write for several: what changes is computed for all of them first.

    >>> x = [0]
    >>> finish([together([lambda: [lambda: x.append(1)]])])
    >>> x
    [0, 1]
    """
    return lambda: [*chain.from_iterable(write() for write in writes)]


def each(function: Callable[..., object], *columns: Iterable[object]) -> Change:
    """The change that calls a function written in C for each row of some columns.

    >>> from itertools import repeat
    >>> states = [{}, {}]
    >>> _ = each(dict.__setitem__, states, repeat("step"), repeat(1))()
    >>> states
    [{'step': 1}, {'step': 1}]
    """
    return partial(deque, map(function, *columns), 0)

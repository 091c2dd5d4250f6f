"""Writing calls: the end of a program, from the first call that changes what outlives the run.

They are made as a whole, although an interrupt may arrive at any line; see `engine/commit.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial

from ..engine.commit import Change, Write
from .call_list import ERRORS, CallList, Filled


def split(calls: CallList) -> tuple[CallList, CallList]:
    """The calls before the first that writes, and the others."""
    steps = calls.steps
    first = next((i for i, step in enumerate(steps) if step.writes or step.pending), len(steps))
    return (
        CallList(calls.calls[:first], steps[:first]),
        CallList(calls.calls[first:], steps[first:]),
    )


def writes_of(calls: CallList, places: Filled) -> deque[Write]:
    """The calls as writes, on values in their places."""
    left: deque[Write] = deque()
    left.extend(partial(_write, calls, index, places, left) for index in range(len(calls.calls)))
    return left


def _write(calls: CallList, index: int, places: Filled, left: deque[Write]) -> Iterable[Change]:
    run, taken, made, several, dead = calls.watched()[index]
    step = calls.steps[index]
    given = [places[place] for place in taken]
    drop = [partial(places.__setitem__, place, None) for place in dead]
    pends = step.pending
    if pends is not None and run is step.run:
        pending = calls.explaining(index, lambda: [*pends(*given)])()
        found = [calls.explaining(index, write) for write in pending]
        return [partial(left.extendleft, found[::-1]), *drop]
    try:
        result = run(*given)
    except ERRORS as error:
        calls.fail(error, index)
    if several is None:
        places[made] = result
    else:
        for place, part in zip(several, result, strict=True):
            places[place] = part
    return drop

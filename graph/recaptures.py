"""Recaptures: a warning where programs are captured again and again, since something changes."""

from __future__ import annotations

from collections import OrderedDict
from reprlib import repr as short
from typing import Any
from warnings import warn

from ..engine.meta import Meta
from ..errors import user_line
from .ir import describe

_MANY = 10  # programs that were dropped before they could be used again


class RecaptureWarning(UserWarning):
    """A function or graph is captured in most of its calls."""


class Recaptures:
    """Counts the programs that are dropped for others, and warns once when they are many."""

    def __init__(self) -> None:
        self._dropped = 0

    def dropped(self, name: str, kept: int, setting: str, before: object, now: object) -> None:
        """Hear that one more program was dropped, when `now` was captured after `before`.

        These are the keys of the two; `setting` is how the program would keep more.
        """
        self._dropped += 1
        if self._dropped != _MANY:
            return
        old, new = _difference(before, now)
        if old is new:
            what = "names outside of it refer to other numbers or objects"
            advice = "make what changes a tensor, whose value is read at every call"
        elif isinstance(new, Meta) and isinstance(old, Meta):
            what = f"an input was {describe(old)} and is {describe(new)}"
            advice = f"pad inputs to a few shapes, or keep more programs with {setting}"
        else:
            what = f"what was {short(old)} is {short(new)}"
            advice = (
                "pass a number that changes from call to call as a tensor, flow.tensor(value), or "
                f"keep more programs with {setting}"
            )
        warn(
            f"{name} was captured {kept + _MANY} times, while {kept} programs are kept: {what}, at "
            f"{user_line()}. A capture takes much longer than a call; {advice}",
            RecaptureWarning,
            stacklevel=4,
        )

    def make_room(self, name: str, programs: OrderedDict[Any, Any], kept: int, key: object) -> None:
        """Let a graph keep one more program, of this key; the one that it used first is dropped."""
        if len(programs) >= kept:
            before = next(reversed(programs))
            programs.popitem(last=False)
            self.dropped(name, kept, "nn.Graph.with_dynamic_input_shape(size=...)", before, key)


def _difference(before: object, now: object) -> tuple[object, object]:
    """The innermost parts of two keys in which they differ first; twice the same if they do not."""
    if before == now:
        return now, now
    if not isinstance(before, tuple) or not isinstance(now, tuple) or len(before) != len(now):
        return before, now
    return next(_difference(*each) for each in zip(before, now, strict=True) if each[0] != each[1])

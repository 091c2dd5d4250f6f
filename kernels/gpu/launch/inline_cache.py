"""Inline cache: the function of one call site, with the trace of its layouts in its own code.

A call site is a place in a dispatch plan, or in a program of a graph: its tensors have the same
shapes, dtypes and device each time, so that only their strides are left to compare. The first
layout is in the code of the site itself, the next in the code of what that one calls otherwise, and
so on: a chain of a few links, after which traces are looked up by all that they depend on.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NamedTuple

from .host_replay import Replay, compiled
from .jit_kernel import INTERPRETED
from .launch_trace import Compiled, active

Function = Callable[..., Any]
_LINKS = 4  # layouts that have code of their own
_CALLS = 64  # in which a layout may be traced; after that the site looks for it no longer


class Found(NamedTuple):
    """A trace, and the compiled forms of its kernels."""

    replay: Replay
    forms: Sequence[Compiled]


# The code of a site until a trace is known. `otherwise` is one of its global names.
_UNTRACED = compiled("def site(*args): return otherwise(*args)")


def call_site(
    function: Function,
    find: Callable[[Sequence[Any]], Found | None],
    *rest: object,
    links: int = _LINKS,
) -> Function:
    """The function of a cache of traces as it is called from one place, always with this `rest`.

    There are no tensors in `rest`. `find` gives the trace for arguments if there is one.
    """
    plain: Function = (lambda *args: function(*args, *rest)) if rest else function
    if INTERPRETED or not links:
        return plain
    names: dict[str, Any] = {"__builtins__": builtins}  # C code that imports asks the caller's
    site: Function = FunctionType(_UNTRACED, names)
    left = _CALLS

    def first(*args: object) -> object:
        nonlocal left
        result = plain(*args)
        if active() is not None:
            return result
        left -= 1
        found = find((*args, *rest))
        token = object()
        if found is not None and names.setdefault("taken", token) is token:  # by this thread
            code = found.replay.inlined(found.forms, args, rest, names)
            if code is None:
                names["otherwise"] = plain
            else:
                names["otherwise"] = call_site(function, find, *rest, links=links - 1)
                site.__code__ = code
        elif left == 0:
            names["otherwise"] = plain
        return result

    names["otherwise"] = first
    return site

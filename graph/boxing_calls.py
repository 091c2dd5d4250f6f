"""The calls that box a value in a program, as fields of a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypedDict

from ..engine import boxing
from ..engine.meta import Meta


class BoxingCalls(TypedDict):
    """Fields of a `ProgramStep`."""

    run: Callable[..., Any]
    start: Callable[..., Any] | None
    aliases: bool


def boxing_calls(src: Meta, dst: Meta, op: str) -> BoxingCalls:
    """How a value laid out as `src` gets to be as `dst`; `op` is named in the log of messages."""
    plan = boxing.plan(src, dst)
    start = partial(boxing.start, plan, op=op) if plan.communicates else None
    return BoxingCalls(run=partial(boxing.run, plan, op=op), start=start, aliases=plan.aliases)

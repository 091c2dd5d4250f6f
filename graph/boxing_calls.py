"""Boxing in programs: the functions that box a value, and the steps that call them."""

from __future__ import annotations

from functools import partial
from typing import TypedDict

from ..engine import boxing
from ..engine.convert import BOXING
from ..engine.meta import Meta
from .ir import ProgramStep, Run, Value


class BoxingCalls(TypedDict):
    """Fields of a `ProgramStep`."""

    run: Run
    start: Run | None
    aliases: bool


def boxing_calls(src: Meta, dst: Meta, op: str) -> BoxingCalls:
    """The functions that box a value from `src` to `dst`; the log of messages names `op`."""
    plan = boxing.plan(src, dst)
    start = partial(boxing.start, plan, op=op) if plan.communicates else None
    return BoxingCalls(run=partial(boxing.run, plan, op=op), start=start, aliases=plan.aliases)


def boxing_step(value: Value, made: Value, op: str, backward: bool = False) -> ProgramStep:
    """The step that boxes `value` to `made`; it belongs to no module."""
    calls = boxing_calls(value.meta, made.meta, op)
    return ProgramStep("boxing", BOXING, (value,), (), (made,), backward=backward, **calls)

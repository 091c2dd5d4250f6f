"""dispatch: what the dispatcher decided in a block: plans, fallbacks, collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from ..distributed.comm_log import comm
from ..engine import interpreter
from ..engine.dispatch_counters import counters

R = TypeVar("R")


@dataclass
class OpCounts:
    """How often one op was called, and what the calls cost."""

    calls: int = 0
    hits: int = 0  # calls whose plan, and those of all ops that they ran instead, were there
    misses: int = 0  # plans made
    evictions: int = 0  # plans dropped to make room
    fallbacks: int = 0  # plans that gather the inputs because no signature fits their layouts
    collectives: int = 0  # collectives run to box inputs, or by to_global itself

    def row(self) -> str:
        return "  ".join(f"{getattr(self, each.name):11d}" for each in fields(OpCounts))


@dataclass
class DispatchLog(OpCounts):
    """What the dispatcher did in a block, in all and by op name; printing it shows a table."""

    ops: dict[str, OpCounts] = field(default_factory=dict)

    def __str__(self) -> str:
        width = max(len(name) for name in (*self.ops, "all"))
        titles = "  ".join(f"{each.name:>11}" for each in fields(OpCounts))
        rows = [*sorted(self.ops.items(), key=lambda item: -item[1].calls), ("all", self)]
        lines = [f"{name:{width}}  {counts.row()}" for name, counts in rows]
        return "\n".join([f"{'op':{width}}  {titles}", *lines])


class _Counting(interpreter.Through):
    """Hands every call on and notes what changed meanwhile."""

    def __init__(self, log: DispatchLog, inner: interpreter.Interpreter | None) -> None:
        super().__init__(inner)
        self.log = log

    def run(self, call: Callable[..., R], op: Any, args: tuple[object, ...]) -> R:
        before = replace(counters)
        with comm() as log:
            try:
                return super().run(call, op, args)
            finally:
                for counts in (self.log, self.log.ops.setdefault(op.name, OpCounts())):
                    counts.calls += 1
                    counts.hits += counters.misses == before.misses
                    counts.misses += counters.misses - before.misses
                    counts.evictions += counters.evictions - before.evictions
                    counts.fallbacks += counters.fallbacks - before.fallbacks
                    counts.collectives += len(log.records)


@contextmanager
def dispatch() -> Iterator[DispatchLog]:
    """Count the op calls of a block: plan cache hits, misses, evictions, fallbacks, collectives.

    An op that runs as smaller ops, or boxes its inputs first, counts as one call; the plans and
    collectives of all of that are its own. Outside such a block nothing is counted and calls cost
    nothing extra. Ops that a captured graph runs are not seen.

    Example:
        >>> x = flow.ones(3, 5, 7, 11)
        >>> with flow.profiler.dispatch() as log:
        ...     for _ in range(3):
        ...         y = flow.tanh(x)
        >>> log.ops["tanh"].hits, log.ops["tanh"].misses
        (2, 1)
    """
    log = DispatchLog()
    with interpreter.using(_Counting(log, interpreter.get_current())):
        yield log

"""Profiler: what a block of a program did: its communication, and what the dispatcher decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .distributed.comm_log import CommLog, comm
from .engine import interpreter
from .engine.dispatch_counters import counters

__all__ = ["CommLog", "DispatchLog", "OpCounts", "comm", "dispatch"]


@dataclass
class OpCounts:
    """How often one op was called, and what that took."""

    calls: int = 0
    hits: int = 0  # calls whose plan, and those of all ops that they ran instead, were there
    misses: int = 0  # plans made
    evictions: int = 0  # plans dropped to make room
    fallbacks: int = 0  # plans that gather the inputs because no signature fits their layouts
    collectives: int = 0  # collectives run to box inputs, or by to_global itself


@dataclass
class DispatchLog:
    """What the dispatcher did in a block, by op name; printing it shows a table."""

    ops: dict[str, OpCounts] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        return sum(counts.calls for counts in self.ops.values())

    @property
    def hits(self) -> int:
        return sum(counts.hits for counts in self.ops.values())

    @property
    def misses(self) -> int:
        return sum(counts.misses for counts in self.ops.values())

    @property
    def evictions(self) -> int:
        return sum(counts.evictions for counts in self.ops.values())

    @property
    def fallbacks(self) -> int:
        return sum(counts.fallbacks for counts in self.ops.values())

    @property
    def collectives(self) -> int:
        return sum(counts.collectives for counts in self.ops.values())

    def __str__(self) -> str:
        titles = ("calls", "hits", "misses", "evictions", "fallbacks", "collectives")
        rows = [
            (name, [getattr(counts, title) for title in titles])
            for name, counts in sorted(self.ops.items(), key=lambda item: -item[1].calls)
        ]
        rows.append(("all", [getattr(self, title) for title in titles]))
        width = max(len(name) for name, _ in rows)
        lines = [f"{'op':{width}}  " + "  ".join(f"{title:>11}" for title in titles)]
        for name, numbers in rows:
            lines.append(f"{name:{width}}  " + "  ".join(f"{number:11d}" for number in numbers))
        return "\n".join(lines)


class _Counting(interpreter.Through):
    """Hands every call on and notes what changed meanwhile."""

    def __init__(self, log: DispatchLog, inner: interpreter.Interpreter | None) -> None:
        super().__init__(inner)
        self.log = log

    def run(self, call: Callable[..., Any], op: Any, args: tuple[Any, ...]) -> Any:
        counts = self.log.ops.setdefault(op.name, OpCounts())
        misses, evictions = counters.misses, counters.evictions
        fallbacks = counters.fallbacks
        with comm() as log:
            try:
                return super().run(call, op, args)
            finally:
                counts.calls += 1
                counts.hits += counters.misses == misses
                counts.misses += counters.misses - misses
                counts.evictions += counters.evictions - evictions
                counts.fallbacks += counters.fallbacks - fallbacks
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
    with interpreter.using(_Counting(log, interpreter.current)):
        yield log

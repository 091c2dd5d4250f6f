"""Communication log: one record per collective, kept while a `comm()` context is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from ..errors import user_line

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class CommRecord:
    """One collective: what kind, among whom, and how many bytes each rank sent and received."""

    kind: str
    ranks: tuple[int, ...]
    dtype: torch.dtype
    sent: Mapping[int, int]
    received: Mapping[int, int]
    op: str
    line: str

    def total_bytes(self) -> int:
        """Bytes received by all ranks together."""
        return sum(self.received.values())


class CommLog:
    """The records of one `comm()` block, in order. `print(log)` shows them as a table."""

    def __init__(self) -> None:
        self.records: list[CommRecord] = []

    def total_bytes(self, rank: int | None = None) -> int:
        """Bytes received by `rank`, or by all ranks together when None."""
        if rank is None:
            return sum(record.total_bytes() for record in self.records)
        return sum(record.received.get(rank, 0) for record in self.records)

    def count(self, kind: str | None = None) -> int:
        """Number of collectives of this kind, or of all kinds when None."""
        return sum(kind is None or record.kind == kind for record in self.records)

    def __str__(self) -> str:
        """A table: kind, ranks, dtype, bytes sent and received by all ranks, op, user line."""
        head = ("kind", "ranks", "dtype", "sent", "received", "op", "line")
        total = f"{self.count()} collectives, {self.total_bytes()} bytes received"
        return f"{table([head, *map(_row, self.records)])}\n{total}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(record: CommRecord) -> tuple[str, ...]:
    return (
        record.kind,
        str(record.ranks),
        str(record.dtype).removeprefix("torch."),
        str(sum(record.sent.values())),
        str(record.total_bytes()),
        record.op,
        record.line,
    )


_active: list[CommLog] = []

# Functions that are called with the name of an op and its exchange of data, and carry that out.
watchers: list[Callable[[str, Callable[[], Any]], Any]] = []


def watched(op: str, exchange: Callable[[], R]) -> R:
    """Carry out an exchange of data of an op through the newest watcher; there must be one."""
    result: R = watchers[-1](op, exchange)
    return result


def active() -> bool:
    """Whether anybody listens; without a listener, callers need not work out the bytes."""
    return bool(_active)


def record(
    kind: str,
    ranks: tuple[int, ...],
    dtype: torch.dtype,
    sent: Mapping[int, int],
    received: Mapping[int, int],
    op: str,
    line: str | None = None,
) -> None:
    """Add one collective to every open log; nothing without one.

    `line` is the user's line, found here when None.
    """
    if _active:
        line = user_line() if line is None else line
        entry = CommRecord(kind, ranks, dtype, dict(sent), dict(received), op, line)
        for log in _active:
            log.records.append(entry)


@contextmanager
def comm() -> Iterator[CommLog]:
    """Record every collective of the block, in a launched and in a virtual world.

    Blocks may be nested; each log gets the records of the blocks inside it too.

    Example:
        >>> p = flow.placement("cpu", [0, 1])
        >>> x = flow.ones(4, placement=p, sbp=flow.sbp.split(0))
        >>> with comm() as log:
        ...     y = x.to_global(sbp=flow.sbp.broadcast)
        >>> log.total_bytes(rank=0)
        8
    """
    log = CommLog()
    _active.append(log)
    try:
        yield log
    finally:
        # By identity: two logs that were closed out of order must not remove each other.
        _active[:] = [other for other in _active if other is not log]

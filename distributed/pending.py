"""What a process waits in, and how many collectives it has begun with whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .agreement import Agreement


@dataclass(slots=True)
class Counter:
    """How many collectives some ranks have begun together; equal on all when they agree."""

    key: str
    ranks: tuple[int, ...]
    epoch: int = 0  # how many errors of ranks came before; see `rank_error`
    seq: int = 0
    compared: int = 0  # the last of them that this process compared with the others
    agreement: Agreement = field(default_factory=Agreement, repr=False)
    checks: object = field(default=None, repr=False)  # see `rank_check`


class Running(Protocol):
    """What a device does, such as a work of torch.distributed."""

    def is_completed(self) -> bool: ...


@dataclass(slots=True, eq=False)
class Pending:
    """What this process is waiting in. `works` stays set where the device goes on by itself."""

    kind: str
    op: str
    counters: Sequence[Counter]
    works: Sequence[Running] = ()
    since: float = 0.0  # when the watch saw it first

    def describe(self) -> str:
        """`all_reduce of op 'matmul' over ranks (0, 1)`."""
        of = f" of op '{self.op}'" if self.op else ""
        members = sorted({rank for counter in self.counters for rank in counter.ranks})
        return f"{self.kind}{of} over ranks {tuple(members)}"

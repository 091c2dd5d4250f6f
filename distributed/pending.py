"""What a process waits in, and how many collectives it has begun with whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch.distributed import Work


@dataclass(slots=True)
class Counter:
    """How many collectives some ranks have begun together; equal on all when they agree."""

    key: str
    ranks: tuple[int, ...]
    epoch: int = 0  # how many errors of ranks came before; see `rank_error`
    seq: int = 0


@dataclass(slots=True)
class Pending:
    """What this process is waiting in. `works` stays set where the device goes on by itself."""

    kind: str
    op: str
    counters: Sequence[Counter]
    works: Sequence[Work] = ()

    def describe(self) -> str:
        """`all_reduce of op 'matmul' over ranks (0, 1)`."""
        of = f" of op '{self.op}'" if self.op else ""
        members = sorted({rank for counter in self.counters for rank in counter.ranks})
        return f"{self.kind}{of} over ranks {tuple(members)}"

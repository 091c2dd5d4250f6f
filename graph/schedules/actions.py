"""Actions and schedules: what each rank of a pipeline does, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

# F forward; B backward; or backward in two: I for the input's gradient, W for the weights'. Where
# activations wait on the host: R ends copies there, P begins copies back; no schedule has these.
Kind: TypeAlias = Literal["F", "B", "I", "W", "R", "P"]
KINDS: tuple[Kind, ...] = ("F", "B", "I", "W")


@dataclass(frozen=True, slots=True, order=True)
class Action:
    """One piece of work: a kind, for one stage and one micro-batch."""

    kind: Kind
    stage: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.stage}.{self.micro_batch}"


@dataclass(frozen=True)
class Schedule:
    """The actions of every rank in order; `rank_of[stage]` is the rank that a stage lives on.

    >>> from onefold.graph.schedules.named_schedules import make
    >>> print(make("1f1b", stages=2, micro_batches=2))
    1f1b: 2 stages on 2 ranks, 2 micro-batches
    rank 0: F0.0 F0.1 B0.0 B0.1
    rank 1: F1.0 B1.0 F1.1 B1.1
    """

    name: str
    micro_batches: int
    rank_of: tuple[int, ...]
    ranks: tuple[tuple[Action, ...], ...]

    @property
    def stages(self) -> int:
        return len(self.rank_of)

    def __str__(self) -> str:
        where = f"{self.stages} stages on {len(self.ranks)} ranks"
        lines = [f"{self.name}: {where}, {self.micro_batches} micro-batches"]
        lines += [f"rank {i}: {' '.join(map(str, its))}" for i, its in enumerate(self.ranks)]
        return "\n".join(lines)


def needs(
    action: Action, stages: int, edges: Sequence[tuple[int, int]] | None = None
) -> Iterator[Action]:
    """The actions that must precede an action; a B is I and W together.

    `edges` are the pairs (from stage, to stage) between which activations go, by default those of
    a chain. Gradients go the other way.
    """
    kind, stage, micro = action.kind, action.stage, action.micro_batch
    pairs = chain(stages) if edges is None else edges
    if kind == "F":
        yield from (Action("F", source, micro) for source, target in pairs if target == stage)
    elif kind == "W":
        yield Action("I", stage, micro)
    else:
        yield Action("F", stage, micro)
        yield from (Action(kind, target, micro) for source, target in pairs if source == stage)


def chain(stages: int) -> list[tuple[int, int]]:
    """The edges of a pipeline without shortcuts."""
    return [(stage, stage + 1) for stage in range(stages - 1)]

"""Captured boxing: the communication of a program that CUDA graphs may contain, in its order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from ...engine import boxing
from ...engine.boxing.boxing_plan import BoxingPlan
from ...engine.boxing.boxing_steps import AllGather, AllReduce, Exchange, Local
from ..ir import ProgramStep

MESSAGES = (
    "sends messages from rank to rank, or to another type of device: NCCL connects two ranks when "
    "both come, and the order in which they do is the host's"
)
TORN = "communicates while steps run that are not captured"
_COLLECTIVES = (Local, AllReduce, AllGather, Exchange)


@dataclass(frozen=True)
class CapturedBoxing:
    """A boxing that communicates, by the numbers of the steps that begin and end it."""

    begin: int
    end: int
    plan: BoxingPlan

    @property
    def is_collective(self) -> bool:
        """Whether it is done by collectives alone."""
        return all(isinstance(step, _COLLECTIVES) for step in self.plan.steps)

    @property
    def kinds(self) -> list[str]:
        """The collectives, in turn."""
        return [step.kind for step in self.plan.steps if not step.local]

    @property
    def ranks(self) -> set[int]:
        return {rank for step in self.plan.steps for rank in (*step.ranks, *step.target.flat_ranks)}


def boxings(steps: Sequence[ProgramStep]) -> list[CapturedBoxing]:
    """The boxings that communicate, in the order in which they begin."""
    begun: dict[tuple[int, int], int] = {}
    found = []
    for index, step in enumerate(steps):
        if step.exchanges is not None:
            plans = step.exchanges(step.input_metas)
            found += [CapturedBoxing(index, index, plan) for plan in plans]
        if step.start is None:
            continue
        key = id(step.start), step.source.number
        if step.outputs:
            plan = boxing.plan(step.source.meta, step.outputs[0].meta)
            found.append(CapturedBoxing(begun.pop(key, index), index, plan))
        else:
            begun[key] = index
    return sorted(found, key=lambda each: each.begin)


def leave_out(texts: dict[int, str], found: Iterable[CapturedBoxing]) -> None:
    """Set the reason in `texts` for boxings that cannot be captured; it is empty for other steps.

    What begins in a CUDA graph ends in the same: CUDA wants the stream of the communication back
    when the capture ends, and torch's event of its end is of no use outside.
    """
    for each in found:
        if not each.is_collective:
            texts[each.begin] = texts[each.end] = texts[each.begin] or MESSAGES
    torn = True
    while torn:
        torn = False
        for each in found:
            ends = {texts[each.begin], texts[each.end]}
            if "" in ends and any(texts.get(i) for i in range(each.begin, each.end + 1)):
                texts[each.begin] = texts[each.end] = max(ends) or TORN
                torn = True


def counted(kinds: Iterable[str]) -> str:
    """Collectives as text.

    >>> counted(["all_reduce", "all_gather", "all_reduce"])
    '2 all_reduce, 1 all_gather'
    """
    return ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).items())


def checksum(segments: Sequence[Sequence[CapturedBoxing]]) -> int:
    """A checksum of the communication of the CUDA graphs and its order, equal on all ranks."""
    texts = [[(b.begin, b.end, repr(b.plan.src), repr(b.plan.dst)) for b in s] for s in segments]
    return int.from_bytes(blake2b(repr(texts).encode(), digest_size=6).digest(), "big")

"""Rank agreement: what the ranks of a graph exchange before they launch communication.

`rank_modes` says what they agree on, and why that suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

import torch

from ...distributed import captured_collectives, comm_log
from ...distributed.collectives import begin_all_reduce, gather_objects
from ...distributed.connection import Holder
from ...distributed.wait import current_op
from ...distributed.world import world
from .captured_boxing import TORN, CapturedBoxing, checksum, counted
from .rank_modes import Mode, Verdict, pack, unpack
from .segments import Segment

_OTHER_ORDER = "ranks would capture what they communicate in different orders"


class RankAgreement:
    """The ranks of `communication`, as one of them sees it, which has `segments` of it.

    Where there is none, or this process has no part in it, there are no `ranks`, and it agrees with
    itself. Segments may differ between ranks, as with other kernels; who takes part does not.
    """

    def __init__(
        self, communication: Sequence[CapturedBoxing], segments: Sequence[Segment], device_type: str
    ) -> None:
        captured = [segment for segment in segments if segment.captured]
        found = tuple({rank for each in communication for rank in each.ranks})
        self.ranks = tuple(sorted(found)) if world().owned(found) else ()
        self._order = checksum([segment.communication for segment in captured])
        self._is_captured = any(segment.communication for segment in captured)
        self._device_type = device_type
        self._titles = {
            id(segment): f"CUDA graph {number} of {len(captured)} ({counted(segment.collectives)})"
            for number, segment in enumerate(captured, 1)
        }

    def communicates(self, segment: Segment) -> bool:
        """Whether this process communicates in the CUDA graph of a segment."""
        return bool(self.ranks and segment.communication)

    @cached_property
    def why_not(self) -> str:
        """Why this process cannot capture what communicates; empty if it can, or need not."""
        if not self.ranks:
            return ""
        if not self._is_captured:
            return TORN
        return captured_collectives.why_not_captured(self._device_type)

    @property
    def watched(self) -> bool:
        """Whether a log is kept of each collective."""
        return bool(comm_log.watchers) or (bool(self.ranks) and comm_log.active())

    @property
    def epoch(self) -> int:
        """What tells the communicators of this moment from others."""
        return captured_collectives.epoch() if self.ranks else 0

    def begin(self, mode: Mode, captured: Segment | None = None) -> Callable[[], Verdict]:
        """Propose to the other ranks; what is returned waits for what all do.

        It is about a call, or about a segment that was `captured`. Ranks that an interrupt left at
        different ones do not agree.
        """
        if not self.ranks:
            return lambda: Verdict(mode, 0, True)
        rank = world().rank
        assert rank is not None
        at = 0 if captured is None else 1 + captured.steps[0]
        with current_op.named("CUDA graphs"):
            packed = torch.tensor(pack(mode, rank, self._order + at))
            end = begin_all_reduce(packed, self.ranks, "min")
        return lambda: unpack(end().tolist())

    def why_never(self, verdict: Verdict, mine: str) -> str:
        """Why ranks never capture; all call this together, `mine` is what this one found."""
        if not self.ranks:
            return mine
        if not verdict.same:
            return _OTHER_ORDER
        texts: list[str] = gather_objects(mine, self.ranks)
        found = zip(self.ranks, texts, strict=True)
        return "; ".join(f"rank {rank}: {text}" for rank, text in found if text)

    def capturing(self, segment: Segment, holder: Holder) -> AbstractContextManager[None]:
        """The block in which a segment is captured; `holder` has its graph then."""
        if not self.communicates(segment):
            return nullcontext()
        world().connection().holders.add(holder)
        return captured_collectives.capturing(self._titles[id(segment)], self.ranks)

    def watch(self, segment: Segment, is_completed: Callable[[], bool]) -> None:
        """Let a replay of a segment time out as other waits for ranks do."""
        captured_collectives.watch_replay(self._titles[id(segment)], self.ranks, is_completed)

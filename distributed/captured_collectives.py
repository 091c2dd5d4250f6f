"""Collectives in CUDA graphs: captured without a word to other ranks, and watched when replayed.

In a capture collectives neither compare nor count what the ranks do, so that a capture that fails
on one rank leaves nothing behind. Replays wait for other ranks where torch's own works do not see
it. So the watch asks an event after each of them, and ends the process when that is overdue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ..env import BLOCKING_WAIT, GRAPH_MIXING
from .pending import Pending
from .wait import current_op
from .world import world


@dataclass(frozen=True)
class _Running:
    """Work on a device, whose end `is_completed` asks for."""

    is_completed: Callable[[], bool]


def why_not_captured(device_type: str) -> str:
    """Why this process cannot capture collectives of a type of device; empty if it can."""
    link = world().connection()
    if link.check:
        return "ONEFOLD_CHECK=1 compares each collective"
    if link.staged and device_type == "cuda":
        return "ranks communicate by Gloo, through the host's memory"
    if BLOCKING_WAIT.read():
        return f"with {BLOCKING_WAIT.name}=1 the host waits for each collective"
    if not GRAPH_MIXING.read():
        return f"{GRAPH_MIXING.name}=0 forbids collectives besides those of CUDA graphs"
    return ""


def epoch() -> int:
    """How many errors of ranks this process left its groups for: graphs hold those of one epoch."""
    return world().connection().epoch


@contextmanager
def capturing(what: str, ranks: tuple[int, ...]) -> Iterator[None]:
    """A block in which collectives are captured; `what` is said of it if it does not end."""
    link = world().connection()
    counter = replace(link.group(ranks).counter)
    # NCCL registers memory with the other ranks while it is captured.
    link.watch.replay = Pending(f"capture of {what}", "", (counter,), (_Running(lambda: False),))
    current_op.captured = True
    try:
        yield
    finally:
        current_op.captured = False
        link.watch.replay = None


def watch_replay(what: str, ranks: tuple[int, ...], is_completed: Callable[[], bool]) -> None:
    """Let the watch know of a replay that begins now, and how to ask whether it has ended.

    It looks at the oldest one that has not: the host may be far ahead of the device.
    """
    link = world().connection()
    counter = link.group(ranks).counter
    counter.seq += 1
    oldest = link.watch.replay
    if oldest is None or all(work.is_completed() for work in oldest.works):
        link.watch.replay = Pending(what, "", (replace(counter),), (_Running(is_completed),))

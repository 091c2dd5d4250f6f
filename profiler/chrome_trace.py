"""Chrome trace: what was recorded, in the format that Perfetto and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..graph import trace_format
from .events import Event

# The rows of each kind of event, below one another.
_TITLES = ("record_function", "modules", "ops", "communication", "kernels", "device")
_ROWS = {"user": 0, "module": 1, "optimizer": 2, "op": 2, "communication": 3, "kernel": 4}
_ROWS["device"] = 5


def save(events: Sequence[Event], path: str | Path, rank: int) -> None:
    """Write the events of this process; each process is shown with its rank."""
    first = min((event.start for event in events), default=0.0)
    spans = (_span(event, first, rank) for event in events)
    trace_format.save(spans, path, {rank: f"rank {rank}"}, _TITLES)


def _span(event: Event, first: float, rank: int) -> trace_format.Span:
    details: dict[str, object] = {"module": event.module, "line": event.line}
    details["backward"] = event.backward
    if event.input_shapes:
        details["Input Dims"] = [list(shape) for shape in event.input_shapes]
        details["Layouts"] = list(event.layouts)
    if event.comm_bytes:
        details["bytes"] = event.comm_bytes
    start, end = event.start - first, event.end - first
    return trace_format.Span(event.name, event.kind, rank, _ROWS[event.kind], start, end, details)

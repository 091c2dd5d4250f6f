"""Chrome trace: events as the JSON that Perfetto and chrome://tracing open.

It is the Trace Event Format: complete events ("X") with times in microseconds, and metadata ("M")
that names processes and tracks. Events of one track must be nested.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .events import Event

# The tracks of each kind of event, below one another. Where events of a kind overlap, as kernels
# on several streams do, those that are not nested are on further tracks.
_TITLES = ("record_function", "modules", "ops", "communication", "kernels", "device")
_ROWS = {"user": 0, "module": 1, "optimizer": 2, "op": 2, "communication": 3, "kernel": 4}
_ROWS["device"] = 5
_TRACKS = 1000  # numbers of tracks between those of two rows


def save(events: Sequence[Event], path: str | Path, rank: int) -> None:
    """Write the events of this process; each process is shown with its rank."""
    first = min((event.start for event in events), default=0.0)
    found: list[dict[str, Any]] = []
    titles: dict[int, str] = {}
    open_ends: dict[int, list[float]] = {}  # of the events that the next one may be in, by track
    # Rounded before durations are taken, so that what is nested stays so.
    spans = [(round(event.start - first, 3), round(event.end - first, 3)) for event in events]
    for (begin, end), event in sorted(
        zip(spans, events, strict=True), key=lambda each: (each[0][0], -each[0][1])
    ):
        row = _ROWS[event.kind]
        track = row * _TRACKS
        while not _nests(begin, end, open_ends.setdefault(track, [])):
            track += 1
        open_ends[track].append(end)
        number = track % _TRACKS
        titles[track] = f"{_TITLES[row]} {number + 1}" if number else _TITLES[row]
        details: dict[str, Any] = {"module": event.module, "line": event.line}
        details["backward"] = event.backward
        if event.input_shapes:
            details["Input Dims"] = [list(shape) for shape in event.input_shapes]
            details["Layouts"] = list(event.layouts)
        if event.comm_bytes:
            details["bytes"] = event.comm_bytes
        found.append(
            {
                "name": event.name,
                "cat": event.kind,
                "ph": "X",
                "pid": rank,
                "tid": track,
                "ts": begin,
                "dur": round(end - begin, 3),
                "args": details,
            }
        )
    trace = {"traceEvents": [*_names(rank, titles), *found], "displayTimeUnit": "ms"}
    with gzip.open(path, "wt") if str(path).endswith(".gz") else open(path, "w") as file:
        json.dump(trace, file)


def _nests(begin: float, end: float, open_ends: list[float]) -> bool:
    """Whether an event is after or inside the last ones of a track; drops those that have ended."""
    while open_ends and open_ends[-1] <= begin:
        open_ends.pop()
    return not open_ends or end <= open_ends[-1]


def _names(rank: int, titles: dict[int, str]) -> list[dict[str, Any]]:
    """The metadata: names, and the order in which processes and tracks are shown."""

    def row(name: str, tid: int, /, **args: object) -> dict[str, Any]:
        return {"name": name, "ph": "M", "pid": rank, "tid": tid, "args": args}

    found = [row("process_name", 0, name=f"rank {rank}")]
    found.append(row("process_sort_index", 0, sort_index=rank))
    for track, title in sorted(titles.items()):
        found.append(row("thread_name", track, name=title))
        found.append(row("thread_sort_index", track, sort_index=track))
    return found

"""Trace format: spans of time as the JSON that Perfetto and chrome://tracing open.

It is the Trace Event Format: complete events ("X") with times in microseconds, and metadata ("M")
that names processes and tracks. Events of one track must be nested.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TRACKS = 1000  # numbers of tracks between those of two rows


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time, in microseconds: in a row of a process, such as a rank."""

    name: str
    category: str
    process: int
    row: int
    start: float
    end: float
    details: Mapping[str, object] = field(default_factory=dict)


def save(
    spans: Iterable[Span], path: str | Path, processes: Mapping[int, str], rows: Sequence[str]
) -> None:
    """Write the spans, compressed if the path ends in .gz.

    Processes and rows are named and shown in the order of their numbers. Where spans of a row
    overlap, as kernels on several streams do, those that are not nested are on further tracks.
    """
    found: list[dict[str, Any]] = []
    titles: dict[tuple[int, int], str] = {}
    open_ends: dict[tuple[int, int], list[float]] = {}  # that the next one may be in, by track
    # Rounded before durations are taken, so that what is nested stays so.
    timed = [(round(span.start, 3), round(span.end, 3), span) for span in spans]
    for begin, end, span in sorted(timed, key=lambda each: (each[0], -each[1])):
        track = span.row * _TRACKS
        while not _nests(begin, end, open_ends.setdefault((span.process, track), [])):
            track += 1
        open_ends[span.process, track].append(end)
        number = track % _TRACKS
        title = rows[span.row]
        titles[span.process, track] = f"{title} {number + 1}" if number else title
        found.append(
            {
                "name": span.name,
                "cat": span.category,
                "ph": "X",
                "pid": span.process,
                "tid": track,
                "ts": begin,
                "dur": round(end - begin, 3),
                "args": dict(span.details),
            }
        )
    names = _names(processes, titles)
    trace = {"traceEvents": [*names, *found], "displayTimeUnit": "ms"}
    with gzip.open(path, "wt") if str(path).endswith(".gz") else open(path, "w") as file:
        json.dump(trace, file)


def _nests(begin: float, end: float, open_ends: list[float]) -> bool:
    """Whether a span is after or inside the last ones of a track; drops those that have ended."""
    while open_ends and open_ends[-1] <= begin:
        open_ends.pop()
    return not open_ends or end <= open_ends[-1]


def _names(
    processes: Mapping[int, str], titles: Mapping[tuple[int, int], str]
) -> list[dict[str, Any]]:
    """The metadata: names, and the order in which processes and tracks are shown."""

    def row(name: str, process: int, track: int, /, **args: object) -> dict[str, Any]:
        return {"name": name, "ph": "M", "pid": process, "tid": track, "args": args}

    found = []
    for process, title in sorted(processes.items()):
        found.append(row("process_name", process, 0, name=title))
        found.append(row("process_sort_index", process, 0, sort_index=process))
    for (process, track), title in sorted(titles.items()):
        found.append(row("thread_name", process, track, name=title))
        found.append(row("thread_sort_index", process, track, sort_index=track))
    return found

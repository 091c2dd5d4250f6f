"""Chrome trace: events as the JSON that Perfetto and chrome://tracing open."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .events import Event

# A row of the picture for each, below another.
_ROWS = {"user": 0, "module": 1, "optimizer": 2, "op": 2, "communication": 3, "kernel": 4}
_ROWS["device"] = 5
_TITLES = ("record_function", "modules", "ops", "communication", "kernels", "device")


def save(events: Sequence[Event], path: str | Path, rank: int) -> None:
    """Write the events of this process; each process is shown with its rank."""
    first = min((event.start for event in events), default=0.0)
    found: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}},
        *(
            {"name": "thread_name", "ph": "M", "pid": rank, "tid": row, "args": {"name": title}}
            for row, title in enumerate(_TITLES)
        ),
    ]
    for event in events:
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
                "tid": _ROWS[event.kind],
                "ts": round(event.start - first, 3),
                "dur": round(event.duration, 3),
                "args": details,
            }
        )
    with gzip.open(path, "wt") if str(path).endswith(".gz") else open(path, "w") as file:
        json.dump({"traceEvents": found, "displayTimeUnit": "ms"}, file)

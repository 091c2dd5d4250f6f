"""Faults of a trace: where it does not keep to the Trace Event Format.

The format: docs.google.com, "Trace Event Format". Events of one track must be nested: of events
that overlap in part, Perfetto drops or moves one.
"""

import itertools

METADATA = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}


def faults(trace):
    """Where a trace is not as the format says."""
    found = []
    if trace.keys() != {"traceEvents", "displayTimeUnit"} or trace["displayTimeUnit"] != "ms":
        found.append(f"keys {sorted(trace)}")
    tracks, named = {}, set()
    for event in trace["traceEvents"]:
        if not isinstance(event["name"], str) or not all(
            type(event[key]) is int and event[key] >= 0 for key in ("pid", "tid")
        ):
            found.append(f"names and numbers of {event}")
        if event["ph"] == "M":
            if event["name"] not in METADATA or event.keys() != {
                "name",
                "ph",
                "pid",
                "tid",
                "args",
            }:
                found.append(f"metadata {event}")
            if event["name"] == "thread_name":
                named.add((event["pid"], event["tid"]))
        elif event["ph"] == "X":
            if not isinstance(event["cat"], str) or not isinstance(event["args"], dict):
                found.append(f"category and arguments of {event}")
            times = (event["ts"], event["dur"])
            if not all(isinstance(t, int | float) and t >= 0 for t in times):
                found.append(f"times of {event}")
            tracks.setdefault((event["pid"], event["tid"]), []).append(event)
        else:
            found.append(f"phase of {event}")
    found += [f"track {track} has no name" for track in tracks.keys() - named]
    for events in tracks.values():
        for a, b in itertools.combinations(events, 2):
            first, second = sorted((a, b), key=lambda e: (e["ts"], -e["dur"]))
            # In nanoseconds, in which they are given.
            begin, end = (round(1000 * first["ts"]), round(1000 * (first["ts"] + first["dur"])))
            start, stop = (round(1000 * second["ts"]), round(1000 * (second["ts"] + second["dur"])))
            if begin <= start < end < stop:
                found.append(f"{first['name']} and {second['name']} overlap in part")
    return found

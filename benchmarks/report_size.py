"""Time to write the report of a planned training step, and the size of its page.

    python benchmarks/report_size.py         # prints the table, writes results/report_size.json
    python benchmarks/report_size.py --case "175B, 1,024 ranks"

The jobs are those of planning.py, on "h100". `simulate` is the simulation without memory, `page`
the report without memory, which simulates once more, and `report` that with the memory of every
group. Seconds are those of the processor, of which one core is used. Each case runs in a process of
its own.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import planning
import timing

import onefold as flow

HARDWARE = "h100"
MEGABYTE = 1e6


def measure(case: planning.Case) -> timing.Results:
    """Seconds and megabytes."""
    found: timing.Results = {}
    with flow.planning(case.ranks) as cluster, tempfile.TemporaryDirectory() as folder:
        graph, inputs = planning.described(case, cluster)
        graph(*inputs)
        path = Path(folder, "plan.html")
        last = time.process_time()
        found["groups"] = len(graph.simulate(HARDWARE, memory=False).groups)
        found["simulate s"] = time.process_time() - last
        for name, memory in (("page", False), ("report", True)):
            last = time.process_time()
            graph.report(path, HARDWARE, memory=memory)
            found[f"{name} s"] = time.process_time() - last
            found[f"{name} MB"] = path.stat().st_size / MEGABYTE
    return found


def main() -> None:
    columns = "groups", "simulate s", "page s", "page MB", "report s", "report MB"
    timing.cases(__file__, __doc__, planning.CASES, measure, columns, planning.TIMEOUT)


if __name__ == "__main__":
    main()

"""The README's tables, made from the committed results: python benchmarks/tables.py"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def load(name: str) -> Any:
    """The results of one benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text())["results"]


def dispatch_rows() -> list[str]:
    """The table of benchmarks/dispatch.py: microseconds, and ratios in both worlds."""
    virtual, launched, _ = load("dispatch").values()
    rows = [
        "| op | torch | Onefold | Onefold / torch | DTensor / Onefold "
        "| Onefold / torch, 2 processes | DTensor / Onefold, 2 processes |",
        "|---|---|---|---|---|---|---|",
    ]
    for op, here in virtual.items():
        times = [f"{here['us'][name][0]:.1f}" for name in ("torch", "onefold")]
        ratios = [
            f"{world[op][key]:.{digits}f}" if op in world else "-"
            for world in (virtual, launched)
            for key, digits in (("onefold/torch", 2), ("dtensor/onefold", 1))
        ]
        rows.append("| " + " | ".join([op, *times, *ratios]) + " |")
    return rows


def first_call_range() -> tuple[int, int]:
    """The shortest and longest first call with a new shape, in whole microseconds."""
    *_, cold = load("dispatch").values()
    times = [round(median) for by_axes in cold.values() for median, *_ in by_axes.values()]
    return min(times), max(times)


def host_rows() -> list[str]:
    """The table of benchmarks/host_path.py: microseconds of the host per call."""
    rows = ["| op | Onefold | torch |", "|---|---|---|"]
    for op, found in load("host_path").items():
        if isinstance(found, dict):
            times = [f"{found[side][0]:.1f}" for side in ("onefold", "torch")]
            rows.append("| " + " | ".join([op, *times]) + " |")
    return rows


def model_rows() -> list[str]:
    """The table of benchmarks/models.py: a training step of whole models."""
    rows = [
        "| model | size | torch ms | eager ms | graph ms | eager / torch | graph / torch |",
        "|---" * 7 + "|",
    ]
    for row in load("models"):
        size = ", ".join(f"{key} {value}" for key, value in row["size"].items())
        times = [f"{row['ms'][side][0]:.1f}" for side in ("torch", "eager", "graph")]
        ratios = [f"{row[key]:.2f}" for key in ("eager/torch", "graph/torch")]
        rows.append("| " + " | ".join([row["model"], size, *times, *ratios]) + " |")
    return rows


def job_rows() -> list[str]:
    """The table of benchmarks/job_call.py: a call of a job beside that of its graph."""
    rows = ["| devices | width | graph us | job us | job / graph |", "|---" * 5 + "|"]
    for row in load("job_call"):
        times = [f"{row[key]:.0f}" for key in ("graph us", "job us")]
        cells = [str(row["devices"]), str(row["width"]), *times, f"{row['job/graph']:.2f}"]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def graph_rows() -> list[str]:
    """The table of benchmarks/graph_step.py: eager and graph in milliseconds."""
    rows = [
        "| layers | width | eager ms | graph ms | graph / eager | compile s |",
        "|---" * 6 + "|",
    ]
    for row in load("graph_step"):
        cells = [
            str(row["layers"]),
            str(row["width"]),
            f"{row['eager ms']:.1f}",
            f"{row['graph ms']:.1f}",
            f"{row['graph/eager']:.2f}",
            f"{row['compile again s']:.2f}",
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def parallel_rows() -> list[str]:
    """The table of benchmarks/parallel_step.py: Onefold's graph and what it is beside others."""
    rows = ["| model | layout | Onefold ms | beside | ms | Onefold / this |", "|---" * 6 + "|"]
    for ways in load("parallel_step").values():
        size = ways["size"]
        model = f"{size['layers']} layers, width {size['width']}"
        for way, found in ways.items():
            if way == "size":
                continue
            for name, ratio in found["onefold / peer"].items():
                cells = [model, way, f"{found['ms']['onefold'][0]:.0f}", name]
                cells += [f"{found['ms'][name][0]:.0f}", f"{ratio:.2f}"]
                rows.append("| " + " | ".join(cells) + " |")
    return rows


def memory_ratios() -> tuple[float, float]:
    """The largest ratio of a planned arena to its lower bound, and of plan to measurement."""
    rows = load("graph_memory")
    measured = [row["planned"] / row["measured"] for row in rows if row.get("measured")]
    return max(row["ratio"] for row in rows), max(measured)


if __name__ == "__main__":
    print("\n".join(dispatch_rows()))
    print("\n".join(graph_rows()))
    print("\n".join(parallel_rows()))
    print("\n".join(model_rows()))
    print("first call: {} to {} microseconds".format(*first_call_range()))

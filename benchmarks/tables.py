"""The README's tables, made from the committed results: python benchmarks/tables.py"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def load(name: str) -> Any:
    """The results of one benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text())["results"]


def table(head: str, rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table with these titles, between bars, above its rows."""
    return [
        f"| {head} |",
        "|---" * len(head.split(" | ")) + "|",
        *(f"| {' | '.join(map(str, cells))} |" for cells in rows),
    ]


def dispatch_rows() -> list[str]:
    """The table of benchmarks/dispatch.py: microseconds, and ratios in both worlds."""
    virtual, launched, _ = load("dispatch").values()
    rows = []
    for op, here in virtual.items():
        times = [f"{here['us'][name][0]:.1f}" for name in ("torch", "onefold")]
        ratios = [
            f"{world[op][key]:.{digits}f}" if op in world else "-"
            for world in (virtual, launched)
            for key, digits in (("onefold/torch", 2), ("dtensor/onefold", 1))
        ]
        rows.append((op, *times, *ratios))
    return table(
        "op | torch | Onefold | Onefold / torch | DTensor / Onefold "
        "| Onefold / torch, 2 processes | DTensor / Onefold, 2 processes",
        rows,
    )


def first_call_range() -> tuple[int, int]:
    """The shortest and longest first call with a new shape, in whole microseconds."""
    *_, cold = load("dispatch").values()
    times = [round(median) for by_axes in cold.values() for median, *_ in by_axes.values()]
    return min(times), max(times)


def host_rows() -> list[str]:
    """The table of benchmarks/host_path.py: microseconds of the host per call."""
    rows = [
        (op, *(f"{found[side][0]:.1f}" for side in ("onefold", "torch")))
        for op, found in load("host_path").items()
        if isinstance(found, dict)
    ]
    return table("op | Onefold | torch", rows)


def model_rows() -> list[str]:
    """The table of benchmarks/models.py: a training step of whole models."""
    rows = []
    for row in load("models"):
        size = ", ".join(f"{key} {value}" for key, value in row["size"].items())
        times = [f"{row['ms'][side][0]:.1f}" for side in ("torch", "eager", "graph")]
        ratios = [f"{row[key]:.2f}" for key in ("eager/torch", "graph/torch")]
        rows.append((row["model"], size, *times, *ratios))
    head = "model | size | torch ms | eager ms | graph ms | eager / torch | graph / torch"
    return table(head, rows)


def recurrent_rows() -> list[str]:
    """The table of benchmarks/recurrent_layers.py: layers and cells, forward and backward."""
    rows = []
    for row in load("recurrent_layers"):
        size = ", ".join(f"{key} {value}" for key, value in (row["size"] | row["options"]).items())
        times = [f"{row['us'][side][0]:.0f}" for side in ("torch", "onefold")]
        text = size.replace("num_layers", "layers").replace("bidirectional True", "bidirectional")
        rows.append((row["layer"], text, *times, f"{row['onefold/torch']:.2f}"))
    return table("layer | size | torch us | Onefold us | Onefold / torch", rows)


def job_rows() -> list[str]:
    """The table of benchmarks/job_call.py: a call of a job and of its graph."""
    rows = [
        (
            row["devices"],
            row["width"],
            *(f"{row[key]:.0f}" for key in ("graph us", "job us")),
            f"{row['job/graph']:.2f}",
        )
        for row in load("job_call")
    ]
    return table("devices | width | graph us | job us | job / graph", rows)


def divergence_rows() -> list[str]:
    """The table of benchmarks/divergence.py: steps of processes that compare what they do."""
    rows = []
    for case, modes in load("divergence").items():
        for mode, row in list(modes.items())[1:]:
            times = [f"{modes['nothing']['cpu ms']:.1f}", f"{row['cpu ms']:.1f}"]
            ratios = [f"{row[key]:.3f}" for key in ("cpu ratio", "ratio")]
            inside = f"{row['inside']:.2%}" if "inside" in row else "-"
            rows.append((case, mode, *times, *ratios, inside))
    head = "step | compared | CPU ms without | CPU ms | CPU ratio | wall ratio | inside"
    return table(head, rows)


def graph_rows() -> list[str]:
    """The table of benchmarks/graph_step.py: eager and graph in milliseconds."""
    digits = {"eager ms": 1, "graph ms": 1, "graph/eager": 2, "compile again s": 2}
    rows = [
        (row["layers"], row["width"], *(f"{row[key]:.{n}f}" for key, n in digits.items()))
        for row in load("graph_step")
    ]
    return table("layers | width | eager ms | graph ms | graph / eager | compile s", rows)


def parallel_rows() -> list[str]:
    """The table of benchmarks/parallel_step.py: Onefold's graph and its ratio to others."""
    rows = []
    for ways in load("parallel_step").values():
        size = ways["size"]
        model = f"{size['layers']} layers, width {size['width']}"
        for way, found in ways.items():
            if way == "size":
                continue
            for name, ratio in found["onefold / peer"].items():
                ours, theirs = (f"{found['ms'][side][0]:.0f}" for side in ("onefold", name))
                rows.append((model, way, ours, name, theirs, f"{ratio:.2f}"))
    return table("model | layout | Onefold ms | compared with | ms | ratio", rows)


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
    print("\n".join(recurrent_rows()))
    print("first call: {} to {} microseconds".format(*first_call_range()))

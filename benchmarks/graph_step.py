"""A GPT training step, eager and as a graph, side by side; and how long capture and compile take.

    python benchmarks/graph_step.py          # prints the tables, writes results/graph_step.json

One thread, a virtual world of one rank, the model of examples/gpt.py with AdamW. `compile` is the
first compile in the process, in which the ops' plans are made too; `again` is another graph of the
same model, which finds them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import gpt_step
import timing
import torch

import onefold as flow

LAYERS = (12, 24, 48)
WIDTHS = (32, 128)


def build(layers: int, width: int) -> tuple[Callable[[], object], flow.nn.Graph, list[flow.Tensor]]:
    """The eager step, and a graph of the same model with its inputs."""
    model, optimizer, layout = gpt_step.model("single", 1, layers, width, "--dropout 0.1")
    place = {"placement": layout[0].placement, "sbp": flow.sbp.broadcast}
    inputs = [flow.randint(0, 256, (4, 32), **place) for _ in range(2)]
    step = gpt_step.eager_step(model, optimizer)
    return lambda: step(*inputs), gpt_step.Training(model, optimizer, 1), inputs


def main() -> None:
    timing.options(__doc__).parse_args()
    torch.set_num_threads(1)
    rows = []
    print(f"{'layers':>6} {'width':>5} {'steps':>6} {'compile s':>9} {'again s':>8} "
          f"{'eager ms':>9} {'graph ms':>9} {'graph/eager':>11}")  # fmt: skip
    for width in WIDTHS:
        for layers in LAYERS:
            eager, graph, inputs = build(layers, width)
            spent = []
            for each in (graph, build(layers, width)[1]):
                start = time.perf_counter()
                each._compile(*inputs)
                spent.append(time.perf_counter() - start)
            found, ratio = timing.compare(
                {"eager": eager, "graph": lambda g=graph, x=inputs: g(*x)}, rounds=9, seconds=0.3
            )
            row = {
                "layers": layers,
                "width": width,
                "program steps": len(graph.program.steps),
                "compile s": spent[0],
                "compile again s": spent[1],
                "eager ms": found["eager"].median / 1000,
                "graph ms": found["graph"].median / 1000,
                "graph/eager": ratio("graph", "eager"),
            }
            rows.append(row)
            print(f"{layers:6d} {width:5d} {row['program steps']:6d} {spent[0]:9.2f} "
                  f"{spent[1]:8.2f} {row['eager ms']:9.1f} {row['graph ms']:9.1f} "
                  f"{row['graph/eager']:11.2f}")  # fmt: skip
    print(f"\nwritten to {timing.save('graph_step', rows)}")


if __name__ == "__main__":
    main()

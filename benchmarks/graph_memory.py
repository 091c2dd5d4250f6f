"""The planned memory of a GPT training step: peak against the lower bound, and how long it takes.

    python benchmarks/graph_memory.py        # prints the table, writes results/graph_memory.json

The model of examples/gpt.py on one rank and, for 24 layers, each rank's plan of other strategies.
`replayed` is the most bytes that the plan says are live at once. `measured` is what the steps'
tensors hold at most when the program runs, without the kernels' own temporaries; it is more only
where the executor holds on to a tensor that it does not need any more. All numbers, the lower bound
too, are those of the program in which steps are in place of inputs; `in place` counts them.
`seconds` is the whole plan: following the ops for their storages, lifetimes, and the arena.
"""

from __future__ import annotations

import time

import gpt_step
import timing
import torch

import onefold as flow
from onefold.graph.memory import arena
from onefold.graph.memory.memory_plan import plan_memory
from onefold.graph.memory.memory_probe import Probe

# Strategy, ranks, layers; then schedule and micro-batches where stages overlap.
CASES = (
    ("single", 1, 12, "", 1), ("single", 1, 24, "", 1), ("single", 1, 48, "", 1),
    ("dp", 2, 24, "", 1), ("tp", 2, 24, "", 1), ("mixed", 4, 24, "", 1),
    ("pp", 4, 24, "gpipe", 8), ("pp", 4, 24, "1f1b", 8), ("pp", 4, 24, "zb-h1", 8),
    ("mixed", 4, 24, "1f1b", 8),
)  # fmt: skip
WIDTH = 128


def measure(graph: flow.nn.Graph, inputs: list[flow.Tensor], ranks: int) -> list[int | None]:
    """The peak of each rank; None with stages, whose messages the probe does not see by itself."""
    compiled = next(reversed(graph._compiled.values()))
    if compiled.stages is not None:
        return [None] * ranks
    probe = Probe(compiled.executable, range(ranks))
    with flow.no_grad():
        probe.run(inputs)
    return [probe.peak(rank) for rank in range(ranks)]


def rows_of(
    strategy: str, ranks: int, layers: int, schedule: str, micro_batches: int
) -> list[timing.Results]:
    graph, inputs = gpt_step.graph(strategy, ranks, layers, WIDTH, schedule, micro_batches)
    graph._compile(*inputs)
    stages = next(reversed(graph._compiled.values())).stages
    measured = measure(graph, inputs, ranks)
    rows = []
    for rank in range(ranks):
        start = time.perf_counter()
        plan = plan_memory(graph.program, rank, stages)
        seconds = time.perf_counter() - start
        arena.check(plan.arena)
        rows.append({
            "strategy": strategy,
            "schedule": schedule,
            "micro-batches": micro_batches,
            "rank": rank,
            "layers": layers,
            "steps": len(graph.program.steps),
            "in place": sum(step.place is not None for step in graph.program.steps),
            "buffers": len(plan.arena.buffers),
            "persistent": plan.persistent,
            "planned": plan.live,
            "measured": measured[rank],
            "lower bound": plan.lower_bound,
            "peak": plan.peak,
            "ratio": plan.ratio,
            "seconds": seconds,
        })  # fmt: skip
    return rows


def _cell(nbytes: int | None) -> str:
    return f"{'-' if nbytes is None else format(nbytes, ','):>11}"


def main() -> None:
    timing.options(__doc__).parse_args()
    torch.set_num_threads(1)
    rows: list[timing.Results] = []
    names = ("planned", "measured", "lower bound", "peak")
    print(f"{'strategy':>8} {'schedule':>8} {'rank':>4} {'layers':>6} {'steps':>6} {'buffers':>7} "
          + " ".join(f"{n:>11}" for n in names) + f" {'ratio':>8} {'seconds':>7}")  # fmt: skip
    first, inputs = gpt_step.graph("single", 1, 1, WIDTH)
    first._compile(*inputs)
    plan_memory(first.program, 0)  # what torch prepares once is not counted
    for case in CASES:
        for row in rows_of(*case):
            rows.append(row)
            print(f"{row['strategy']:>8} {row['schedule']:>8} {row['rank']:4d} "
                  f"{row['layers']:6d} {row['steps']:6d} {row['buffers']:7d} "
                  + " ".join(_cell(row[name]) for name in names)
                  + f" {row['ratio']:8.5f} {row['seconds']:7.2f}")  # fmt: skip
    print(f"\nwritten to {timing.save('graph_memory', rows)}")


if __name__ == "__main__":
    main()

"""Time and memory of planning a training step for a cluster that does not exist.

    python benchmarks/planning.py            # prints the table, writes results/planning.json
    python benchmarks/planning.py --case "1T, 4,096 ranks"

The model of examples/gpt.py in bfloat16 with AdamW, a pipeline (1f1b) of stages that are meshes of
data parallel x tensor parallel ranks, in a `flow.planning` block. `describe` makes the modules,
`compile` the plan that all ranks share, `rank` is then one rank's plan, memory and schedule, and
`summary` the whole job's. Seconds are those of the processor, of which planning uses one core. Each
case runs in a process of its own; `MB` is the most that this process held at any time, Python and
torch (`import`) included.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import timing

import onefold as flow
from onefold.engine.cluster import Cluster

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import gpt
from gpt_stages import Stage

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)
VOCABULARY, LENGTH = 51200, 2048
TIMEOUT = 600.0


@dataclass(frozen=True)
class Case:
    """A model, and the cluster that it is planned for."""

    layers: int
    width: int
    heads: int
    stages: int
    data: int  # ranks of a stage that work on parts of the batch
    tensor: int  # ranks that work on parts of the weights
    micro_batches: int
    device: str = "cuda"

    @property
    def ranks(self) -> int:
        return self.stages * self.data * self.tensor


GPT3 = 96, 12288, 96  # layers, width, heads: 175B parameters
CASES = {
    "175B, 256 ranks": Case(*GPT3, 16, 2, 8, 64),
    "175B, 1,024 ranks": Case(*GPT3, 16, 8, 8, 64),
    "175B, 4,096 ranks": Case(*GPT3, 16, 32, 8, 64),
    "175B, 16,384 ranks": Case(*GPT3, 16, 128, 8, 64),
    "1T, 4,096 ranks": Case(128, 25600, 160, 64, 8, 8, 128),
}


def described(case: Case, cluster: Cluster) -> tuple[gpt.Training, list[flow.Tensor]]:
    """The graph of a training step, and its inputs."""
    words = f"--layers {case.layers} --width {case.width} --heads {case.heads} --graph"
    args = gpt.parse(f"{words} --length {LENGTH} --dropout 0".split())
    layout = [
        Stage(mesh, (S0, B), (B, S0), (B, S1), (B, B))
        for mesh in cluster.meshes(case.data, case.tensor, type=case.device)
    ]
    model = gpt.GPT(args, layout, VOCABULARY).bfloat16()
    optimizer = flow.optim.AdamW(model.parameters(), lr=1e-4)
    shape = case.data * case.micro_batches, LENGTH
    inputs = [
        flow.randint(0, VOCABULARY, shape, placement=stage.placement, sbp=stage.data)
        for stage in (layout[0], layout[-1])
    ]
    return gpt.Training(model, optimizer, case.micro_batches, "1f1b", checkpoint=True), inputs


def megabytes() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(case: Case) -> timing.Results:
    """Seconds of each part."""
    found: timing.Results = {"import MB": megabytes()}
    last = time.process_time()

    def lap(name: str) -> None:
        nonlocal last
        now = time.process_time()
        found[name], last = now - last, now

    with flow.planning(case.ranks) as cluster:
        graph, inputs = described(case, cluster)
        lap("describe s")
        graph(*inputs)
        lap("compile s")
        text = graph.plan(0)
        lap("plan s")
        plan = graph.memory(0)
        str(plan)  # lays the arena out
        lap("memory s")
        graph.schedule()
        lap("schedule s")
        found["planned MB"] = megabytes()
        summary = graph.summary()
        lap("summary s")
    parameters = sum(p.numel() for p in graph.model.parameters())
    found |= {
        "rank s": found["plan s"] + found["memory s"] + found["schedule s"],
        "parameters": parameters,
        "steps": len(graph.program.steps),
        "plan lines": text.count("\n") + 1,
        "buffers": len(plan.arena.buffers),
        "rank 0 bytes": plan.total,
        "arena ratio": plan.ratio,
        "groups": len(summary.groups),
        "MB": megabytes(),
    }
    return found


def main() -> None:
    columns = "describe s", "compile s", "rank s", "summary s", "groups", "planned MB", "MB"
    timing.cases(__file__, __doc__, CASES, measure, columns, TIMEOUT)


if __name__ == "__main__":
    main()

"""Memory of whole training steps by their plans, with updates after backward and in it.

    python benchmarks/step_memory.py      # prints the table, writes results/step_memory.json

The steps of `whole_steps.py` (GPT-2 124M and a Llama of 1.2 billion parameters, in bfloat16, with
AdamW) at batch 1 and at the largest batch there, compiled for a GPU and not run. No GPU is needed.
`kept` are parameters, their copies in bfloat16 and what AdamW keeps, which are there between calls;
`call` is what a call allocates besides, at most at once. As CUDA graphs a call with updates in
backward needs more: what backward reads is kept to its end.
"""

from __future__ import annotations

import step_models
import timing
import torch
from whole_steps import MODELS, Training

import onefold as flow
from onefold.graph.memory.memory_plan import MemoryPlan

GIB = 1 << 30
BATCHES = {"gpt2": (1, 64), "llama": (1, 16)}
CANDIDATES = {"after backward": "graph", "in backward": "captured_in_backward"}


def planned(name: str, batch: int, candidate: str) -> MemoryPlan:
    """The plan of a step on one rank."""
    make, size, _ = MODELS[name]
    with flow.planning(1):
        lib = step_models.onefold_library(flow, "cuda")
        model = make(lib, size)
        step = Training(model, flow.optim.AdamW(model.parameters(), lr=1e-4), candidate)
        tokens = flow.zeros(batch, size["length"], dtype=torch.int64, **lib.where)
        step._compile(tokens, tokens)
        return step.memory(0)


def main() -> None:
    timing.options(__doc__).parse_args()
    print(f"{'GiB':>30}{'kept':>10}{'call':>10}{'peak':>10}")
    rows = []
    for name, batches in BATCHES.items():
        for batch in batches:
            for when, candidate in CANDIDATES.items():
                plan = planned(name, batch, candidate)
                found = [plan.persistent, plan.peak, plan.total]
                title = f"{name}, batch {batch}, {when}"
                print(f"{title:>30}" + "".join(f"{each / GIB:10.2f}" for each in found))
                rows.append(
                    {"model": name, "batch": batch, "updates": when}
                    | dict(zip(("kept", "call", "peak"), found, strict=True))
                )
    path = timing.save("step_memory", {"rows": rows})
    print(f"\nwritten to {path}")


if __name__ == "__main__":
    main()

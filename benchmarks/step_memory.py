"""Memory of whole training steps by their plans, with updates after backward and in it.

    python benchmarks/step_memory.py      # prints the tables, writes results/step_memory.json

The steps of `whole_steps.py` (GPT-2 124M and a Llama of 1.2 billion parameters, in bfloat16, with
AdamW) at batch 1 and at the largest batch there, compiled for a GPU and not run. No GPU is needed.
`kept` are parameters, their copies in bfloat16 and what AdamW keeps, which are there between calls;
`call` is what a call allocates besides, at most at once. As CUDA graphs a call with updates in
backward needs more: what backward reads is kept to its end.

The second table has the times of a GPT on the CPU, in turns, with one thread (see `gpt_step.py`).
"""

from __future__ import annotations

from functools import partial

import gpt_step
import step_models
import timing
import torch
from whole_steps import MODELS, Training

import onefold as flow
from onefold.graph.memory.memory_plan import MemoryPlan

GIB = 1 << 30
BATCHES = {"gpt2": (1, 64), "llama": (1, 16)}
LAYERS, WIDTHS = 12, (32, 128, 512)  # of the GPT on the CPU
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


def timed(width: int) -> timing.Results:
    """The times of a step of a GPT on the CPU, with updates after backward and in it."""
    steps = {}
    for when in CANDIDATES:
        model, optimizer, layout = gpt_step.model("single", 1, LAYERS, width, "--dropout 0.1")
        place = {"placement": layout[0].placement, "sbp": flow.sbp.broadcast}
        graph = gpt_step.Training(model, optimizer, 1)
        graph.config.enable_optimizer_in_backward(when == "in backward")
        tokens = [flow.randint(0, 256, (4, 32), **place) for _ in range(2)]
        steps[when] = partial(graph, *tokens)
    found, ratio = timing.compare(steps, rounds=9, seconds=0.3)
    ms = {f"{when}, ms": each.median / 1000 for when, each in found.items()}
    return {"width": width, **ms, "ratio": ratio("in backward", "after backward")}


def main() -> None:
    timing.options(__doc__).parse_args()
    torch.set_num_threads(1)
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
    print(f"\n{'width':>10}{'after backward, ms':>20}{'in backward, ms':>20}{'ratio':>10}")
    times = [timed(width) for width in WIDTHS]
    for row in times:
        width, after, inside, ratio = row.values()
        print(f"{width:10d}{after:20.1f}{inside:20.1f}{ratio:10.2f}")
    path = timing.save("step_memory", {"rows": rows, "times": times})
    print(f"\nwritten to {path}")


if __name__ == "__main__":
    main()

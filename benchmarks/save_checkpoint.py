"""How long a checkpoint holds up the step: written by the step's thread, and in the background.

    python benchmarks/save_checkpoint.py     # prints the table, writes results/save_checkpoint.json

A GPT of examples/gpt.py with the state of AdamW, one process that owns all ranks. `save` is a
synchronous save, until the files are on the disk. `held` is the time until an asynchronous save
returns, and the time for which the update of the next step waits until the values are copied;
`share` is `held / save`. `slower` is how much longer than others the step during a save takes in
all: it waits, and shares the processor and the memory with the thread that copies and writes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import gpt_step
import timing
import torch

import onefold as flow
from onefold.engine import commit

ROUNDS = 5


def measure(strategy: str, ranks: int, layers: int, width: int) -> dict[str, float | str]:
    """Median seconds of both ways to save, in turns."""
    model, optimizer, layout = gpt_step.model(strategy, ranks, layers, width)
    inputs = [
        flow.randint(0, 256, (4, 32), placement=stage.placement, sbp=stage.data)
        for stage in (layout[0], layout[-1])
    ]
    step = gpt_step.eager_step(model, optimizer)
    state = {"model": model, "optimizer": optimizer, "generator": flow.default_generator}
    spent: dict[str, list[float]] = {"save": [], "return": []}
    steps: dict[str, list[float]] = {"save": [], "return": []}
    waits: list[float] = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        for number in range(2 * (ROUNDS + 1)):
            way = ("save", "return")[number % 2]
            step(*inputs)
            synchronize()
            start = time.perf_counter()
            saving = flow.checkpoint.save(folder, state, number, keep=1, async_=way == "return")
            returned = time.perf_counter()
            commit.readers[:] = [partial(_timed, waits, wait) for wait in commit.readers]
            step(*inputs)
            synchronize()
            spent[way].append(returned - start)
            steps[way].append(time.perf_counter() - returned)
            saving.wait()
    save, back = (statistics.median(times[1:]) for times in spent.values())
    plain, overlapped = (statistics.median(times[1:]) for times in steps.values())
    held = back + statistics.median(waits[1:])
    found = {"save": save, "held": held, "step": plain, "slower": overlapped - plain}
    size = sum(3 * p.nbytes for p in model.parameters()) / 1e6
    times = {f"{name} ms": 1e3 * seconds for name, seconds in found.items()}
    return {"strategy": strategy, "MB": size, **times, "share": held / save}


def _timed(waits: list[float], wait: Callable[[], None]) -> None:
    start = time.perf_counter()
    wait()
    waits.append(time.perf_counter() - start)


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    timing.options(__doc__).parse_args()
    rows = []
    heads = ("save ms", "held ms", "step ms", "slower ms")
    print(f"{'strategy':>9} {'MB':>7} {' '.join(f'{head:>9}' for head in heads)} {'share':>6}")
    for strategy, ranks, layers, width in (
        ("single", 1, 4, 256),
        ("single", 1, 8, 512),
        ("dp", 4, 8, 512),
        ("tp", 4, 8, 512),
    ):
        row = measure(strategy, ranks, layers, width)
        rows.append(row)
        times = " ".join(f"{row[head]:9.1f}" for head in heads)
        print(f"{row['strategy']:>9} {row['MB']:7.0f} {times} {row['share']:6.3f}")
    timing.save("save_checkpoint", {"rows": rows})


if __name__ == "__main__":
    main()

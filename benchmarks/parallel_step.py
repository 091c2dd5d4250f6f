"""Training steps of a GPT on two processes: Onefold against what torch offers for the same layout.

    python benchmarks/parallel_step.py       # prints the tables, writes results/parallel_step.json

Data parallel, tensor parallel and a pipeline of two stages; two CPU ranks over Gloo, one thread
each, all candidates of a table in the same two processes, in turn. They start from the same
weights and see the same batch; their losses must agree. A step takes as long as the slower rank.
Every peer runs AdamW as torch does by default for many tensors (foreach), and once more fused, as
Onefold's does.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import parallel_peers as peers
import timing
import torch
import torch.distributed as dist

import onefold as flow

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import gpt

Size = dict[str, int]

SIZES: dict[str, Size] = {
    "small": {"layers": 4, "width": 128, "heads": 4, "batch": 16, "length": 64},
    "large": {"layers": 6, "width": 256, "heads": 8, "batch": 16, "length": 64},
}
CHECKED = 5  # steps whose losses are compared
AGREE = 1e-4
SECONDS = 0.15  # of each turn, about: shorter than most disturbances by other programs
# What Onefold's step may take of the peer's.
LIMITS = {"megatron": 1.05, "megatron, fused": 1.05}


def model_of(size: Size, strategy: str) -> tuple[gpt.GPT, list[gpt.Stage]]:
    """The example's model; the same weights for every strategy."""
    words = ["--strategy", strategy, "--ranks", str(peers.RANKS), "--dropout", "0"]
    for key in ("layers", "width", "heads", "batch", "length"):
        words += [f"--{key}", str(size[key])]
    layout = gpt.stages(strategy, list(range(peers.RANKS)), "cpu")
    flow.manual_seed(0)
    model = gpt.GPT(gpt.parse(words), layout)
    return model, layout


def onefold(size: Size, strategy: str, batch: peers.Weights, graph: bool) -> peers.Step:
    """A step of Onefold, as a graph or eager."""
    model, layout = model_of(size, strategy)
    optimizer = flow.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    run: Callable[..., object] = gpt.eager_step(model, optimizer)
    if graph and strategy == "pp":
        run = gpt.Training(model, optimizer, peers.MICRO_BATCHES, schedule="1f1b")
    elif graph:
        run = gpt.Training(model, optimizer, 1)
    first, last = layout[0], layout[-1]
    inputs = (
        flow.tensor(batch["bytes"], placement=first.placement, sbp=first.data),
        flow.tensor(batch["following"], placement=last.placement, sbp=last.data),
    )
    return lambda: run(*inputs)


def candidates(size: Size, way: str) -> dict[str, peers.Step]:
    """The steps of one table, Onefold's graph first."""
    torch.manual_seed(0)
    shape = (size["batch"], size["length"])
    batch = {key: torch.randint(0, peers.VOCABULARY, shape) for key in ("bytes", "following")}
    model, _ = model_of(size, "dp")
    weights = {name: torch.from_numpy(p.numpy()).clone() for name, p in model.named_parameters()}
    strategy, others = WAYS[way]
    found = {"onefold": onefold(size, strategy, batch, graph=True)}
    if strategy != "pp":
        found["onefold, eager"] = onefold(size, strategy, batch, graph=False)
    for name, make in others.items():
        found[name] = make(size, weights, batch)
        found[f"{name}, fused"] = make(size, weights, batch, True)
    return found


Make = Callable[..., peers.Step]
WAYS: dict[str, tuple[str, dict[str, Make]]] = {
    "data parallel": ("dp", {"DDP": peers.data_parallel}),
    "tensor parallel": ("tp", {"DTensor": peers.dtensor, "megatron": peers.megatron}),
    "pipeline": ("pp", {"Schedule1F1B": peers.pipeline}),
}


def _loss(result: flow.Tensor | torch.Tensor | None) -> float:
    """The loss of the whole batch, from whatever a step returned."""
    if isinstance(result, flow.Tensor):
        return float(result.mean())
    mine = [] if result is None else [float(result)]
    everyone: list[list[float]] = [[]] * peers.RANKS
    dist.all_gather_object(everyone, mine)
    values = [value for values in everyone for value in values]
    return sum(values) / len(values)


def measure(size: Size, way: str, rounds: int) -> timing.Results:
    """Losses, then times, of all candidates; the same on every rank."""
    steps = candidates(size, way)
    losses = {name: [_loss(step()) for _ in range(CHECKED)] for name, step in steps.items()}
    mine = losses["onefold"]
    apart = max(abs(a - b) for other in losses.values() for a, b in zip(mine, other, strict=True))
    if not apart <= AGREE:
        raise SystemExit(f"{way}: the losses differ by {apart:.2e}: {losses}")
    start = time.perf_counter()
    steps["onefold"]()
    count = torch.tensor(max(1, round(SECONDS / (time.perf_counter() - start))))
    dist.broadcast(count, 0)
    times: dict[str, list[float]] = {name: [] for name in steps}
    cpu: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            dist.barrier()
            start, busy = time.perf_counter(), time.process_time()
            for _ in range(int(count)):
                step()
            spent = torch.tensor([time.perf_counter() - start, time.process_time() - busy])
            spent *= 1e3 / int(count)
            dist.all_reduce(spent, dist.ReduceOp.MAX)
            times[name].append(float(spent[0]))
            cpu[name].append(float(spent[1]))
    return {
        "apart": apart,
        "ms": {name: [median(t), min(t), max(t)] for name, t in times.items()},
        "cpu ms": {name: min(t) for name, t in cpu.items()},
        "onefold / peer": {
            name: median(a / b for a, b in zip(times["onefold"], other, strict=True))
            for name, other in times.items()
            if name != "onefold"
        },
    }


def worker(rounds: int, ways: list[str], sizes: list[str]) -> None:
    """One rank of the measurement; rank 0 prints the JSON."""
    torch.set_num_threads(1)
    flow.placement("cpu", list(range(peers.RANKS)))
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    results: timing.Results = {}
    for name in sizes:
        results[name] = {"size": SIZES[name]}
        for way in ways:
            results[name][way] = measure(SIZES[name], way, rounds)
    if flow.env.get_rank() == 0:
        timing.print_results(results)
    dist.barrier()


def table(results: timing.Results) -> None:
    """Milliseconds per step, and the ratio with what it may be."""
    for name, ways in results.items():
        size = ", ".join(f"{key} {value}" for key, value in ways["size"].items())
        print(f"\n{name}: {size} (ms per step, median [lowest-highest round])")
        print(f"{'':18}{'step':24}{'ms':>24}{'cpu ms':>8}{'onefold / this':>16}{'reach':>7}")
        for way in WAYS:
            for step, (middle, low, high) in ways.get(way, {"ms": {}})["ms"].items():
                ratio = ways[way]["onefold / peer"].get(step)
                limit = LIMITS.get(step, 1.0)
                mark = " !" if ratio is not None and ratio > limit else ""
                end = "" if ratio is None else f"{ratio:>16.2f}{limit:>7}{mark}"
                cells = f"{f'{middle:.1f} [{low:.1f}-{high:.1f}]':>24}"
                cells += f"{ways[way]['cpu ms'][step]:>8.1f}"
                print(f"{way:18}{step:24}{cells}{end}")


def main() -> None:
    parser = timing.options(__doc__)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--way", choices=list(WAYS), action="append", help="default: all")
    parser.add_argument("--size", choices=list(SIZES), action="append", help="default: all")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    ways, sizes = args.way or list(WAYS), args.size or list(SIZES)
    if args.worker:
        worker(args.rounds, ways, sizes)
        return
    results = timing.launched(__file__, sys.argv[1:], timeout=3000)
    table(results)
    if ways == list(WAYS) and sizes == list(SIZES):
        print(f"\nwritten to {timing.save('parallel_step', results)}")


if __name__ == "__main__":
    main()

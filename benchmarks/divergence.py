"""What it costs that ranks compare what they do: steps of examples/gpt.py on two processes.

    python benchmarks/divergence.py       # prints the table, writes results/divergence.json

The same steps in the same two CPU processes, in turn: without any comparison, with what is always
compared, and with ONEFOLD_CHECK=1. Each turn takes 64 steps, so each has its share of the
comparisons of replicas. Ratios are medians over rounds of the slower rank's times. What is always
compared takes less than such ratios vary, so the time inside these comparisons is measured, too,
waits for the other rank included.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from unittest import mock

import timing
import torch
import torch.distributed as dist

import onefold as flow
from onefold.distributed import collectives, point_to_point, provenance
from onefold.distributed.world import world
from onefold.engine.dispatch_plan import clear_plans
from onefold.optim.replica_schedule import ReplicaSchedule

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import gpt

RANKS = 2
STEPS = 64
MODES = ("nothing", "always", "ONEFOLD_CHECK=1")
# What a step may take of one without comparisons.
LIMITS = {"always": 1.02, "ONEFOLD_CHECK=1": 1.10}
CASES = {
    "data parallel": ("dp", False),
    "data parallel, graph": ("dp", True),
    "tensor parallel": ("tp", False),
    "tensor parallel, graph": ("tp", True),
}


def step_of(strategy: str, graph: bool) -> Callable[[], object]:
    """A training step of the example, in the sizes that it has by default."""
    args = gpt.parse(["--strategy", strategy, "--ranks", str(RANKS), "--dropout", "0"])
    (layout,) = gpt.stages(strategy, list(range(RANKS)), "cpu")
    flow.manual_seed(0)
    model = gpt.GPT(args, [layout])
    optimizer = flow.optim.AdamW(model.parameters(), lr=1e-4)
    run = gpt.Training(model, optimizer, 1) if graph else gpt.eager_step(model, optimizer)
    place = {"placement": layout.placement, "sbp": layout.data}
    x, y = (flow.randint(0, 256, (args.batch, args.length), **place) for _ in range(2))
    return lambda: run(x, y)


def _nothing(*args: object) -> None:
    """What is called instead of a comparison: a mock would take longer than what it stands for."""


@contextmanager
def compared(mode: str) -> Iterator[None]:
    """Let ranks compare as much as `mode` says."""
    link = world().connection()
    link.check = provenance.state.on = mode == "ONEFOLD_CHECK=1"
    clear_plans()
    if mode != "nothing":
        yield
        return
    with (
        mock.patch.object(collectives, "agree", _nothing),
        mock.patch.object(point_to_point, "agree_on_messages", _nothing),
        mock.patch.object(ReplicaSchedule, "after_step", _nothing),
    ):
        yield


@contextmanager
def timed(spent: list[float]) -> Iterator[None]:
    """Add the seconds inside what is always compared to `spent`."""

    def add(compare: Callable[..., None]) -> Callable[..., None]:
        def timed_compare(*args: object) -> None:
            start = time.perf_counter()
            compare(*args)
            spent[0] += time.perf_counter() - start

        return timed_compare

    with (
        mock.patch.object(collectives, "agree", add(collectives.agree)),
        mock.patch.object(point_to_point, "agree_on_messages", _nothing),
        mock.patch.object(ReplicaSchedule, "after_step", add(ReplicaSchedule.after_step)),
    ):
        yield


def share_inside(step: Callable[[], object], turns: int) -> float:
    """The part of the time of steps that always comparing takes, on the slower rank."""
    spent = [0.0]
    with compared("always"):
        for _ in range(STEPS):
            step()
        with timed(spent):
            start = time.perf_counter()
            for _ in range(STEPS * turns):
                step()
            share = torch.tensor(spent[0] / (time.perf_counter() - start))
    dist.all_reduce(share, dist.ReduceOp.MAX)
    return float(share)


def measure(strategy: str, graph: bool, rounds: int) -> timing.Results:
    """Wall and CPU milliseconds of a step in each mode; the same on every rank."""
    step = step_of(strategy, graph)
    wall: dict[str, list[float]] = {mode: [] for mode in MODES}
    cpu: dict[str, list[float]] = {mode: [] for mode in MODES}
    for turn in range(rounds + 1):
        for mode in MODES if turn % 2 else MODES[::-1]:
            with compared(mode):
                for _ in range(STEPS if turn == 0 else 4):
                    step()
                dist.barrier()
                start, busy = time.perf_counter(), time.process_time()
                for _ in range(STEPS):
                    step()
                spent = torch.tensor([time.perf_counter() - start, time.process_time() - busy])
            spent *= 1e3 / STEPS
            dist.all_reduce(spent, dist.ReduceOp.MAX)
            if turn:
                wall[mode].append(float(spent[0]))
                cpu[mode].append(float(spent[1]))
    results: timing.Results = {
        mode: {
            "ms": [median(wall[mode]), min(wall[mode]), max(wall[mode])],
            "cpu ms": median(cpu[mode]),
            "ratio": _ratio(wall[mode], wall["nothing"]),
            "cpu ratio": _ratio(cpu[mode], cpu["nothing"]),
            "ratio of the fastest": min(wall[mode]) / min(wall["nothing"]),
            "cpu ratio of the fastest": min(cpu[mode]) / min(cpu["nothing"]),
        }
        for mode in MODES
    }
    results["always"]["inside"] = share_inside(step, rounds)
    return results


def _ratio(these: list[float], those: list[float]) -> float:
    return median(a / b for a, b in zip(these, those, strict=True))


def worker(rounds: int, cases: list[str]) -> None:
    """One rank of the measurement; rank 0 prints the JSON."""
    torch.set_num_threads(1)
    flow.placement("cpu", list(range(RANKS)))
    results = {case: measure(*CASES[case], rounds) for case in cases}
    if flow.env.get_rank() == 0:
        timing.print_results(results)
    dist.barrier()


def table(results: timing.Results) -> None:
    """Milliseconds per step, and how much longer it takes than without comparing."""
    heads = ("ms", 24), ("cpu ms", 8), ("ratio", 8), ("cpu", 7), ("limit", 7), ("inside", 8)
    print(f"{'step':24}{'compared':18}" + "".join(f"{head:>{width}}" for head, width in heads))
    for case, modes in results.items():
        for mode, row in modes.items():
            middle, low, high = row["ms"]
            cells = f"{f'{middle:.1f} [{low:.1f}-{high:.1f}]':>24}{row['cpu ms']:>8.1f}"
            if mode in LIMITS:
                cells += f"{row['ratio']:>8.3f}{row['cpu ratio']:>7.3f}{LIMITS[mode]:>7}"
            if "inside" in row:
                cells += f"{row['inside']:>8.2%}"
            print(f"{case:24}{mode:18}{cells}")


def main() -> None:
    parser = timing.options(__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--case", choices=list(CASES), action="append", help="default: all")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    cases = args.case or list(CASES)
    if args.worker:
        worker(args.rounds, cases)
        return
    results = timing.launched(__file__, sys.argv[1:], timeout=3000)
    table(results)
    if cases == list(CASES):
        print(f"\nwritten to {timing.save('divergence', results)}")


if __name__ == "__main__":
    main()

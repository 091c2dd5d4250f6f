"""The simulator's step times against measured ones: the GPT of parallel_step.py on two processes.

    python benchmarks/simulator.py           # prints the table, writes results/simulator.json

Data parallel, tensor parallel and a pipeline of two stages as graphs at six sizes, two CPU ranks
over Gloo with one thread each. The probes of `python -m onefold.graph.calibrate` and the steps are
timed in turn, so that both see the same machine; a step takes as long as the slower rank. What is
predicted knows the probes and the program, and no measured step. With --hardware the constants are
those of a file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from statistics import mean, median

import parallel_peers as peers
import timing
import torch
import torch.distributed as dist
from parallel_step import model_of

import onefold as flow
from onefold.errors import OnefoldError
from onefold.graph.calibrate.__main__ import device_bytes
from onefold.graph.calibrate.calibration import Calibration
from onefold.graph.calibrate.turns import turn
from onefold.graph.hardware import Hardware, read

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import gpt

Size = dict[str, int]

STRATEGIES = {"data parallel": "dp", "tensor parallel": "tp", "pipeline": "pp"}
SIZES: dict[str, Size] = {
    "narrow": {"layers": 4, "width": 128, "heads": 4, "batch": 16, "length": 64},
    "deep": {"layers": 8, "width": 128, "heads": 4, "batch": 16, "length": 64},
    "small batch": {"layers": 4, "width": 256, "heads": 8, "batch": 8, "length": 64},
    "large": {"layers": 6, "width": 256, "heads": 8, "batch": 16, "length": 64},
    "long": {"layers": 4, "width": 192, "heads": 6, "batch": 8, "length": 256},
    "wide": {"layers": 2, "width": 512, "heads": 8, "batch": 16, "length": 64},
}
SECONDS = 0.2  # of each turn, about
WARM_UP = 3  # steps


def graph_of(size: Size, strategy: str) -> tuple[flow.nn.Graph, tuple[flow.Tensor, ...]]:
    """The training step as a graph, and its inputs."""
    model, layout = model_of(size, strategy)
    optimizer = flow.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    stages = strategy == "pp"
    graph = gpt.Training(
        model, optimizer, peers.MICRO_BATCHES if stages else 1, "1f1b" if stages else None
    )
    torch.manual_seed(0)
    shape = (size["batch"], size["length"])
    bytes_, following = (torch.randint(0, peers.VOCABULARY, shape) for _ in range(2))
    first, last = layout[0], layout[-1]
    return graph, (
        flow.tensor(bytes_, placement=first.placement, sbp=first.data),
        flow.tensor(following, placement=last.placement, sbp=last.data),
    )


class Measured:
    """The steps of one size and strategy, and the milliseconds of each turn."""

    def __init__(self, size: Size, strategy: str) -> None:
        self.graph, self._inputs = graph_of(size, strategy)
        for _ in range(WARM_UP):
            self.graph(*self._inputs)
        start = time.perf_counter()
        self.graph(*self._inputs)
        count = torch.tensor(max(1, round(SECONDS / (time.perf_counter() - start))))
        dist.broadcast(count, 0)
        self._count = int(count)
        self.times: list[float] = []

    def turn(self) -> None:
        """Time a few steps on both ranks, as of a training that goes on."""
        self.graph(*self._inputs)  # after what other probes have done, as they do
        start = time.perf_counter()
        for _ in range(self._count):
            self.graph(*self._inputs)
        spent = torch.tensor(1e3 * (time.perf_counter() - start) / self._count)
        dist.all_reduce(spent, dist.ReduceOp.MAX)
        self.times.append(float(spent))

    def row(self, hardware: Hardware) -> dict[str, object]:
        """The times, and what the simulator says."""
        predicted = 1e3 * self.graph.simulate(hardware, memory=False).step_time
        middle = median(self.times)
        return {
            "measured": [middle, min(self.times), max(self.times)],
            "predicted": predicted,
            "error": predicted / middle - 1,
        }


def measure(names: list[str], hardware: str | None, rounds: int) -> dict[str, timing.Results]:
    """Milliseconds of each strategy, measured and predicted; the same on every rank."""
    steps = {
        name: {way: Measured(SIZES[name], strategy) for way, strategy in STRATEGIES.items()}
        for name in names
    }
    calibration = Calibration() if hardware is None else None
    probes = [] if calibration is None else calibration.probes
    for _ in range(rounds):
        for ways in steps.values():
            turn([*probes, *ways.values()])
    machine = read(hardware) if calibration is None else calibration.hardware(device_bytes())
    return {
        name: {way: measured.row(machine) for way, measured in ways.items()}
        for name, ways in steps.items()
    }


def kendall(pairs: list[tuple[float, float]]) -> tuple[int, int]:
    """How many pairs of (measured, predicted) are in one order in both, less those that are not.

    And how many there are.
    """
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in combinations(pairs, 2)]
    return sum((sign > 0) - (sign < 0) for sign in signs), len(signs)


def summary(results: Mapping[str, timing.Results]) -> dict[str, float]:
    """The mean and largest error, and Kendall's tau of the strategies of each size, pooled."""
    rows = [row for ways in results.values() for row in ways.values()]
    errors = [abs(row["error"]) for row in rows]
    orders = [
        kendall([(row["measured"][0], row["predicted"]) for row in ways.values()])
        for ways in results.values()
    ]
    tau = sum(order for order, _ in orders) / sum(count for _, count in orders)
    return {"mean error": mean(errors), "max error": max(errors), "tau": tau}


def table(results: Mapping[str, timing.Results]) -> None:
    print(f"{'':14}{'':18}{'measured ms':>26}{'predicted ms':>14}{'error':>8}")
    for name, ways in results.items():
        for way, row in ways.items():
            middle, low, high = row["measured"]
            cell = f"{middle:.1f} [{low:.1f}-{high:.1f}]"
            error = f"{100 * row['error']:+.0f}%"
            print(f"{name:14}{way:18}{cell:>26}{row['predicted']:>14.1f}{error:>8}")
    found = summary(results)
    print(
        f"\nmean error {100 * found['mean error']:.1f}%, largest {100 * found['max error']:.1f}%, "
        f"Kendall's tau {found['tau']:.2f}"
    )


def worker(options: argparse.Namespace) -> None:
    """One rank of the measurement; rank 0 prints the JSON."""
    torch.set_num_threads(1)
    flow.placement("cpu", list(range(peers.RANKS)))
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    names = options.size or list(SIZES)
    results = measure(names, options.hardware, options.rounds)
    if flow.env.get_rank() == 0:
        timing.print_results(results)
    dist.barrier()


def main() -> None:
    parser = timing.options(__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--hardware", help="a name or a TOML file, instead of the probes")
    parser.add_argument("--size", choices=list(SIZES), action="append", help="default: all")
    parser.add_argument("--no-save", action="store_true", help="write no results")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options)
        return
    try:
        if options.hardware is not None:
            read(options.hardware)
    except OnefoldError as error:
        raise SystemExit(f"error: {error}") from None
    results = timing.launched(__file__, sys.argv[1:], timeout=3000)
    table(results)
    if not options.size and not options.no_save:
        content = {"sizes": SIZES, "steps": results, "summary": summary(results)}
        print(f"\nwritten to {timing.save('simulator', content)}")


if __name__ == "__main__":
    main()

"""Training steps of whole models: Onefold on one rank, eager and as a graph, against torch.

    python benchmarks/models.py                      # prints the table, writes results/models.json
    python benchmarks/models.py --model GPT --profile    # where an eager step spends its time

One thread. Each model is written once (whole_models.py) and runs with either library from the same
weights on the same batch; the losses of five steps must agree. The candidates take turns, and
ratios are medians over rounds, of the processor's time: other programs disturb it least. Both sides
run AdamW fused, the fastest that torch has.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Callable

import timing
import torch
import whole_models

import onefold as flow

CHECKED = 5  # steps whose losses are compared
AGREE = 1e-3
# What a step of Onefold may take of torch's: eager, and as a graph.
LIMITS = {"GPT": 1.05, "ResNet-18": 1.1, "graph network": 1.2}
GRAPH_LIMIT = 0.95

Step = Callable[[], object]


class Training(flow.nn.Graph):
    """One training step as a graph."""

    def __init__(self, model: flow.nn.Module, optimizer: flow.optim.Optimizer) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, *data: flow.Tensor) -> flow.Tensor:
        loss = flow.nn.functional.cross_entropy(self.model(*data[:-1]), data[-1])
        loss.backward()
        return loss


def torch_step(model: torch.nn.Module, data: list[torch.Tensor]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step() -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(model(*data[:-1]), data[-1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def onefold_steps(make: Callable[[], object], data: list[torch.Tensor]) -> tuple[Step, Step]:
    """An eager step, and that of a graph of another copy of the model."""
    place = {"placement": flow.placement("cpu", [0]), "sbp": flow.sbp.broadcast}
    batch = [flow.tensor(part, **place) for part in data]
    models = [make().to_global(**place) for _ in range(2)]
    optimizer, of_graph = (flow.optim.AdamW(m.parameters(), lr=1e-5) for m in models)
    graph = Training(models[1], of_graph)

    def eager() -> flow.Tensor:
        loss = flow.nn.functional.cross_entropy(models[0](*batch[:-1]), batch[-1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return eager, lambda: graph(*batch)


def candidates(name: str, size: dict[str, int]) -> dict[str, Step]:
    """The three steps of a model, from the same weights."""
    write, write_data, _ = whole_models.MODELS[name]
    torch.manual_seed(0)
    model = write(torch, size)
    weights = {key: value.clone() for key, value in model.state_dict().items()}

    def make() -> flow.nn.Module:
        copy = write(flow, size)
        copy.load_state_dict(weights)
        return copy

    data = write_data(size)
    eager, graph = onefold_steps(make, data)
    return {"torch": torch_step(model, data), "eager": eager, "graph": graph}


def apart(steps: dict[str, Step]) -> float:
    """The largest relative difference of the first losses from torch's."""
    losses = {
        name: [float(step().detach()) for _ in range(CHECKED)] for name, step in steps.items()
    }
    return max(
        abs(a - b) / abs(b)
        for other in losses.values()
        for a, b in zip(other, losses["torch"], strict=True)
    )


def measure(name: str, size: dict[str, int], rounds: int, seconds: float) -> timing.Results:
    """The row of one model."""
    steps = candidates(name, size)
    difference = apart(steps)
    if not difference <= AGREE:
        raise SystemExit(f"{name}: the losses differ by {difference:.2e}")
    found, ratio = timing.compare(steps, rounds, seconds, clock=time.process_time)
    spread = {key: [t.median / 1e3, t.low / 1e3, t.high / 1e3] for key, t in found.items()}
    return {
        "model": name,
        "size": size,
        "apart": difference,
        "ms": spread,
        "eager/torch": ratio("eager", "torch"),
        "graph/torch": ratio("graph", "torch"),
    }


def profile(name: str, size: dict[str, int], calls: int = 30) -> None:
    """Print where eager steps, and torch's kernels inside them, spend their time."""
    steps = candidates(name, size)
    for _ in range(3):
        steps["eager"]()
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(calls):
        steps["eager"]()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)
    for side in ("torch", "eager"):
        with torch.profiler.profile() as kernels:
            for _ in range(calls):
                steps[side]()
        print(side, kernels.key_averages().table(sort_by="self_cpu_time_total", row_limit=20))


def main() -> None:
    parser = timing.options(__doc__)
    parser.add_argument("--model", choices=whole_models.MODELS, help="only this one")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each turn, about")
    parser.add_argument("--profile", action="store_true", help="print where the time goes instead")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in [args.model] if args.model else whole_models.MODELS:
        for size in whole_models.MODELS[name][2]:
            if args.profile:
                profile(name, size)
                continue
            row = measure(name, size, args.rounds, args.seconds)
            rows.append(row)
            times = "  ".join(f"{key} {ms[0]:7.2f} ms" for key, ms in row["ms"].items())
            print(f"{name:14} {times}  eager/torch {row['eager/torch']:.2f} (limit "
                  f"{LIMITS[name]})  graph/torch {row['graph/torch']:.2f}  {size}",
                  flush=True)  # fmt: skip
    if rows and not args.model:
        print(f"written to {timing.save('models', rows)}")


if __name__ == "__main__":
    main()

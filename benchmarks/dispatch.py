"""Time per op of tiny tensors (8x8, float32): plain torch, torch DTensor and onefold.

    python benchmarks/dispatch.py            # prints the tables, writes results/dispatch.json

One thread. torch records gradients in every case. Onefold is measured in a virtual world of one
rank and in a launched world of two; DTensor on meshes of the same sizes. The last table is the
first call of an op with a new shape, on meshes of one to four axes (16 ranks, seen by rank 0).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from statistics import median

import timing
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn import functional as F

import onefold as flow
from onefold.distributed.world import seen_from

SIZE = 8
CHAIN = 50
SHARED = 20
# Of torch's time; the forward ops may take 1.4.
LIMITS = {"chain": 0.8, "one weight": 0.8, "mlp step": 1.0}
COLD_LIMIT_US = 1000.0

Case = dict[str, Callable[[], object]]
Operand = torch.Tensor  # or one of Onefold, which has the same methods


class Side:
    """One contender: its tensors, and its spelling of each op."""

    def __init__(
        self,
        name: str,
        make: Callable[[torch.Tensor, bool], Operand],
        weight: Callable[[torch.Tensor], Operand],
        ns: type[TorchNames],
    ) -> None:
        self.name = name
        self.make = make  # torch tensor -> data-parallel input that requires grad or not
        self.weight = weight  # torch tensor -> replicated parameter
        self.ns = ns


def cases(side: Side) -> Case:
    """Every op as a call without arguments."""
    ns = side.ns
    torch.manual_seed(0)
    x = side.make(torch.randn(SIZE, SIZE), True)
    y = side.make(torch.randn(SIZE, SIZE), False)
    z = side.make(torch.zeros(SIZE, SIZE), False)
    w = side.weight(torch.randn(SIZE, SIZE))
    scale, shift = side.weight(torch.ones(SIZE)), side.weight(torch.zeros(SIZE))
    return {
        "add": lambda: ns.add(x, y),
        "mul": lambda: ns.mul(x, y),
        "mul number": lambda: ns.mul(x, 1.5),
        "relu": lambda: ns.relu(x),
        "matmul": lambda: ns.matmul(x, w),
        "softmax": lambda: ns.softmax(x, -1),
        "layer_norm": lambda: ns.layer_norm(x, (SIZE,), scale, shift),
        "no weights": lambda: ns.layer_norm(x, (SIZE,)),
        "view": lambda: x.view(-1),
        "transpose": lambda: ns.transpose(x, 0, 1),
        "add_": lambda: z.add_(x),  # recorded: z is on the tape from the first call on
        "chain": _chain(side),
        "one weight": _one_weight(side),
        "mlp step": _mlp(side),
    }


def _chain(side: Side) -> Callable[[], object]:
    """Forward and backward of 50 linear layers."""
    torch.manual_seed(1)
    layers = [
        (side.weight(torch.randn(SIZE, SIZE) / SIZE), side.weight(torch.zeros(SIZE)))
        for _ in range(CHAIN)
    ]
    x = side.make(torch.randn(SIZE, SIZE), False)
    dy = side.make(torch.ones(SIZE, SIZE), False)
    linear = side.ns.linear

    def run() -> None:
        h = x
        for w, b in layers:
            h = linear(h, w, b)
        h.backward(dy)
        for w, b in layers:
            w.grad = b.grad = None

    return run


def _one_weight(side: Side) -> Callable[[], object]:
    """Forward and backward of 20 linear layers without bias, which share their weight."""
    torch.manual_seed(3)
    w = side.weight(torch.randn(SIZE, SIZE) / SIZE)
    x = side.make(torch.randn(SIZE, SIZE), False)
    dy = side.make(torch.ones(SIZE, SIZE), False)
    linear = side.ns.linear

    def run() -> None:
        h = x
        for _ in range(SHARED):
            h = linear(h, w)
        h.backward(dy)
        w.grad = None

    return run


def _mlp(side: Side) -> Callable[[], object]:
    """One training step of a two-layer perceptron with AdamW."""
    torch.manual_seed(2)
    ns = side.ns
    params = [
        side.weight(torch.randn(SIZE, SIZE)),
        side.weight(torch.zeros(SIZE)),
        side.weight(torch.randn(SIZE, SIZE)),
        side.weight(torch.zeros(SIZE)),
    ]
    x = side.make(torch.randn(SIZE, SIZE), False)
    optimizer = ns.AdamW(params, lr=1e-3, weight_decay=0.01)

    def run() -> None:
        h = ns.relu(ns.linear(x, params[0], params[1]))
        loss = ns.linear(h, params[2], params[3]).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


class TorchNames:
    """torch's spelling (DTensor's too)."""

    add, mul, relu, matmul = torch.add, torch.mul, torch.relu, torch.matmul
    softmax, transpose = torch.softmax, torch.transpose
    layer_norm, linear = staticmethod(F.layer_norm), staticmethod(F.linear)
    AdamW = torch.optim.AdamW


class OnefoldNames:
    """Onefold's spelling."""

    add, mul, relu, matmul = flow.add, flow.mul, flow.relu, flow.matmul
    softmax, transpose = flow.softmax, flow.transpose
    layer_norm, linear = staticmethod(flow.layer_norm), staticmethod(flow.linear)
    AdamW = flow.optim.AdamW


def contenders(ranks: int) -> list[Side]:
    """torch, DTensor and onefold on `ranks` ranks: inputs split on dim 0, parameters replicated."""
    mesh = init_device_mesh("cpu", (ranks,))
    placement = flow.placement("cpu", list(range(ranks)))
    shard: list[Shard | Replicate] = [Shard(0)] if ranks > 1 else [Replicate()]
    sbp = flow.sbp.split(0) if ranks > 1 else flow.sbp.broadcast

    def dtensor(t: torch.Tensor, placements: list[Shard | Replicate], grad: bool) -> DTensor:
        return distribute_tensor(t, mesh, placements).detach().requires_grad_(grad)

    def onefold(t: torch.Tensor, layout: flow.sbp.sbp, grad: bool) -> flow.Tensor:
        return flow.tensor(t, placement=placement, sbp=layout, requires_grad=grad)

    return [
        Side(
            "torch",
            lambda t, grad: t.clone().requires_grad_(grad),
            lambda t: t.clone().requires_grad_(),
            TorchNames,
        ),
        Side(
            "dtensor",
            lambda t, grad: dtensor(t, shard, grad),
            lambda t: dtensor(t, [Replicate()], True),
            TorchNames,
        ),
        Side(
            "onefold",
            lambda t, grad: onefold(t, sbp, grad),
            lambda t: onefold(t, flow.sbp.broadcast, True),
            OnefoldNames,
        ),
    ]


def measure(ranks: int, rounds: int) -> timing.Results:
    """All ops for all contenders; the same number of calls on every rank."""
    sides = contenders(ranks)
    by_side = {side.name: cases(side) for side in sides}
    results: timing.Results = {}
    for op in by_side["torch"]:
        if ranks > 1 and op == "mlp step":
            continue  # its time is that of gradient communication, not of dispatch
        calls = {name: ops[op] for name, ops in by_side.items()}
        if ranks > 1:
            found, ratio = _in_step(calls, rounds)
        else:
            found, ratio = timing.compare(calls, rounds)
        scale = {"chain": CHAIN, "one weight": SHARED}.get(op, 1)
        results[op] = {
            "us": {
                name: [t.median / scale, t.low / scale, t.high / scale] for name, t in found.items()
            },
            "onefold/torch": ratio("onefold", "torch"),
            "dtensor/onefold": ratio("dtensor", "onefold"),
        }
    return results


def _in_step(calls: Case, rounds: int) -> tuple[dict[str, timing.Timing], timing.Ratio]:
    """Like timing.compare, with call counts that do not depend on the rank."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for index in range(rounds + 1):
        for name, call in calls.items():
            dist.barrier()
            count = 200
            start = time.perf_counter()
            for _ in range(count):
                call()
            if index:
                times[name].append((time.perf_counter() - start) / count * 1e6)
    found = {n: timing.Timing(median(t), min(t), max(t)) for n, t in times.items()}
    return found, lambda a, b: median(x / y for x, y in zip(times[a], times[b], strict=True))


def cold() -> timing.Results:
    """Microseconds of the first call with a new shape, by op and number of mesh axes."""
    results: timing.Results = {}
    with seen_from(rank=0, size=16):
        for mesh in ([16], [4, 4], [2, 2, 4], [2, 2, 2, 2]):
            placement = flow.placement("cpu", torch.arange(16).reshape(mesh).numpy())
            axes = len(mesh)
            for op in ("add", "add, one input broadcast", "matmul", "softmax", "layer_norm"):
                times = [_cold_call(op, placement, 64 + 16 * i) for i in range(12)]
                results.setdefault(op, {})[str(axes)] = [median(times[2:]), min(times), max(times)]
    return results


def _cold_call(op: str, placement: flow.placement, rows: int) -> float:
    axes = placement.ndim
    layout = (flow.sbp.split(0),) + (flow.sbp.broadcast,) * (axes - 1)
    # No layout here needs communication, which one rank alone could not do.
    last = flow.sbp.split(1) if axes > 1 else flow.sbp.broadcast
    other = (flow.sbp.broadcast,) * (axes - 1) + (last,)
    x = flow.zeros(rows, 16, placement=placement, sbp=layout)
    b = flow.zeros(rows, 16, placement=placement, sbp=(flow.sbp.broadcast,) * axes)
    w = flow.zeros(16, rows, placement=placement, sbp=other)
    start = time.perf_counter()
    if op == "add":
        flow.add(x, x)
    elif op == "add, one input broadcast":
        flow.add(x, b)
    elif op == "matmul":
        flow.matmul(x, w)
    elif op == "softmax":
        flow.softmax(x, 1)
    else:
        flow.layer_norm(x, (16,))
    return (time.perf_counter() - start) * 1e6


def table(title: str, results: timing.Results) -> None:
    print(f"\n{title} (microseconds per call, median [lowest-highest round])")
    head = ("torch", 24), ("DTensor", 26), ("onefold", 24), ("of torch", 10), ("reach", 7)
    print(f"{'op':12}" + "".join(f"{t:>{w}}" for t, w in (*head, ("x DTensor", 11))))
    for op, row in results.items():
        cells = {n: f"{m:.2f} [{lo:.2f}-{hi:.2f}]" for n, (m, lo, hi) in row["us"].items()}
        limit = LIMITS.get(op, 1.4)
        mark = "" if row["onefold/torch"] <= limit else " !"
        print(
            f"{op:12}{cells['torch']:>24}{cells['dtensor']:>26}{cells['onefold']:>24}"
            f"{row['onefold/torch']:>10.2f}{limit:>7}{row['dtensor/onefold']:>10.1f}x{mark}"
        )


def worker(rounds: int) -> None:
    """One rank of the launched measurement; rank 0 prints the JSON."""
    results = measure(2, rounds)
    if flow.env.get_rank() == 0:
        timing.print_results(results)
    dist.barrier()


def main() -> None:
    parser = timing.options(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.worker:
        worker(args.rounds)
        return
    with tempfile.NamedTemporaryFile() as store:
        dist.init_process_group(
            "gloo", init_method=f"file://{store.name}-store", rank=0, world_size=1
        )
        results: timing.Results = {"virtual, 1 rank": measure(1, args.rounds)}
        dist.destroy_process_group()
    table("Virtual world, 1 rank", results["virtual, 1 rank"])
    words = ("--rounds", str(args.rounds))
    results["launched, 2 ranks"] = timing.launched(__file__, words, timeout=900)
    table("Launched world, 2 ranks", results["launched, 2 ranks"])
    results["first call with a new shape"] = cold()
    print(f"\nFirst call with a new shape (microseconds, median; reach {COLD_LIMIT_US:.0f})")
    print(f"{'op':28}" + "".join(f"{n:>12}" for n in ("1 axis", "2 axes", "3 axes", "4 axes")))
    for op, row in results["first call with a new shape"].items():
        print(f"{op:28}" + "".join(f"{row[str(n)][0]:>12.0f}" for n in (1, 2, 3, 4)))
    print(f"\nwritten to {timing.save('dispatch', results)}")


if __name__ == "__main__":
    main()

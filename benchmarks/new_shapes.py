"""Time on the host of eager calls with shapes that are new: texts, graphs, caches that grow.

    python benchmarks/new_shapes.py          # prints the table, writes results/new_shapes.json

As `host_path.py`, without a GPU: each compiled kernel is a function that does nothing. The first
call with a shape plans the op and chooses tiles; later ones run the function around the kernel,
until a trace of it pays; the call that makes the trace takes longer, and those after it least. The
whole of a shape that is used a number of times, as by the layers of a model, is their sum.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable

import host_path
import timing
import torch

import onefold as flow
from onefold.kernels.gpu.launch.trace_cache import TRACED_AFTER

F = flow.nn.functional
WIDTH = 64
CALLS = TRACED_AFTER + 5
SHOWN = {"first": 0, "second": 1, "10th": 9, "traces": TRACED_AFTER, "last": CALLS - 1}
USES = (1, 4, 16)


class Inputs:
    """Tensors of which each length gives other shapes."""

    def __init__(self, longest: int) -> None:
        torch.manual_seed(0)
        self.rows, self.heads, self.query, self.weight, self.bias = (
            flow.from_torch(torch.randn(*shape))
            for shape in ((longest, WIDTH), (2, 4, longest, 16), (2, 4, 1, 16), (WIDTH, WIDTH),
                          (WIDTH,))
        )  # fmt: skip
        self.index = flow.from_torch(torch.arange(longest) % WIDTH)

    def calls(self, length: int) -> dict[str, Callable[[], object]]:
        """Each op on tensors of this length."""
        w, b, q = self.weight, self.bias, self.query
        x, index, keys = self.rows[:length], self.index[:length], self.heads[:, :, :length]
        return {
            "add": lambda: flow.add(x, x),
            "add a row": lambda: flow.add(x, b),
            "gelu": lambda: flow.gelu(x),
            "sum": lambda: flow.sum(x, 1),
            "layer_norm": lambda: F.layer_norm(x, (WIDTH,), b, b),
            "softmax": lambda: flow.softmax(x, 1),
            "matmul": lambda: flow.matmul(x, w),
            "linear": lambda: F.linear(x, w, b),
            "cat": lambda: flow.cat((x, x), 0),
            "copy of a transpose": lambda: flow.clone(x.t()),
            "embedding": lambda: F.embedding(index, w),
            "cross_entropy": lambda: F.cross_entropy(x, index),
            "attention of a query": lambda: F.scaled_dot_product_attention(q, keys, keys),
            "dropout": lambda: flow.dropout(x, 0.1),
        }


def measure(lengths: range) -> dict[str, list[float]]:
    """Microseconds of each call of an op with a shape in turn, medians over the lengths."""
    inputs = Inputs(lengths[-1])
    times: dict[str, list[list[float]]] = defaultdict(lambda: [[] for _ in range(CALLS)])
    for length in lengths:
        for op, call in inputs.calls(length).items():
            for found in times[op]:
                start = time.perf_counter()
                call()
                found.append((time.perf_counter() - start) * 1e6)
    return {op: [statistics.median(found) for found in rows] for op, rows in times.items()}


def main() -> None:
    parser = timing.options(__doc__)
    parser.add_argument("--lengths", type=int, default=150)
    args = parser.parse_args()
    torch.set_num_threads(1)
    host_path.without_gpu()
    measure(range(65, 95, 2))  # loads kernels and generates what does not depend on sizes
    found = measure(range(101, 101 + 2 * args.lengths, 2))
    results: timing.Results = {"load average of the machine": os.getloadavg()[0]}
    used = [f"{count} uses" for count in USES]
    print("Microseconds on the host per call, and of all calls with a shape that is used so often")
    print(f"{'op':24}" + "".join(f"{title:>10}" for title in (*SHOWN, *used)))
    for op, times in found.items():
        row = {title: times[call] for title, call in SHOWN.items()}
        row |= {title: sum(times[:count]) for title, count in zip(used, USES, strict=True)}
        results[op] = row
        print(f"{op:24}" + "".join(f"{value:10.1f}" for value in row.values()))
    print(f"\nwritten to {timing.save('new_shapes', results)}")


if __name__ == "__main__":
    main()

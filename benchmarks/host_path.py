"""Time on the host per eager op whose work is a Triton kernel: all but the kernel's own launch.

    python benchmarks/host_path.py           # prints the table, writes results/host_path.json

No GPU is needed. Tensors lie on the CPU, Triton kernels are chosen for them, and in place of each
compiled kernel stands a function that does nothing. What is left is what Python does from the call
of the op to that of Triton's launcher, with the memory of the result, which is taken from torch's
allocator of the CPU. Results are never written. Beside it, for scale, is torch's own op on tensors
of one element, which does work on the CPU. Calls are repeated, so that they have plans
(see `kernels/gpu/launch/trace_cache.py`). Indices are not checked, as they are not on a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count

import timing
import torch
from torch.nn import functional as F

import onefold as flow
from onefold.engine.dispatch_plan import ops
from onefold.engine.op import Local
from onefold.graph.passes.in_place import InPlace
from onefold.kernels import gather_scatter_ref
from onefold.kernels.gpu.gather import scatter_gather
from onefold.kernels.gpu.launch import jit_kernel
from onefold.kernels.gpu.launch.trace_cache import TRACED_AFTER
from onefold.kernels.gpu.reduce import cross_entropy_kernels

GOAL_US = 8.0
MANY = 100  # tensors that one step of an optimizer updates
SIZE = 64
WARM = 2 * TRACED_AFTER  # calls, after which all are replayed

Calls = dict[str, tuple[Callable[[], object], Callable[[], object]]]


class Nothing:
    """In place of a compiled kernel."""

    function, packed_metadata = 0, ()

    @staticmethod
    def run(*args: object) -> None:
        pass


def stand_ins() -> list[tuple[object, str, object]]:
    """What lets kernels compile to nothing: owner, name, and what it returns when called."""
    on_cpu = torch.empty(0).get_device()
    return [
        (jit_kernel.Kernel, "_compile", Nothing()),
        # A GPU would have to be waited for.
        (scatter_gather, "check_range", None),
        (gather_scatter_ref, "check_rows", None),
        (cross_entropy_kernels, "check_targets", None),
        (jit_kernel, "driver_functions", (lambda: on_cpu, lambda device: 0)),
    ]


def without_gpu() -> None:
    """Choose Triton kernels for tensors on the CPU, and let their kernels compile to nothing."""
    os.environ["ONEFOLD_KERNELS"] = "triton"
    for owner, name, result in stand_ins():
        setattr(owner, name, lambda *_, result=result: result)


def calls() -> Calls:
    """Each op as onefold's, and as torch's on one element."""
    torch.manual_seed(0)
    x, y, row, batch = (
        flow.from_torch(torch.randn(*shape))
        for shape in ((SIZE, SIZE), (SIZE, SIZE), (SIZE,), (4, SIZE, SIZE))
    )
    turned = flow.transpose(x, 0, 1)
    heads = flow.from_torch(torch.randn(2, 4, SIZE, 16))
    image, filters = (flow.from_torch(torch.randn(2, 8, size, size)) for size in (8, 3))
    index = flow.from_torch(torch.arange(SIZE))
    (whole,) = x.shards
    [relu] = ops["relu"]
    in_place = InPlace(relu, 0).bind(Local(0, (x.meta,), (x.meta,), None), ()).kernel
    numbers = count(0.5)  # never the same twice
    one, square, cube, tesseract = (torch.ones((1,) * ndim) for ndim in range(1, 5))
    zero = torch.zeros(1, dtype=torch.int64)
    return {
        "add": (lambda: flow.add(x, y), lambda: torch.add(one, one)),
        "add a row": (lambda: flow.add(x, row), lambda: torch.add(square, one)),
        "mul by a number": (lambda: flow.mul(x, 1.5), lambda: torch.mul(one, 1.5)),
        "mul by a new number": (
            lambda: flow.mul(x, next(numbers)),
            lambda: torch.mul(one, next(numbers)),
        ),
        "gelu": (lambda: flow.gelu(x), lambda: F.gelu(one)),
        # As an elementwise step of a graph runs it.
        "relu in place": (lambda: in_place(whole), lambda: torch.relu_(one)),
        "sum": (lambda: flow.sum(x, 1), lambda: torch.sum(square, 1)),
        "layer_norm": (
            lambda: flow.layer_norm(x, (SIZE,), row, row),
            lambda: F.layer_norm(one, (1,), one, one),
        ),
        "softmax": (lambda: flow.softmax(x, 1), lambda: torch.softmax(square, 1)),
        "matmul": (lambda: flow.matmul(x, y), lambda: torch.matmul(square, square)),
        "matmul of batches": (
            lambda: flow.matmul(batch, batch),
            lambda: torch.matmul(cube, cube),
        ),
        "linear": (lambda: flow.linear(x, y, row), lambda: F.linear(square, square, one)),
        "linear of a batch": (
            lambda: flow.linear(batch, y, row),
            lambda: F.linear(cube, square, one),
        ),
        "cat": (lambda: flow.cat((x, y), 0), lambda: torch.cat((one, one), 0)),
        "transpose": (lambda: flow.transpose(x, 0, 1), lambda: torch.transpose(square, 0, 1)),
        "copy of a transpose": (lambda: flow.clone(turned), lambda: torch.clone(square)),
        "embedding": (lambda: flow.embedding(x, index), lambda: F.embedding(zero, square)),
        "cross_entropy": (
            lambda: flow.nn.functional.cross_entropy(x, index),
            lambda: F.cross_entropy(square, zero),
        ),
        "attention": (
            lambda: flow.nn.functional.scaled_dot_product_attention(heads, heads, heads),
            lambda: F.scaled_dot_product_attention(tesseract, tesseract, tesseract),
        ),
        "conv2d": (
            lambda: flow.conv2d(image, filters),
            lambda: F.conv2d(tesseract, tesseract),
        ),
        "dropout": (lambda: flow.dropout(x, 0.1), lambda: F.dropout(square, 0.1)),
        "rand": (lambda: flow.rand(SIZE, SIZE), lambda: torch.rand(1, 1)),
        f"SGD, {MANY} tensors": steps("SGD", momentum=0.9),
        f"AdamW, {MANY} tensors": steps("AdamW", weight_decay=0.01),
    }


def steps(name: str, **options: float) -> tuple[Callable[[], object], Callable[[], object]]:
    """A step of an optimizer, over as many tensors on both sides."""
    ours = [flow.nn.Parameter(flow.ones(SIZE)) for _ in range(MANY)]
    theirs = [torch.nn.Parameter(torch.ones(1)) for _ in range(MANY)]
    for param in (*ours, *theirs):
        param.grad = param.detach().clone()
    return (
        getattr(flow.optim, name)(ours, lr=0.1, **options).step,
        getattr(torch.optim, name)(theirs, lr=0.1, fused=True, **options).step,
    )


def main() -> None:
    parser = timing.options(__doc__)
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--match", default="", help="ops whose name has this in it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    without_gpu()
    results: timing.Results = {"load average of the machine": os.getloadavg()[0]}
    print("Microseconds on the host per call, median [lowest-highest round]")
    print(f"{'op':24}{'onefold':>28}{'torch, one element':>28}")
    for op, (ours, theirs) in calls().items():
        if args.match not in op:
            continue
        for _ in range(WARM):
            ours()
        found, _ = timing.compare({"onefold": ours, "torch": theirs}, args.rounds, seconds=0.01)
        results[op] = {side: [t.median, t.low, t.high] for side, t in found.items()}
        above = "  !" if found["onefold"].median > GOAL_US and str(MANY) not in op else ""
        print(f"{op:24}{found['onefold']!s:>28}{found['torch']!s:>28}{above}")
    if not args.match:
        print(f"\nwritten to {timing.save('host_path', results)}")


if __name__ == "__main__":
    main()

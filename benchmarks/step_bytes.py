"""Bytes that training steps read and write, against those of torch.compile.

    python benchmarks/step_bytes.py       # prints the tables, writes results/step_bytes.json

The model of examples/llama.py (two layers, 4,096 tokens, a vocabulary of 32,000) and a ResNet-18
(64 images of 224 x 224), in mixed precision (bfloat16) with AdamW, compiled and not run. No GPU is
needed.

Ours are the bytes of `graph.plan`: what each kernel reads and makes, each value once. The plan is
made as for a GPU. `separate` are the same steps, each a kernel of its own (those that backward does
again, too). What the update writes in place of what it reads has a row of its own.

torch's are counted in what TorchInductor schedules for the same model under torch.autocast: what
each kernel of its schedule reads and writes, by its own count (`get_read_write_buffers_sizes`:
each buffer once for a kernel, at most what its loop reads of it), with the results of attention,
which that count leaves out. The schedule is for the CPU, since one for a GPU needs a GPU. Of the
optimizer, which is not compiled, the least is taken: what ours reads and writes without the copies
in bfloat16, which autocast repeats in each step.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import timing
import torch
from torch._inductor import config, ir, scheduler
from torch._inductor.graph import GraphLowering

import onefold as flow
from onefold import nn
from onefold.graph.ir import UPDATE, Program, ProgramStep
from onefold.graph.memory_traffic import read_and_written, readable

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import gpt_data
import layouts
import llama
import torch_llama
import whole_models

WIDTH, HEADS, KV_HEADS, LAYERS = 768, 12, 4, 2
BATCH, LENGTH, VOCABULARY = 4, 1024, 32000


IMAGES, SIDE = 64, 224


class Step(nn.Graph):
    """Forward, backward and the update."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.AdamW(model.parameters(), lr=1e-3))
        self.config.enable_amp(True, dtype=torch.bfloat16)

    def build(self, given: flow.Tensor, wanted: flow.Tensor) -> flow.Tensor:
        scores = self.model(given)
        loss = nn.functional.cross_entropy(scores.view(-1, scores.shape[-1]), wanted.flatten())
        loss.backward()
        return loss


def planned_llama() -> Program:
    """The program of a step of the Llama."""
    gpt_data.VOCABULARY = VOCABULARY
    args = SimpleNamespace(width=WIDTH, heads=HEADS, kv_heads=KV_HEADS, layers=LAYERS)
    layout = layouts.Layout.of("single", 1)
    tokens = flow.zeros(BATCH, LENGTH, dtype=flow.int64, **layout.data)
    return planned(llama.Llama(args, layout), tokens, tokens)


def planned_resnet() -> Program:
    """The program of a step of the ResNet."""
    images = flow.zeros(IMAGES, 3, SIDE, SIDE)
    model: Any = whole_models.resnet(flow, {})
    return planned(model, images, flow.zeros(IMAGES, dtype=flow.int64))


def planned(model: nn.Module, *given: flow.Tensor) -> Program:
    """The program of a step, made as for a GPU and not run."""
    step = Step(model)
    kernels, os.environ["ONEFOLD_KERNELS"] = os.environ.get("ONEFOLD_KERNELS", ""), "triton"
    try:
        step._compile(*given)
    finally:
        os.environ["ONEFOLD_KERNELS"] = kernels
    return next(reversed(step._compiled.values())).program


def part_of(step: ProgramStep) -> str:
    if step.scope == UPDATE:
        return "update"
    return "backward" if step.backward else "forward"


def ours(program: Program, separate: bool) -> Counter[str]:
    """Bytes by part of the step, as fused, or of each op alone."""
    found: Counter[str] = Counter()
    for step in program.steps:
        for each in (step.parts if separate else ()) or (step,):
            found[part_of(each)] += read_and_written(each)
        found["update, in place"] += sum(value.meta.nbytes for value in step.writes)
    return found


def by_kind(program: Program) -> Counter[str]:
    """Bytes by what a kernel does."""
    found: Counter[str] = Counter()
    for step in program.steps:
        found[", ".join(part.name for part in step.parts) or step.name] += read_and_written(step)
    return found


def inductor(step: Callable[[], torch.Tensor]) -> Counter[str]:
    """The bytes of the kernels that TorchInductor schedules for a loss and its gradient."""
    found: Counter[str] = Counter()

    def bytes_of(node: scheduler.BaseSchedulerNode) -> int:
        if isinstance(node.node, ir.MultiOutput):
            layout = node.node.get_layout()
            return int(prod(map(int, layout.size))) * layout.dtype.itemsize
        return int(node.get_read_write_buffers_sizes())

    def empty(value: Any) -> torch.Tensor | None:
        if isinstance(value, ir.NoneAsConstantBuffer):
            return None
        size, stride = map(int, value.get_size()), map(int, value.get_stride())
        options = {"dtype": value.get_dtype(), "device": value.get_device()}
        return torch.empty_strided(tuple(size), tuple(stride), **options)

    def counted(graph: GraphLowering) -> SimpleNamespace:
        """What stands for a compiled module: it counts, and gives memory without values."""
        graph._update_scheduler()
        part = "backward" if graph.is_backward else "forward"
        found[part] += sum(map(bytes_of, graph.scheduler.nodes))
        results = graph.graph_outputs

        def call(args: list[object]) -> Sequence[torch.Tensor | None]:
            args.clear()
            return [empty(value) for value in results]

        return SimpleNamespace(call=call, __file__=__file__, key="")

    compile_to_module = GraphLowering.compile_to_module
    GraphLowering.compile_to_module = counted
    try:
        with config.patch(force_disable_caches=True):
            step().backward()
    finally:
        GraphLowering.compile_to_module = compile_to_module
    return found


def torch_llama_loss() -> tuple[torch.nn.Module, Callable[[], torch.Tensor]]:
    """The same Llama in torch, and its loss when compiled."""
    model = torch_llama.Llama(WIDTH, HEADS, KV_HEADS, LAYERS, VOCABULARY)
    tokens, compiled = torch.zeros(BATCH, LENGTH, dtype=torch.int64), torch.compile(model)
    return model, lambda: compiled(tokens, tokens)


def torch_resnet_loss() -> tuple[torch.nn.Module, Callable[[], torch.Tensor]]:
    """The same ResNet in torch, and its loss when compiled."""
    model = whole_models.resnet(torch, {})
    images, wanted = torch.zeros(IMAGES, 3, SIDE, SIDE), torch.zeros(IMAGES, dtype=torch.int64)

    @torch.compile
    def loss() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(images), wanted)

    return model, loss


def torchs(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> Counter[str]:
    """The bytes of a step of a model in torch."""

    def step() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return loss()

    found = inductor(step)
    parameters = sum(p.numel() for p in model.parameters())
    found["update"] = 4 * 4 * parameters
    found["update, in place"] = 3 * 4 * parameters
    return found


def main() -> None:
    timing.options(__doc__).parse_args()
    torch.set_num_threads(1)
    llama_size = {
        "width": WIDTH, "heads": HEADS, "key and value heads": KV_HEADS, "layers": LAYERS,
        "tokens": BATCH * LENGTH, "vocabulary": VOCABULARY,
    }  # fmt: skip
    resnet_size = {"images": IMAGES, "side": SIDE}
    path = timing.save("step_bytes", {
        "Llama": compared("Llama", llama_size, planned_llama(), *torch_llama_loss()),
        "ResNet-18": compared("ResNet-18", resnet_size, planned_resnet(), *torch_resnet_loss()),
    })  # fmt: skip
    print(f"\nwritten to {path}")


def compared(
    name: str, size: dict[str, int], program: Program, model: torch.nn.Module,
    loss: Callable[[], torch.Tensor],
) -> timing.Results:  # fmt: skip
    """Print the table of a model; returns what is saved."""
    columns = {
        "separate": ours(program, True),
        "fused": ours(program, False),
        "torch.compile": torchs(model, loss),
    }
    print(f"\n{name:>18}" + "".join(f"{name:>16}" for name in columns))
    for part in ("forward", "backward", "update", "update, in place"):
        print(f"{part:>18}" + "".join(f"{readable(c[part]):>16}" for c in columns.values()))
    plan = {name: sum(c.values()) - c["update, in place"] for name, c in columns.items()}
    print(f"{'by the plan':>18}" + "".join(f"{readable(each):>16}" for each in plan.values()))
    totals = {name: sum(c.values()) for name, c in columns.items()}
    print(f"{'in all':>18}" + "".join(f"{readable(each):>16}" for each in totals.values()))
    kinds = by_kind(program)
    print("\nlargest, fused:")
    for kind, count in kinds.most_common(12):
        print(f"{readable(count):>18} {kind}")
    parameters = sum(p.numel() for p in model.parameters())
    return {
        "model": size | {"parameters": parameters}, "parts": columns, "by the plan": plan,
        "in all": totals, "fused, by kind": dict(kinds.most_common()),
    }  # fmt: skip


if __name__ == "__main__":
    main()

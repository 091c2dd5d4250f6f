"""The parallelism strategies in ten lines each: data, model, pipeline, mixed, graphs, shards.

    python examples/parallelism.py
    python -m onefold.distributed.launch --nproc_per_node 4 examples/parallelism.py

Every program prints the logical shapes, which each process knows, and checks its result against
the same computation on one rank.
"""

from __future__ import annotations

import argparse

import numpy as np

import onefold as flow
from onefold import nn
from onefold.parallel import COLUMN, ROW, tensor_parallel

BROADCAST = flow.sbp.broadcast


def show(name: str, text: str) -> None:
    if flow.env.get_rank() == 0:
        print(f"{name:>9}: {text}")


def check(out: flow.Tensor, x: flow.Tensor, *weights: flow.Tensor) -> None:
    """Compare with numpy on the logical values."""
    expected = x.numpy()
    for weight in weights:
        expected = expected @ weight.numpy()
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-5)


def data_parallel(device: str) -> None:
    """The data is split, every rank has the whole weight."""
    placement = flow.placement(device, ranks=[0, 1])
    x = flow.randn(4, 5, placement=placement, sbp=flow.sbp.split(0))
    w = flow.randn(5, 8, placement=placement, sbp=BROADCAST)
    out = flow.matmul(x, w)
    show("data", f"{tuple(out.shape)} as {out.sbp}")
    check(out, x, w)


def model_parallel(device: str) -> None:
    """The weight is split, every rank has all data."""
    placement = flow.placement(device, ranks=[0, 1])
    x = flow.randn(4, 5, placement=placement, sbp=BROADCAST)
    w = flow.randn(5, 8, placement=placement, sbp=flow.sbp.split(1))
    out = flow.matmul(x, w)
    show("model", f"{tuple(out.shape)} as {out.sbp}")
    check(out, x, w)


def pipeline(device: str) -> None:
    """Each stage has its own rank; to_global moves the data from stage to stage."""
    first, second = flow.placement(device, ranks=[0]), flow.placement(device, ranks=[1])
    w0 = flow.randn(5, 8, placement=first, sbp=BROADCAST)
    w1 = flow.randn(8, 3, placement=second, sbp=BROADCAST)
    x = flow.randn(4, 5, placement=first, sbp=BROADCAST)
    between = flow.matmul(x, w0)
    out = flow.matmul(between.to_global(placement=second, sbp=BROADCAST), w1)
    show("pipeline", f"{tuple(between.shape)} on rank 0, {tuple(out.shape)} on rank 1")
    check(out, x, w0, w1)


class Stage(nn.Module):
    """One matrix multiplication."""

    def __init__(self, rows: int, columns: int, placement: flow.placement, sbp: object) -> None:
        super().__init__()
        self.w = nn.Parameter(flow.randn(rows, columns, placement=placement, sbp=sbp))

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        return flow.matmul(x, self.w)


class TwoStages(nn.Module):
    """Data parallelism on the first two ranks, then model parallelism on the other two."""

    def __init__(self, first: flow.placement, second: flow.placement) -> None:
        super().__init__()
        self.second = second
        self.stage0 = Stage(5, 8, first, BROADCAST)
        self.stage1 = Stage(8, 3, second, flow.sbp.split(1))

    def forward(self, x: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        out0 = self.stage0(x)
        out1 = self.stage1(out0.to_global(placement=self.second, sbp=BROADCAST))
        return out0, out1


def mixed(device: str) -> None:
    """Pipeline, data and model parallelism together, with one training step."""
    first, second = flow.placement(device, [0, 1]), flow.placement(device, [2, 3])
    model = TwoStages(first, second)
    x = flow.randn(4, 5, placement=first, sbp=flow.sbp.split(0))
    out0, out1 = model(x)
    check(out1, x, model.stage0.w, model.stage1.w)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.01)
    before = (out1 * out1).mean()
    before.backward()
    gradient = model.stage0.w.grad
    optimizer.step()
    after = model(x)[1]
    show("mixed", f"{tuple(out0.shape)} as {out0.sbp}, {tuple(out1.shape)} as {out1.sbp}")
    show("", f"the gradient of the data-parallel weight is {gradient.sbp}")
    show("", f"loss {before.item():.4f}, after one step {(after * after).mean().item():.4f}")


class StagedGraph(nn.Graph):
    """The same model as a graph: each module is a stage, and gets its inputs on its ranks."""

    def __init__(self, model: TwoStages) -> None:
        super().__init__()
        self.model = model
        self.model.stage0.to(nn.graph.GraphModule).set_stage(0, model.stage0.w.placement)
        self.model.stage1.to(nn.graph.GraphModule).set_stage(1, model.second)
        # Two halves of the batch: while stage 1 works on one, stage 0 works on the next.
        self.config.set_gradient_accumulation_steps(2)

    def build(self, x: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        return self.model(x)


def graph(device: str) -> None:
    """The mixed program captured once and run as a graph of two stages."""
    first, second = flow.placement(device, [0, 1]), flow.placement(device, [2, 3])
    model = TwoStages(first, second)
    x = flow.randn(4, 5, placement=first, sbp=flow.sbp.split(0))
    out0, out1 = StagedGraph(model)(x)
    check(out1, x, model.stage0.w, model.stage1.w)
    show("graph", f"{tuple(out0.shape)} as {out0.sbp}, {tuple(out1.shape)} as {out1.sbp}")


class TrainingGraph(StagedGraph):
    """One whole training step as a pipeline: forward and backward of 4 micro-batches, update."""

    def __init__(self, model: TwoStages, lr: float) -> None:
        super().__init__(model)
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=lr))
        self.config.set_gradient_accumulation_steps(4)

    def build(self, x: flow.Tensor) -> flow.Tensor:
        _, out = self.model(x)
        loss = (out * out).mean()
        loss.backward()
        return loss  # one for each micro-batch


def training(device: str) -> None:
    """A pipelined training graph; its first loss is that of the eager program."""
    first, second = flow.placement(device, [0, 1]), flow.placement(device, [2, 3])
    model = TwoStages(first, second)
    x = flow.randn(8, 5, placement=first, sbp=flow.sbp.split(0))
    eager = model(x)[1]
    wanted = (eager * eager).mean().item()
    train = TrainingGraph(model, lr=0.01)
    losses = [train(x).mean().item() for _ in range(2)]
    np.testing.assert_allclose(losses[0], wanted, rtol=1e-5)
    show("training", f"loss {losses[0]:.4f}, after one step {losses[1]:.4f}")
    for line in train.schedule().splitlines():
        show("", line)


def feed_forward() -> tuple[nn.Module, flow.Tensor, np.ndarray]:
    """A model of ordinary layers, its input and what one rank makes of it."""
    model = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3))
    x = flow.randn(4, 5)
    return model, x, model(x).numpy()


def layers(device: str) -> None:
    """The layers of a model are split by a table of names, as in Megatron-LM."""
    placement = flow.placement(device, ranks=[0, 1])
    model, x, expected = feed_forward()
    tensor_parallel(model, placement, {"0.*": COLUMN, "2.*": ROW})
    out = model(x.to_global(placement, BROADCAST))
    show("layers", f"{tuple(out.shape)} as {out.sbp}")
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-5)


def shards(device: str) -> None:
    """The data is split, and so are the parameters, which each layer gathers when it is called."""
    placement = flow.placement(device, ranks=[0, 1])
    model, x, expected = feed_forward()
    model.shard_(placement, shard_min_size=8)
    out = model(x.to_global(placement, BROADCAST).to_global(sbp=flow.sbp.split(0)))
    show("shards", f"{tuple(out.shape)} as {out.sbp}, the weights as {model[0].weight.sbp}")
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-5)


PROGRAMS = {
    "data": (data_parallel, 2),
    "model": (model_parallel, 2),
    "pipeline": (pipeline, 2),
    "mixed": (mixed, 4),
    "graph": (graph, 4),
    "training": (training, 4),
    "layers": (layers, 2),
    "shards": (shards, 2),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", help=f"which of {', '.join(PROGRAMS)} (default all)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    unknown = set(args.programs) - set(PROGRAMS)
    if unknown:
        parser.error(f"unknown programs {sorted(unknown)}; choose from {', '.join(PROGRAMS)}")
    flow.manual_seed(0)
    for name in args.programs or PROGRAMS:
        program, ranks = PROGRAMS[name]
        if flow.env.is_launched() and flow.env.get_world_size() < ranks:
            show(name, f"needs {ranks} ranks, but {flow.env.get_world_size()} were launched")
        else:
            program(args.device)


if __name__ == "__main__":
    main()

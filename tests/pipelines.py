"""Small staged models for tests: any meshes and layouts, shortcuts, tied weights, running state."""

from dataclasses import dataclass, field

import numpy as np

import onefold as flow
from onefold import nn

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)
WIDTH = 4
# By mesh dims: how data and weights of a stage may be laid out.
LAYOUTS = {
    1: [((S0,), (B,)), ((B,), (S0,)), ((B,), (B,)), ((S1,), (S1,))],
    2: [((S0, B), (B, S0)), ((S0, S0), (B, B)), ((B, S1), (S0, S1))],
}


@dataclass(frozen=True)
class Spec:
    """A model: a mesh and the index of a layout for every stage, and what makes it harder."""

    meshes: tuple[object, ...]
    layouts: tuple[int, ...]
    shortcut: bool = False  # the first stage's result goes to the last stage too
    tied: bool = False  # the last stage uses the first one's weight
    state: bool = False  # a buffer that changes in every forward
    dropout: float = 0.0
    boxed: bool = True  # whether the model calls to_global itself, or leaves that to set_stage
    frozen: tuple[int, ...] = field(default=())  # stages whose weights are not trained
    offloaded: tuple[int, ...] = field(default=())  # those whose activations wait on the host
    returned_on: tuple[int, ...] = field(default=())  # ranks that the outputs are moved to


class Center(nn.Module):
    """Takes away a running mean, which every forward in training moves on."""

    def __init__(self, where):
        super().__init__()
        whole = (B,) * where.ndim
        self.register_buffer("mean", flow.zeros(WIDTH, placement=where, sbp=whole))

    def forward(self, x):
        if self.training:
            with flow.no_grad():
                self.mean.mul_(0.5).add_(
                    x.detach().mean(0).to_global(self.mean.placement, self.mean.sbp)
                )
        return x - self.mean


class Block(nn.Module):
    def __init__(self, spec, stage):
        super().__init__()
        self.where = flow.placement("cpu", spec.meshes[stage])
        options = LAYOUTS[self.where.ndim]
        self.data, weight = options[spec.layouts[stage] % len(options)]
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False, placement=self.where, sbp=weight)
        whole = (B,) * self.where.ndim
        self.bias = nn.Parameter(flow.zeros(WIDTH, placement=self.where, sbp=whole))
        self.norm = Center(self.where) if spec.state else None
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, x, other=None, weight=None):
        x = self.linear(x) + self.bias
        if other is not None:
            x = x + other
        if weight is not None:
            x = flow.matmul(x, weight)
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(flow.gelu(x))


class Model(nn.Module):
    def __init__(self, spec, staged):
        super().__init__()
        self.spec, self.staged = spec, staged
        self.blocks = nn.ModuleList(Block(spec, i) for i in range(len(spec.meshes)))
        for stage, block in enumerate(self.blocks):
            if staged:
                view = block.to(nn.graph.GraphModule)
                view.set_stage(stage, block.where)
                view.activation_offloading = stage in spec.offloaded
            if stage in spec.frozen:
                for parameter in block.parameters():
                    parameter.requires_grad_(False)

    def forward(self, x):
        first, last = self.blocks[0], self.blocks[-1]
        kept = None
        for block in self.blocks:
            other = weight = None
            if block is last and block is not first:
                whole = (B,) * last.where.ndim
                if self.spec.shortcut:
                    other = kept.to_global(last.where, whole)
                if self.spec.tied:
                    weight = first.linear.weight.to_global(last.where, whole)
            if self.spec.boxed or block is first:
                x = x.to_global(block.where, block.data)
            elif not self.staged:  # what set_stage does
                same = x.placement.ndim == block.where.ndim
                x = x.to_global(block.where, x.sbp if same else (B,) * block.where.ndim)
            x = block(x, other, weight)
            if block is first:
                kept = x
        return x


class Train(nn.Graph):
    def __init__(self, model, micro_batches, schedule):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(trained(model), lr=0.1, momentum=0.9))
        self.config.set_gradient_accumulation_steps(micro_batches)
        self.config.set_schedule(schedule)

    def build(self, x, y):
        out = self.model(x)
        loss = ((out - y) ** 2).mean()
        loss.backward()
        if self.model.spec.returned_on:
            where = flow.placement("cpu", self.model.spec.returned_on)
            loss, out = 2 * loss.to_global(where, B), out.to_global(where, S0)
        return loss, out


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def data(model, batch):
    first, last = model.blocks[0].where, model.blocks[-1].where
    x = flow.randn(batch, WIDTH, placement=first, sbp=(B,) * first.ndim)
    y = flow.randn(batch, WIDTH, placement=last, sbp=(B,) * last.ndim)
    return x, y


def run(spec, schedule, micro_batches, steps=2, staged=True, each=2, change=None):
    """What some training steps give: losses, outputs, and all state after them, as numpy.

    `change` may set something of the graph before it runs.
    """
    flow.manual_seed(7)
    model = Model(spec, staged)
    graph = Train(model, micro_batches, schedule if staged else None)
    if change is not None:
        change(graph)
    x, y = data(model, each * micro_batches)
    found = [value.numpy() for _ in range(steps) for value in graph(x, y)]
    state = [*model.parameters(), *model.buffers()]
    return graph, found + [tensor.numpy() for tensor in state]


def differ(one, other, exact=True):
    """The places at which two results of `run` are not the same."""
    close = np.array_equal if exact else (lambda a, b: np.allclose(a, b, rtol=1e-4, atol=1e-6))
    assert len(one) == len(other)
    return [i for i, (a, b) in enumerate(zip(one, other, strict=True)) if not close(a, b)]

"""A net of three blocks, trained eagerly and as a graph, in several layouts."""

import math

import onefold as flow
from onefold import nn, sbp

B, S0, S1 = sbp.broadcast, sbp.split(0), sbp.split(1)
PAIR = flow.placement("cpu", [0, 1])
# Name: keywords of the layers, and of the input
LAYOUTS = {
    "local": ({}, {}),
    "data-parallel": ({"placement": PAIR, "sbp": B}, {"placement": PAIR, "sbp": S0}),
    "model-parallel": ({"placement": PAIR, "sbp": S0}, {"placement": PAIR, "sbp": B}),
}


class Block(nn.Module):
    def __init__(self, where):
        super().__init__()
        self.norm = nn.LayerNorm(8, **({**where, "sbp": B} if where else {}))
        self.up = nn.Linear(8, 16, **where)
        self.down = nn.Linear(16, 8, **({**where, "sbp": S1} if where.get("sbp") == S0 else where))
        self.dropout = nn.Dropout(0.4)

    def forward(self, x, scale=1.0):
        return x + self.dropout(self.down(flow.gelu(self.up(self.norm(x))))) * scale


class Net(nn.Module):
    def __init__(self, where):
        super().__init__()
        self.blocks = nn.ModuleList([Block(where) for _ in range(3)])
        self.head = nn.Linear(8, 1, **({**where, "sbp": B} if where else {}))

    def forward(self, x):
        for block in self.blocks:
            x = block(x, scale=0.5)
        return self.head(x)


class Train(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))

    def build(self, x):
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        return loss


def made(where=None):
    flow.manual_seed(4)
    return Net(where or {})


def data(where, number):
    random = flow.Generator()
    random.manual_seed(number)
    return flow.randn(4, 8, generator=random, **where)


def state_of(model):
    return [t.numpy().tolist() for t in [*model.parameters(), *model.buffers()]]


def eager_training(model, inputs):
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    flow.manual_seed(8)
    for x in inputs:
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, state_of(model)


def graph_training(graph, inputs):
    flow.manual_seed(8)
    losses = [graph(x).item() for x in inputs]
    return losses, state_of(graph.model)


def bytes_kept(program):
    """The bytes of the values that the forward steps make and the backward steps read."""
    forward = {v.number: v for s in program.steps if not s.backward for v in s.outputs}
    read = {v.number for s in program.steps if s.backward for v in s.reads()}
    return sum(
        math.prod(v.meta.shape) * v.meta.dtype.itemsize for n, v in forward.items() if n in read
    )

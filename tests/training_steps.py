"""Training steps of small models in several layouts, and the bytes that they really hold."""

import numpy as np

import onefold as flow
from onefold import nn, sbp
from onefold.graph.memory.liveness import buffers_of, live_bytes
from onefold.graph.memory.memory_probe import Probe
from onefold.graph.memory.program_events import call_events

B, S0, S1 = sbp.broadcast, sbp.split(0), sbp.split(1)
ONE, PAIR = flow.placement("cpu", [0]), flow.placement("cpu", [0, 1])


class Block(nn.Module):
    def __init__(self, width, columns, rows, where):
        super().__init__()
        place = {"placement": where}
        self.norm = nn.LayerNorm(width, **place, sbp=B)
        self.q, self.k, self.v = (nn.Linear(width, width, **place, sbp=columns) for _ in range(3))
        self.out = nn.Linear(width, width, **place, sbp=rows)
        self.up = nn.Linear(width, 4 * width, **place, sbp=columns)
        self.down = nn.Linear(4 * width, width, **place, sbp=rows)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        batch, length, width = x.shape
        h = self.norm(x)
        q, k, v = (
            f(h).view(batch, length, 2, width // 2).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)))
        return x + self.down(flow.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


class Train(nn.Graph):
    def __init__(self, model, micro_batches=1):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))
        self.config.set_gradient_accumulation_steps(micro_batches)

    def build(self, x, target):
        loss = ((self.model(x) - target) ** 2).mean()
        loss.backward()
        return loss


def two_layers(where=None, first=B, second=B):
    places = [{} if where is None else {"placement": where, "sbp": s} for s in (first, second)]
    return Net(nn.Linear(12, 40, **places[0]), nn.GELU(), nn.Linear(40, 12, **places[1]))


MODELS = {
    "mlp, local": (two_layers, None, None),
    "mlp, one rank": (lambda: two_layers(ONE), ONE, S0),
    "mlp, data-parallel": (lambda: two_layers(PAIR), PAIR, S0),
    "mlp, model-parallel": (lambda: two_layers(PAIR, S0, S1), PAIR, B),
    "block, one rank": (lambda: Net(Block(12, B, B, ONE), Block(12, B, B, ONE)), ONE, S0),
    "block, data-parallel": (lambda: Net(Block(12, B, B, PAIR)), PAIR, S0),
    "block, tensor-parallel": (lambda: Net(Block(12, S0, S1, PAIR)), PAIR, B),
}


def inputs_for(where, split, rows=5):
    place = {} if where is None else {"placement": where, "sbp": split}
    return [flow.tensor(np.ones((rows, 6, 12), np.float32), **place) for _ in range(2)]


def compiled(graph, inputs):
    graph._compile(*inputs)
    return next(reversed(graph._compiled.values()))


def measured(graph, inputs, ranks):
    probe = Probe(compiled(graph, inputs).executable, ranks)
    with flow.no_grad():
        kept = probe.run(inputs)
    del kept
    return probe


def lives(program, rank=0):
    events = call_events(program, rank)
    return live_bytes(buffers_of(events), len(events))

"""One layer of a transformer of 22 billion parameters on 8 A100: its published times.

Source: Korthikanti et al., "Reducing activation recomputation in large transformer models" (2022),
table 4: milliseconds forward and backward, with tensor and sequence parallelism and recomputation.
"""

import pytest

import onefold as flow
from onefold import nn
from onefold.distributed.world import seen_from

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)
WIDTH, HEADS, LENGTH, BATCH, RANKS = 6144, 64, 2048, 4, 8
HALF = flow.float16


class Attention(nn.Module):
    """The scores, their softmax and what they weigh, as values of their own."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.1)

    def forward(self, q, k, v):
        scores = flow.matmul(q, k.transpose(2, 3)) * 0.1
        return flow.matmul(self.dropout(flow.softmax(scores, -1)), v)


class Layer(nn.Module):
    """Tensor parallel; between its products activations are whole, or split along the sequence."""

    def __init__(self, p):
        super().__init__()
        where = {"placement": p, "dtype": HALF}

        def linear(inner, outer, sbp):
            return nn.Linear(inner, outer, sbp=sbp, **where)

        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH, sbp=B, **where) for _ in range(2))
        self.q, self.k, self.v = (linear(WIDTH, WIDTH, S0) for _ in range(3))
        self.attention = Attention()
        self.out = linear(WIDTH, WIDTH, S1)
        self.up, self.down = linear(WIDTH, 4 * WIDTH, S0), linear(4 * WIDTH, WIDTH, S1)
        self.dropout = nn.Dropout(0.1)
        self.shift = nn.Parameter(flow.zeros(1, sbp=B, **where))
        self.between = B

    def forward(self, x):
        inner = self.norm1(x).to_global(sbp=B)
        shape = (BATCH, LENGTH, HEADS, WIDTH // HEADS)
        q, k, v = (f(inner).view(*shape).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = self.attention(q, k, v).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)
        x = x + self.dropout(self.out(y).to_global(sbp=self.between))
        inner = self.norm2(x).to_global(sbp=B)
        y = self.down(flow.gelu(self.up(inner)))
        return x + self.dropout(y.to_global(sbp=self.between))


class Step(nn.Graph):
    def __init__(self, layer, trains, again):
        super().__init__()
        self.layer = layer
        if trains:
            self.add_optimizer(flow.optim.SGD(layer.parameters(), lr=0.1))
        for module in (layer, layer.attention):
            module.to(nn.graph.GraphModule).activation_checkpointing = module is again

    def build(self, x):
        if not self.training:
            return self.layer(x)
        y = self.layer(x + self.layer.shift)  # as in a network, the input has a gradient
        y.backward(x)
        return y


@pytest.fixture(scope="module")
def layer():
    with seen_from(0, RANKS):
        yield Layer(flow.placement("cpu", list(range(RANKS))))


PUBLISHED = {
    "tensor, forward": (B, "", 7.7, 0),
    "tensor": (B, "", 7.7, 11.9),
    "tensor and sequence, forward": (S1, "", 7.2, 0),
    "tensor and sequence": (S1, "", 7.2, 11.8),
    "all again": (B, "all", 7.7, 19.5),
    "attention again": (B, "attention", 7.7, 13.2),
    "sequence, attention again": (S1, "attention", 7.2, 13.1),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_layer_takes_about_as_long_as_was_published(layer, name):
    between, again, forward, backward = PUBLISHED[name]
    layer.between = between
    graph = Step(layer, backward > 0, {"all": layer, "attention": layer.attention}.get(again))
    placement = layer.shift.placement
    x = flow.zeros(BATCH, LENGTH, WIDTH, placement=placement, sbp=between, dtype=HALF)
    with flow.set_grad_enabled(backward > 0):
        graph._compile(x)
    line = graph.simulate("a100-80", memory=False).timeline
    updates = ("sgd", "learning_rate")
    spans = zip(line.tasks, line.starts, line.ends, strict=True)
    seconds = max(end for task, _, end in spans if task.name not in updates)
    assert 1e3 * seconds == pytest.approx(forward + backward, rel=0.1)

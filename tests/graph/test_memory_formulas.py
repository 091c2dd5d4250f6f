"""What plans of a transformer hold, against the closed forms of the literature.

Sources: Korthikanti et al., "Reducing activation recomputation in large transformer models" (2022),
for activations, with a byte for each element of a mask of dropout, which the CPU keeps.
Rajbhandari et al., "ZeRO" (2020), for parameters, gradients and states.
"""

from fractions import Fraction

import pytest

import onefold as flow
from onefold import nn
from onefold.graph.memory.program_events import call_events

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)
HALF = flow.float16
WIDTH, HEADS, LENGTH, BATCH = 64, 4, 32, 32


class Attention(nn.Module):
    """The scores, their softmax and what they weigh, as values of their own."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.1)

    def forward(self, q, k, v):
        scores = flow.softmax(flow.matmul(q, k.transpose(2, 3)), -1)
        return flow.matmul(self.dropout(scores), v)


class Columns(nn.ModuleList):
    """Linear layers that read an activation whole. Made again in backward, it is kept split."""

    def forward(self, x):
        whole = x.to_global(sbp=B)
        return [layer(whole) for layer in self]


class Layer(nn.Module):
    """Between its products activations are whole, or split along the sequence."""

    def __init__(self, p, between):
        super().__init__()
        where = {"placement": p, "dtype": HALF}

        def linear(inner, outer, sbp):
            return nn.Linear(inner, outer, sbp=sbp, **where)

        self.between = between
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH, sbp=B, **where) for _ in range(2))
        self.qkv = Columns(linear(WIDTH, WIDTH, S0) for _ in range(3))
        self.attention, self.out = Attention(), linear(WIDTH, WIDTH, S1)
        self.up = Columns([linear(WIDTH, 4 * WIDTH, S0)])
        self.down = linear(4 * WIDTH, WIDTH, S1)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        q, k, v = (y.view(*shape).transpose(1, 2) for y in self.qkv(self.norm1(x)))
        y = self.attention(q, k, v).transpose(1, 2).reshape(*x.shape)
        x = x + self.dropout(self.out(y).to_global(sbp=self.between))
        (y,) = self.up(self.norm2(x))
        y = self.down(flow.gelu(y))
        return x + self.dropout(y.to_global(sbp=self.between))


class Train(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.AdamW(model.parameters()))

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def most_live(layers, tensor, split, again):
    """The bytes that are live at once on a rank while a model of so many layers is trained."""
    with flow.planning(tensor) as cluster:
        (p,) = cluster.meshes(tensor, type="cpu")
        between = S1 if split else B
        model = nn.Sequential(*(Layer(p, between) for _ in range(layers)))
        graph = Train(model)
        for layer in model:
            chosen = {"all": [layer], "attention": [layer.attention], "": []}[again]
            if split and again != "all":
                chosen += [layer.qkv, layer.up]
            for module in chosen:
                module.to(nn.graph.GraphModule).activation_checkpointing = True
        graph(flow.zeros(BATCH, LENGTH, WIDTH, placement=p, sbp=between, dtype=HALF))
        return graph.memory(0).live


def formula(t, split, again):
    """Bytes of the activations of a layer on each rank, over s b h."""
    scores = Fraction(HEADS * LENGTH, WIDTH) * 5
    if again == "all":
        return Fraction(2, t if split else 1)
    inside = Fraction(24, t) + (scores / t if again == "" else 0)
    return inside + Fraction(10, t if split else 1)


@pytest.mark.parametrize("again", ["", "attention", "all"])
@pytest.mark.parametrize(("t", "split"), [(1, False), (2, False), (4, False), (2, True), (4, True)])
def test_activations_of_a_layer(t, split, again):
    """What one layer more adds to the peak."""
    more = most_live(3, t, split, again) - most_live(2, t, split, again)
    assert Fraction(more, LENGTH * BATCH * WIDTH) == formula(t, split, again)


RANKS, SIDE, LINEARS = 4, 64, 12
STATES = {  # of float32: bytes of parameters, of gradients while they add up, and of AdamW's states
    0: (4, 4, 8),
    1: (4, 4, Fraction(8, RANKS)),
    2: (4, Fraction(4, RANKS), Fraction(8, RANKS)),
    3: (Fraction(4, RANKS), Fraction(4, RANKS), Fraction(8, RANKS)),
}


@pytest.mark.parametrize("stage", STATES)
def test_states_of_a_parameter(stage):
    with flow.planning(RANKS) as cluster:
        (p,) = cluster.meshes(RANKS, type="cpu")
        model = nn.Sequential(
            *(nn.Linear(SIDE, SIDE, bias=False, placement=p, sbp=B) for _ in range(LINEARS))
        )
        count = sum(parameter.numel() for parameter in model.parameters())
        graph = Train(model)
        graph.config.set_gradient_accumulation_steps(2)
        if stage:
            graph.config.enable_zero(stage=stage, shard_min_size=1)
        graph(flow.zeros(2 * RANKS, SIDE, placement=p, sbp=S0))
        plan, events = graph.memory(0), call_events(graph.program, 0)
    parameters, gradients, states = STATES[stage]
    assert Fraction(plan.persistent, count) == parameters + states
    assert Fraction(plan.states, count) == states

    def gradient_bytes(at):
        live = (b.nbytes for b in plan.buffers if b.first < at <= b.last)
        return Fraction(sum(nbytes for nbytes in live if nbytes >= 4 * SIDE**2 / RANKS), count)

    labels = [event.label for event in events]
    second = labels.index("square", labels.index("square") + 1)
    assert gradient_bytes(labels.index("mm_tn", second)) == gradients
    assert gradient_bytes(labels.index("adamw")) == (Fraction(4, RANKS) if stage else 4)

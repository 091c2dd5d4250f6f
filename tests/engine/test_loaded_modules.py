"""Programs of common ops load neither torch's compiler nor sympy, which take seconds to load."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import onefold as flow
from onefold import nn
F = nn.functional


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (y.view(n, t, 2, c // 2).transpose(1, 2) for y in parts)
        scores = (q @ k.transpose(-2, -1)) / (c // 2) ** 0.5
        mask = flow.tril(flow.ones(t, t)) == 0
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, t, c))
        return x + self.down(F.gelu(self.up(self.last(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.block, self.head = Block(8), nn.Linear(8, 11)

    def forward(self, ids):
        x = self.token(ids) + self.place(flow.arange(ids.shape[1]))
        return F.cross_entropy(self.head(self.block(x)).flatten(0, 1), ids.flatten())


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(8)])
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = F.max_pool2d(self.norms[0](self.first(x)).relu(), 3, 2, 1)
        x = (x + self.norms[1](self.second(x))).relu()
        y = self.head(F.avg_pool2d(x, 2).mean((2, 3)) + F.adaptive_avg_pool2d(x, 1).flatten(1))
        return F.mse_loss(y, flow.zeros(2, 4))


class Train(nn.Graph):
    def __init__(self, model, optimizer):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, x):
        loss = self.model(x)
        loss.backward()
        return loss


def common_ops():
    x = flow.randn(4, 4, requires_grad=True)
    index = flow.tensor([[0, 1], [2, 3]])
    values, places = x.max(1)
    parts = [
        flow.cat([x, x]).mean(), F.mse_loss(x, flow.zeros(4, 4)), x.softmax(-1).sum(), values.sum(),
        flow.where(x > 0, x, 0.0).sum(), x.gather(1, index).sum(), flow.triu(x).sum(),
        x.cumsum(0).mean(), x.sort(0)[0].sum(), x.topk(2)[0].sum(), x.std(), x.norm(),
        x.amax(0).sum(), x.prod(), flow.bmm(x[None], x[None]).sum(),
        flow.einsum("ij,kj->ik", x, x).sum(), x.logsumexp(1).sum(), x.flip(0).sum(),
        F.pad(x, (1, 1)).sum(), x.repeat(2, 1).roll(1, 0).sum(),
    ]
    flow.stack(parts).sum().backward()
    return (x.argmax(), (x > 0).any(), (x > 0).all(), flow.one_hot(index, 5))


"""
EAGER = """
for model, x in [(Gpt(), flow.tensor([[1, 2, 3, 4, 5, 6]])), (ResNet(), flow.randn(2, 3, 16, 16))]:
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(2):
        loss = model(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    loss.item()
common_ops()
"""
GRAPH = """
for model, x in [(Gpt(), flow.tensor([[1, 2, 3, 4, 5, 6]])), (ResNet(), flow.randn(2, 3, 16, 16))]:
    graph = Train(model, flow.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
    for _ in range(2):
        graph(x)
"""
PLANNED = """
    graph.memory(0)
    graph.simulate("h100")
"""
LOADED = """
print([name for name in ("sympy", "torch._dynamo", "torch._inductor") if name in sys.modules])
"""


@pytest.mark.parametrize("what", ["eager", "graph", "planned"])
def test_a_training_loads_no_compiler(what):
    parts = {"eager": EAGER, "graph": GRAPH, "planned": GRAPH + PLANNED}
    program = PROGRAM + parts[what] + LOADED
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"

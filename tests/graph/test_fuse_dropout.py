"""Dropout with the steps behind it: what becomes one step, and that no bit changes.

The pass works where Triton does; here it is told so, and the references run what it makes.
"""

import pytest
import torch

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world
from onefold.graph.passes import fuse_chains, keep_dropout_masks

F = nn.functional
B, S = flow.sbp.broadcast, flow.sbp.split


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        return x + F.dropout(self.inner(self.norm(x)), 0.4)


class Train(nn.Graph):
    def __init__(self, net, amp, batches):
        super().__init__()
        self.net = net
        self.config.enable_amp(amp, dtype=torch.bfloat16)
        self.config.set_gradient_accumulation_steps(batches)
        self.add_optimizer(flow.optim.SGD(net.parameters(), lr=0.1))

    def build(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss


def with_triton(monkeypatch, works):
    for module in (fuse_chains, keep_dropout_masks):
        monkeypatch.setattr(module, "uses_triton", lambda device_type: works)


def trained(monkeypatch, fused, sbp, amp, batches):
    with_triton(monkeypatch, fused)
    with virtual_world():
        flow.manual_seed(3)
        place = flow.placement("cpu", [0, 1])
        net = nn.Sequential(Residual(), Residual()).to_global(place, B)
        x = flow.randn(6, 8).to_global(place, sbp)
        graph = Train(net, amp, batches)
        losses = [graph(x).numpy().tolist() for _ in range(3)]
        found = [line for line in graph.plan(0).splitlines() if "# dropout, " in line]
        assert len(found) == 2 * batches * fused
        return losses, [shard for p in net.parameters() for shard in p.shards]


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize(("sbp", "batches"), [(B, 1), (S(0), 1), (B, 2)], ids=str)
def test_training_has_the_same_bits(monkeypatch, sbp, batches, amp):
    one, two = (trained(monkeypatch, fused, sbp, amp, batches) for fused in (True, False))
    assert one[0] == two[0]
    assert all(torch.equal(a, b) for a, b in zip(one[1], two[1], strict=True))


def test_what_is_read_twice_stays_a_step(world, monkeypatch):
    with_triton(monkeypatch, True)

    def function(a, b):
        y = F.dropout(a, 0.5)
        return y + b, y @ b

    a, b = flow.randn(4, 4), flow.randn(4, 4)
    graph = nn.Graph.trace(function)
    flow.manual_seed(1)
    found = [y.to_torch() for y in graph(a, b)]
    flow.manual_seed(1)
    assert all(torch.equal(x, y.to_torch()) for x, y in zip(found, function(a, b), strict=True))
    assert "# dropout" not in graph.plan(0)

"""Norms of channels and an activation: what becomes one step in backward, and that no bit changes.

The passes work where Triton does; here they are told so, and the references run what they make.
"""

import pytest
import torch
from small_graphs import SquareMeanSGD
from training_steps import compiled

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world
from onefold.engine.ops import batch_norm, group_norm
from onefold.graph.memory_traffic import read_and_written
from onefold.graph.passes import fuse_chains

B, S = flow.sbp.broadcast, flow.sbp.split


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch):
    """Norms in two ops, as where Triton does the work."""
    for module in (batch_norm, group_norm):
        monkeypatch.setattr(module, "takes", lambda *metas: False)
    monkeypatch.setattr(fuse_chains, "uses_triton", lambda device_type: True)


class Block(nn.Module):
    """Two convolutions before norms, and a shortcut."""

    def __init__(self, act, norm):
        super().__init__()
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(norm() for _ in range(2))
        self.act = act

    def forward(self, x):
        y = self.act(self.norms[0](self.first(x)))
        return self.act(self.norms[1](self.second(y)) + x)


NORMS = {
    "batch_normalized": lambda: nn.BatchNorm2d(4),
    "group_normalized": lambda: nn.GroupNorm(2, 4),
    "standardized": lambda: nn.GroupNorm(2, 4, affine=False),
}


def net_of(act, norm="batch_normalized"):
    return nn.Sequential(Block(act, NORMS[norm]), Block(act, NORMS[norm]))


def notes(graph):
    """What the steps around batch norm's gradient say of their fusion, without the bytes."""
    lines = [line.partition("  # ")[2].partition(":")[0] for line in graph.plan(0).splitlines()]
    return [line for line in lines if "sums" in line or "slope" in line]


@pytest.mark.parametrize("norm", ["batch_normalized", "group_normalized"])
@pytest.mark.parametrize(("act", "gradient"), [(flow.relu, "relu_backward"), (nn.SiLU(), "silu")])
def test_no_pass_is_the_activations_alone(world, act, gradient, norm):
    graph = SquareMeanSGD(net_of(act, norm), False)
    x = flow.randn(6, 4, 5, 5)
    graph(x)
    found = notes(graph)
    behind = [line for line in found if line.startswith(norm)]
    sums = "channel_sums" if norm == "batch_normalized" else "group_sums"
    assert len([line for line in found if sums in line and "not fused" not in line]) == 4
    assert len(behind) == 4 and all(gradient in line for line in behind)
    alone = [step.name for step in compiled(graph, [x]).program.steps if step.backward]
    assert gradient not in alone and sums not in alone


def trained(net, fused, x, monkeypatch, amp):
    monkeypatch.setattr(fuse_chains, "uses_triton", lambda device_type: fused)
    graph = SquareMeanSGD(net, amp)
    losses = [graph(x).item() for _ in range(3)]
    state = [shard for value in net.state_dict().values() for shard in value.shards]
    return losses, state, sum(map(read_and_written, compiled(graph, [x]).program.steps))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("sbp", [B, S(0)], ids=str)
def test_training_has_the_same_bits(monkeypatch, sbp, amp, norm):
    results = []
    for fused in (True, False):
        with virtual_world():
            flow.manual_seed(3)
            placement = flow.placement("cpu", [0, 1])
            net = net_of(flow.relu, norm).to_global(placement, B)
            given = flow.randn(5, 4, 6, 6).to_global(placement, sbp)
            results.append(trained(net, fused, given, monkeypatch, amp))
    (losses, state, traffic), (other, others, before) = results
    assert losses == other and traffic < before
    assert all(torch.equal(a, b) for a, b in zip(state, others, strict=True))


@pytest.mark.parametrize("norm", NORMS)
def test_eager_has_the_same_bits(world, norm):
    nets = []
    for _ in range(2):
        flow.manual_seed(3)
        nets.append(net_of(flow.relu, norm))
    x = flow.randn(5, 4, 6, 6)
    graph, optimizer = SquareMeanSGD(nets[0], False), flow.optim.SGD(nets[1].parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = nets[1](x).square().mean()
        loss.backward()
        optimizer.step()
        assert graph(x).item() == loss.item()
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(a.to_torch(), b.to_torch())


def test_an_activation_that_others_sum_stays(world):
    """A gradient that is wanted elsewhere is written by the kernel that sums it."""

    def function(x, y):
        v = x.detach().requires_grad_()
        h = flow.relu(nn.functional.batch_norm(v, None, None, None, None, True) + y)
        (h * h).sum().backward()
        return v.grad, h

    a, b = flow.randn(4, 3, 5, 5), flow.randn(4, 3, 5, 5)
    graph = nn.Graph.trace(function)
    for found, wanted in zip(graph(a, b), function(a, b), strict=True):
        assert torch.equal(found.to_torch(), wanted.to_torch())
    assert any("channel_sums" in line and "relu_backward" in line for line in notes(graph))

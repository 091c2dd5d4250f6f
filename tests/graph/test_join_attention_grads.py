"""Gradients of attention that are joined: which become one step, and that no bit changes."""

import pytest
import torch
from small_graphs import SquareMeanSGD
from training_steps import compiled

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world
from onefold.graph.memory_traffic import read_and_written
from onefold.graph.passes import fuse_chains

F = nn.functional
B, S = flow.sbp.broadcast, flow.sbp.split
HEADS, FEATURES = 3, 4


class SelfAttention(nn.Module):
    """With one projection of queries, keys and values; keys may be read `again`."""

    def __init__(self, order="qkv", again=False, dropout=0.0):
        super().__init__()
        self.order, self.again, self.dropout = order, again, dropout
        self.into = nn.Linear(6, 3 * HEADS * FEATURES)
        self.out = nn.Linear(HEADS * FEATURES, 6)

    def forward(self, x):
        parts = dict(zip(self.order, self.into(x).chunk(3, -1), strict=True))
        q, k, v = (
            parts[name].view(*x.shape[:2], HEADS, FEATURES).transpose(1, 2) for name in "qkv"
        )
        if self.again:
            q = q + parts["k"].view(*x.shape[:2], HEADS, FEATURES).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout)
        return self.out(y.transpose(1, 2).reshape(*x.shape[:2], -1))


def notes(graph):
    lines = [line.partition("  # ")[2].partition(":")[0] for line in graph.plan(0).splitlines()]
    return [line for line in lines if "attention_grad" in line]


def trained(joins, sbp, monkeypatch, **given):
    monkeypatch.setattr(fuse_chains, "uses_triton", lambda device_type: joins)
    with virtual_world():
        flow.manual_seed(3)
        net = SelfAttention(**given).to_global(flow.placement("cpu", [0, 1]), B)
        x = flow.randn(2, 5, 6).to_global(net.into.weight.placement, sbp)
        graph = SquareMeanSGD(net)
        losses = [graph(x).item() for _ in range(3)]
        weights = [shard for p in net.parameters() for shard in p.shards]
        traffic = sum(map(read_and_written, compiled(graph, [x]).program.steps))
        return losses, weights, traffic, notes(graph)


@pytest.mark.parametrize("dropout", [0.0, 0.25])
@pytest.mark.parametrize("sbp", [B, S(0)], ids=str)
@pytest.mark.parametrize("order", ["qkv", "vkq"])
def test_one_step_has_the_same_bits(monkeypatch, order, sbp, dropout):
    given = {"order": order, "dropout": dropout}
    losses, weights, traffic, joined = trained(True, sbp, monkeypatch, **given)
    other, others, before, _ = trained(False, sbp, monkeypatch, **given)
    assert len(joined) == 1 and joined[0].endswith("cat")
    assert losses == other and traffic < before
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))


def test_what_is_read_elsewhere_is_not_joined(monkeypatch):
    """A gradient that is added to another one has to lie apart."""
    losses, weights, _, joined = trained(True, B, monkeypatch, again=True)
    other, others, _, _ = trained(False, B, monkeypatch, again=True)
    assert joined == [] and losses == other
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))

"""Norms with the pointwise steps next to them: what becomes one step, and that no bit changes.

The pass works where Triton does; here it is told so, and the references run what it makes.
"""

import re

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
B, P, S = flow.sbp.broadcast, flow.sbp.partial_sum, flow.sbp.split


@pytest.fixture(autouse=True)
def _fusing(monkeypatch):
    monkeypatch.setattr(fuse_chains, "uses_triton", lambda device_type: True)


def notes(graph):
    """What the steps say of the fusion of norms, without the bytes."""
    lines = [line.partition("  # ")[2].partition(":")[0] for line in graph.plan(0).splitlines()]
    return [line for line in lines if "norm" in line]


def traced(function, *tensors):
    """The notes of a program, which must give the bits of eager."""
    graph = nn.Graph.trace(function)
    for found, wanted in zip(graph(*tensors), function(*tensors), strict=True):
        assert torch.equal(found.to_torch(), wanted.to_torch())
        assert found.dtype == wanted.dtype
    return notes(graph)


def x(*shape):
    return flow.randn(*shape)


def test_a_norm_takes_what_is_beside_it(world):
    a, b, w = x(3, 4, 8), x(3, 4, 8), x(8)
    low = torch.bfloat16
    norm = lambda v: flow.rms_norm(v, (8,), w)  # noqa: E731
    assert traced(lambda a: [norm(a).to(low)], a) == ["rms_norm, cast"]
    assert traced(lambda a, b: [norm(a + b)], a, b) == ["add, rms_norm"]

    def residual(a, b):
        h = a + b * 0.5
        return h, norm(h).to(low)

    assert traced(residual, a, b) == ["mul, add, rms_norm, cast"]
    both = traced(lambda a: [F.layer_norm(a, (8,), w, w) * 2.0, F.layer_norm(a, (8,), w, w)], a)
    assert both == ["layer_norm, mul"]


def test_what_cannot_be_beside_a_norm(world):
    a, b, w = x(4, 8), x(4, 8), x(8)
    norm = lambda v: flow.rms_norm(v, (8,), w)  # noqa: E731
    assert traced(lambda a, b: [norm(a) * w], a, b) == []  # a row for all of them
    assert traced(lambda a, b: [norm(a), (norm(a) @ b.t()).exp(), norm(a) + b], a, b) == []

    def read_before(a, b):
        h = a + b
        return norm(h), h * 2.0

    assert traced(read_before, a, b) != []

    def two_norms(a, b):
        return [norm(a) + F.layer_norm(b, (8,))]

    assert len(traced(two_norms, a, b)) == 1


class Block(nn.Module):
    """Two layers between norms, and a shortcut."""

    def __init__(self, norm, act=F.gelu):
        super().__init__()
        self.norms = nn.ModuleList(norm(8) for _ in range(3))
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        x = self.norms[0](x * 2.0 + x)
        x = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return self.norms[2](x)


def test_a_step_in_mixed_precision(world):
    graph = SquareMeanSGD(Block(nn.RMSNorm), amp=True)
    graph(x(6, 8))
    found = notes(graph)
    assert found == ["mul, add, rms_norm", "rms_norm, cast", "cast, add, rms_norm",
                     "mul, mul, rms_norm_grad", "cast, rms_norm_grad, add"]  # fmt: skip


def test_an_addition_stays_with_a_product_as_wide(world):
    """To write and read the product instead of the sum would move more."""
    graph = SquareMeanSGD(Block(nn.RMSNorm))
    graph(x(6, 8))
    assert not any("add, rms_norm" in note for note in notes(graph)[1:])


class Apart(nn.Module):
    """A sum that something reads before the norm, or in which a mask has a part."""

    def __init__(self, masked):
        super().__init__()
        self.norm, self.layer, self.masked = nn.RMSNorm(8), nn.Linear(8, 8), masked
        self.register_buffer("mask", flow.arange(48).reshape(6, 8) % 3 == 0)

    def forward(self, x):
        if self.masked:
            return self.norm(flow.where(self.mask, self.layer(x).float(), x))
        h = x + self.layer(x)
        total = h.sum()
        return self.norm(h) * total


@pytest.mark.parametrize("masked", [True, False])
def test_an_addition_that_no_norm_can_take_stays_with_the_product(masked, world):
    graph = SquareMeanSGD(Apart(masked), amp=True)
    graph(x(6, 8))
    assert f"linear, cast, {'where' if masked else 'add'}:" in graph.plan(0)


class Residuals(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(3))
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x))
        return x


def test_casts_are_where_the_other_side_is_wide(world):
    """A narrow gradient is widened as it is read; what is kept besides is narrowed as it is made.

    So the sum for the bias reads the narrow one.
    """
    graph = SquareMeanSGD(Residuals(), amp=True)
    graph(x(6, 8))
    assert notes(graph)[-3:-1] == [
        "cast, layer_norm_with_stats_grad, add, cast", "cast, layer_norm_with_stats_grad",
    ]  # fmt: skip
    plan = graph.plan(0)
    summed = re.findall(r"float32\[8\] cpu = sum\((%\d+), \(0,\)", plan)
    assert len(summed) == 2 and all(f"{value}: bfloat16[6, 8]" in plan for value in summed)


def trained(net, fused, x, monkeypatch, amp):
    monkeypatch.setattr(fuse_chains, "uses_triton", lambda device_type: fused)
    graph = SquareMeanSGD(net, amp)
    losses = [graph(x).item() for _ in range(3)]
    weights = [shard for p in net.parameters() for shard in p.shards]
    assert bool(notes(graph)) == fused
    return losses, weights, sum(map(read_and_written, compiled(graph, [x]).program.steps))


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("sbp", [B, S(0)], ids=str)
@pytest.mark.parametrize("norm", [nn.RMSNorm, nn.LayerNorm])
def test_training_has_the_same_bits(monkeypatch, norm, sbp, amp):
    results = []
    for fused in (True, False):
        with virtual_world():
            flow.manual_seed(3)
            placement = flow.placement("cpu", [0, 1])
            net = Block(norm).to_global(placement, B)
            given = x(5, 8).to_global(placement, sbp)
            results.append(trained(net, fused, given, monkeypatch, amp))
    (losses, weights, traffic), (other, others, before) = results
    assert losses == other and traffic < before
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))


def test_a_norm_behind_a_sum_of_ranks(world):
    """With tensor parallelism the addition is behind a boxing, and so at no product's end."""
    place = flow.placement("cpu", [0, 1])
    a, b, rest = (x(*shape).to_global(place, B) for shape in ((4, 6), (6, 8), (4, 8)))

    def function(a, b, rest):
        y = a.to_global(sbp=S(1)) @ b.to_global(sbp=S(0))
        h = rest + y.to_global(sbp=B)
        return h, flow.rms_norm(h, (8,))

    assert traced(function, a, b, rest) == ["add, rms_norm"]

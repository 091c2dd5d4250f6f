"""Masks of dropout on the CPU: drawn once where backward can read them, with the bits of eager."""

import pytest
import torch

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)


class Block(nn.Module):
    """Dropout inside, and at the end, where nothing that is recomputed reads its result."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.inner, self.outer = nn.Dropout(0.3), nn.Dropout(0.6)

    def forward(self, x):
        return x + self.outer(self.down(self.inner(flow.gelu(self.up(x)))))


class Train(nn.Graph):
    def __init__(self, net, batches=1):
        super().__init__()
        self.net = net
        self.config.set_gradient_accumulation_steps(batches)
        self.add_optimizer(flow.optim.SGD(net.parameters(), lr=0.1))

    def build(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss


def made(parallel=False, ranks=1):
    flow.manual_seed(3)
    net = nn.Sequential(Block(), Block()).to_global(flow.placement("cpu", range(ranks)), B)
    if parallel:
        for block in net:
            block.up.to_global(sbp=S0)
            block.down.weight = nn.Parameter(block.down.weight.to_global(sbp=S1))
    return net


def data(net, sbp=B):
    flow.manual_seed(4)
    return flow.randn(6, 8).to_global(net[0].up.weight.placement, sbp)


def trained_eagerly(net, x):
    optimizer = flow.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    return [shard for p in net.parameters() for shard in p.shards]


def trained(net, x, **options):
    graph = Train(net, **options)
    for _ in range(3):
        graph(x)
    return graph, [shard for p in net.parameters() for shard in p.shards]


def names(graph, *kinds):
    return [step.name for step in graph.program.steps if step.name in kinds]


def equal(one, two):
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(
    ("ranks", "sbp", "parallel"), [(1, B, False), (2, B, False), (2, S0, False), (2, B, True)]
)
def test_each_mask_is_drawn_once_with_the_bits_of_eager(ranks, sbp, parallel):
    with virtual_world():
        net = made(parallel, ranks)
        expected = trained_eagerly(net, data(net, sbp))
        net = made(parallel, ranks)
        graph, found = trained(net, data(net, sbp))
        assert equal(found, expected)
        assert names(graph, "dropout", "dropout_with_mask") == ["dropout_with_mask"] * 4
        assert names(graph, "dropout_by_mask") == ["dropout_by_mask"] * 4


def test_micro_batches_have_parts_of_the_masks(world):
    whole = trained(made(), data(made()))[1]
    graph, found = trained(made(), data(made()), batches=3)
    assert names(graph, "dropout") == []
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, whole, strict=True))


def test_a_checkpointed_module_keeps_no_mask_of_its_first_run(world):
    expected = trained(made(), data(made()))[1]
    net = made()
    net[0].to(nn.graph.GraphModule).activation_checkpointing = True
    graph, found = trained(net, data(net))
    assert equal(found, expected)
    kept = [step for step in graph.program.steps if step.name == "dropout_with_mask"]
    scopes = [(step.scope, step.recomputation > 0) for step in kept]
    assert scopes == [("net.1.inner", False), ("net.1.outer", False), ("net.0.inner", True)]


def test_without_backward_nothing_is_kept(world):
    net = made()
    graph = nn.Graph.trace(net)
    graph(data(net))
    assert names(graph, "dropout", "dropout_with_mask") == ["dropout"] * 4


def test_a_gradient_in_parts_takes_the_whole_mask():
    with virtual_world():
        p = flow.placement("cpu", [0, 1])
        x = flow.ones(6, 8, placement=p, sbp=B).requires_grad_()
        y = nn.functional.dropout(x, 0.5)
        dy = flow.randn(2, 6, 8).to_global(p, S0).sum(0)
        assert dy.sbp == (flow.sbp.partial_sum,)
        y.backward(dy)
        expected = torch.where(y.to_torch() != 0, 2 * dy.to_torch(), 0)
        assert torch.equal(x.grad.to_torch(), expected)


def test_backward_of_a_compiled_function_reads_the_mask(world):
    net = made()
    expected = trained_eagerly(net, data(net))
    net = made()
    compiled = flow.compile(net[0].forward)
    net[0].forward = compiled
    assert equal(trained_eagerly(net, data(net)), expected)
    for program, name in [
        (compiled.program, "dropout_with_mask"),
        (compiled.backward_program, "dropout_by_mask"),
    ]:
        assert [step.name for step in program.steps if "dropout" in step.name] == [name] * 2

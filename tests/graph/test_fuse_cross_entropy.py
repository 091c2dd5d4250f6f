"""A loss and its gradient as one step that reads the logits once, and that no bit changes.

The logarithms of sums are kept where Triton does the work; here the op is told so.
"""

import pytest
import torch
from training_steps import compiled

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world
from onefold.engine.ops import cross_entropy
from onefold.graph.passes import fuse_chains

F = nn.functional
B, S = flow.sbp.broadcast, flow.sbp.split
NOTE = "cross_entropy_with_lse, cross_entropy_grad"


@pytest.fixture(autouse=True)
def _keeping(monkeypatch):
    monkeypatch.setattr(cross_entropy, "uses_triton", lambda device_type: True)
    monkeypatch.setattr(fuse_chains, "uses_triton", lambda device_type: True)


class Train(nn.Graph):
    def __init__(self, net, loss, batches=1):
        super().__init__()
        self.net, self.loss = net, loss
        self.config.set_gradient_accumulation_steps(batches)
        self.add_optimizer(flow.optim.SGD(net.parameters(), lr=0.5))

    def build(self, x, target):
        loss = self.loss(self.net(x), target)
        loss.backward()
        return loss


def eager(net, loss, x, target):
    optimizer = flow.optim.SGD(net.parameters(), lr=0.5)
    losses = []
    for _ in range(3):
        value = loss(net(x), target)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(value.item())
    return losses


def halves(y, target):
    return F.cross_entropy(y.to(torch.bfloat16), target)


LOSSES = {
    "mean": (F.cross_entropy, True),
    "sum": (lambda y, target: F.cross_entropy(y, target, reduction="sum"), True),
    "ignored": (lambda y, target: F.cross_entropy(y, target, ignore_index=1), True),
    "halves": (halves, True),
    "smoothed": (lambda y, target: F.cross_entropy(y, target, label_smoothing=0.1), False),
    "scaled": (lambda y, target: F.cross_entropy(y, target) * 3.0, False),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_one_step_has_the_bits_of_two(kind):
    loss, fused = LOSSES[kind]
    results = []
    for in_graph in (True, False):
        with virtual_world():
            flow.manual_seed(0)
            net = nn.Linear(6, 5)
            given = flow.randn(4, 6), flow.tensor([1, 0, 4, 1])
            if not in_graph:
                losses = eager(net, loss, *given)
            else:
                graph = Train(net, loss)
                losses = [graph(*given).item() for _ in range(3)]
                assert (NOTE in graph.plan(0)) == fused
                names = [step.name for step in compiled(graph, given).program.steps]
                assert ("constant_like" in names) != fused
            results.append((losses, [p.to_torch().clone() for p in net.parameters()]))
    (losses, weights), (wanted, others) = results
    assert losses == wanted
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))


def test_a_gradient_that_is_given(world):
    """A known gradient of each loss is read by the step of both."""
    x, target, dy = flow.randn(4, 5), flow.tensor([1, 0, 4, 1]), flow.randn(4)

    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.held = nn.ParameterList([nn.Parameter(x)])

        def build(self, target, dy):
            loss = F.cross_entropy(self.held[0] * 1.0, target, reduction="none")
            return loss, flow.autograd.grad(loss, [self.held[0]], [dy])[0]

    graph = Step()
    loss, found = graph(target, dy)
    assert NOTE in graph.plan(0)
    leaf = x.to_torch().clone().requires_grad_()
    wanted = torch.nn.functional.cross_entropy(leaf, target.to_torch(), reduction="none")
    wanted.backward(dy.to_torch())
    torch.testing.assert_close(loss.to_torch(), wanted.detach())
    torch.testing.assert_close(found.to_torch(), leaf.grad)


@pytest.mark.parametrize("sbp", [B, S(0), S(1)], ids=str)
def test_layouts_and_micro_batches(sbp):
    with virtual_world():
        flow.manual_seed(0)
        place = flow.placement("cpu", [0, 1])
        net = nn.Linear(6, 5).to_global(place, B)
        x = flow.randn(4, 6).to_global(place, B if sbp is S(1) else sbp)
        target = flow.tensor([1, 0, 4, 1]).to_global(place, B if sbp is S(1) else sbp)

        def loss(y, target):
            return F.cross_entropy(y.to_global(sbp=sbp), target)

        before = [p.to_torch().clone() for p in net.parameters()]
        found = Train(net, loss, batches=2)(x, target)
        w, b = (p.requires_grad_() for p in before)
        y = x.to_torch() @ w.t() + b
        wanted = torch.nn.functional.cross_entropy(y, target.to_torch())
        wanted.backward()
        torch.testing.assert_close(found.to_torch().mean(), wanted.detach())
        for p, old in zip(net.parameters(), before, strict=True):
            torch.testing.assert_close(p.to_torch().detach(), (old - 0.5 * old.grad).detach())

"""Activations that wait in host memory: the same bits, and less memory on the GPU."""

import pytest
import torch
from device_checks import DEVICE

import onefold as flow
from onefold import nn

pytestmark = pytest.mark.gpu

WIDTH, ROWS, LAYERS = 2048, 8192, 12
KEPT = ROWS * WIDTH * 4  # bytes of one activation


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, device=DEVICE)

    def forward(self, x):
        return flow.gelu(self.linear(x))


class Train(nn.Graph):
    def __init__(self, offloaded):
        super().__init__()
        flow.manual_seed(3)
        self.model = nn.Sequential(*[Layer() for _ in range(LAYERS)])
        for number in offloaded:
            self.model[number].to(nn.graph.GraphModule).activation_offloading = True
        self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=0.1))

    def build(self, x):
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        return loss


def trained(offloaded, steps=4):
    """Losses and parameters, and the bytes that a call has allocated at most."""
    graph = Train(offloaded)
    flow.manual_seed(5)
    inputs = [flow.randn(ROWS, WIDTH, device=DEVICE) for _ in range(steps)]
    graph(inputs[0])
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    losses = [graph(x).item() for x in inputs[1:]]
    peak = torch.cuda.max_memory_allocated() - before
    return [losses, *[p.numpy().tolist() for p in graph.model.parameters()]], peak, graph


def test_no_bit_changes_and_memory_is_that_of_the_plan():
    wanted, most, plain = trained(())
    found, least, graph = trained(range(LAYERS))
    assert found == wanted
    planned = plain.memory(0).live - graph.memory(0).live
    assert planned >= 2 * KEPT
    assert most - least >= planned - 2 * KEPT


class Stages(nn.Graph):
    """Two stages on one GPU, so that copies of a micro-batch overlap the work of others."""

    def __init__(self, offloaded):
        super().__init__()
        flow.manual_seed(3)
        self.where = flow.placement(DEVICE, [0])
        sizes = {"placement": self.where, "sbp": flow.sbp.broadcast}
        self.stages = nn.ModuleList(
            [
                nn.Sequential(*[nn.Linear(WIDTH // 4, WIDTH // 4, **sizes) for _ in range(4)])
                for _ in range(2)
            ]
        )
        for number, stage in enumerate(self.stages):
            view = stage.to(nn.graph.GraphModule)
            view.set_stage(number, self.where)
            view.activation_offloading = offloaded
        self.add_optimizer(flow.optim.SGD(self.stages.parameters(), lr=0.1))
        self.config.set_gradient_accumulation_steps(8)

    def build(self, x):
        for stage in self.stages:
            x = flow.gelu(stage(x))
        loss = (x**2).mean()
        loss.backward()
        return loss


def test_stages_give_the_same_bits():
    found = []
    for offloaded in (False, True):
        graph = Stages(offloaded)
        flow.manual_seed(5)
        x = flow.randn(ROWS, WIDTH // 4, placement=graph.where, sbp=flow.sbp.broadcast)
        losses = [graph(x).numpy().tolist() for _ in range(4)]
        found.append((losses, [p.numpy().tolist() for p in graph.stages.parameters()]))
        assert ("run R0.0" in graph.plan(0)) == offloaded
    assert found[0] == found[1]

"""Threads that use a model while another one captures it: they wait, and find it as it was."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
import torch

import onefold as flow
from onefold import nn

WAIT = 20  # seconds at most


class Halting(nn.Module):
    """A model whose capture stops in the middle, until `resume` is set."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
        self.entered, self.resume = threading.Event(), threading.Event()

    def forward(self, x):
        y = self.layers(x)
        if flow.compiler.is_compiling():
            self.entered.set()
            self.resume.wait(WAIT)
        return self.layers(y)


def weight_of(model):
    return model.layers[0].weight


def bias_of(model):
    return model.layers[2].bias


@flow.no_grad()
def write(model, x):
    """In place, in several ways."""
    weight_of(model).add_(1)
    bias_of(model).copy_(flow.full((4,), 7.0))
    model.layers[1].weight.fill_(3.0)
    model.layers[1].bias[0] = 5.0
    return [param.detach() for param in model.parameters()]


def train(model, x):
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model.layers(x).square().sum().backward()
        optimizer.step()
    return [*model.parameters()]


def step(model, x):
    """With gradients from before the capture."""
    flow.optim.SGD(model.parameters(), lr=0.1).step()
    return [*model.parameters(), *[param.grad for param in model.parameters()]]


USES = {
    "forward": lambda model, x: [model.layers(x)],
    "parameters": lambda model, x: [weight_of(model) + 1, bias_of(model)[1:]],
    "state_dict": lambda model, x: [*model.state_dict().values()],
    "numpy": lambda model, x: [flow.tensor(model.layers[1].running_mean.numpy())],
    "write": write,
    "train": train,
    "step": step,
}


def made():
    """A model with gradients, and an input; the same each time."""
    flow.manual_seed(0)
    model = Halting()
    x = flow.randn(6, 4)
    model.layers(x).sum().backward()
    return model, x


@pytest.mark.parametrize("use", USES)
def test_a_model_is_used_while_another_thread_captures_it(use):
    model, x = made()
    wanted = [value.numpy().copy() for value in USES[use](model, x)]
    model, x = made()

    def using():
        assert model.entered.wait(WAIT)
        return [value.numpy().copy() for value in USES[use](model, x)]

    with ThreadPoolExecutor(2) as pool:
        used, captured = pool.submit(using), pool.submit(flow.compile(model), x)
        wait([used], timeout=0.2)  # it has ended, or waits
        model.resume.set()
        captured.result(WAIT)
        found = used.result(WAIT)
    assert len(found) == len(wanted)
    for mine, true in zip(found, wanted, strict=True):
        if use != "numpy":  # of the running mean, which the captured call may have changed first
            torch.testing.assert_close(torch.from_numpy(mine), torch.from_numpy(true))

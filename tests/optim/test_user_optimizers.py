"""Optimizers that programs write: their options and state are what they make of them."""

import pytest
import torch

import onefold as flow


def made(package):
    class ThreeMoments(package.optim.Optimizer):
        """With three betas, a count that is a tensor, and a scalar that is kept."""

        def __init__(self, params, lr: float = 0.1, betas: tuple = (0.9, 0.8, 0.7)):
            super().__init__(params, {"lr": lr, "betas": betas})

        @package.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if not state:
                        state["step"] = package.tensor(0.0)
                        state["kind"] = "plain"
                        state["scale"] = package.ones(())
                        state["average"] = package.zeros_like(p)
                    state["step"].add_(1)
                    state["scale"].mul_(group["betas"][2])
                    state["average"].lerp_(p.grad, 1 - group["betas"][0])
                    p.sub_(state["average"] * state["scale"] / state["step"] * group["lr"])

    return ThreeMoments


def train(package, steps):
    torch.manual_seed(0)
    start = torch.randn(4, 3)
    w = package.nn.Parameter(package.tensor(start.tolist()))
    optimizer = made(package)([w])
    for step in range(steps):
        optimizer.zero_grad()
        (w**2).sum().backward()
        optimizer.step()
        if step == 1:
            state = optimizer.state_dict()
            optimizer = made(package)([w])
            optimizer.load_state_dict(state)
    return w.detach(), optimizer.state[w]


def test_training_continues_from_a_state():
    theirs, expected = train(torch, 4)
    ours, state = train(flow, 4)
    torch.testing.assert_close(ours.to_torch(), theirs)
    assert state["step"].item() == expected["step"].item() == 4 and state["kind"] == "plain"
    assert state["scale"].item() == pytest.approx(expected["scale"].item())


def test_options_of_the_package_are_checked():
    with pytest.raises(ValueError, match="betas"):
        flow.optim.Adam([flow.nn.Parameter(flow.ones(1))], betas=(0.9, 0.8, 0.7))

"""Complex parameters, and options that torch takes: the steps are torch's."""

import pytest
import torch

import onefold as flow

RULES = "Adam AdamW SGD Adamax Adagrad NAdam RAdam Rprop RMSprop Adadelta ASGD".split()


def assert_same_steps(name, options, group=None, dtype=torch.complex128):
    generator = torch.Generator().manual_seed(0)
    start, grad = (torch.randn(3, dtype=dtype, generator=generator) for _ in range(2))
    theirs = torch.nn.Parameter(start.clone())
    ours = flow.nn.Parameter(flow.tensor(start))
    wanted = getattr(torch.optim, name)([{"params": [theirs], **(group or {})}], **options)
    found = getattr(flow.optim, name)([{"params": [ours], **(group or {})}], **options)
    for step in range(1, 9):
        theirs.grad = grad * step**0.5
        ours.grad = flow.tensor(theirs.grad)
        wanted.step()
        found.step()
    torch.testing.assert_close(ours.detach().to_torch(), theirs.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", RULES)
def test_real_and_imaginary_parts_are_elements(name, world):
    decay = {} if name == "Rprop" else {"weight_decay": 0.1}  # AdamW's defaults differ
    assert_same_steps(name, {"lr": 0.1, **decay})


@pytest.mark.parametrize(
    ("name", "options", "group"),
    [
        ("Adam", {"weight_decay": 0.5}, {"decoupled_weight_decay": True}),
        ("Adam", {"weight_decay": 0.5, "decoupled_weight_decay": True}, None),
        ("Rprop", {"etas": [0.5, 1.2], "step_sizes": [1e-6, 50]}, None),
        ("ASGD", {"alpha": 1.5}, None),
    ],
)
def test_options(name, options, group, world):
    assert_same_steps(name, options, group, torch.float64)

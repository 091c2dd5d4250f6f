"""What schedulers set, step by step: onefold's against torch's or a formula."""

import numpy as np
import torch

import onefold as flow
from onefold.optim import lr_scheduler as ours

theirs = torch.optim.lr_scheduler

STEPS = 30


class Train(flow.nn.Graph):
    """A training step of a model whose schedule the graph steps."""

    def __init__(self, model, optimizer, scheduler):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer, lr_sch=scheduler)

    def build(self, x):
        loss = self.model(x).sum()
        loss.backward()
        return loss


def sgd(*base_lrs):
    """An optimizer with one group for each base rate."""
    return flow.optim.SGD(
        [{"params": [flow.nn.Parameter(flow.ones(1))], "lr": r} for r in base_lrs]
    )


def torch_sgd(*base_lrs):
    return torch.optim.SGD(
        [{"params": [torch.ones(1, requires_grad=True)], "lr": rate} for rate in base_lrs]
    )


def group_rates(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


def assert_same_rates(scheduler, optimizer, wanted, tolerance=1e-9):
    """The groups' rates, what the scheduler says of them and its closed form are as `wanted`.

    `wanted` holds the rates of all groups for each step, from step 0 on.
    """
    for step, right in enumerate(wanted):
        if step:
            scheduler.step()
        found = group_rates(optimizer)
        np.testing.assert_allclose(found, right, tolerance, 1e-12, err_msg=f"at step {step}")
        assert scheduler.last_step == step
        assert scheduler.get_last_lr() == found == scheduler.rates(step)


def torch_rates(make, base_lrs, steps=STEPS):
    """What a scheduler of torch sets, from step 0 on."""
    optimizer = torch_sgd(*base_lrs)
    scheduler = make(optimizer)
    found = [group_rates(optimizer)]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        found.append(group_rates(optimizer))
    return found


def assert_torchs(make, base_lrs, tolerance=1e-9):
    """`make(library, optimizer)` gives the same rates with onefold's and with torch's library."""
    optimizer = sgd(*base_lrs)
    wanted = torch_rates(lambda optimizer: make(theirs, optimizer), base_lrs)
    assert_same_rates(make(ours, optimizer), optimizer, wanted, tolerance)


def assert_formula(make, formula, base_lrs, tolerance=1e-9):
    """The scheduler's rates are `formula(base_lr, step)`."""
    optimizer = sgd(*base_lrs)
    wanted = [[formula(rate, step) for rate in base_lrs] for step in range(STEPS)]
    assert_same_rates(make(optimizer), optimizer, wanted, tolerance)

"""Warnings point to the line of the program, as torch's do, whatever stands between."""

import warnings

import pytest

import onefold as flow
from onefold import nn


def step_to(epoch):
    optimizer = flow.optim.SGD([nn.Parameter(flow.ones(2))], lr=1.0)
    scheduler = flow.optim.lr_scheduler.StepLR(optimizer, 2)
    return lambda: scheduler.step(epoch)


CALLS = {
    "weight_norm": lambda: nn.utils.weight_norm(nn.Linear(2, 2)),
    "clip_grad_norm": lambda: nn.utils.clip_grad_norm(nn.Linear(2, 2).parameters(), 1.0),
    "Container": nn.Container,
    "init.uniform": lambda: nn.init.uniform(flow.zeros(2)),
    "functional_call": lambda: nn.utils.stateless.functional_call(
        nn.Linear(2, 2), {}, flow.ones(1, 2)
    ),
    "LSTM": lambda: nn.LSTM(2, 2, dropout=0.5),
    "gumbel_softmax": lambda: nn.functional.gumbel_softmax(flow.ones(2), eps=1.0),
    "upsample": lambda: nn.functional.upsample(flow.ones(1, 1, 2, 2), 4),
    "gradcheck": lambda: flow.autograd.gradcheck(
        lambda x: x * 2, (flow.ones(2, requires_grad=True),), eps=1e-2, atol=0.1
    ),
    "resize": lambda: flow.ones(2).resize(2, 1),
    "step": step_to(2),
}


@pytest.mark.parametrize("name", CALLS)
def test_warnings_are_of_the_users_line(name):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        CALLS[name]()
    assert {each.filename for each in found} == {__file__}

"""Ranks that do different things: every kind ends all ranks, and both sides are named."""

import os

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.distributed import collectives, transfer
from onefold.distributed.world import world
from onefold.errors import OnefoldError, RankMismatch

B, P, S0, S1 = flow.sbp.broadcast, flow.sbp.partial_sum, flow.sbp.split(0), flow.sbp.split(1)
CHECK = {"ONEFOLD_CHECK": "1"}


def other():
    """Whether this is the rank that does something else."""
    return world().rank == 1


def both(reverse=False):
    return flow.placement("cpu", [1, 0] if reverse else [0, 1])


def whole(*shape, sbp=P, dtype=flow.float32, reverse=False):
    return flow.ones(*shape, dtype=dtype, placement=both(reverse), sbp=sbp)


def gathered(x):
    return x.to_global(sbp=B)


class Model(nn.Module):
    def __init__(self, p=0.5):
        super().__init__()
        flow.manual_seed(1)
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.dropout = nn.Dropout(p)
        self.to_global(both(), B)

    def forward(self, x):
        return self.last(self.dropout(flow.gelu(self.first(x))))


def train(
    steps=3,
    make=lambda model: flow.optim.SGD(model.parameters(), lr=0.1),
    p=0.5,
    seed=2,
    prepare=lambda model: None,
    during=lambda step, loss, optimizer: loss,
    data=lambda step: np.ones((4, 4), np.float32),
    sbp=S0,
    reduce=lambda model: None,
):
    model = Model(p)
    optimizer = make(model)
    flow.manual_seed(seed)
    prepare(model)
    for step in range(steps):
        x = flow.tensor(data(step), placement=both(), sbp=sbp)
        loss = during(step, model(x).sum(), optimizer)
        loss.backward()
        reduce(model)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


def one_by_one(model):
    """Gradients are communicated one by one, in another order on the other rank."""
    params = list(model.parameters())
    for param in reversed(params) if other() else params:
        param.grad = param.grad.to_global(sbp=B)


def sgd(**options):
    return lambda model: flow.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def two_ones(step):
    return np.ones((4, 4), np.float32)


def skip_boxing(step, loss, optimizer):
    return loss if other() else loss.to_global(sbp=B)


def extra_draw(step, loss, optimizer):
    if other() and step == 1:
        flow.randn(2, placement=both(), sbp=B)
    return loss


CASES = {
    # Those that were found silent.
    "order of gradients": lambda: train(reduce=one_by_one),
    "op": lambda: gathered(flow.sin(whole(4)) if other() else flow.cos(whole(4))),
    "scalar": lambda: gathered(whole(4) * (2.0 if other() else 3.0)),
    "learning rate": lambda: train(make=sgd(lr=0.2 if other() else 0.1)),
    "seed": lambda: train(seed=3 if other() else 2),
    "train and eval": lambda: train(prepare=lambda model: model.train(not other())),
    "data given as broadcast": lambda: train(
        sbp=B, data=lambda step: np.full((4, 4), 1.0 + other(), np.float32)
    ),
    "placement": lambda: gathered(whole(4, reverse=other())),
    "rows": lambda: gathered(whole(5 if other() else 4, 3, sbp=S0)),
    "dtype": lambda: gathered(whole(4, dtype=flow.int32 if other() else flow.float32)),
    "shape": lambda: gathered(whole(*((6, 4) if other() else (4, 6)))),
    "split": lambda: gathered(whole(4, 4, sbp=S1 if other() else S0)),
    "size": lambda: gathered(whole(1000 if other() else 4)),
    "size of a message": lambda: transfer(
        [(1 - world().rank, torch.ones(3 + other()))],
        [(1 - world().rank, (3 + other(),), torch.float32, torch.device("cpu"))],
    ),
    "size of a collective": lambda: collectives.all_reduce(
        torch.ones(3 + other()), (0, 1), "sum"
    ),
    "kind of a collective": lambda: (
        collectives.barrier((0, 1)) if other() else gathered(whole(4))
    ),
    # Five more.
    "extra step": lambda: train(
        during=lambda step, loss, optimizer: (
            (loss, optimizer.step())[0] if other() and step == 1 else loss
        )
    ),
    "random calls": lambda: train(during=extra_draw),
    "skipped boxing": lambda: train(during=skip_boxing),
    "dropout": lambda: train(p=0.4 if other() else 0.5),
    "momentum": lambda: train(make=sgd(momentum=0.8 if other() else 0.9)),
    "number of batches": lambda: train(steps=4 if other() else 3),
}


def found(case):
    """The error of a case on this rank."""
    try:
        CASES[case]()
        if case == "number of batches" and not other():
            gathered(whole(4))  # what follows the training
    except RankMismatch as error:
        return str(error)
    except OnefoldError as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("env", [{}, CHECK], ids=["default", "check"])
@pytest.mark.parametrize("case", CASES)
def test_named(case, env):
    texts = run_ranks(2, found, case, env=env, timeout=20.0)
    for text in texts:
        assert text is not None
        print(text)
        assert "rank 0" in text or "ranks 0" in text
        assert text.count("test_divergence.py:") >= 2

"""Ranks that do different things: every kind ends all ranks, and both sides are named."""

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.distributed import collectives, transfer
from onefold.distributed.world import world as this_world
from onefold.errors import OnefoldError, RankMismatch

B, P, S0, S1 = flow.sbp.broadcast, flow.sbp.partial_sum, flow.sbp.split(0), flow.sbp.split(1)
CHECK = {"ONEFOLD_CHECK": "1"}


def other():
    """Whether this is the rank that does something else."""
    return this_world().rank == 1


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
    params = list(model.parameters())  # weight, bias, weight, bias: equal shapes meet
    for param in params[2:] + params[:2] if other() else params:
        param.grad = param.grad.to_global(sbp=B)


def sgd(**options):
    return lambda model: flow.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


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
        [(1 - this_world().rank, torch.ones(3 + other()))],
        [(1 - this_world().rank, (3 + other(),), torch.float32, torch.device("cpu"))],
    ),
    "size of a collective": lambda: collectives.all_reduce(torch.ones(3 + other()), (0, 1), "sum"),
    "kind of a collective": lambda: collectives.barrier((0, 1)) if other() else gathered(whole(4)),
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
    """The error of a case on this rank; then both do the same again."""
    try:
        CASES[case]()
        if case == "number of batches" and not other():
            gathered(whole(4))  # what follows the training
    except RankMismatch as error:
        text = str(error)
    else:
        text = ""
    gathered(whole(4))
    return text


@pytest.mark.parametrize("env", [{}, CHECK], ids=["default", "check"])
def test_each_divergence_is_named_on_both_ranks(env):
    train()  # in this process, so that nothing is imported later

    def program():
        train()
        return {case: found(case) for case in CASES}

    for texts in run_ranks(2, program, env=env, timeout=60.0):
        assert [case for case, text in texts.items() if not text] == []
        for case, text in texts.items():
            lines = 1 if "is not the same on ranks" in text else 2
            assert text.count("test_divergence.py:") >= lines, (case, text)
            assert "ranks 0 and 1" in text, (case, text)


def test_a_step_that_differs_after_many_that_did_not():
    def program():
        train(steps=40)
        try:
            train(steps=80, during=late)
        except OnefoldError as error:
            return type(error).__name__, str(error)
        return None

    def late(step, loss, optimizer):
        return (loss * 2).sum() if other() and step == 70 else loss.sum()

    for kind, text in run_ranks(2, program, timeout=60.0):
        assert kind == "RankMismatch", text
        assert "mul" in text
        assert "test_divergence.py:" in text


def test_equal_ranks_are_not_disturbed_and_the_store_does_not_grow():
    def program():
        train(steps=20)
        store = this_world().connection().store
        before = store.num_keys()
        for _ in range(3):
            train(steps=10)
        collectives.barrier((0, 1))
        return store.num_keys() - before

    for env in ({}, CHECK):
        # The other rank may just have set its next key, or not yet deleted its last one.
        assert max(map(abs, run_ranks(2, program, env=env, timeout=60.0))) <= 2


def test_ranks_may_do_what_they_like_with_local_tensors():
    def program():
        x = flow.tensor([1.0, 2.0], placement=both(), sbp=S0)
        if other():
            x.to_local() * 3
        return gathered(x).sum().item()

    assert run_ranks(2, program) == [3.0, 3.0]


def test_check_replicas_names_the_first_that_differs():
    def program():
        mesh = flow.placement("cpu", [[0, 1], [2, 3]])
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to_global(mesh, [B, B])
        model[0].to_global(mesh, [S0, B])
        adam = flow.optim.Adam(model.parameters(), lr=0.1)
        flow.check_replicas(model, adam)
        if this_world().rank == 3:
            model[1].running_mean.shards[0].sub_(0.25)
        try:
            flow.check_replicas(model, adam)
        except RankMismatch as error:
            return str(error)
        return None

    texts = run_ranks(4, program, timeout=60.0)
    assert len({text and text.partition(", at ")[0] for text in texts}) == 1
    assert "buffer '1.running_mean'" in texts[0]
    assert "ranks 0 and 3: 4 of 4 elements differ, by up to 0.25" in texts[0]


def test_check_replicas_in_one_process(world):
    mesh = flow.placement("cpu", [0, 1])
    layer = nn.Linear(2, 2).to_global(mesh, B)
    flow.check_replicas(layer)
    layer.bias.shards = (layer.bias.shards[0], layer.bias.shards[1] + 1)
    with pytest.raises(RankMismatch, match=r"parameter 'bias'.*ranks 0 and 1: 2 of 2"):
        flow.check_replicas(layer)
    with pytest.raises(TypeError, match="needs a module"):
        flow.check_replicas([layer])

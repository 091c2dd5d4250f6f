"""Ranks that do different things: every kind ends all ranks, and both sides are named."""

import socket

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold import comm, nn
from onefold.distributed import collectives, posted_checksum, transfer
from onefold.distributed.world import world as this_world
from onefold.errors import OnefoldError, RankMismatch

B, P, S0, S1 = flow.sbp.broadcast, flow.sbp.partial_sum, flow.sbp.split(0), flow.sbp.split(1)
CHECK = {"ONEFOLD_CHECK": "1"}
CPU = (torch.float32, torch.device("cpu"))


def tcp(env):
    """The environment of ranks that meet as launched ones do: a store in a file polls slowly."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = str(listening.getsockname()[1])
    found = {"ONEFOLD_STORE": "", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {**found, "ONEFOLD_WARN_AFTER": "0.4", **env}


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


# What only ONEFOLD_CHECK=1 finds: what is communicated has the same form on all ranks.
SILENT = {"op", "scalar", "seed", "train and eval", "random calls", "dropout"}


def found(case):
    """The error of a case on this rank; then both do the same again."""
    try:
        CASES[case]()
        if case == "number of batches" and not other():
            gathered(whole(4))  # what follows the training
        collectives.barrier((0, 1))
    except RankMismatch as error:
        text = str(error)
    else:
        text = ""
    gathered(whole(4))
    return text


@pytest.mark.parametrize("env", [{}, CHECK], ids=["default", "check"])
def test_each_divergence_is_named_on_both_ranks(env, monkeypatch):
    monkeypatch.setattr(posted_checksum, "_PATIENCE", 0.3)
    train()  # in this process, so that nothing is imported later

    def program():
        train()
        return {case: found(case) for case in CASES}

    for texts in run_ranks(2, program, env=tcp(env), timeout=60.0):
        silent = {case for case, text in texts.items() if not text}
        assert silent == (set() if env else SILENT)
        for case, text in texts.items():
            lines = 1 if text.startswith("step ") else 2
            assert text.count("test_divergence.py:") >= lines or case in silent, (case, text)
            assert (
                all(f"rank {rank}" in text for rank in "01")
                or "ranks 0 and 1" in text
                or (case in silent)
            ), (case, text)


def test_check_names_the_first_op_that_differs():
    def program():
        return found("scalar"), found("train and eval"), found("seed")

    for scalar, mode, seed in run_ranks(2, program, env=CHECK):
        assert "\n  rank 0: mul(float32[4] (P) on " in scalar
        assert " with 3.0, first at test_divergence.py:" in scalar
        assert " with 2.0, first at test_divergence.py:" in scalar
        assert "rank 0: dropout_with_mask(" in mode
        assert "rank 0: dropout_with_mask(" in seed
        assert "rank 1: dropout_with_mask(" in seed


class Step(nn.Graph):
    def __init__(self, factor):
        super().__init__()
        self.model, self.factor = Model(), factor
        self.add_optimizer(sgd()(self.model))

    def build(self, x):
        loss = (self.model(x) * self.factor).sum()
        loss.backward()
        return loss


def test_check_compares_the_programs_of_graphs():
    def program():
        x = flow.ones(4, 4, placement=both(), sbp=S0)
        try:
            Step(2.0 + other())(x)
        except RankMismatch as error:
            return str(error)
        return None

    for text in run_ranks(2, program, env=CHECK):
        for rank, factor in ((0, "2.0"), (1, "3.0")):
            (row,) = [row for row in text.splitlines() if row.startswith(f"  rank {rank}: %")]
            assert "mul(%" in row
            assert f", {factor})" in row


@pytest.mark.parametrize("env", [{}, CHECK], ids=["default", "check"])
def test_a_step_that_differs_after_many_that_did_not(env, monkeypatch):
    monkeypatch.setattr(posted_checksum, "_PATIENCE", 0.3)

    def program():
        try:
            train(steps=80, during=late)
        except OnefoldError as error:
            return type(error).__name__, str(error)
        return None

    def late(step, loss, optimizer):
        return loss.to_global(sbp=B) if other() and step == 70 else loss

    for kind, text in run_ranks(2, program, env=tcp(env)):
        assert kind == "RankMismatch", text
        assert text.count("test_divergence.py:") >= 2


@pytest.mark.parametrize("env", [{}, CHECK], ids=["default", "check"])
def test_equal_ranks_are_not_disturbed_and_the_store_does_not_grow(env):
    def program():
        peer = 1 - this_world().rank

        def swap():
            transfer([(peer, torch.ones(3))], [(peer, (3,), *CPU)])

        train(steps=20)
        swap()
        store = this_world().connection().store
        before = store.num_keys()
        for _ in range(3):
            train(steps=10)
            swap()
        collectives.barrier((0, 1))
        return store.num_keys() - before

    # The other rank may just have set its next key, or not yet deleted its last one.
    assert max(map(abs, run_ranks(2, program, env=env))) <= 4


def alone():
    """What a rank may do by itself, also with global tensors: nobody else needs it."""
    model = Model()
    optimizer = sgd()(model)
    x = flow.tensor(np.ones((4, 4), np.float32), placement=both(), sbp=B)
    rows = flow.tensor(np.ones((4, 4), np.float32), placement=both(), sbp=S0)
    ours = []
    for step in range(4):
        loss = (model(x).square() * (step + 1)).sum()
        if other():  # looks at values, evaluates, and computes on parts
            print(f"{(loss * 3).item()} {model.first.weight.grad}")
            model.eval()
            with flow.no_grad():
                ours.append(model(x * 2).sum().item())
            model.train()
            rows.to_local().sum().item()
            flow.rand(3, generator=flow.Generator())
            (rows * 2).to_local()
        loss.backward()
        (model(rows)[0] * 1.5).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        for length in range(1, this_world().rank + 2):
            flow.ones(length).sum().item()
    flow.check_replicas(model, optimizer)
    return gathered(rows * 3).sum().item()


@pytest.mark.parametrize("env", [{}, CHECK], ids=["default", "check"])
def test_what_ranks_may_do_differently_is_no_error(env):
    def program():
        uneven = flow.ones(3 + this_world().rank - 1)
        local = flow.tensor([1.0 + this_world().rank])
        joined = local.to_global(both(), S0) * 2  # values of their own
        comm.all_reduce(local)
        if other():
            comm.send(uneven, 0)
        else:
            comm.recv(1)
        return alone(), gathered(joined).tolist()

    found = run_ranks(2, program, env=env)
    assert found == [(48.0, [2.0, 4.0])] * 2


def test_parameters_may_differ_by_rounding():
    """Machines of several kinds add in several orders."""

    def program(by):
        model = Model()
        optimizer = sgd()(model)
        shard = model.first.weight.shards[0]
        if other():
            shard.mul_(1 + by)
        try:
            for _ in range(2):
                optimizer.step()
        except RankMismatch as error:
            return str(error)
        return ""

    assert run_ranks(2, program, 1e-6) == ["", ""]
    for text in run_ranks(2, program, 1e-2):
        assert text.startswith("step 1 of SGD: parameter 0 of SGD, float32[4, 4] (B) on ")


def test_a_message_of_another_size_after_expected_ones_is_an_error_on_both(monkeypatch):
    """Not by the back end, which would end the process that receives more than it expects."""
    monkeypatch.setattr(posted_checksum, "_PATIENCE", 0.3)

    def program(changed):
        rank, texts = this_world().rank, []
        for turn in range(6):
            size = 3 if turn == 5 and rank == changed else 2
            try:
                if rank == 0:
                    transfer([(1, torch.ones(size))], [])
                else:
                    transfer([], [(0, (size,), *CPU)])
                collectives.barrier((0, 1))
            except OnefoldError as error:
                texts.append(str(error))
        return texts

    for changed in (0, 1):
        for texts in run_ranks(2, program, changed, env=tcp({})):
            assert len(texts) == 1
            assert "are at different operations" in texts[0]


def test_check_compares_the_buffers_of_the_module():
    def program():
        norm = nn.BatchNorm1d(4).to_global(both(), B)
        optimizer = flow.optim.SGD(norm.parameters(), lr=0.1)
        try:
            for step in range(3):
                if step == 1 and other():
                    norm.running_var.shards = (norm.running_var.shards[0] + 1.0,)
                norm(flow.ones(4, 4, placement=both(), sbp=S0)).sum().backward()
                optimizer.step()
        except RankMismatch as error:
            return str(error), step
        return "", step

    for text, step in run_ranks(2, program, env=CHECK):
        assert "step 2 of SGD: buffer 'running_var', float32[4] (B) on " in text
        assert step == 1
    assert run_ranks(2, program) == [("", 2)] * 2  # where only parameters are compared

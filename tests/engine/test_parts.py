"""Joining local parts where ranks outside the placement hold something else: the members decide."""

import numpy as np
import pytest
from launched import run_ranks

import onefold as flow

B, P = flow.sbp.broadcast, flow.sbp.partial_sum
S0, S1 = flow.sbp.split(0), flow.sbp.split(1)


def cpu(*ranks):
    return flow.placement("cpu", list(ranks))


def rank():
    return flow.env.get_rank()


def last():
    return flow.env.get_world_size() - 1


OTHERS = {
    "dtype": lambda: flow.tensor([1.0, 2.0]),
    "shape": lambda: flow.zeros(7, 3, dtype=flow.int32),
    "both": lambda: flow.tensor(True),
    "empty": lambda: flow.empty(0, dtype=flow.float64),
}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("other", OTHERS)
def test_what_members_hold_arrives(size, other):
    def program():
        x = flow.tensor([3, -4], dtype=flow.int32) if rank() == 0 else OTHERS[other]()
        y = x.to_global(cpu(0), B)
        moved = y.to_global(cpu(last()), B)
        return tuple(y.shape), str(y.dtype), moved.numpy().tolist(), str(moved.numpy().dtype)

    assert run_ranks(size, program) == [((2,), "torch.int32", [3, -4], "int32")] * size


@pytest.mark.parametrize("sbp", [S0, S1, B, P], ids=str)
def test_two_members_of_four_ranks(sbp):
    def program():
        members = 1, 2
        x = flow.full((2, 2), rank(), dtype=flow.float64)
        if rank() not in members:
            x = flow.zeros(5, dtype=flow.bool)  # too few dims for S1
        y = x.to_global(cpu(*members), sbp)
        return tuple(y.shape), str(y.dtype), (y + 1).to_global(cpu(0, 3), B).numpy().tolist()

    one, two = np.full((2, 2), 1.0), np.full((2, 2), 2.0)
    whole = {S0: np.concatenate([one, two]), S1: np.hstack([one, two]), B: one, P: one + two}[sbp]
    expected = whole.shape, "torch.float64", (whole + 1).tolist()
    assert run_ranks(4, program) == [expected] * 4


@pytest.mark.parametrize("on_member", [True, False])
@pytest.mark.parametrize("size", [2, 4])
def test_members_decide_whether_a_gradient_is_wanted(size, on_member):
    """A tape that differed between ranks would end with ranks waiting for each other."""

    def program():
        x = flow.ones(3, dtype=flow.float64 if rank() == 0 else flow.float32)
        x.requires_grad = (rank() == 0) == on_member
        y = x.to_global(cpu(0), B)
        z = y.to_global(cpu(last()), B)
        if z.requires_grad:
            (z * z).sum().backward()
        grad = None if x.grad is None else (str(x.grad.dtype), x.grad.numpy().tolist())
        return y.requires_grad, z.requires_grad, grad

    first, *rest = run_ranks(size, program)
    assert first == (on_member, on_member, ("torch.float64", [2.0] * 3) if on_member else None)
    assert rest == [(on_member, on_member, None)] * (size - 1)


def test_the_gradient_of_a_part_that_did_not_count():
    def program():
        x = flow.ones(2 + rank(), dtype=flow.float64 if rank() == 0 else flow.float32)
        x.requires_grad = True
        x.to_global(cpu(0), B).sum().backward()
        return str(x.grad.dtype), x.grad.numpy().tolist()

    assert run_ranks(2, program) == [
        ("torch.float64", [1.0, 1.0]),
        ("torch.float32", [0.0, 0.0, 0.0]),
    ]


def test_members_that_disagree_are_named_on_every_rank():
    def program():
        dtype = {1: flow.int64, 3: flow.bool}.get(rank(), flow.int32)
        try:
            flow.zeros(2, dtype=dtype).to_global(cpu(0, 1, 2), S0)
        except flow.OnefoldError as error:
            return type(error).__name__, str(error)

    for kind, text in run_ranks(4, program):
        assert kind == "RankMismatch"
        assert "rank 0 has (torch.int32, " in text
        assert "rank 1 has (torch.int64, " in text


def test_a_bad_layout_is_reported_to_ranks_outside():
    def program():
        try:
            flow.zeros(*([2] * (1 + rank()))).to_global(cpu(0), S1)
        except flow.OnefoldError as error:
            return type(error).__name__, str(error)

    (zero, text), (one, told) = run_ranks(2, program)
    assert (zero, one) == ("SbpError", "RankMismatch")
    assert "needs a tensor with more than 1 dims" in text
    assert "rank 0 could not take part" in told
    assert text.removeprefix("to_global: ") in told  # the function that was called there


def test_no_more_communication_than_before():
    """One exchange of small objects, which is how ranks learn each other's shapes anyway."""

    def program():
        x = flow.zeros(2, dtype=flow.int32 if rank() else flow.float32)
        flow.zeros(2).to_global(cpu(0, 1), B)
        before = flow.distributed.world().connection().group((0, 1)).counter.seq
        x.to_global(cpu(0), B)
        return flow.distributed.world().connection().group((0, 1)).counter.seq - before

    assert run_ranks(2, program) == [2, 2]

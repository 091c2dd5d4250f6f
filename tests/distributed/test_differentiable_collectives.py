"""flow.distributed.nn: values and gradients are those of torch, on real processes."""

from importlib import import_module

import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold.distributed.world import world
from onefold.errors import OnefoldNotImplementedError, OnefoldValueError

dist = flow.distributed

CALLS = {
    "all_reduce": lambda nn, lib, x: [nn.all_reduce(x * 2)],
    "broadcast": lambda nn, lib, x: [nn.broadcast(x, 1)],
    "reduce": lambda nn, lib, x: [nn.reduce(x, 2)],
    "all_gather": lambda nn, lib, x: nn.all_gather(x),
    "gather": lambda nn, lib, x: nn.gather(x, 1),
    "scatter": lambda nn, lib, x: [nn.scatter([x, x * 2, x * x], 1)],
    "reduce_scatter": lambda nn, lib, x: [nn.reduce_scatter(lib.empty(3), [x, x * 2, x * x])],
    "all_to_all": lambda nn, lib, x: nn.all_to_all(list(lib.empty(3, 3)), [x, x * 2, x * x]),
    "all_to_all_single": lambda nn, lib, x: [nn.all_to_all_single(lib.empty(3), x)],
}


def _run(lib, nn, call, rank):
    """The values of a collective on the ranks where they are set, and its gradient."""
    x = (lib.arange(3.0) + rank + 1).requires_grad_()
    ys = call(nn, lib, x)
    weights = lib.arange(3.0) * (rank + 1) + 1
    sum((y * weights * (i + 1)).sum() for i, y in enumerate(ys)).backward()
    return [y.tolist() for y in ys], x.grad.tolist()


@pytest.mark.filterwarnings("ignore::FutureWarning")  # newer torch names functions without state
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients_are_those_of_torch(name):
    theirs = import_module("torch.distributed.nn.functional")
    ours = import_module("onefold.distributed.nn.functional")
    assert ours is dist.nn

    def both():
        world().connection()
        rank = dist.get_rank()
        mine = _run(flow, ours, CALLS[name], rank)
        wanted = _run(torch, theirs, CALLS[name], rank)
        if name == "reduce" and rank != 2:  # nothing is said of these values
            return mine[1] == wanted[1]
        return mine == wanted

    assert run_ranks(3, both) == [True] * 3


def test_a_group_takes_part_alone():
    def gradients():
        group, groups = dist.new_subgroups(2)
        x = flow.ones(2, requires_grad=True)
        (dist.nn.all_reduce(x, group=group) * (dist.get_rank() + 1)).sum().backward()
        none, two = dist.new_subgroups_by_enumeration([[1, 3]])
        return x.grad.tolist(), len(groups), dist.get_world_size(none), len(two)

    low, high = ([3, 3], 2, -1, 1), ([7, 7], 2, 2, 1)
    assert run_ranks(4, gradients) == [low, (*low[:2], 2, 1), (*high[:2], -1, 1), high]


def test_wrong_calls_say_what_is_allowed():
    with pytest.raises(OnefoldNotImplementedError, match=r"nn.all_reduce: op must be ReduceOp.SUM"):
        dist.nn.all_reduce(flow.ones(1), dist.ReduceOp.MAX)
    with pytest.raises(OnefoldValueError, match=r"new_subgroups: group_size must .* got 2"):
        dist.new_subgroups(2)
    with pytest.raises(OnefoldValueError, match=r"in one group only, but .* \[\[0\], \[0\]\]"):
        dist.new_subgroups_by_enumeration([[0], [0]])

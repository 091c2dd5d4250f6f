"""distributed._functional_collectives: collectives that return their result, against arithmetic."""

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
import onefold.distributed as dist
from onefold.distributed import _functional_collectives as funcol
from onefold.distributed.device_mesh import init_device_mesh
from onefold.errors import OnefoldNotImplementedError, OnefoldTypeError, OnefoldValueError

RANKS = 2


def given(rank):
    return np.arange(8.0).reshape(4, 2) * (rank + 1) - 3.0


def results(group_of):
    """Results and gradients of the functions whose result depends on the rank."""
    rank = dist.get_rank()
    group = group_of()
    calls = {
        "all_reduce": lambda x: funcol.all_reduce(x, "sum", group),
        "mean": lambda x: funcol.all_reduce(x, "AVG", group),
        "gather": lambda x: funcol.all_gather_tensor(x, 0, group),
        "gather columns": lambda x: funcol.all_gather_single(x, 1, group),
        "scatter": lambda x: funcol.reduce_scatter_tensor(x, "sum", 0, group),
        "scatter columns": lambda x: funcol.reduce_scatter_single(x, "avg", 1, group),
        "exchange": lambda x: funcol.all_to_all_single(x, None, None, group),
        "uneven": lambda x: funcol.all_to_all_single(
            x, ([3, 1], [1, 3])[rank], ([3, 1], [1, 3])[rank], group
        ),
        "broadcast": lambda x: funcol.broadcast(x, 1, group),
    }
    found = {}
    for name, call in calls.items():
        x = flow.tensor(given(rank), requires_grad=True)
        y = call(x)
        y.backward(flow.ones_like(y) * (rank + 1))
        assert flow.equal(x.detach(), flow.tensor(given(rank)))
        found[name] = y.detach().numpy(), x.grad.numpy()
    return found


def wanted(rank):
    a, b = given(0), given(1)
    ones = np.ones((4, 2))
    rows, columns = slice(2 * rank, 2 * rank + 2), slice(rank, rank + 1)
    by_rank = np.repeat([[1.0], [2.0]], 2, axis=0) * ones
    uneven = np.concatenate([a[:3], b[:1]]) if rank == 0 else np.concatenate([a[3:], b[1:]])
    back = np.array([[1.0]] * 3 + [[2.0]] if rank == 0 else [[1.0]] + [[2.0]] * 3) * ones
    return {
        "all_reduce": (a + b, 3 * ones),
        "mean": ((a + b) / 2, 1.5 * ones),
        "gather": (np.concatenate([a, b]), 3 * ones),
        "gather columns": (np.concatenate([a, b], 1), 3 * ones),
        "scatter": ((a + b)[rows], by_rank),
        "scatter columns": ((a + b)[:, columns] / 2, np.array([[1.0, 2.0]]) * ones / 2),
        "exchange": (np.concatenate([a[rows], b[rows]]), by_rank),
        "uneven": (uneven, back),
        "broadcast": (b, 3 * ones * rank),
    }


GROUPS = {
    "ranks": lambda: [0, 1],
    "group": lambda: dist.group.WORLD,
    "mesh": lambda: init_device_mesh("cpu", (2,)),
    "axis": lambda: (init_device_mesh("cpu", (1, 2)), 1),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_results_and_gradients(kind):
    for rank, found in enumerate(run_ranks(RANKS, results, GROUPS[kind])):
        for name, (value, gradient) in wanted(rank).items():
            np.testing.assert_allclose(found[name][0], value, err_msg=name)
            np.testing.assert_allclose(found[name][1], gradient, err_msg=name)


def largest():
    x = flow.tensor([1.0, 5.0]).sub(dist.get_rank()).requires_grad_()
    y = funcol.wait_tensor(funcol.all_reduce(x, "max", [0, 1]))
    assert not isinstance(y, funcol.AsyncCollectiveTensor)
    with pytest.raises(OnefoldNotImplementedError, match="must be 'sum' or 'avg'"):
        y.sum().backward()
    part = funcol.reduce_scatter_single(x.detach(), "max", 0, [0, 1])
    several = funcol.all_reduce_coalesced([x.detach(), x.detach() * 2], "min", [0, 1])
    rows = funcol.reduce_scatter_tensor_coalesced([x.detach()], "sum", [0], [0, 1])
    both = funcol.all_gather_into_tensor_coalesced([x.detach()], [0, 1])
    return [each.tolist() for each in (y.detach(), part, *several, *rows, *both)]


def test_other_reductions_have_no_gradient():
    first, second = run_ranks(RANKS, largest)
    assert first == [[1, 5], [1], [0, 4], [0, 8], [1], [1, 5, 0, 4]]
    assert second == [[1, 5], [5], [0, 4], [0, 8], [9], [1, 5, 0, 4]]


def test_what_is_refused(world):
    x = flow.ones(3)
    with pytest.raises(OnefoldTypeError, match="a list of ranks, a DeviceMesh of one axis"):
        funcol.all_reduce(x, "sum", "world")
    with pytest.raises(OnefoldValueError, match="one of avg, sum, product, max, min, but got 'xor"):
        funcol.all_reduce(x, "xor", [0])
    with pytest.raises(OnefoldValueError, match="give both output_split_sizes and input_split"):
        funcol.all_to_all_single(x, [3], None, [0])
    with pytest.raises(OnefoldValueError, match=r"dim 0 of \(3,\) is not a multiple of"):
        funcol.reduce_scatter_single(x, "sum", 0, [0, 1])
    assert torch.equal(funcol.all_reduce(x, "sum", [0]).to_torch(), torch.ones(3))

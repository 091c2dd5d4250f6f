"""vmap under autocast and in graphs, its errors, what may be kept, Jacobians."""

import pytest
import torch
from vmap_checks import Calls, by_rows, close

import onefold as flow
from onefold.engine import dispatch_plan
from onefold.func import batching_rules


def test_autocast_casts_the_products_of_rows():
    x, w = flow.randn(3, 4), flow.randn(4, 2)
    with flow.autocast("cpu"), Calls() as calls:
        outside = flow.vmap(lambda row: row @ w)(x)
        slopes = flow.vmap(flow.func.grad(lambda row: (row @ w).float().sum()))(x)
    assert not calls.refusals

    def inside(row):
        with flow.autocast("cpu"):
            return row @ w

    assert outside.dtype is flow.vmap(inside)(x).dtype is torch.bfloat16
    assert slopes.dtype is torch.float32
    with by_rows(), flow.autocast("cpu"):
        close(outside.float(), flow.vmap(lambda row: row @ w)(x).float())


def test_a_graph_captures_the_ops_of_all_rows():
    layer = flow.nn.Linear(4, 2)

    class Graph(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def build(self, x):
            def loss(row):
                return self.layer(row).sin().sum()

            return flow.vmap(loss)(x), flow.vmap(flow.func.grad(loss))(x)

    x, graph = flow.randn(5, 4), Graph()
    found = graph(x)
    close(found[0], layer(x).sin().sum(1))
    with by_rows():
        close(found, Graph()(x))
    assert len(graph.program.steps) < 15


def test_errors_are_those_of_a_row():
    def f(row):
        return row @ flow.ones(3)

    with pytest.raises(RuntimeError, match=r"float32\[4\]") as error:
        flow.vmap(f)(flow.ones(2, 4))
    assert "[2, 4]" not in str(error.value)
    with pytest.raises(ValueError, match="chunk_size"):
        flow.vmap(f, chunk_size=0)


def test_a_tensor_that_is_kept_has_no_value():
    kept = []
    flow.vmap(lambda row: kept.append(row * 2) or row)(flow.ones(2, 4))
    with pytest.raises(RuntimeError, match="for each row"):
        kept[0] + 1


def test_a_tensor_that_is_the_same_for_each_row_may_be_kept():
    class Masked(flow.nn.Module):
        mask = None

        def forward(self, x):
            if self.mask is None:
                self.mask = flow.tril(flow.ones(3, 3))
                self.mask[0] = 2.0
            return self.mask @ x

    layer = Masked()
    with Calls() as calls:
        found = flow.vmap(layer)(flow.ones(2, 3))
    assert not calls.refusals
    assert found.tolist() == [[6, 2, 3]] * 2
    assert layer.mask.tolist() == [[2, 2, 2], [1, 1, 0], [1, 1, 1]]
    assert layer(flow.ones(3)).tolist() == [6, 2, 3]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_jacobians_take_one_backward_pass():
    x = torch.randn(4, dtype=torch.float64)

    def f(lib):
        return lambda x: lib.stack([x.sin() * x.sum(), x * x])

    for name in ("jacrev", "hessian"):
        for chunk_size in (None, 3)[: 1 + (name == "jacrev")]:
            options = {} if chunk_size is None else {"chunk_size": chunk_size}
            with Calls() as calls:
                found = getattr(flow.func, name)(f(flow), **options)(flow.tensor(x))
            assert not calls.refusals and not calls.looped
            close(found, getattr(torch.func, name)(f(torch), **options)(x))


def test_rules_are_for_ops():
    flow.split(flow.ones(4), 2)  # there is an op for each number of parts
    flow.unbind(flow.ones(2, 2), 0)
    assert set(batching_rules.RULES) <= set(dispatch_plan.ops)


def test_one_row_is_one_call():
    with Calls() as calls:
        assert flow.vmap(lambda row: row * row.sum().item())(flow.ones(1, 2)).tolist() == [[2, 2]]
    assert not calls.refusals

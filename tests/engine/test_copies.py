"""pickle, torch.save, copy and deepcopy of tensors, modules, optimizers and graphs."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from launched import run_ranks
from small_graphs import SquareMean
from strategy_runs import Run, assert_same

import onefold as flow
from onefold.errors import OnefoldTypeError

B, S = flow.sbp.broadcast, flow.sbp.split


def by_pickle(value):
    return pickle.loads(pickle.dumps(value))


def by_torch(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS = [copy.copy, copy.deepcopy, by_pickle, by_torch]


def tensors():
    p = flow.placement("cpu", [[0, 1], [2, 3]])
    yield flow.arange(5.0)
    yield flow.arange(5).bfloat16().requires_grad_()
    yield flow.arange(10.0).reshape(5, 2).t()[1]
    for sbp in ((S(0), B), (S(1), S(0)), (B, B)):
        yield flow.arange(15.0).reshape(5, 3).to_global(p, (B, B)).to_global(sbp=sbp)
    yield flow.ones(3).to_global(p, (flow.sbp.partial_sum, B))
    yield flow.nn.Parameter(flow.ones(2, 2).to_global(p, (B, B)), requires_grad=False)
    yield flow.nn.Buffer(flow.ones(2), persistent=False)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_tensors(world, way):
    for x in tensors():
        y = way(x)
        assert type(y) is type(x) and y.meta is x.meta and y is not x
        assert y.requires_grad == x.requires_grad and y.is_leaf
        assert getattr(y, "persistent", None) == getattr(x, "persistent", None)
        np.testing.assert_array_equal(y.float().numpy(), x.float().numpy())
        with flow.no_grad():
            y += 1
        changed = way is copy.copy and type(x) is flow.Tensor  # as in torch
        assert (y.float().numpy() == x.float().numpy()).all() == changed


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_attributes_of_programs(world, way):
    for lib in (flow, torch):
        x = lib.ones(2)
        x.require_grad, x.names_of_rows = False, ["a", "b"]
        assert way(x).names_of_rows == ["a", "b"]
        assert not hasattr(x * 2, "names_of_rows")
        with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'missing'"):
            _ = x.missing


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("strategy", ["one", "tp4", "zero3"])
def test_what_trains(world, way, strategy):
    run = Run(strategy)
    run.step(0)
    twin = copy.copy(run)
    twin.model, twin.optimizer, twin.schedule = way((run.model, run.optimizer, run.schedule))
    twin.ends = [twin.model[0], twin.model[3]]
    if way is copy.copy:
        return
    rng = flow.get_rng_state()
    losses = [run.step(number) for number in (1, 2)]
    flow.set_rng_state(rng)
    assert [twin.step(number) for number in (1, 2)] == losses
    assert_same(twin.values(), run.values())


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_graphs(world, way, scaled):
    model = flow.nn.Linear(3, 2)
    scaler = flow.amp.GradScaler(4.0, growth_interval=2) if scaled else None
    graph = SquareMean(model, flow.optim.Adam(model.parameters(), lr=0.1))
    if scaled:
        graph.set_grad_scaler(scaler)
    x = flow.ones(2, 3)
    graph(x)
    twin = way(graph)
    assert not twin.is_compiled
    if way is copy.copy:
        assert twin.model is model
        return
    assert [twin(x).item() for _ in range(3)] == [graph(x).item() for _ in range(3)]
    assert twin.state_dict().keys() == graph.state_dict().keys()
    if scaled:
        assert twin._scaler.get_scale() == scaler.get_scale() == 16.0


def test_a_file_of_tensors_holds_no_graph(world):
    graph = flow.nn.Graph.trace(flow.nn.Linear(3, 2))
    with pytest.raises(OnefoldTypeError, match=r"Save its state_dict\(\)"):
        flow.save(graph, io.BytesIO())


def test_a_global_tensor_of_a_launched_world():
    def program():
        x = flow.ones(4, placement=flow.placement("cpu", [0, 1]), sbp=S(0))
        with pytest.raises(OnefoldTypeError, match=r"flow\.save.*to_local"):
            pickle.dumps(x)
        assert by_pickle(x.to_local()).tolist() == [1, 1]
        return copy.copy(x).tolist()

    assert run_ranks(2, program) == [[1] * 4] * 2

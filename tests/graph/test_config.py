"""Settings of graphs: fusions, and what OneFlow has and Onefold does not."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import onefold as flow
from onefold import nn, sbp
from onefold.errors import OnefoldError, OnefoldTypeError
from onefold.graph.unsupported import CONFIG, GRAPH

B, S0 = sbp.broadcast, sbp.split(0)
PAIR = flow.placement("cpu", [0, 1])


class Residual(nn.Module):
    def __init__(self, where):
        super().__init__()
        self.first = nn.Linear(6, 6, bias=False, **where)
        self.second = nn.Linear(6, 6, **where)

    def forward(self, x):
        x = x + self.first(x)
        h = self.second(x)
        return h + flow.matmul(h, self.second.weight)


class Train(nn.Graph):
    def __init__(self, fuse, where, micro_batches=1):
        super().__init__()
        flow.manual_seed(0)
        self.model = Residual(where)
        self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9))
        self.config.allow_fuse_add_to_output(fuse)
        self.config.set_gradient_accumulation_steps(micro_batches)

    def build(self, x):
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        return loss


def trained(fuse, where, input_sbp, micro_batches=1):
    graph = Train(fuse, where, micro_batches)
    losses = []
    for number in range(3):
        values = np.random.default_rng(number).standard_normal((4, 6)).astype(np.float32)
        layout = {"placement": PAIR, "sbp": input_sbp} if where else {}
        losses.append(graph(flow.tensor(values, **layout)).numpy())
    return graph, losses, [p.numpy() for p in graph.model.parameters()]


def names_of(graph):
    return [step.name for step in graph.program.steps]


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize(
    ("weights", "inputs"), [(None, None), (B, S0), (S0, B)], ids=["local", "dp", "tp"]
)
def test_products_are_added_as_they_are_made(weights, inputs, micro_batches, world):
    where = {} if weights is None else {"placement": PAIR, "sbp": weights}
    plain, losses, values = trained(False, where, inputs, micro_batches)
    fused, fused_losses, fused_values = trained(True, where, inputs, micro_batches)
    assert not any(name.startswith("addmm") for name in names_of(plain))
    assert "addmm_nt" in names_of(fused)
    assert len(names_of(fused)) < len(names_of(plain))
    np.testing.assert_allclose(fused_losses, losses, rtol=1e-5)
    for ours, theirs in zip(fused_values, values, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@given(st.data())
def test_what_may_be_fused_keeps_its_value(data):
    rows, inner, columns = (data.draw(st.integers(0, 4)) for _ in range(3))
    form = data.draw(st.sampled_from(["nn", "matmul", "linear", "twice", "kept", "alpha"]))
    first = data.draw(st.booleans())

    @nn.Graph.trace
    def graph(x, a, b):
        y = {
            "matmul": lambda: flow.matmul(a, b),
            "linear": lambda: flow.nn.functional.linear(a, b.t()),
        }.get(form, lambda: flow.mm(a, b))()
        if form == "alpha":
            return flow.add(x, y, alpha=2)
        z = y + x if first else x + y
        return (z, z + y) if form == "twice" else (z, y) if form == "kept" else z

    random = np.random.default_rng(0)
    shapes = (rows, columns), (rows, inner), (inner, columns)
    given_ = [flow.tensor(random.integers(-4, 5, s).astype(np.float32)) for s in shapes]
    wanted = graph(*given_)
    graph.config.allow_fuse_add_to_output()
    found = graph(*given_)  # compiled anew; whole numbers are exact in any order
    fused = any(name.startswith("addmm") for name in names_of(graph))
    assert fused == (form in ("nn", "matmul", "linear"))
    pairs = zip(found, wanted, strict=True) if form in ("twice", "kept") else [(found, wanted)]
    for ours, theirs in pairs:
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_what_is_no_product_of_matrices_is_left(world):
    @nn.Graph.trace
    def graph(x, a, b, bias):
        whole = (a.to(flow.int64) @ b.to(flow.int64)) + x.to(flow.int64)
        return whole, flow.bmm(a[None], b[None]) + x[None], a @ b + bias

    graph.config.allow_fuse_add_to_output()
    graph(flow.ones(2, 4), flow.ones(2, 3), flow.ones(3, 4), flow.ones(4))
    assert not any(name.startswith("addmm") for name in names_of(graph))


def test_a_fused_product_is_as_near_as_it_says(world):
    random = np.random.default_rng(3)
    x, a, b = (random.standard_normal((64, 64)).astype(np.float32) for _ in range(3))
    graph = nn.Graph.trace(lambda x, a, b: x + a @ b)
    graph.config.allow_fuse_add_to_output()
    found = graph(*map(flow.tensor, (x, a, b))).numpy()
    exact = x.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(found, exact, atol=1e-5)


def test_updates_are_fused_anyway(world):
    config = nn.graph.GraphConfig()
    settings = config.settings
    config.allow_fuse_model_update_ops(True)
    config.allow_fuse_model_update_ops(False)
    config.allow_fuse_cast_scale(False)
    assert config.settings == settings


@pytest.mark.parametrize(
    "name",
    ["allow_fuse_add_to_output", "allow_fuse_model_update_ops", "allow_fuse_cast_scale"],
)
def test_fusions_take_a_bool(name):
    config = nn.graph.GraphConfig()
    with pytest.raises(OnefoldTypeError, match=f"{name}: mode must be True or False.*'yes'"):
        getattr(config, name)("yes")


def test_casting_and_scaling_in_one_pass_is_not_offered():
    with pytest.raises(OnefoldError, match=r"allow_fuse_cast_scale is not offered: .*leave it out"):
        nn.graph.GraphConfig().allow_fuse_cast_scale()


# Names of the reference.


@pytest.mark.parametrize("name", CONFIG)
def test_a_setting_that_is_not_offered(name):
    config = nn.graph.GraphConfig()
    with pytest.raises(OnefoldError, match=rf"GraphConfig\.{name} is not offered: \w+"):
        getattr(config, name)(True)
    assert not hasattr(config, name)
    with pytest.raises(AttributeError):
        setattr(config, name, True)


@pytest.mark.parametrize("name", GRAPH)
def test_a_method_that_is_not_offered(name, world):
    graph = nn.Graph()
    with pytest.raises(OnefoldError, match=rf"Graph\.{name} is not offered: \w+"):
        getattr(graph, name)(graph)
    assert not hasattr(graph, name)


def test_saving_compiled_graphs_is_not_offered(world):
    class Saves(nn.Graph):
        def __init__(self):
            super().__init__(enable_get_runtime_state_dict=True)

    with pytest.raises(OnefoldError, match=r"Saves\.runtime_state_dict is not offered: compiled"):
        Saves()


def test_other_names_are_no_attributes(world):
    config = nn.graph.GraphConfig()
    with pytest.raises(AttributeError, match="'GraphConfig' object has no attribute 'enable_map'"):
        config.enable_map(True)
    with pytest.raises(AttributeError):
        config.enable_map = True
    with pytest.raises(AttributeError):
        config.enable_amp = True
    with pytest.raises(AttributeError, match="no attribute 'models'"):
        _ = nn.Graph().models
    copied = copy.deepcopy(config)
    copied.enable_amp(dtype=torch.bfloat16)
    assert (config.amp_dtype, copied.amp_dtype) == (None, torch.bfloat16)

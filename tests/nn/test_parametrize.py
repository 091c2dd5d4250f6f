"""Parametrized weights against torch's: values, gradients, state, layouts, eager and in graphs."""

import copy
import warnings

import numpy as np
import pytest
import torch
import torch.nn.utils.parametrizations as theirs
import torch.nn.utils.parametrize as their_parametrize
from launched import run_ranks

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from onefold.testing.sample_checks import value_of

P = flow.nn.utils.parametrize
ours = flow.nn.utils.parametrizations

LAYOUTS = {
    "local": None,
    "(B)": ([0, 1], "(B)"),
    "(S0)": ([0, 1], "(S0)"),
    "(S1), uneven": ([0, 1, 2], "(S1)"),
    "mesh": ([[0, 1], [2, 3]], "(S0, S1)"),
}
FUNCTIONS = {
    "weight_norm": ("weight_norm", {}),
    "weight_norm of dim 1": ("weight_norm", {"dim": 1}),
    "weight_norm of all dims": ("weight_norm", {"dim": None}),
    "spectral_norm": ("spectral_norm", {"n_power_iterations": 2}),
    "orthogonal": ("orthogonal", {}),
    "matrix_exp": ("orthogonal", {"orthogonal_map": "matrix_exp"}),
    "cayley": ("orthogonal", {"orthogonal_map": "cayley"}),
    "without a base": (
        "orthogonal", {"orthogonal_map": "householder", "use_trivialization": False}
    ),
}  # fmt: skip


def place(module, layout):
    """The module with its matrices in a layout."""
    if layout is None:
        return module
    ranks, sbp = layout
    p = flow.placement("cpu", ranks)
    whole = (flow.sbp.broadcast,) * p.ndim
    module.to_global(p, whole)
    return module.to_global(p, lambda name, x: parse(sbp) if x.ndim > 1 else whole)


def placed(x, layout):
    if layout is None:
        return flow.tensor(x.numpy())
    p = flow.placement("cpu", layout[0])
    return flow.tensor(x.numpy(), placement=p, sbp=(flow.sbp.broadcast,) * p.ndim)


def pair(layout=None, kind="Linear", sizes=(5, 6)):
    torch.manual_seed(0)
    right = getattr(torch.nn, kind)(*sizes).double()
    mine = getattr(flow.nn, kind)(*sizes).double()
    mine.load_state_dict(right.state_dict())
    return right, place(mine, layout)


def assert_like(mine, right, rtol=1e-7):
    """The same keys in the same order, and the same values and gradients of parameters."""
    assert list(mine.state_dict()) == list(right.state_dict())
    assert repr(mine) == repr(right)
    for name, param in right.named_parameters():
        found = mine.get_parameter(name)
        torch.testing.assert_close(value_of(found.detach()), param.detach(), rtol=rtol, atol=1e-9)
        assert (found.grad is None) == (param.grad is None)
        if param.grad is not None:
            torch.testing.assert_close(value_of(found.grad), param.grad, rtol=rtol, atol=1e-9)


def losses(module, x, steps=2):
    """Losses of training steps by stochastic gradient descent."""
    library = torch if isinstance(x, torch.Tensor) else flow
    optimizer = library.optim.SGD(module.parameters(), lr=0.05)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((module(x) - 1.0) ** 2).sum()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_training_is_torchs(function, layout, world):
    name, given = FUNCTIONS[function]
    right, mine = pair(LAYOUTS[layout])
    sizes = [(p.shape, value_of(p.detach())) for p in mine.parameters()]
    assert getattr(theirs, name)(right, **given) is right
    assert getattr(ours, name)(mine, **given) is mine
    if function not in ("spectral_norm", "matrix_exp", "cayley", "orthogonal"):
        np.testing.assert_allclose(mine.weight.numpy(), right.weight.detach().numpy(), atol=1e-10)
    assert len(sizes) == 2
    mine.load_state_dict(right.state_dict())  # random vectors and bases too
    x = torch.randn(3, 5, dtype=torch.float64)
    wanted = losses(right, x)
    np.testing.assert_allclose(losses(mine, placed(x, LAYOUTS[layout])), wanted, rtol=1e-7)
    assert_like(mine, right)
    their_parametrize.remove_parametrizations(right.eval(), "weight")
    before = mine.eval().parametrizations.weight._parameters.get("original")
    assert P.remove_parametrizations(mine, "weight") is mine
    right.zero_grad()
    mine.zero_grad()
    assert_like(mine, right)
    assert before is None or mine.weight is before  # optimizers keep it


@pytest.mark.parametrize("layout", ["local", "(S0)", "mesh"])
@pytest.mark.parametrize("function", ["weight_norm", "spectral_norm", "orthogonal", "cayley"])
def test_a_graph_trains_like_eager_code(function, layout, world):
    name, given = FUNCTIONS[function]
    _, mine = pair(LAYOUTS[layout])
    getattr(ours, name)(mine, **given)
    other = copy.deepcopy(mine)
    assert other.weight is not mine.weight
    x = placed(torch.randn(3, 5, dtype=torch.float64), LAYOUTS[layout])

    class Step(flow.nn.Graph):
        def __init__(self, module):
            super().__init__()
            self.module = module
            self.add_optimizer(flow.optim.SGD(module.parameters(), lr=0.05))

        def build(self, x):
            with P.cached():
                loss = ((self.module(x) - 1.0) ** 2).sum()
            loss.backward()
            return loss

    step = Step(other)
    wanted = losses(mine, x, 3)
    assert [step(x).item() for _ in range(3)] == wanted
    for key, value in mine.state_dict().items():
        assert torch.equal(value_of(value), value_of(other.state_dict()[key])), key


def test_convolutions(world):
    for kind, sizes in (("Conv2d", (4, 6, 3)), ("ConvTranspose1d", (4, 6, 3))):
        for name in ("weight_norm", "spectral_norm"):
            right, mine = pair(None, kind, sizes)
            getattr(theirs, name)(right)
            getattr(ours, name)(mine)
            mine.load_state_dict(right.state_dict())
            x = torch.randn(2, 4, *([7, 7] if kind == "Conv2d" else [7]), dtype=torch.float64)
            np.testing.assert_allclose(losses(mine, placed(x, None)), losses(right, x))
            assert_like(mine, right)


class Double(flow.nn.Module):
    def forward(self, x):
        return x * 2

    def right_inverse(self, x):
        return x / 2


class Product(flow.nn.Module):
    def forward(self, a, b):
        return a @ b

    def right_inverse(self, x):
        return x.clone(), flow.eye(x.shape[1], dtype=x.dtype)


class Narrow(flow.nn.Module):
    def forward(self, x):
        return x[:, :2]


def test_parametrizations_of_a_user(world):
    layer = flow.nn.Linear(3, 2)
    weight = layer.weight
    before = weight.numpy().copy()
    assert not P.is_parametrized(layer)
    P.register_parametrization(layer, "weight", Double())
    assert P.is_parametrized(layer) and P.is_parametrized(layer, "weight")
    assert not P.is_parametrized(layer, "bias")
    assert layer.parametrizations.weight.original is weight
    assert P.type_before_parametrizations(layer) is flow.nn.Linear
    np.testing.assert_array_equal(layer.weight.numpy(), before)
    P.register_parametrization(layer, "weight", Double())
    np.testing.assert_array_equal(layer.weight.numpy(), 2 * before)
    layer.weight = flow.ones(2, 3)
    np.testing.assert_array_equal(weight.numpy(), np.full((2, 3), 0.25, "f4"))
    other = P.transfer_parametrizations_and_params(layer, flow.nn.Linear(3, 2))
    assert other.parametrizations.weight.original is weight
    assert len(other.parametrizations.weight) == 2
    P.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight is weight and repr(layer) == repr(flow.nn.Linear(3, 2))
    assert not hasattr(layer, "parametrizations")


def test_parametrized_by_several_tensors(world):
    layer = flow.nn.Linear(3, 2)
    before = layer.weight.numpy().copy()
    P.register_parametrization(layer, "weight", Product())
    assert [name for name, _ in layer.named_parameters()] == [
        "bias", "parametrizations.weight.original0", "parametrizations.weight.original1"
    ]  # fmt: skip
    np.testing.assert_array_equal(layer.weight.numpy(), before)
    with pytest.raises(OnefoldValueError, match="Cannot leave unparametrized"):
        P.remove_parametrizations(layer, "weight", leave_parametrized=False)
    P.remove_parametrizations(layer, "weight")
    np.testing.assert_array_equal(layer.weight.numpy(), before)
    assert isinstance(layer.weight, flow.nn.Parameter)


def test_buffers_and_unsafe_parametrizations(world):
    norm = flow.nn.BatchNorm1d(3)
    P.register_parametrization(norm, "running_mean", Double())
    assert "parametrizations.running_mean.original" in norm.state_dict()
    layer = flow.nn.Linear(3, 2)
    with pytest.raises(OnefoldValueError, match="may not change the shape"):
        P.register_parametrization(layer, "weight", Narrow())
    assert isinstance(layer.weight, flow.nn.Parameter) and not P.is_parametrized(layer)
    P.register_parametrization(layer, "weight", Narrow(), unsafe=True)
    assert layer(flow.ones(1, 2)).shape == (1, 2)
    assert not layer.parametrizations.weight.original.is_global


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_original_of_another_shape(layout, world):
    """A triangle of a matrix, as one vector."""

    class Triangle(flow.nn.Module):
        def forward(self, x):
            return flow.stack([x[:3], x[1:4], x[2:]])

        def right_inverse(self, x):
            return flow.cat([x[0], x[1:, 2]])

    _, layer = pair(LAYOUTS[layout], "Linear", (3, 3))
    weight, before = layer.weight, value_of(layer.weight.detach())
    P.register_parametrization(layer, "weight", Triangle())
    assert layer.parametrizations.weight.original is weight and weight.shape == (5,)
    wanted = torch.stack([before[0], torch.cat([before[0, 1:], before[1:2, 2]]), before[:, 2]])
    assert torch.equal(value_of(layer.weight.detach()), wanted)
    layer.weight.sum().backward()
    assert value_of(weight.grad).tolist() == [1, 2, 3, 2, 1]
    P.remove_parametrizations(layer, "weight")
    assert layer.weight is weight and torch.equal(value_of(weight.detach()), wanted)


def test_values_are_computed_once_in_a_block(world):
    calls = []

    class Counted(flow.nn.Module):
        def forward(self, x):
            calls.append(x)
            return x

    layer = P.register_parametrization(flow.nn.Linear(3, 2), "weight", Counted())
    calls.clear()
    with P.cached(), P.cached():
        assert layer.weight is layer.weight
    assert len(calls) == 1
    assert layer.weight is not None and layer.weight is not None
    assert len(calls) == 3


def test_errors_change_nothing(world):
    layer = flow.nn.Linear(3, 2)
    with pytest.raises(OnefoldValueError, match="with name 'missing'"):
        P.register_parametrization(layer, "missing", Double())
    with pytest.raises(OnefoldValueError, match="requires one or more modules"):
        P.ParametrizationList([], layer.weight)
    with pytest.raises(OnefoldValueError, match="does not have a parametrization on weight"):
        P.remove_parametrizations(layer, "weight")
    with pytest.raises(OnefoldValueError, match="orthogonal_map has to be one of"):
        ours.orthogonal(layer, orthogonal_map="other")
    with pytest.raises(OnefoldValueError, match="matrix or batch of matrices"):
        ours.orthogonal(layer, "bias")
    with pytest.raises(OnefoldValueError, match="no parameter or buffer with name 'missing'"):
        ours.spectral_norm(layer, "missing")
    with pytest.raises(OnefoldValueError, match="Expected n_power_iterations to be positive"):
        ours.spectral_norm(layer, n_power_iterations=0)
    assert repr(layer) == repr(flow.nn.Linear(3, 2))
    P.register_parametrization(layer, "weight", Narrow(), unsafe=True)
    with pytest.raises(OnefoldRuntimeError, match="does not implement right_inverse"):
        layer.weight = flow.zeros(2, 2)
    with pytest.raises(OnefoldTypeError, match="is parametrized"):
        layer.weight = flow.nn.Parameter(flow.zeros(2, 3))
    with pytest.raises(OnefoldValueError, match="already exists"):
        layer.register_parameter("weight", None)


# The older functions, of which the attribute is computed where it is read.


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_the_older_functions_are_torchs(name, layout, world):
    right, mine = pair(LAYOUTS[layout])
    getattr(torch.nn.utils, name)(right)
    assert getattr(flow.nn.utils, name)(mine) is mine
    mine.load_state_dict(right.state_dict())
    x = torch.randn(3, 5, dtype=torch.float64)
    placed_x = placed(x, LAYOUTS[layout])
    other = copy.deepcopy(mine)
    np.testing.assert_allclose(losses(mine, placed_x), losses(right, x), rtol=1e-7)
    assert_like(mine, right)
    graph = flow.nn.Graph.trace(other)
    wanted = value_of(copy.deepcopy(other)(placed_x).detach())
    assert torch.equal(value_of(graph(placed_x)), wanted)
    right(x)
    mine(placed_x)
    with pytest.raises(OnefoldRuntimeError, match="Cannot register two"):
        getattr(flow.nn.utils, name)(mine)
    with pytest.raises(OnefoldTypeError, match="is computed by"):
        mine.weight = flow.zeros(6, 5)
    right.zero_grad()
    mine.zero_grad()
    getattr(torch.nn.utils, f"remove_{name}")(right)
    assert getattr(flow.nn.utils, f"remove_{name}")(mine) is mine
    assert_like(mine, right)
    with pytest.raises(OnefoldValueError, match=f"{name} of 'weight' not found"):
        getattr(flow.nn.utils, f"remove_{name}")(mine)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("dim", [-3, -2, -1, 1, None])
def test_a_norm_over_all_but_a_dim_from_the_end(dim, world):
    for older in (False, True):
        made = []
        for lib in (torch, flow):
            layer = lib.nn.Conv1d(3, 4, 5, bias=False)
            with lib.no_grad():
                layer.weight.copy_(lib.arange(60.0).reshape(4, 3, 5))
            utils = lib.nn.utils if older else lib.nn.utils.parametrizations
            utils.weight_norm(layer, dim=dim)
            made.append([p.detach().numpy() for p in layer.parameters()])
        for found, wanted in zip(made[1], made[0], strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_the_state_of_the_older_weight_norm_loads(world):
    _, mine = pair()
    _, newer = pair()
    with pytest.warns(FutureWarning, match="is deprecated in favor of"):
        flow.nn.utils.weight_norm(mine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.weight_norm(newer)
    mine.weight_g.data.mul_(3)
    newer.load_state_dict(mine.state_dict())
    np.testing.assert_array_equal(newer.weight.numpy(), mine.weight.numpy())


@pytest.mark.parametrize(
    "make",
    [
        ours.weight_norm,
        ours.spectral_norm,
        ours.orthogonal,
        flow.nn.utils.spectral_norm,
        lambda layer: flow.nn.utils.prune.l1_unstructured(layer, "weight", 5),
    ],
)
def test_parameters_in_shards_are_gathered(make, world):
    whole = make(flow.nn.Linear(5, 6).double())
    split = copy.deepcopy(whole).shard_(flow.placement("cpu", [0, 1]), shard_min_size=1)
    assert all(param.sbp == (flow.sbp.split(0),) for param in split.parameters())
    x = torch.randn(3, 5, dtype=torch.float64)
    wanted = losses(whole, placed(x, None))
    np.testing.assert_allclose(losses(split, placed(x, LAYOUTS["(B)"])), wanted, rtol=1e-9)


# In a launched world every process has to draw the same vectors, bases and masks.


def train_all():
    """Losses of a step of each kind of weight, split over two ranks."""
    p = flow.placement("cpu", [0, 1])
    found = []
    for make in (
        ours.weight_norm,
        ours.spectral_norm,
        ours.orthogonal,
        flow.nn.utils.spectral_norm,
        lambda layer: flow.nn.utils.prune.random_unstructured(layer, "weight", 9),
        lambda layer: flow.nn.utils.prune.l1_unstructured(layer, "weight", 9),
    ):
        flow.manual_seed(5)
        layer = flow.nn.Linear(5, 6, placement=p, sbp=flow.sbp.split(0))
        x = flow.randn(3, 5, placement=p, sbp=flow.sbp.broadcast)
        found.append(losses(make(layer), x))
    return found


def test_every_process_has_the_same_weights(world):
    first, second = run_ranks(2, train_all)
    assert first == second
    np.testing.assert_allclose(first, train_all(), rtol=1e-6)

"""Functions of torch and torch.nn.functional called on our tensors run our ops of their names."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import onefold as flow
from onefold.engine.ops.torch_op import Arguments, Slot, call_of, slots_for
from onefold.engine.sbp import parse
from onefold.errors import OnefoldError

X = np.linspace(-2, 2, 24).reshape(4, 6)
W = np.linspace(-1, 1, 18).reshape(3, 6)
LABELS = np.array([0, 2, 1, 1])

CALLS = [
    (torch.add, (X, X), {}),
    (torch.sum, (X, 1), {}),
    (torch.softmax, (X, 1), {}),
    (torch.cat, ([X, X],), {}),
    (torch.transpose, (X, 0, 1), {}),
    (torch.where, (X > 0, X, X), {}),
    (F.relu, (X,), {}),
    (F.gelu, (X,), {"approximate": "tanh"}),
    (F.softmax, (X,), {"dim": 1}),
    (F.log_softmax, (X,), {"dim": -1}),
    (F.linear, (X, W), {}),
    (F.layer_norm, (X, (6,)), {}),
    (F.cross_entropy, (X, LABELS), {}),
    (F.mse_loss, (X, X), {}),
    (F.embedding, (LABELS, W), {}),
    (F.pad, (X, (1, 1)), {}),
    (F.dropout, (X,), {"p": 0.0}),
    (F.leaky_relu, (X,), {"negative_slope": 0.2}),
]


def converted(value, make):
    if isinstance(value, np.ndarray):
        return make(value)
    return [make(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("index", range(len(CALLS)))
def test_the_same_as_on_torch_tensors(index, world):
    function, args, options = CALLS[index]
    p = flow.placement("cpu", [0, 1])

    def ours(value):
        return flow.tensor(value, placement=p, sbp=flow.sbp.broadcast)

    found = function(*[converted(arg, ours) for arg in args], **options)
    wanted = function(*[converted(arg, torch.from_numpy) for arg in args], **options)
    assert isinstance(found, flow.Tensor)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)


def test_unknown_functions_and_options_are_refused(world):
    x = flow.ones(3)
    with pytest.raises(flow.errors.OnefoldTypeError, match="onefold has no op named 'lobpcg'"):
        torch.lobpcg(x.reshape(3, 1))
    with pytest.raises(TypeError, match="inplace"):
        F.relu(x, inplace=True)


# out=


@pytest.mark.parametrize("sbp", ["(S0)", "(B)", "(P)"])
def test_out_takes_the_result_in_its_own_layout(sbp, world):
    layout = {"placement": flow.placement("cpu", [0, 1]), "sbp": parse(sbp)}
    x = flow.tensor(X, placement=layout["placement"], sbp=flow.sbp.split(1))
    out = flow.zeros(4, 6, dtype=flow.float32, **layout)
    view = out[1]
    assert torch.mul(x, x, out=out) is out and out.sbp == layout["sbp"]
    np.testing.assert_allclose(out.numpy(), X * X, rtol=1e-6)
    np.testing.assert_allclose(view.numpy(), X[1] * X[1], rtol=1e-6)
    values, indices = flow.empty(0, dtype=flow.float64), flow.empty(0, dtype=flow.int64)
    torch.max(flow.tensor(X), 1, out=(values, indices))
    assert values.tolist() == X.max(1).tolist() and indices.tolist() == X.argmax(1).tolist()


def test_out_is_refused_as_torch_refuses_it(world):
    x, leaf = flow.ones(2, 3), flow.ones(2, 3, requires_grad=True)
    for make in (flow.tensor, torch.tensor):
        out = make([1.0, 2.0])
        with pytest.warns(UserWarning, match="was resized"):
            torch.neg(make([[1.0, 2.0]]), out=out)
        assert out.shape == (1, 2)
    for bad in (flow.zeros(2, 3, dtype=flow.int64), leaf, torch.ones(2, 3)):
        with pytest.raises(OnefoldError):
            torch.add(x, x, out=bad)
    with pytest.raises(OnefoldError, match="automatic differentiation"):
        torch.add(leaf, x, out=flow.zeros(2, 3))
    assert leaf.tolist() == x.tolist()


def test_arguments_are_the_same_objects_in_each_call():
    """By which the plan of a call is found at once, without comparing them."""
    found = []
    for number in (2.0, 2.0, 2, True, 0.0, -0.0):
        tensors = []
        x = flow.ones(2)
        found.append(slots_for([x, number, (x, None)], tensors))
        assert tensors == [x, x]
    assert all(found[0][i] is found[1][i] for i in range(2))
    assert len({form[1] for form in found}) == 5
    assert [type(form[1].value) for form in found] == [float, float, int, bool, float, float]
    copied = copy.deepcopy(found[0]), pickle.loads(pickle.dumps(found[0]))
    assert all(form == found[0] and hash(form) == hash(found[0]) for form in copied)


@pytest.mark.parametrize("kind", [float, np.float32, complex, np.complex64])
def test_arguments_keep_the_signs_of_zeros(kind):
    parts = [1j, complex(-0.0, 1)] if kind in (complex, np.complex64) else []
    for number in map(kind, [0.0, -0.0, *parts]):
        assert repr(slots_for(number, []).value) == repr(number)


def test_a_call_is_built_once_from_its_arguments():
    def function(*args, **kwargs):
        return args, kwargs

    forms = slots_for([flow.ones(1), [1, flow.ones(1)], "a"], [])
    arguments = Arguments(forms, (("scale", slots_for(0.5, [])), ("both", (Slot(1), Slot(0)))))
    call = call_of(function, arguments)
    assert call is call_of(function, arguments)
    assert call(["x", "y"]) == (("x", (1, "y"), "a"), {"scale": 0.5, "both": ("y", "x")})

"""Layers against torch's with the same weights, in value and gradient, local and laid out."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.engine.ops import PUBLIC
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldValueError, SbpError, ShapeError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

# (arguments of the layer, shape of the input)
LAYERS = {
    "Linear": [((6, 5), (4, 6)), ((6, 5, False), (2, 3, 6)), ((3, 7), (3,))],
    "Conv2d": [
        ((3, 4, 3), (2, 3, 6, 5)),
        ((4, 6, (3, 2), (2, 1), 1, 1, 2), (2, 4, 6, 5)),
        ((2, 2, 3, 1, "same", 1, 1, False), (1, 2, 5, 5)),
    ],
    "MaxPool2d": [((2,), (2, 3, 6, 6)), ((3, 2, 1, 1, False, True), (2, 3, 7, 6))],
    "AvgPool2d": [((2,), (2, 3, 6, 6)), ((3, 2, 1, True, False), (2, 3, 7, 6))],
    "ReLU": [((), (4, 3)), ((True,), (4, 3))],
    "GELU": [((), (4, 3)), (("tanh",), (4, 3))],
    "SiLU": [((), (4, 3))],
    "Tanh": [((), (4, 3))],
    "Sigmoid": [((), (4, 3))],
    "Softmax": [((1,), (4, 3)), ((-2,), (4, 3))],
    "Identity": [((), (4, 3))],
    "Flatten": [((), (4, 3, 2)), ((0, 1), (4, 3, 2))],
    "LayerNorm": [
        ((6,), (4, 6)),
        (((3, 2), 0.1), (4, 3, 2)),
        ((6, 1e-5, False), (4, 6)),
        ((6, 1e-5, True, False), (4, 6)),
    ],
    "Dropout": [((0.0,), (4, 3))],
}
CASES = [(name, *case) for name, cases in LAYERS.items() for case in cases]
MESHES = [([0, 1], ["(S0)", "(B)", "(P)"]), ([[0, 1], [2, 3]], ["(S0, B)", "(B, S0)", "(S0, S0)"])]


def pair(name, args):
    ours = getattr(flow.nn, name)(*args).double()
    theirs = getattr(torch.nn, name)(*args).double()
    theirs.load_state_dict({k: v.to_torch().clone() for k, v in ours.state_dict().items()})
    return ours, theirs


def gradients(model, x, inplace_safe):
    y = model(inplace_safe(x))
    (y * y).sum().backward()
    return [y.detach(), x.grad, *[p.grad for p in model.parameters()]]


@pytest.mark.parametrize("index", range(len(CASES)))
def test_a_layer_is_torchs(index, world):
    name, args, shape = CASES[index]
    value = torch.from_numpy(np.random.default_rng(index).standard_normal(shape))
    ours, theirs = pair(name, args)
    assert repr(ours).startswith(f"{name}(")
    wanted = gradients(theirs, value.clone().requires_grad_(), lambda x: x * 1)
    found = gradients(ours, make_local(value.clone()).requires_grad_(), lambda x: x * 1)
    for mine, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(value_of(mine), right)
    for ranks, texts in MESHES:
        placement = flow.placement("cpu", ranks)
        for text in texts:
            model, _ = pair(name, args)
            model.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
            model.to_global(placement, (flow.sbp.broadcast,) * placement.ndim)
            x = make_global(value, placement, parse(text)).requires_grad_()
            found = gradients(model, x, lambda x: x * 1)
            for mine, right in zip(found, wanted, strict=True):
                torch.testing.assert_close(value_of(mine), right, msg=lambda m, t=text: f"{t}: {m}")


@pytest.mark.parametrize("sbp", ["(S0)", "(S1)", "(B)"])
def test_parallel_weights(sbp, world):
    """Column-parallel, row-parallel and replicated linear layers are the same layer."""
    flow.manual_seed(3)
    plain = flow.nn.Linear(6, 5)
    flow.manual_seed(3)
    p = flow.placement("cpu", [0, 1, 2])
    laid = flow.nn.Linear(6, 5, placement=p, sbp=parse(sbp))
    assert np.array_equal(laid.weight.numpy(), plain.weight.numpy()), "the same initial weights"
    assert np.array_equal(laid.bias.numpy(), plain.bias.numpy())
    assert short(laid.weight.sbp) == sbp and short(laid.bias.sbp) == (
        "(S0)" if sbp == "(S0)" else "(B)"
    )
    x = np.random.default_rng(0).standard_normal((4, 6)).astype("f4")
    a = plain(flow.tensor(x))
    b = laid(flow.tensor(x, placement=p, sbp=flow.sbp.broadcast))
    torch.testing.assert_close(value_of(b.detach()), a.detach().to_torch())
    (a * a).sum().backward()
    (b * b).sum().backward()
    for one, other in zip(laid.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(value_of(one.grad), other.grad.to_torch())


def test_embedding(world):
    index = np.array([[0, 3, 3], [6, 1, 0]])
    for sbp in (None, "(S0)", "(S1)", "(B)"):
        layout = (
            {} if sbp is None else {"placement": flow.placement("cpu", [0, 1]), "sbp": parse(sbp)}
        )
        flow.manual_seed(0)
        ours = flow.nn.Embedding(7, 4, padding_idx=-1, **layout)
        theirs = torch.nn.Embedding(7, 4, padding_idx=-1)
        assert ours.padding_idx == theirs.padding_idx == 6
        assert ours.weight[6].numpy().tolist() == [0.0] * 4
        theirs.load_state_dict({"weight": torch.from_numpy(ours.weight.numpy().copy())})
        place = {} if sbp is None else {**layout, "sbp": flow.sbp.broadcast}
        y, t = ours(flow.tensor(index, **place)), theirs(torch.from_numpy(index))
        torch.testing.assert_close(value_of(y.detach()), t.detach())
        (y * y).sum().backward()
        (t * t).sum().backward()
        torch.testing.assert_close(value_of(ours.weight.grad), theirs.weight.grad)


LOSSES = [
    ("CrossEntropyLoss", {}, "class"),
    ("CrossEntropyLoss", {"ignore_index": 1, "label_smoothing": 0.1, "reduction": "sum"}, "class"),
    ("CrossEntropyLoss", {"weight": [0.5, 1.0, 2.0, 0.25, 1.0], "reduction": "none"}, "class"),
    ("NLLLoss", {"weight": [0.5, 1.0, 2.0, 0.25, 1.0]}, "class"),
    ("NLLLoss", {"ignore_index": 2, "reduction": "sum"}, "class"),
    ("MSELoss", {}, "value"),
    ("MSELoss", {"reduction": "none"}, "value"),
]


@pytest.mark.parametrize("index", range(len(LOSSES)))
def test_losses(index, world):
    name, options, kind = LOSSES[index]
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.standard_normal((6, 5)))
    target = torch.from_numpy(
        random.integers(0, 5, 6) if kind == "class" else random.standard_normal((6, 5))
    )
    weight = options.get("weight")
    ours_weight = {} if weight is None else {"weight": flow.tensor(weight, dtype=flow.float64)}
    theirs_weight = {} if weight is None else {"weight": torch.tensor(weight, dtype=torch.float64)}
    t = x.clone().requires_grad_()
    wanted = getattr(torch.nn, name)(**{**options, **theirs_weight})(t, target)
    wanted.sum().backward()
    for sbp in (None, "(S0)", "(S1)", "(B)", "(P)"):
        loss = getattr(flow.nn, name)(**{**options, **ours_weight})
        if sbp is None:
            mine, aim = make_local(x.clone()), make_local(target)
        else:
            p = flow.placement("cpu", [0, 1])
            loss.to_global(p, flow.sbp.broadcast)
            mine = make_global(x, p, parse(sbp))
            aim = make_global(target, p, parse("(S0)" if sbp == "(S0)" else "(B)"))
        y = loss(mine.requires_grad_(), aim)
        torch.testing.assert_close(value_of(y.detach()), wanted.detach())
        y.sum().backward()
        torch.testing.assert_close(value_of(mine.grad), t.grad)


@pytest.mark.parametrize("inplace", [False, True])
def test_dropout(inplace, world):
    results = []
    for sbp in (None, "(S0)", "(B)"):
        layout = (
            {}
            if sbp is None
            else {"placement": flow.placement("cpu", [0, 1, 2]), "sbp": parse(sbp)}
        )
        layer = flow.nn.Dropout(0.25, inplace)
        flow.manual_seed(2)
        leaf = flow.ones(40, 5, requires_grad=True, **layout)
        x = leaf * 1
        y = layer(x)
        assert (y is x) == inplace
        y.sum().backward()
        assert np.array_equal(leaf.grad.numpy(), y.detach().numpy())
        results.append(y.detach().numpy())
        assert np.array_equal(layer.eval()(x.detach()).numpy(), x.detach().numpy())
    assert all(np.array_equal(results[0], other) for other in results)
    kept = (results[0] > 0).mean()
    assert 0.6 < kept < 0.9 and set(results[0].reshape(-1).tolist()) <= {
        0.0,
        np.float32(4 / 3).item(),
    }


BAD = [
    (lambda: flow.nn.Conv2d(3, 4, 3, groups=2), OnefoldValueError, "must be divisible by groups=2"),
    (lambda: flow.nn.Conv2d(3, 4, 3, padding_mode="no"), OnefoldValueError, "but got 'no'"),
    (lambda: flow.nn.Dropout(1.5), OnefoldValueError, "between 0 and 1, but got 1.5"),
    (
        lambda: flow.nn.Embedding(4, 2, padding_idx=4),
        OnefoldValueError,
        "must be within num_embeddings=4",
    ),
    (lambda: flow.nn.Linear(2, 2)(flow.ones(3, 3)), RuntimeError, "linear"),
    (lambda: flow.nn.Linear(2, 2, placement=flow.placement("cpu", [0])), SbpError, "without sbp"),
    (
        lambda: flow.nn.Linear(
            2, 2, placement=flow.placement("cpu", [0]), sbp=flow.sbp.partial_sum
        ),
        SbpError,
        "random source op only support",
    ),
    (
        lambda: flow.nn.functional.no_such_function,
        AttributeError,
        "has no function 'no_such_function'",
    ),
]


@pytest.mark.parametrize("index", range(len(BAD)))
def test_bad_arguments(index, world):
    call, kind, text = BAD[index]
    with pytest.raises(kind, match=text):
        call()


def test_functional_has_what_onefold_has_of_torchs():
    names = dir(flow.nn.functional)
    assert all(callable(getattr(flow.nn.functional, name)) for name in names)
    both = set(dir(torch.nn.functional)) & set(PUBLIC)
    assert {"relu", "cross_entropy", "normalize", "unfold"} <= both | set(names)
    assert both <= set(names)
    beyond = {name for name in names if not hasattr(torch.nn.functional, name)}
    of_networks = {
        "attention_varlen",
        "geglu",
        "linear_cross_entropy",
        "paged_attention",
        "rotary",
        "swiglu",
    }
    of_oneflow = {"ctc_greedy_decoder", "depend", "quick_gelu", "sparse_softmax_cross_entropy"}
    assert beyond <= of_networks | of_oneflow | {"square_relu"}


def test_functional_unfold_is_torchs_and_not_the_method(world):
    x = torch.arange(60.0).reshape(1, 3, 4, 5)
    wanted = torch.nn.functional.unfold(x, (2, 3), padding=1)
    assert flow.nn.functional.unfold(flow.tensor(x), (2, 3), padding=1).tolist() == wanted.tolist()
    with pytest.raises(ShapeError, match="expected an input of 3 or 4 dims"):
        flow.nn.functional.unfold(flow.ones(3, 3), 2)
    for bad in ({"kernel_size": 4}, {"kernel_size": 2, "stride": 0}):
        with pytest.raises(ShapeError, match="fit the padded input"):
            flow.nn.functional.unfold(flow.ones(1, 1, 3, 3), **bad)

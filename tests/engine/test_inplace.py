"""In-place methods change a tensor and its views, keep its layout, and never fool the tape."""

import copy
import operator
import pickle

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import (
    AutogradError,
    MixedTensorsError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    ShapeError,
)
from onefold.testing.sample_checks import value_of

LAYOUTS = [None, "(S0)", "(S1)", "(B)", "(P)"]


def make(data, sbp, **kwargs):
    if sbp is None:
        return flow.tensor(data, **kwargs)
    return flow.tensor(data, placement=flow.placement("cpu", [0, 1]), sbp=parse(sbp), **kwargs)


CHANGES = {
    "add_": lambda x: x.add_(2.0),
    "add_ alpha": lambda x: x.add_(x, alpha=2),
    "sub_": lambda x: x.sub_(x),
    "mul_": lambda x: x.mul_(3),
    "div_": lambda x: x.div_(2.0),
    "relu_": lambda x: x.relu_(),
    "tanh_": lambda x: x.tanh_(),
    "clamp_": lambda x: x.clamp_(-1.0, 1.0),
    "fill_": lambda x: x.fill_(7),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(x * 2),
    "item": lambda x: operator.setitem(x, 1, 5.0),
    "slice": lambda x: operator.setitem(x, (slice(None), slice(0, 3, 2)), -1.0),
    "masked_fill_": lambda x: x.masked_fill_(x > 0, 9.0),
    "+=": lambda x: operator.iadd(x, 1),
    "-=": lambda x: operator.isub(x, x),
    "*=": lambda x: operator.imul(x, x),
    "/=": lambda x: operator.itruediv(x, 4),
    "**=": lambda x: operator.ipow(x, 2),
}
DATA = [[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0], [0.5, 0.0, -0.5]]


@pytest.mark.parametrize("sbp", LAYOUTS)
@pytest.mark.parametrize("name", CHANGES)
def test_the_named_tensor_changes_and_its_views(name, sbp, world):
    x, wanted = make(DATA, sbp), torch.tensor(DATA)
    views = {
        "view": lambda x: x.reshape(9),
        "transpose": lambda x: x.t(),
        "detach": lambda x: x.detach(),
        "data": lambda x: x.data,
        "slice": lambda x: x[1:],
    }
    ours = {key: view(x) for key, view in views.items()}
    theirs = {key: view(wanted) for key, view in views.items()}
    copies = {"parameter": flow.nn.Parameter(x), "clone": x.clone()}
    if sbp not in (None, "(B)"):
        copies["layout"] = x.to_global(sbp=flow.sbp.broadcast)
    before = {key: value_of(copy).clone() for key, copy in copies.items()}
    metas = {key: view.meta for key, view in ours.items()}
    meta, alias = x.meta, x
    CHANGES[name](wanted)
    CHANGES[name](x)
    ours["view"].add_(100)
    theirs["view"].add_(100)
    assert x is alias and x.meta is meta
    torch.testing.assert_close(value_of(x), wanted)
    for key, view in ours.items():
        assert view.meta is metas[key]
        torch.testing.assert_close(value_of(view), theirs[key])
    for key, copied in copies.items():
        assert torch.equal(value_of(copied), before[key]), key


def test_replicas_stay_alike(world):
    x = make(DATA, "(B)")
    x.add_(1)
    x[0] = 3.0
    x.mul_(2)
    assert torch.equal(x.shards[0], x.shards[1])


# Gradients.


def test_gradients_pass_through_in_place_ops(world):
    for sbp in LAYOUTS:
        x, w = make(DATA, sbp, requires_grad=True), make(DATA, sbp, requires_grad=True)
        tx, tw = (torch.tensor(DATA, requires_grad=True) for _ in range(2))
        for a, b in ((x, w), (tx, tw)):
            y = a * 1.0
            y.mul_(b)
            y.add_(b)
            y[0] = b[1]
            y.tanh_()
            (y * y).sum().backward()
        torch.testing.assert_close(value_of(x.grad), tx.grad)
        torch.testing.assert_close(value_of(w.grad), tw.grad)


def test_an_op_in_place_may_need_its_own_old_value(world):
    x = flow.tensor([2.0, 3.0], requires_grad=True)
    y = x * 1
    y.mul_(y)  # torch refuses this one; here the old value is still there
    y.pow_(2)
    y.sum().backward()
    assert x.grad.tolist() == [32.0, 108.0]


SAVED = {
    "input": lambda x: (y := x * 1, y * y),
    "output": lambda x: (y := flow.tanh(x), y),
    "one of several outputs": lambda x: (y := Twice.apply(x)[0], y),
    "function": lambda x: (y := x * 1, Keeps.apply(y)),
}


class Twice(flow.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.save_for_backward(y)
        return y, x * 3

    @staticmethod
    def backward(ctx, dy, dz):
        (y,) = ctx.saved_tensors
        return dy * y + dz


class Keeps(flow.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 1

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", SAVED)
def test_changing_what_backward_needs_is_an_error(name, grad, world):
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    y, z = SAVED[name](x)
    total = z.sum()
    with flow.enable_grad() if grad else flow.no_grad():
        y.add_(1)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        total.backward()
    assert x.grad is None


def test_changing_what_backward_does_not_need_is_none(world):
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    y = x + 1
    z = y * 3
    y.add_(1)
    z.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


# Ops of several outputs, of which backward needs others than the first.
SEVERAL = {
    "layer_norm": lambda f, x, scale, shift: f.layer_norm(x, (4,), scale, shift),
    "batch_norm": lambda f, x, scale, shift: f.batch_norm(x, None, None, scale, shift, True),
    "max_pool2d": lambda f, x, scale, shift: f.max_pool2d(x, 2),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_the_first_of_several_outputs_may_change(name, world):
    data, scale, shift = torch.randn(2, 4, 4, 4), torch.rand(4), torch.rand(4)
    grads = []
    for lib in (torch, flow):
        leaves = [lib.tensor(part.tolist()) for part in (data, scale, shift)]
        x, *rest = [leaf.requires_grad_() for leaf in leaves]
        y = SEVERAL[name](lib.nn.functional, x * 1, *rest)
        y.relu_()
        (y * y).sum().backward()
        grads.append(torch.tensor(x.grad.tolist()))
    torch.testing.assert_close(*grads)


def test_an_optimizer_step_between_forward_and_backward_is_an_error(world):
    w = flow.nn.Parameter(flow.ones(2))
    loss = (w * w).sum()
    w.grad = flow.ones(2)
    flow.optim.SGD([w], lr=0.1).step()
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("sbp", [None, "(S0)", "(B)"])
def test_a_leaf_changes_only_under_no_grad(sbp, world):
    x = make(DATA, sbp, requires_grad=True)
    for change in CHANGES.values():
        with pytest.raises(AutogradError, match="a leaf Variable that requires grad"):
            change(x)
    assert value_of(x).tolist() == DATA
    with flow.no_grad():
        for name, change in CHANGES.items():
            change(x)
            assert x.requires_grad and x.is_leaf, name


# What fails changes nothing.

BAD = [
    (lambda x: x.add_(flow.ones(2, 3, 3)), ShapeError, "doesn't match the tensor's shape"),
    (
        lambda x: x.add_(flow.ones(4)),
        OnefoldRuntimeError,
        r"size of tensor a \(3\) must match the size of tensor b \(4\)",
    ),
    (lambda x: x.copy_(flow.ones(5)), OnefoldRuntimeError, "expand"),
    (lambda x: x.copy_([1, 2]), OnefoldTypeError, "copy_ needs a Tensor"),
    (
        lambda x: x.copy_(make(DATA, "(B)")),
        MixedTensorsError,
        "cannot copy between a local and a global",
    ),
    (lambda x: operator.setitem(x, 5, 1.0), IndexError, "out of"),
    (lambda x: operator.setitem(x, 0, flow.ones(2)), RuntimeError, "shape"),
    (lambda x: x.fill_(flow.ones(2)), ValueError, "one element"),
]


@pytest.mark.parametrize("index", range(len(BAD)))
def test_bad_calls_change_nothing(index, world):
    call, kind, text = BAD[index]
    x = flow.tensor(DATA)
    version = x.version
    with pytest.raises(kind, match=text) as caught:
        call(x)
    assert isinstance(caught.value, flow.OnefoldError)
    assert x.tolist() == DATA and x.version == version


def test_dtypes_follow_torch(world):
    x = flow.tensor([1, 2])
    with pytest.raises(OnefoldRuntimeError, match="can't be cast to the tensor's type"):
        x.add_(0.5)
    assert x.tolist() == [1, 2]
    y = flow.tensor([1.0, 2.0], dtype=flow.float16)
    y.add_(flow.tensor([1.0, 1.0], dtype=flow.float64))
    assert y.dtype == torch.float16 and y.tolist() == [2.0, 3.0]


# copy_, data, deep copies.


@pytest.mark.parametrize("target", ["(S0)", "(S1)", "(B)", "(P)"])
@pytest.mark.parametrize("source", ["(S0)", "(B)", "(P)"])
def test_copy_crosses_placements(source, target, world):
    here, there = flow.placement("cpu", [0, 1]), flow.placement("cpu", [[3, 2], [4, 0]])
    x = flow.zeros(3, 3, placement=here, sbp=parse(target))
    y = flow.tensor(np.array(DATA), placement=there, sbp=(*parse(source), flow.sbp.split(0)))
    meta = x.meta
    assert x.copy_(y) is x and x.meta is meta
    assert value_of(x).tolist() == DATA
    y.zero_()
    assert value_of(x).tolist() == DATA


@pytest.mark.parametrize("sbp", [None, "(S0)", "(S1)", "(B)", "(P)"])
def test_copy_of_an_array(sbp, world):
    """OneFlow's: an array is the logical value, of any dtype and strides."""
    x = make(DATA, sbp).float()
    meta, value = x.meta, np.arange(9).reshape(3, 3).T
    assert x.copy_(value) is x and x.meta is meta
    assert value_of(x).tolist() == value.tolist()
    x[1].copy_(np.float64([5, 6, 7]))
    assert value_of(x).tolist() == [[0, 3, 6], [5, 6, 7], [2, 5, 8]]


def test_copy_broadcasts_and_casts_and_differentiates(world):
    x = flow.zeros(2, 3)
    row = flow.tensor([1, 2, 3])
    x.copy_(row)
    assert x.tolist() == [[1, 2, 3], [1, 2, 3]] and x.dtype == torch.float32
    source = flow.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x.copy_(source)
    x.sum().backward()
    assert source.grad.tolist() == [2, 2, 2]


OVERWRITES = {
    "fill_": lambda x, w: x.fill_(w),
    "fill_ a view": lambda x, w: x[1:].fill_(w),
    "fill_ a number": lambda x, w: x.fill_(2),
    "zero_": lambda x, w: x.zero_(),
    "copy_": lambda x, w: x.copy_(w),
    "copy_ a constant": lambda x, w: x.copy_(w.detach()),
    "fill_diagonal_": lambda x, w: x.fill_diagonal_(3),
}


@pytest.mark.parametrize("sbp", LAYOUTS)
@pytest.mark.parametrize("name", OVERWRITES)
def test_gradients_of_overwritten_tensors(name, sbp, world):
    """The gradient goes to what was written, and zeros to what was there, as in torch."""
    found = []
    for make_one in (torch.tensor, lambda data: make(data, sbp and "(B)")):
        x, w = make_one(DATA).requires_grad_(), make_one(2.0).requires_grad_()
        y = x * 2
        if isinstance(y, flow.Tensor) and sbp:
            y = y.to_global(sbp=parse(sbp))
        OVERWRITES[name](y, w)
        assert y.requires_grad
        (y * y).sum().backward()
        found.append([None if z.grad is None else z.grad.tolist() for z in (x, w)])
    assert found[0] == found[1]


def test_fill_by_a_tensor_in_a_graph(world):
    """The graph reads the value in each call."""
    fill = flow.nn.Graph.trace(lambda x, w: (x * 2).fill_(w.sum()))
    for number in (1.0, 2.0):
        assert fill(flow.zeros(2), flow.full((3,), number)).tolist() == [3 * number] * 2


def test_data_changes_its_tensor(world):
    for sbp in LAYOUTS:
        w = flow.nn.Parameter(make(DATA, sbp))
        kept = w.clone()
        value = w.data
        assert not value.requires_grad
        value.mul_(2)
        value[0] = 1.0
        wanted = torch.tensor(DATA) * 2
        wanted[0] = 1.0
        assert torch.equal(value_of(w), wanted) and w.requires_grad and w.is_leaf
        assert value_of(kept).tolist() == DATA


def test_assigning_data(world):
    w = flow.nn.Parameter(flow.zeros(2))
    value = flow.ones(2, dtype=flow.float64)
    w.data = value
    value.add_(1)
    assert w.tolist() == [1, 1] and w.dtype == torch.float64 and w.requires_grad
    with pytest.raises(ShapeError, match="must keep the shape"):
        w.data = flow.ones(3)
    with pytest.raises(OnefoldTypeError, match="must be a Tensor"):
        w.data = [1.0]


@pytest.mark.parametrize("sbp", LAYOUTS)
def test_deep_copies(sbp, world):
    w = flow.nn.Parameter(make(DATA, sbp))
    (w * 2).sum().backward()
    holder = {"a": w, "b": w}
    duplicate = copy.deepcopy(holder)
    assert duplicate["a"] is duplicate["b"] and type(duplicate["a"]) is flow.nn.Parameter
    assert duplicate["a"].meta is w.meta and duplicate["a"].requires_grad
    assert torch.equal(value_of(duplicate["a"].grad), value_of(w.grad))
    with flow.no_grad():
        duplicate["a"].add_(1)
        duplicate["a"].grad.zero_()
    assert value_of(w).tolist() == DATA and value_of(w.grad).eq(2).all()
    with pytest.raises(OnefoldRuntimeError, match="only tensors created explicitly"):
        copy.deepcopy(w * 2)
    back = pickle.loads(pickle.dumps(holder))
    assert back["a"] is back["b"] and type(back["a"]) is flow.nn.Parameter
    assert back["a"].meta is w.meta and back["a"].requires_grad and back["a"].grad is None
    assert value_of(back["a"]).tolist() == DATA


@pytest.mark.parametrize(
    "op",
    [
        lambda x: flow.max(x, 1),
        lambda x: flow.sort(x, 1),
        lambda x: flow.topk(x, 2, 1),
        lambda x: flow.nn.functional.max_pool2d(x[None, None], 2, return_indices=True),
    ],
    ids=["max", "sort", "topk", "max_pool2d"],
)
def test_a_write_to_indices_leaves_the_gradient_as_it_was(op):
    grads = []
    for writes in (False, True):
        flow.manual_seed(0)
        x = flow.randn(4, 6, requires_grad=True)
        values, indices = op(x)
        if writes:
            indices.add_(flow.ones_like(indices))
        values.sum().backward()
        grads.append(x.grad)
    assert flow.equal(*grads)

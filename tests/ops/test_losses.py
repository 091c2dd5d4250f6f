"""Losses beyond the samples: split classes, ignored targets, errors."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.engine.names import names
from onefold.engine.ops import cross_entropy
from onefold.engine.placement import Placement
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldIndexError, OnefoldValueError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

F = torch.nn.functional


@pytest.mark.parametrize("ranks", [[0, 1], [0, 1, 2]])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_split_classes_stay_split(ranks, reduction, smoothing):
    """7 classes over 2 or 3 ranks: neither the logits nor their gradient are gathered."""
    logits = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 6, 3, -100, 4])
    kwargs = {"reduction": reduction, "label_smoothing": smoothing}
    wanted = F.cross_entropy(logits, target, **kwargs)
    wanted.sum().backward()
    mesh = Placement("cpu", ranks)
    x = make_global(logits.detach(), mesh, parse("(S1)")).requires_grad_()
    found = names.cross_entropy(x, make_global(target, mesh, parse("(B)")), **kwargs)
    names.sum(found).backward()
    assert short(x.grad.sbp) == "(S1)"
    torch.testing.assert_close(value_of(found), wanted.detach())
    torch.testing.assert_close(value_of(x.grad), logits.grad)


@pytest.mark.parametrize("layout", ["(B)", "(S0)", "(P)"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_what_backward_keeps_on_a_gpu(layout, reduction, weighted, monkeypatch):
    """The logarithms of sums; here the references make and use them. Both gradients are torch's."""
    monkeypatch.setattr(cross_entropy, "uses_triton", lambda device_type: True)
    logits = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 3, 2, -100, 1])
    weight = torch.rand(4, dtype=torch.float64) if weighted else None
    kwargs = {"reduction": reduction, "label_smoothing": 0.1}
    wanted = F.cross_entropy(logits, target, weight, **kwargs)
    (first,) = torch.autograd.grad(wanted.sum(), logits, create_graph=True)
    first.square().sum().backward()
    mesh = Placement("cpu", [0, 1, 2])
    rows = parse("(B)" if layout == "(P)" else layout)
    x = make_global(logits.detach(), mesh, parse(layout)).requires_grad_()
    found = names.cross_entropy(
        x, make_global(target, mesh, rows),
        None if weight is None else make_global(weight, mesh, parse("(B)")), **kwargs,
    )  # fmt: skip
    (grad,) = flow.autograd.grad(names.sum(found), [x], create_graph=True)
    names.sum(names.square(grad)).backward()
    torch.testing.assert_close(value_of(found.detach()), wanted.detach())
    torch.testing.assert_close(value_of(grad.detach()), first.detach())
    torch.testing.assert_close(value_of(x.grad), logits.grad)


def test_batch_and_classes_split_together():
    logits, target = torch.randn(5, 7, dtype=torch.float64), torch.tensor([0, 6, 3, 1, 4])
    mesh = Placement("cpu", [[0, 1], [2, 3]])
    x = make_global(logits, mesh, parse("(S0, S1)"))
    found = names.cross_entropy(x, make_global(target, mesh, parse("(S0, B)")))
    torch.testing.assert_close(value_of(found), F.cross_entropy(logits, target))


def test_infinite_logits_of_other_classes():
    logits = torch.tensor([[0.0, -torch.inf, 1.0, 2.0], [1.0, 2.0, 3.0, -torch.inf]])
    target = torch.tensor([2, 1])
    x = make_global(logits, Placement("cpu", [0, 1]), parse("(S1)"))
    found = names.cross_entropy(x, make_global(target, Placement("cpu", [0, 1]), parse("(B)")))
    torch.testing.assert_close(value_of(found), F.cross_entropy(logits, target))


def test_all_targets_ignored_is_nan_as_in_torch():
    x, target = make_local(torch.randn(2, 3)), make_local(torch.tensor([-100, -100]))
    assert torch.isnan(value_of(names.cross_entropy(x, target)))


@pytest.mark.parametrize("layout", ["(B)", "(S0)", "(S1)", "(P)"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_are_zeros_where_all_targets_are_ignored(layout, smoothing, weighted, world):
    place = flow.placement("cpu", [0, 1])
    everywhere = {"placement": place, "sbp": flow.sbp.broadcast}
    x = flow.randn(3, 5, **everywhere).to_global(place, parse(layout)).requires_grad_()
    target = flow.full((3,), -100, dtype=flow.int64, **everywhere)
    weight = flow.rand(5, **everywhere) if weighted else None
    names.cross_entropy(x, target, weight, label_smoothing=smoothing).backward()
    assert not x.grad.numpy().any()


def two_gradients(space, loss, inputs):
    """A loss, the gradients of its inputs, and those of the squares of these."""
    made = loss(*inputs).sum()
    first = space.autograd.grad(made, inputs, create_graph=True)
    second = space.autograd.grad(sum((grad * grad + grad).sum() for grad in first), inputs)
    return [made.detach(), *[grad.detach() for grad in (*first, *second)]]


def assert_two_gradients(loss, values, layout):
    """Those of torch; `loss` gets the functions of nn.functional and tensors."""
    wanted = two_gradients(
        torch, lambda *inputs: loss(F, *inputs), [x.clone().requires_grad_() for x in values]
    )
    mesh = Placement("cpu", [0, 1])
    inputs = [make_global(x, mesh, parse(layout)).requires_grad_() for x in values]
    ours = flow.nn.functional
    for mine, true in zip(
        two_gradients(flow, lambda *inputs: loss(ours, *inputs), inputs), wanted, strict=True
    ):
        torch.testing.assert_close(value_of(mine), true, equal_nan=True)


@pytest.mark.parametrize("layout", ["(B)", "(S0)", "(S1)"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("labels", [[-100, -100, -100], [0, -100, 2]], ids=str)
def test_second_gradients_where_targets_are_ignored(labels, weighted, layout, world):
    weight = torch.tensor([0.5, 1.0, 0.0, 2.0], dtype=torch.float64) if weighted else None

    def loss(space, x):
        mine = isinstance(x, flow.Tensor)
        made = {
            name: make_global(value, x.placement, parse("(B)")) if mine else value
            for name, value in (("target", torch.tensor(labels)), ("weight", weight))
            if value is not None
        }
        return space.cross_entropy(x, **made)

    x = torch.randn(3, 4, dtype=torch.float64)
    assert_two_gradients(loss, [x], layout)


@pytest.mark.parametrize("layout", ["(B)", "(S0)", "(S1)"])
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e200])
@pytest.mark.parametrize("eps", [1e-8, 1.0])
def test_cosines_of_vectors_shorter_than_eps(eps, scale, layout, world):
    """Their gradients are those of the lengths, and vectors may be long, too."""
    values = [torch.randn(3, 4, dtype=torch.float64) * scale for _ in range(2)]

    def loss(space, a, b):
        return space.cosine_similarity(a, b, eps=eps)

    assert_two_gradients(loss, values, layout)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float64])
def test_cosines_of_two_dtypes(dtype):
    a, b = torch.randn(3, 4), torch.tensor([[1, 0, 3, 2]]).to(dtype)
    made = flow.nn.functional.cosine_similarity(make_local(a), make_local(b), dim=-1)
    wanted = F.cosine_similarity(a, b, dim=-1)  # which takes the length in float16
    torch.testing.assert_close(value_of(made), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(4,), (1,), (3, 1), ()])
def test_cosines_of_what_is_repeated(shape, world):
    values = [torch.randn(3, 4), torch.rand(shape) + 1]
    assert_two_gradients(lambda space, a, b: space.cosine_similarity(a, b, dim=-1), values, "(B)")


def test_the_gradient_of_a_variance_below_eps(world):
    values = [torch.tensor([[1.0, 2.0, 3.0]]), torch.zeros(1, 3), torch.tensor([[0.0, 1e-8, 4.0]])]
    assert_two_gradients(lambda space, *args: space.gaussian_nll_loss(*args), values, "(B)")
    values[2] = torch.full((1, 3), torch.inf)
    assert_two_gradients(lambda space, *args: space.gaussian_nll_loss(*args), values, "(B)")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["multi_margin_loss", "multilabel_margin_loss"])
def test_margin_losses_of_one_sample_without_a_batch(name, reduction, world):
    labels = 2 if name == "multi_margin_loss" else [2, 0, -1, 1]
    values = [0.3, -0.4, 0.2, 0.9]
    theirs = torch.tensor(values, requires_grad=True)
    wanted = getattr(F, name)(theirs, torch.tensor(labels), reduction=reduction)
    wanted.backward()
    place = flow.placement("cpu", [0, 1])
    x = flow.tensor(values, placement=place, sbp=flow.sbp.broadcast).requires_grad_()
    target = flow.tensor(labels, placement=place, sbp=flow.sbp.broadcast)
    loss = getattr(names, name)(x, target, reduction=reduction)
    assert loss.shape == wanted.shape
    loss.backward()
    np.testing.assert_allclose(loss.detach().numpy(), wanted.detach().numpy(), 1e-6)
    np.testing.assert_allclose(x.grad.numpy(), theirs.grad.numpy(), 1e-6)


@pytest.mark.parametrize("layout", ["(B)", "(S0)"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_weighted_huber_loss(reduction, layout, world):
    tensors = [torch.linspace(0.1, 2.0, 12).roll(n).reshape(4, 3) for n in (0, 5, 7)]
    x, target, weight = tensors
    wanted = F.huber_loss(x, target, reduction, 0.5, weight)
    how = {"placement": flow.placement("cpu", [0, 1]), "sbp": parse(layout)}
    ours = [flow.tensor(each, **how) for each in tensors]
    found = names.huber_loss(*ours[:2], reduction, 0.5, ours[2])
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), 1e-6)


@pytest.mark.parametrize("layout", ["(B)", "(S1)"])
@pytest.mark.parametrize("wrong", [4, -1])
def test_a_target_that_is_no_class(layout, wrong):
    mesh = Placement("cpu", [0, 1])
    x = make_global(torch.randn(2, 4), mesh, parse(layout))
    target = make_global(torch.tensor([0, wrong]), mesh, parse("(B)"))
    with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
        names.cross_entropy(x, target)


def test_errors():
    x, y = make_local(torch.randn(2, 3)), make_local(torch.tensor([0, 1]))
    for name in ("cross_entropy", "nll_loss", "mse_loss", "kl_div"):
        with pytest.raises(OnefoldValueError, match="reduction"):
            getattr(names, name)(x, y, reduction="max")
    with pytest.raises(OnefoldValueError, match="beta"):
        names.smooth_l1_loss(x, x, beta=-1.0)
    with pytest.raises(OnefoldValueError, match="delta"):
        names.huber_loss(x, x, delta=0.0)
    with pytest.raises(OnefoldValueError, match="different to the input size"):
        names.binary_cross_entropy(x, make_local(torch.randn(3)))
    with pytest.raises(RuntimeError, match=r"^binary_cross_entropy: all elements of input should"):
        names.binary_cross_entropy(make_local(torch.ones(2) * 2), make_local(torch.ones(2)))
    with pytest.raises(ValueError, match="batch"):
        names.cross_entropy(x, make_local(torch.tensor([0, 1, 2])))
    assert issubclass(OnefoldIndexError, IndexError)


@pytest.mark.parametrize("sbp", [flow.sbp.split(0), flow.sbp.split(1), flow.sbp.broadcast])
def test_class_indices_of_int32(world, sbp):
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 4, 2, -100, 1, 3])
    place = flow.placement("cpu", [0, 1])
    logits = flow.tensor(x, placement=place, sbp=sbp)
    short = flow.tensor(labels, dtype=flow.int32, placement=place, sbp=flow.sbp.split(0))
    for name in ("cross_entropy", "nll_loss"):
        wanted = getattr(F, name)(x, labels)
        found = getattr(flow.nn.functional, name)(logits, short)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)

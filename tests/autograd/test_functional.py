"""vjp, jvp, jacobian, hessian, vhp, hvp against torch.autograd.functional."""

import pytest
import torch

import onefold as flow
from onefold.engine.sbp import parse
from onefold.testing.sample_checks import value_of

F = flow.autograd.functional
T = torch.autograd.functional
LAYOUTS = [None, "(S0)", "(B)", "(P)"]


def make(data, sbp):
    if sbp is None:
        return flow.tensor(data, dtype=flow.float64)
    p = flow.placement("cpu", [0, 1])
    return flow.tensor(data, dtype=flow.float64, placement=p, sbp=parse(sbp))


def inputs(sbp):
    data = [0.5, -1.0, 2.0], [1.5, 0.25, -0.75]
    return (
        tuple(make(d, sbp) for d in data),
        tuple(torch.tensor(d, dtype=torch.float64) for d in data),
    )


def vector(lib):
    return lambda x, y: lib.sin(x) * y * y + x.sum()


def scalar(lib):
    return lambda x, y: (lib.sin(x) * y * y).sum() * x.mean()


def compare(found, wanted):
    if isinstance(wanted, tuple):
        assert isinstance(found, tuple)
        for one, other in zip(found, wanted, strict=True):
            compare(one, other)
    else:
        torch.testing.assert_close(value_of(found.detach()), wanted)


@pytest.mark.parametrize("sbp", LAYOUTS)
@pytest.mark.parametrize("name", ["vjp", "jvp"])
def test_products_with_the_jacobian(name, sbp, world):
    ours, theirs = inputs(sbp)
    v, tv = make([1.0, 2.0, -1.0], sbp), torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    if name == "jvp":
        v, tv = (v, v * 2), (tv, tv * 2)
    found = getattr(F, name)(vector(flow), ours, v)
    compare(found, getattr(T, name)(vector(torch), theirs, tv))


@pytest.mark.parametrize("sbp", LAYOUTS)
def test_jacobian(sbp, world):
    ours, theirs = inputs(sbp)
    compare(F.jacobian(vector(flow), ours), T.jacobian(vector(torch), theirs))
    one = F.jacobian(lambda x: flow.outer(x, x * x), ours[0])
    compare(one, T.jacobian(lambda x: torch.outer(x, x * x), theirs[0]))


@pytest.mark.parametrize("sbp", LAYOUTS)
@pytest.mark.parametrize("name", ["vhp", "hvp"])
def test_products_with_the_hessian(name, sbp, world):
    ours, theirs = inputs(sbp)
    found = getattr(F, name)(scalar(flow), ours, ours[::-1])
    compare(found, getattr(T, name)(scalar(torch), theirs, theirs[::-1]))


@pytest.mark.parametrize("sbp", LAYOUTS)
def test_hessian(sbp, world):
    ours, theirs = inputs(sbp)
    found = F.hessian(lambda x: (flow.sin(x) * x).sum() * x.sum(), ours[0])
    compare(found, T.hessian(lambda x: (x.sin() * x).sum() * x.sum(), theirs[0]))
    compare(F.hessian(scalar(flow), ours), T.hessian(scalar(torch), theirs))


def test_what_does_not_depend_on_its_input_has_zeros(world):
    x, t = make([1.0, 2.0], "(S0)"), torch.tensor([1.0, 2.0], dtype=torch.float64)
    compare(F.hessian(lambda x: x.sum(), x), T.hessian(lambda t: t.sum(), t))
    fixed, tfixed = make([3.0, 4.0], "(S0)"), torch.tensor([3.0, 4.0], dtype=torch.float64)
    compare(F.jacobian(lambda x: fixed, x), T.jacobian(lambda t: tfixed, t))
    compare(F.vjp(lambda x: fixed, x, fixed), T.vjp(lambda t: tfixed, t, tfixed))
    compare(F.jvp(lambda x: fixed, x, fixed), T.jvp(lambda t: tfixed, t, tfixed))
    compare(F.hvp(lambda x: x.sum(), x, x), T.hvp(lambda t: t.sum(), t, t))
    compare(F.hvp(lambda x: fixed.sum(), x, x), T.hvp(lambda t: tfixed.sum(), t, t))


def test_results_can_be_differentiated_again(world):
    x = make([0.5, -1.0], "(S0)").requires_grad_()
    J = F.jacobian(lambda x: x**3, x, create_graph=True)
    J.sum().backward()
    torch.testing.assert_close(value_of(x.grad), 6 * value_of(x.detach()))
    assert not F.jacobian(lambda x: x**3, x).requires_grad


@pytest.mark.parametrize("name", ["jacobian", "vjp", "jvp"])
def test_functions_with_several_results(name, world):
    def pair(x, y):
        return x * y, (x * x).sum()

    ours, theirs = inputs("(S0)")
    vs = {"jacobian": ((), ())}
    vs["vjp"] = ((ours[0], ours[1].sum()),), ((theirs[0], theirs[1].sum()),)
    vs["jvp"] = (ours[::-1],), (theirs[::-1],)
    found = getattr(F, name)(pair, ours, *vs[name][0])
    compare(found, getattr(T, name)(pair, theirs, *vs[name][1]))


@pytest.mark.parametrize("lib", [torch, flow])
def test_results_are_off_the_tape(lib):
    functional, x = lib.autograd.functional, lib.ones(1)
    for name in ("vjp", "jvp", "hvp", "vhp"):
        call = getattr(functional, name)
        for value in call(lambda x: (x**3).sum(), x, lib.ones(()) if name == "vjp" else x):
            assert not value.requires_grad
        assert call(lambda x: (x**3).sum(), x, create_graph=True)[0].requires_grad
        with pytest.raises(RuntimeError, match="in strict mode"):
            call(lambda x: lib.ones(()), x, strict=True)
    made = functional.jacobian(lambda x: x * 2, x, vectorize=True, strategy="reverse-mode")
    assert made.tolist() == functional.hessian(lambda x: (x * x).sum(), x, vectorize=True).tolist()
    with pytest.raises(RuntimeError, match="can only be None"):
        functional.jvp(lambda x: x * 2, lib.ones(2))

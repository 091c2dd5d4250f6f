"""Dual numbers, and hooks of several tensors, with torch's results."""

import numpy as np
import pytest
import torch
import torch.autograd.forward_ad as torch_ad
from torch.autograd.graph import register_multi_grad_hook as torch_multi_hook

import onefold as flow
from onefold.autograd import forward_ad
from onefold.autograd.graph import disable_saved_tensors_hooks, register_multi_grad_hook
from onefold.errors import AutogradError, OnefoldValueError


def directional(lib, ad, x, direction):
    """Values, tangents and a gradient of a tangent, as in torch's tutorial."""
    model = lib.nn.Linear(3, 2).double()
    with lib.no_grad():
        model.weight.copy_(lib.arange(6).double().reshape(2, 3) / 6)
        model.bias.zero_()
    tangents = {name: lib.ones_like(p) * 0.5 for name, p in model.named_parameters()}
    leaf = x.clone().requires_grad_()
    with ad.dual_level():
        dual = ad.make_dual(x, direction)
        assert ad.unpack_dual(dual).tangent is direction or lib is torch
        y = lib.sin(dual) * dual + dual.sum()
        first = ad.unpack_dual(y)
        assert ad.unpack_dual(lib.ones(2)).tangent is None
        params = dict(model.named_parameters())
        for name, p in params.items():
            delattr(model, name)
            setattr(model, name, ad.make_dual(p, tangents[name]))
        second = ad.unpack_dual(model(x).tanh())
        through = ad.unpack_dual(lib.exp(ad.make_dual(leaf, direction)) * 2).tangent
    through.sum().backward()
    return [first.primal, first.tangent, second.primal, second.tangent, through, leaf.grad]


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # by torch itself
def test_dual_numbers():
    x, direction = np.linspace(0.1, 1.2, 12).reshape(4, 3), np.linspace(-1, 1, 12).reshape(4, 3)
    wanted = directional(torch, torch_ad, torch.tensor(x), torch.tensor(direction))
    found = directional(flow, forward_ad, flow.tensor(x), flow.tensor(direction))
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.requires_grad == theirs.requires_grad
        np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-12)


def test_dual_numbers_of_global_tensors(world):
    p = flow.placement("cpu", [0, 1])
    x = flow.randn(4, 3, placement=p, sbp=flow.sbp.split(0))
    with forward_ad.dual_level():
        y = flow.matmul(forward_ad.make_dual(x, x), x.T)
        tangent = forward_ad.unpack_dual(y).tangent
    np.testing.assert_allclose(tangent.numpy(), (x @ x.T).numpy(), rtol=1e-5)


def test_errors_of_dual_numbers():
    x = flow.ones(2)
    with pytest.raises(AutogradError, match=r"inside `with forward_ad.dual_level"):
        forward_ad.make_dual(x, x)
    with forward_ad.dual_level():
        with pytest.raises(AutogradError, match="Nested forward mode AD is not supported"):
            forward_ad.enter_dual_level()
        with pytest.raises(OnefoldValueError, match="must have the tensor's shape and dtype"):
            forward_ad.make_dual(x, flow.ones(3))
        with pytest.raises(OnefoldValueError, match="Expected primal to be floating point"):
            forward_ad.make_dual(flow.arange(2), flow.arange(2))


def called(lib, register, mode):
    """What a hook is given in several passes."""
    a, b, c = (lib.full((2,), float(n), requires_grad=True) for n in range(1, 4))
    calls = []

    def hook(given):
        given = given if isinstance(given, (list, tuple)) else [given]
        calls.append([None if g is None else g.tolist() for g in given])

    handle = register((a, b, c), hook, mode=mode)
    (a * b).sum().backward()
    (a * b * c).sum().backward()
    (c * c).sum().backward()
    handle.remove()
    (a * b).sum().backward()
    return calls


@pytest.mark.parametrize("mode", ["all", "any"])
def test_one_hook_for_several_tensors(mode):
    found = called(flow, register_multi_grad_hook, mode)
    wanted = called(torch, torch_multi_hook, mode)
    assert len(found) == len(wanted) == 3
    if mode == "all":
        assert found == wanted
    a, b = (flow.ones(1, requires_grad=True) for _ in range(2))
    calls = []
    with register_multi_grad_hook((a, b), calls.append, mode=mode):
        flow.autograd.grad((a * b).sum(), [a])
    assert len(calls) == 1
    with pytest.raises(OnefoldValueError, match="one of"):
        register_multi_grad_hook((), print, mode="none")


def test_hooks_of_saved_tensors_are_disabled():
    with disable_saved_tensors_hooks("not here"), pytest.raises(AutogradError, match="not here"):
        flow.autograd.graph.save_on_cpu().__enter__()
    with flow.autograd.graph.save_on_cpu():
        pass

"""Hooks on tensors' gradients, and on what the tape saves."""

import pytest
import torch

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import AutogradError, OnefoldTypeError
from onefold.testing.sample_checks import value_of


def leaf(sbp="(S0)"):
    p = flow.placement("cpu", [0, 1])
    return flow.tensor([1.0, 2.0, 3.0], placement=p, sbp=parse(sbp), requires_grad=True)


def test_hooks_see_and_replace_gradients(world):
    x = leaf()
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(g.tolist()))
    x.register_hook(lambda g: g + 1)
    y.sum().backward()
    assert seen == [[1.0] * 3, [10.0] * 3] and x.grad.tolist() == [21.0] * 3


def test_a_leafs_hook_runs_once_on_the_whole_gradient(world):
    x, seen = leaf(), []
    x.register_hook(lambda g: seen.append(g.tolist()))
    (x * 2 + x * 3).sum().backward()
    assert seen == [[5.0] * 3] and x.grad.tolist() == [5.0] * 3


def test_hooks_can_be_removed(world):
    x = leaf()
    handle = x.register_hook(lambda g: g * 100)
    with x.register_hook(lambda g: g * 7):
        x.sum().backward()
        assert x.grad.tolist() == [700.0] * 3
    handle.remove()
    handle.remove()
    x.grad = None
    x.sum().backward()
    assert x.grad.tolist() == [1.0] * 3


def test_hooks_on_one_of_several_outputs(world):
    x = leaf("(B)")
    first, second = flow.split(x, 2)
    first.register_hook(lambda g: g * 5)
    (first.sum() + second.sum()).backward()
    assert x.grad.tolist() == [5.0, 5.0, 1.0]


def test_hooks_run_in_autograd_grad(world):
    x = leaf()
    y = x * 2
    y.register_hook(lambda g: g * 3)
    assert flow.autograd.grad(y.sum(), x)[0].tolist() == [6.0] * 3


@pytest.mark.parametrize("sbp", ["(S0)", "(B)", "(P)"])
def test_hooks_after_accumulation(sbp, world):
    """Once in each backward, when the whole gradient has been added; as in torch."""
    x, wanted = leaf(sbp), torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    seen = {x: [], wanted: []}

    def note(tensor):
        seen[tensor].append(tensor.grad.tolist())

    for tensor in (x, wanted):
        handle = tensor.register_post_accumulate_grad_hook(note)
        for _ in range(2):
            (tensor * 2 + tensor * tensor).sum().backward()
        handle.remove()
        tensor.sum().backward()
    assert seen[x] == seen[wanted] and len(seen[x]) == 2
    x.register_post_accumulate_grad_hook(lambda x: setattr(x, "grad", None))
    x.sum().backward()
    assert x.grad is None
    for other in (x * 2, x.detach()):
        with pytest.raises(AutogradError):
            other.register_post_accumulate_grad_hook(note)


def test_retained_gradients_are_those_after_the_hooks(world):
    x = leaf()
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 3)
    y.sum().backward()
    assert y.grad.tolist() == [3.0] * 3


# Saved tensors.


def program(x, w):
    y = flow.tanh(x * w)  # saves inputs, and its output
    return (flow.softmax(y, 0) * x).sum()


@pytest.mark.parametrize("sbp", ["(S0)", "(B)", "(P)"])
def test_packing_changes_no_gradient(sbp, world):
    results = []
    for hooked in (False, True):
        x, w = leaf(sbp), leaf(sbp)
        if hooked:
            kept = {}

            def pack(tensor, kept=kept):
                kept[len(kept)] = tensor.numpy().copy(), tensor.placement, tensor.sbp
                return len(kept) - 1

            def unpack(number, kept=kept):
                value, placement, nd_sbp = kept[number]
                return flow.tensor(value, placement=placement, sbp=nd_sbp)

            with flow.autograd.graph.saved_tensors_hooks(pack, unpack):
                loss = program(x, w)
            assert len(kept) >= 5
        else:
            loss = program(x, w)
        (g,) = flow.autograd.grad(loss, x, create_graph=True)
        (g * g).sum().backward()
        results.append([value_of(t) for t in (g.detach(), x.grad, w.grad)])
    for plain, packed in zip(*results, strict=True):
        torch.testing.assert_close(plain, packed)


def test_packed_tensors_survive_in_place_changes(world):
    x = leaf()
    y = x * 1
    with flow.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        z = y * y
        u = flow.tanh(z)
    y.zero_()
    u.sum().backward()
    t = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    torch.tanh(t * t).sum().backward()
    torch.testing.assert_close(value_of(x.grad), t.grad)


def test_the_innermost_block_counts(world):
    x, seen = leaf(), []

    def hooks(name):
        return flow.autograd.graph.saved_tensors_hooks(
            lambda t: seen.append(name) or t, lambda t: t
        )

    with hooks("outer"):
        with hooks("inner"):
            x * x
        x * x
    x * x
    assert seen == ["inner", "inner", "outer", "outer"]


@pytest.mark.parametrize(
    ("unpack", "kind", "text"),
    [
        (lambda t: 3, OnefoldTypeError, "unpack must return a Tensor, got int"),
        (lambda t: t[:2], AutogradError, "shape, dtype and layout must be the same"),
        (lambda t: t.to_global(sbp=flow.sbp.broadcast), AutogradError, "layout must be the same"),
    ],
)
def test_unpacking_something_else_is_an_error(unpack, kind, text, world):
    x = leaf()
    with flow.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        y = (x * x).sum()
    with pytest.raises(kind, match=text):
        y.backward()
    assert x.grad is None

"""Hooks on tensors' gradients, and on what the tape saves."""

import gc

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


# Hooks of leaves, when their gradient is whole.


def shared_weights(lib, **layout):
    """Two layers that read one weight, and one that reads it not at all."""
    w = lib.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True, **layout)
    u = lib.tensor([1.0, -1.0], requires_grad=True, **layout)
    unused = lib.tensor([1.0], requires_grad=True, **layout)
    return w, u, unused, ((w @ u) @ w).sum() + u.sum()


def test_a_leaf_hook_is_called_once_with_the_whole_gradient(world):
    p = flow.placement("cpu", [0, 1])
    w, u, _, y = shared_weights(torch)
    y.backward()
    wanted = [w.grad.tolist(), u.grad.tolist()]
    for layout in ({}, {"placement": p, "sbp": flow.sbp.split(0)}):
        for watched in (False, True):
            *leaves, y = shared_weights(flow, **layout)
            seen = []
            for leaf in leaves:
                leaf.register_post_accumulate_grad_hook(lambda x, seen=seen: seen.append(x))
            if watched:  # leaves then wait for all of their gradients
                leaves[0].register_hook(lambda grad: grad)
            y.backward(retain_graph=True)
            assert sorted(map(id, seen)) == sorted(map(id, leaves[:2]))
            assert [x.grad.tolist() for x in leaves[:2]] == wanted
            seen.clear()
            y.backward()
            assert len(seen) == 2


def test_a_leaf_hook_comes_while_backward_runs(world):
    gc.collect()  # tensors of other tests that have hooks of gradients
    events = []
    w = [flow.ones(2, requires_grad=True) for _ in range(3)]

    class Layer(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, number):
            ctx.number = number
            return x * w

        @staticmethod
        def backward(ctx, dy):
            events.append(f"layer {ctx.number}")
            return dy, dy, None

    x = flow.ones(2)
    for number, each in enumerate(w):
        each.register_post_accumulate_grad_hook(
            lambda each, number=number: events.append(f"grad {number}")
        )
        x = Layer.apply(x, each, number)
    x.sum().backward()
    assert events == ["layer 2", "grad 2", "layer 1", "grad 1", "layer 0", "grad 0"]


def test_a_leaf_hook_may_replace_the_gradient_and_goes(world):
    w = flow.ones(2, requires_grad=True)

    def forget(leaf):
        kept.append(leaf.grad)
        leaf.grad = None

    kept = []
    handle = w.register_post_accumulate_grad_hook(forget)
    (w * 3).sum().backward()
    assert w.grad is None and kept[0].tolist() == [3, 3]
    flow.autograd.grad((w * 3).sum(), w)
    assert len(kept) == 1, "nothing is added to .grad then"
    w.backward(flow.ones(2))
    assert len(kept) == 2
    handle.remove()
    (w * 3).sum().backward()
    assert w.grad.tolist() == [3, 3]


def test_a_leaf_hook_that_fails_leaves_every_gradient(world):
    w = flow.ones(2, requires_grad=True)
    w.register_post_accumulate_grad_hook(lambda leaf: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (w * 3).sum().backward()
    assert w.grad is None


def test_leaf_hooks_are_for_leaves(world):
    w = flow.ones(2, requires_grad=True)
    with pytest.raises(AutogradError, match="on non-leaf tensors"):
        (w * 2).register_post_accumulate_grad_hook(print)
    with pytest.raises(AutogradError, match="doesn't require gradient"):
        flow.ones(2).register_post_accumulate_grad_hook(print)


@pytest.mark.parametrize("of_leaf", [False, True])
@pytest.mark.parametrize(
    "change", [lambda g: g[:2], lambda g: g.sum(), lambda g: g.double(), lambda g: 3.0]
)
def test_a_hook_that_changes_the_shape_or_dtype_is_an_error(change, of_leaf):
    for lib in (torch, flow):
        x = lib.ones(3, requires_grad=True)
        y = x * 2
        (x if of_leaf else y).register_hook(change)
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            y.sum().backward()
        assert x.grad is None

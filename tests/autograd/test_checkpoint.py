"""checkpoint: the same gradients as without it, from inputs kept instead of activations."""

import gc
import weakref

import pytest
import torch
import torch.utils.checkpoint

import onefold as flow
from onefold.engine.names import names
from onefold.engine.sbp import parse
from onefold.errors import AutogradError
from onefold.testing.sample_checks import value_of

checkpoint = flow.checkpoint.checkpoint
LAYOUTS = [None, "(S0)", "(S1)", "(B)"]


def make(sbp, *shape, seed=0, grad=True):
    flow.manual_seed(seed)
    layout = {}
    if sbp is not None:
        layout = {"placement": flow.placement("cpu", [0, 1]), "sbp": parse(sbp)}
    return flow.randn(*shape, dtype=flow.float64, requires_grad=grad, **layout)


def block(x, w):
    y = flow.tanh(flow.matmul(x, w))
    y = flow.nn.functional.dropout(y, 0.4, True)
    return flow.softmax(y, -1) * y


@pytest.mark.parametrize("sbp", LAYOUTS)
@pytest.mark.parametrize("x_needs_grad", [True, False])
def test_gradients_do_not_change(sbp, x_needs_grad, world):
    """Also those of parameters that the function reads, when no argument needs a gradient."""
    results = []
    for wrap in (lambda f, *a: f(*a), checkpoint):
        x, w = make(sbp, 6, 4, grad=x_needs_grad), make(sbp, 4, 4, seed=1)
        flow.manual_seed(7)
        y = wrap(lambda x, w=w: block(x, w), x)
        z = wrap(lambda y, w=w: block(y, w), y)
        (z * z).sum().backward()
        after = flow.rand(3).tolist()
        grads = [value_of(t.grad) for t in (x, w) if t.requires_grad]
        results.append((value_of(z.detach()), grads, after))
    (y0, g0, r0), (y1, g1, r1) = results
    assert torch.equal(y0, y1) and r0 == r1, "the same dropout masks, and random numbers go on"
    for plain, again in zip(g0, g1, strict=True):
        assert torch.equal(plain, again)


@pytest.mark.parametrize("create_graph", [True, False])
@pytest.mark.parametrize("sbp", LAYOUTS)
def test_a_function_that_computes_gradients(sbp, create_graph, world):
    results = []
    for wrap in (lambda f, *a: f(*a), checkpoint):
        x, w = make(sbp, 4, 4), make(sbp, 4, 4, seed=1)

        def step(x, w=w):
            y = flow.tanh(x * w).pow(3).sum()
            (slope,) = flow.autograd.grad(y, x, create_graph=create_graph)
            return flow.sin(slope * w) + x * w * slope.detach()

        (wrap(step, x) * x).sum().backward()
        results.append((value_of(x.grad), value_of(w.grad)))
    for plain, again in zip(*results, strict=True):
        assert torch.equal(plain, again)


@pytest.mark.parametrize("sbp", [None, "(S0)"])
def test_double_backward_retained_graphs_and_grad(sbp, world):
    results = []
    for wrap in (lambda f, *a: f(*a), checkpoint):
        x, w = make(sbp, 4, 4), make(sbp, 4, 4, seed=1)
        flow.manual_seed(7)
        loss = (wrap(block, x, w) ** 2).sum()
        loss.backward(retain_graph=True)
        (g,) = flow.autograd.grad(loss, x, create_graph=True)
        (g * g).sum().backward()
        results.append([value_of(t) for t in (g.detach(), x.grad, w.grad)])
    for plain, again in zip(*results, strict=True):
        torch.testing.assert_close(plain, again)


def test_checkpoints_nest(world):
    results = []
    for wrap in (lambda f, *a: f(*a), checkpoint):
        x, w = make("(S0)", 4, 4), make("(B)", 4, 4, seed=1)
        flow.manual_seed(7)

        def outer(x, w=w, wrap=wrap):
            for _ in range(3):
                x = wrap(block, x, w)
            return x

        (wrap(outer, x) ** 2).sum().backward()
        results.append([value_of(t.grad) for t in (x, w)])
    for plain, again in zip(*results, strict=True):
        assert torch.equal(plain, again)


def test_activations_are_not_kept(world):
    kept, runs = [], []

    def function(x):
        runs.append(1)
        y = flow.tanh(x * x)
        kept.append(weakref.ref(y.shards[0]))
        return (y * y).sum()

    x = make(None, 8)
    gc.disable()
    try:
        function(x)
        plain = function(x)
        assert kept[-1]() is not None
        plain.backward()
        loss = checkpoint(function, x)
        assert kept[-1]() is None and len(runs) == 3
        loss.backward()
        assert len(runs) == 4 and kept[-1]() is None
    finally:
        gc.enable()


def test_arguments_of_every_kind(world):
    x = make(None, 3)

    def function(x, factor, *, scale, other):
        return x * factor * scale * other, None, "text"

    y, none, text = checkpoint(function, x, 2.0, scale=3.0, other=x)
    assert none is None and text == "text"
    y.sum().backward()
    torch.testing.assert_close(value_of(x.grad), 12 * value_of(x))


def test_without_gradients_it_is_the_function(world):
    x = make(None, 3)
    with flow.no_grad():
        assert not checkpoint(lambda x: x * x, x).requires_grad
    assert not checkpoint(lambda x: x * x, x.detach()).requires_grad


def test_functions_with_a_backward_of_their_own(world):
    class Cube(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * x
            ctx.save_for_backward(x, y)
            return y * x

        @staticmethod
        def backward(ctx, dy):
            x, y = ctx.saved_tensors
            return dy * y * 3 + 0 * x

    x = make("(S0)", 5)
    checkpoint(lambda x: Cube.apply(flow.sin(x)), x).sum().backward()
    t = value_of(x).clone().requires_grad_()
    (t.sin() ** 3).sum().backward()
    torch.testing.assert_close(value_of(x.grad), t.grad)


def test_in_place_methods_inside_the_function(world):
    mask = flow.tensor([1.0, 2.0, 3.0], dtype=flow.float64)

    def function(x):
        m = mask.clone()
        y = x * m
        z = y * m
        m.mul_(5)  # after the tape kept it: an error without checkpoint
        return z

    x = make(None, 3)
    checkpoint(function, x).sum().backward()
    assert x.grad.tolist() == [1.0, 4.0, 9.0]


@pytest.mark.parametrize("changed", ["input", "parameter"])
def test_a_change_between_the_runs_is_an_error(changed, world):
    x, w = make("(S0)", 4, 4), make("(S0)", 4, 4, seed=1)
    h = x * 1
    loss = checkpoint(lambda h: flow.matmul(h, w), h).sum()
    with flow.no_grad():
        (h if changed == "input" else w).mul_(2)
    with pytest.raises(AutogradError, match="checkpoint runs its function again"):
        loss.backward()
    assert x.grad is None and w.grad is None


def test_a_function_that_does_other_things_the_second_time(world):
    runs = []

    def function(x):
        runs.append(1)
        return x * x if len(runs) == 1 else x + 1

    x = make(None, 3)
    loss = checkpoint(function, x).sum()
    with pytest.raises(AutogradError, match="saved other tensors when it ran again"):
        loss.backward()


def test_an_error_in_the_second_run_leaves_everything_as_it_was(world):
    runs = []

    def function(x):
        runs.append(1)
        if len(runs) == 2:
            raise ZeroDivisionError
        return flow.nn.functional.dropout(x * x, 0.5, True)

    x = make(None, 3)
    flow.manual_seed(3)
    loss = checkpoint(function, x).sum()
    state = flow.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        loss.backward()
    assert flow.get_rng_state() == state and flow.is_grad_enabled() and x.grad is None
    assert names.clone(x).requires_grad


@pytest.mark.parametrize("lib", [torch, flow])
def test_random_states_that_programs_restore_themselves(lib):
    """Reversible networks keep the states before a block, and call it again in backward."""
    module = lib.utils.checkpoint
    x = lib.ones(3)
    before = lib.get_rng_state()
    devices, states = module.get_device_states(x, {"other": (x, 1)})
    assert (devices, lib.cuda._initialized) == ([], lib.cuda.is_initialized())
    drawn = lib.rand(3).tolist()
    with lib.random.fork_rng(devices=devices, enabled=True):
        lib.set_rng_state(before)
        module.set_device_states(devices, states)
        assert lib.rand(3).tolist() == drawn


def test_the_state_of_a_device_is_restored():
    states = [flow.get_rng_state()]
    drawn = flow.rand(3).tolist()
    flow.utils.checkpoint.set_device_states([0], states)
    assert flow.rand(3).tolist() == drawn

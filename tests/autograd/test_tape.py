"""Backward and grad against torch: accumulation, double backward, modes, errors."""

import gc
import weakref

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.engine.names import names
from onefold.engine.sbp import parse, short
from onefold.errors import (
    AutogradError,
    MixedTensorsError,
    OnefoldTypeError,
    PlacementError,
    ShapeError,
)
from onefold.testing.sample_checks import value_of

DATA = [[1.0, -2.0, 0.5], [3.0, 0.25, -1.0]]
LAYOUTS = [None, "(S0)", "(S1)", "(B)", "(P)"]


def make(sbp, data=DATA, **kwargs):
    kwargs.setdefault("requires_grad", True)
    if sbp is None:
        return flow.tensor(data, dtype=flow.float64, **kwargs)
    p = flow.placement("cpu", [0, 1])
    return flow.tensor(data, dtype=flow.float64, placement=p, sbp=parse(sbp), **kwargs)


def pair(sbp):
    return make(sbp), torch.tensor(DATA, dtype=torch.float64, requires_grad=True)


def program(x):
    y = x * x
    z = y.sum(0) + x.mean()
    return (y.tanh() * z).sum()


@pytest.mark.parametrize("sbp", LAYOUTS)
def test_gradients_are_torchs(sbp, world):
    x, t = pair(sbp)
    for loss in (program(x), program(t)):
        loss.backward()
    torch.testing.assert_close(value_of(x.grad), t.grad)


@pytest.mark.parametrize("sbp", LAYOUTS)
def test_gradients_add_up_until_they_are_reset(sbp, world):
    x, t = pair(sbp)
    for leaf in (x, t):
        program(leaf).backward()
        (leaf * 2).sum().backward()
    torch.testing.assert_close(value_of(x.grad), t.grad)
    x.grad = None
    assert x.grad is None
    x.sum().backward()
    assert value_of(x.grad).eq(1).all()
    del x.grad
    assert x.grad is None


@pytest.mark.parametrize("sbp", LAYOUTS)
def test_double_backward_is_torchs(sbp, world):
    x, t = pair(sbp)
    (first,) = flow.autograd.grad(program(x), x, create_graph=True)
    (wanted,) = torch.autograd.grad(program(t), t, create_graph=True)
    torch.testing.assert_close(value_of(first), wanted.detach())
    (first * first).sum().backward()
    (wanted * wanted).sum().backward()
    torch.testing.assert_close(value_of(x.grad), t.grad)


def test_a_graph_can_be_kept(world):
    x, t = pair("(S0)")
    for leaf in (x, t):
        loss = program(leaf)
        loss.backward(retain_graph=True)
        loss.backward()
    torch.testing.assert_close(value_of(x.grad), t.grad)


def test_a_gradient_may_stay_partial(world):
    x = make("(B)")
    (x * make("(S0)", requires_grad=False)).sum().backward()
    w = make("(B)", [1.0, 2.0, 3.0])
    (make("(S0)", requires_grad=False) * w).sum().backward()
    assert short(x.grad.sbp) == "(S0)" and short(w.grad.sbp) == "(P)"
    assert w.grad.tolist() == [4.0, -1.75, -0.5]


def test_leaves_do_not_share_their_gradient(world):
    a, b, g = make(None), make(None), make(None, requires_grad=False)
    (a + b).backward(g)
    a.grad.zero_()
    assert b.grad.tolist() == DATA and g.tolist() == DATA
    x = make(None)
    x.backward(g)
    x.grad.zero_()
    assert g.tolist() == DATA


def shared(x, w, times=5):
    for _ in range(times):
        x = flow.tanh(x * w) if isinstance(w, flow.Tensor) else torch.tanh(x * w)
    return x.sum()


@pytest.mark.parametrize("sbp", LAYOUTS)
@pytest.mark.parametrize("ranks", [[0], [0, 1]])
def test_a_leaf_that_is_used_often_has_torchs_gradient(sbp, ranks, world):
    """From the third use on the sum is added to in its own memory, where it has one shard."""
    layout = {}
    if sbp is not None:
        layout = {"placement": flow.placement("cpu", ranks), "sbp": parse(sbp)}
    w = flow.tensor(DATA, dtype=flow.float64, requires_grad=True, **layout)
    t = torch.tensor(DATA, dtype=torch.float64, requires_grad=True)
    for times in (5, 4):
        shared(w * 0.5, w, times).backward()
        shared(t * 0.5, t, times).backward()
        torch.testing.assert_close(value_of(w.grad), t.grad)


def test_a_gradient_that_somebody_holds_does_not_change(world):
    w = make(None)
    shared(w, w).backward()
    held, before = w.grad, w.grad.tolist()
    shared(w, w).backward()
    assert held.tolist() == before
    assert w.grad.tolist() != before
    seen = []
    w.grad = None
    w.register_hook(lambda grad: seen.append((grad, grad.tolist())))
    shared(w, w).backward()
    assert seen and all(grad.tolist() == values for grad, values in seen)


def test_an_error_takes_back_what_was_added_in_place(world):
    w = make(None)
    shared(w, w).backward()
    before = w.grad.tolist()

    class Fails(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, dy):
            raise ValueError("no gradient")

    with pytest.raises(ValueError, match="no gradient"):
        shared(Fails.apply(w), w).backward()
    assert w.grad.tolist() == before


def test_backward_from_several(world):
    x, t = pair("(S1)")
    seed = make("(B)", requires_grad=False)
    flow.autograd.backward([x * 2, (x * x).sum()], [seed, None])
    torch.autograd.backward([t * 2, (t * t).sum()], [torch.tensor(DATA, dtype=torch.float64), None])
    torch.testing.assert_close(value_of(x.grad), t.grad)
    with pytest.raises(ValueError, match="got 2 tensors and 1 gradients"):
        flow.autograd.backward([x.sum(), x.sum()], [None])


def test_a_seed_takes_the_dtype_of_its_tensor(world):
    x = make("(S0)")
    p = x.placement
    x.backward(flow.ones(2, 3, dtype=flow.float32, placement=p, sbp=flow.sbp.broadcast))
    assert x.grad.dtype == torch.float64


# autograd.grad.


def test_grad_accumulates_nothing_and_frees_only_its_part(world):
    x = make("(S0)")
    h = x * x
    (g,) = flow.autograd.grad((h * h).sum(), h)
    assert x.grad is None
    torch.testing.assert_close(value_of(g), 2 * value_of(h))
    h.backward(g)  # what lies below h was neither run nor freed
    torch.testing.assert_close(value_of(x.grad), 4 * value_of(x) ** 3)


def test_grad_runs_only_what_leads_to_its_inputs(world):
    calls = []

    class Watched(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, dy):
            calls.append(ctx.needs_input_grad)
            return dy

    x, w = make(None), make(None)
    y = Watched.apply(x) * w
    (g,) = flow.autograd.grad(y.sum(), w)
    assert calls == [] and g.tolist() == DATA


def test_grad_of_the_same_input_twice_and_of_itself(world):
    x = make(None)
    y = (x * 3).sum()
    assert [g.tolist() for g in flow.autograd.grad(y, [x, x])] == [[[3.0] * 3] * 2] * 2
    z = x.sum()
    assert flow.autograd.grad(z, z)[0].item() == 1.0


def test_backward_into_some_inputs(world):
    found = []
    for module in (torch, flow):
        w, b = (module.tensor([value], requires_grad=True) for value in (3.0, 1.0))
        called = []
        for x in (w, b):
            x.register_post_accumulate_grad_hook(lambda x, called=called: called.append(x.item()))
        h = w * 2 + b
        (h * h).sum().backward(inputs=[w, h], retain_graph=True)
        assert b.grad is None
        h.sum().backward(inputs=b)
        h = w * b
        module.autograd.backward([h], [module.ones(1)], inputs=(w,))
        found.append([w.grad.item(), b.grad.item(), called])
        with pytest.raises(RuntimeError, match="cannot be empty"):
            (w * 2).backward(inputs=[])
        with pytest.raises(RuntimeError):
            (w * 2).backward(inputs=[w, module.ones(1)])
    assert found[0] == found[1] == [29.0, 1.0, [3.0, 1.0, 3.0]]


def test_the_options_of_grad(world):
    for module in (torch, flow):
        w, b = (module.tensor([value], requires_grad=True) for value in (3.0, 1.0))
        y = (w * w).sum()
        assert module.autograd.grad(y, w, None, True, False, True)[0].item() == 6.0
        assert module.autograd.grad(y, [w], only_inputs=True, retain_graph=True)[0].item() == 6.0
        zero = module.autograd.grad(y, [w, b], materialize_grads=True)[1]
        assert zero.tolist() == [0.0]


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_many_rows(world, create_graph):
    found = []
    for module in (torch, flow):
        w, b = (module.tensor([3.0, 1.0, 2.0], requires_grad=True) for _ in range(2))
        y, z, rows = w * w * b, (w * b).sum(), module.tensor([[1.0, 0.0, 2.0], [0.0, 5.0, 0.0]])
        options = {"is_grads_batched": True, "create_graph": create_graph}
        both = module.autograd.grad([y, z], [w, b], [rows, rows[:, 0]], **options)
        found.append([x.tolist() for x in both])
        if create_graph:
            both[0].sum().backward()
            found[-1].append(w.grad.tolist())
        y = (w * 2).sin()
        unused = module.autograd.grad(y, [b, w], (rows,), allow_unused=True, **options)
        assert unused[0] is None
        found[-1].append(unused[1].tolist())
    np.testing.assert_allclose(found[1][0], found[0][0])
    for mine, theirs in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


@pytest.mark.parametrize("seeds", ["missing", "0-d", "none", "unequal"])
def test_rows_of_gradients_that_do_not_fit(world, seeds):
    w = flow.ones(3, requires_grad=True)
    given = {"0-d": flow.ones(()), "none": flow.ones(0, 3), "unequal": flow.ones(2, 4)}
    with pytest.raises(ShapeError):
        flow.autograd.grad(w * 2, w, given.get(seeds), is_grads_batched=True)


def test_unused_inputs(world):
    x, y = make("(S0)"), make("(S0)")
    with pytest.raises(AutogradError, match="input 1 was not used"):
        flow.autograd.grad(x.sum(), [x, y])
    found = flow.autograd.grad(x.sum(), [x, y], allow_unused=True)
    assert found[1] is None and found[0] is not None
    with pytest.raises(AutogradError, match="input 0 does not require grad"):
        flow.autograd.grad(x.sum(), make(None, requires_grad=False))


# Modes.


def test_set_grad_enabled_may_be_used_again():
    def used(lib):
        off, found = lib.set_grad_enabled(False), []
        for _ in range(2):
            with off:
                found.append(lib.is_grad_enabled())
            found.append(lib.is_grad_enabled())
        decorate = lib.set_grad_enabled(False)
        found += [decorate(lib.is_grad_enabled)() for _ in range(2)]
        return *found, lib.is_grad_enabled()

    assert used(flow) == used(torch)


def test_modes(world):
    x = make(None)
    assert flow.is_grad_enabled()
    with flow.no_grad():
        assert not (x * 2).requires_grad and not flow.is_grad_enabled()
        with flow.enable_grad():
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    with flow.inference_mode():
        assert not (x * 2).requires_grad
    with flow.inference_mode(False):
        assert (x * 2).requires_grad
    with flow.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    assert flow.is_grad_enabled()
    flow.set_grad_enabled(False)
    try:
        assert not flow.is_grad_enabled()
    finally:
        flow.set_grad_enabled(True)
    mode = flow.no_grad()
    with mode, mode:
        pass
    assert flow.is_grad_enabled()


@pytest.mark.parametrize(
    "decorator",
    [
        flow.no_grad,
        flow.no_grad(),
        flow.inference_mode,
        flow.inference_mode(),
        lambda f: flow.set_grad_enabled(False)(f),  # noqa: PLW0108 (only when called)
    ],
)
def test_modes_decorate(decorator, world):
    @decorator
    def double(x):
        """Twice."""
        return x * 2

    x = make(None)
    assert not double(x).requires_grad and double.__doc__ == "Twice."
    assert flow.is_grad_enabled()
    assert flow.enable_grad()(lambda: (x * 2).requires_grad)()


def test_an_error_leaves_the_mode_as_it_was(world):
    with pytest.raises(ZeroDivisionError), flow.no_grad():
        1 / 0  # noqa: B018
    assert flow.is_grad_enabled()


def test_requires_grad_and_leaves(world):
    x = make(None)
    y = x * 2
    assert x.is_leaf and x.grad_fn is None and not y.is_leaf and y.grad_fn is not None
    assert y.detach().is_leaf and not y.detach().requires_grad
    z = make(None, requires_grad=False).requires_grad_()
    assert z.requires_grad
    z.requires_grad = False
    assert not z.requires_grad
    with pytest.raises(AutogradError, match="only change requires_grad flags of leaf"):
        y.requires_grad = False
    with pytest.raises(AutogradError, match="only tensors of floating point"):
        flow.arange(3).requires_grad_()


def test_retain_grad(world):
    x = make("(S0)")
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    torch.testing.assert_close(value_of(y.grad), 4 * torch.tensor(DATA, dtype=torch.float64))
    assert (x * 2).grad is None


def test_the_tape_is_freed(world):
    x = make(None)
    y = x * x
    kept = weakref.ref(y)
    loss = (y * y).sum()
    del y
    gc.disable()
    try:
        assert kept() is not None
        loss.backward()
        assert kept() is None, "saved tensors go without the garbage collector"
    finally:
        gc.enable()


# Errors leave every .grad as it was.


def test_backward_twice(world):
    x = make("(S0)")
    y = x * x
    y.sum().backward()
    before = x.grad.tolist()
    w = make("(S0)")
    with pytest.raises(AutogradError, match="backward through the graph a second time"):
        (y * w).sum().backward()
    assert w.grad is None and x.grad.tolist() == before


def test_an_error_inside_backward_restores_gradients(world):
    x = make(None)
    (x * 2).sum().backward()
    y = x * 1
    y.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (y + x).sum().backward()
    assert x.grad.tolist() == [[2.0] * 3] * 2 and flow.is_grad_enabled()


BAD = [
    (lambda x: (x * 2).backward(), AutogradError, "grad can be implicitly created only for scalar"),
    (
        lambda x: x.detach().sum().backward(),
        AutogradError,
        "element 0 of tensors does not require grad",
    ),
    (lambda x: (x * 2).backward(flow.ones(3)), ShapeError, "gradient must have the shape"),
    (
        lambda x: (x * 2).backward(1.0),
        OnefoldTypeError,
        "gradient must be an onefold Tensor, but got float",
    ),
    (lambda x: (x * 2).backward(flow.ones(2, 3)), MixedTensorsError, "must be local or global"),
    (
        lambda x: (x * 2).backward(
            flow.ones(2, 3, placement=flow.placement("cpu", [2, 3]), sbp=flow.sbp.broadcast)
        ),
        PlacementError,
        "Expected all tensors to be on the same placement",
    ),
    (lambda x: setattr(x, "grad", flow.ones(2, 3)), MixedTensorsError, r"\.grad must be local or"),
    (lambda x: setattr(x, "grad", 3), OnefoldTypeError, r"\.grad must be an onefold Tensor"),
    (lambda x: x.detach().register_hook(print), AutogradError, "cannot register a hook"),
    (lambda x: x.detach().retain_grad(), AutogradError, "can't retain_grad"),
]


@pytest.mark.parametrize("index", range(len(BAD)))
def test_bad_calls(index, world):
    call, kind, text = BAD[index]
    x = make("(S0)")
    with pytest.raises(kind, match=text):
        call(x)
    assert x.grad is None


def test_every_process_replays_the_same_order(world):
    """Nodes are replayed newest first, whatever the order of their gradients."""
    x = make(None)
    order = []
    a = x * 1
    b = a * 2
    c = a * 3
    for name, tensor in (("a", a), ("b", b), ("c", c)):
        tensor.register_hook(lambda grad, name=name: order.append(name))
    (names.stack([c, b])).sum().backward()
    assert order == ["c", "b", "a"]


def test_the_tape_is_walked_by_next_functions(world):
    """From a result to the leaves that it depends on, as programs for torch do."""
    for lib in (flow, torch):
        x, unused, y = (lib.ones(4, requires_grad=True) for _ in range(3))
        first, _ = (x * y).chunk(2)
        ends, left = [], [((first * lib.ones(2)).sum() + x[0]).grad_fn]
        while left:
            node = left.pop()
            left += [each for each, _ in node.next_functions if each is not None]
            if hasattr(node, "variable"):
                ends.append(node.variable)
                assert node.next_functions == ()
        assert any(end is x for end in ends) and any(end is y for end in ends)
        assert not any(end is unused for end in ends)
        assert x.expand_as(x).grad_fn.next_functions[0][0].variable is x
        assert [index for _, index in (first * first).grad_fn.next_functions] == [0, 0]
        assert (x * lib.ones(4)).grad_fn.next_functions[1] == (None, 0)

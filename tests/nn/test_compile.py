"""flow.compile: results, gradients, changes and random numbers are eager's, bit for bit."""

import copy
import gc
import inspect
import threading
import warnings
import weakref
from collections import namedtuple

import numpy as np
import pytest
import samples
import torch
from launched import run_ranks
from torch_oracle import needs_this_torch

import onefold as flow
from onefold import nn, sbp
from onefold.errors import (
    AutogradError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
)
from onefold.nn import functional as F
from onefold.testing.manual_layouts import make_global
from onefold.testing.sample_checks import cotangent, spread

B, P, S0, S1 = sbp.broadcast, sbp.partial_sum, sbp.split(0), sbp.split(1)
PAIR = flow.placement("cpu", [0, 1])
MESH = flow.placement("cpu", [[0, 1], [2, 3]])

pytestmark = pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")


def bits(x):
    return None if x is None else (x.meta, [part.detach().clone() for part in x.shards])


def assert_same(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        if ours is None or theirs is None:
            assert ours is theirs
            continue
        assert ours[0] is theirs[0]
        for a, b in zip(ours[1], theirs[1], strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def assert_equals_eager(function, make, calls=2):
    """Compiled calls equal eager's: outputs, gradients and tensors after in-place changes.

    `make` gives fresh arguments.
    """
    compiled = flow.compile(function)
    results = []
    for run in (function, *[compiled] * calls):
        flow.manual_seed(3)
        given = make()
        out = run(*given)
        outputs = [x for x in (out if isinstance(out, tuple) else (out,)) if x is not None]
        ends = [x for x in outputs if x.requires_grad]
        leaves = [x for x in given if isinstance(x, flow.Tensor) and x.requires_grad]
        leaves = [x for x in leaves if x.is_leaf]
        cotangents = [None if x.numel() == 1 else flow.ones_like(x) * 0.5 for x in ends]
        if ends:
            flow.autograd.backward(ends, cotangents)
        tensors = [x for x in given if isinstance(x, flow.Tensor)]
        facts = [(x.requires_grad, x.is_leaf) for x in outputs]
        results.append((facts, [bits(x) for x in [*outputs, *tensors, *[x.grad for x in leaves]]]))
    for facts, found in results[1:]:
        assert facts == results[0][0]
        assert_same(found, results[0][1])
    assert len(compiled._entries) == 1


def tensor(*shape, seed=0, grad=True, **layout):
    data = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return flow.tensor(data, requires_grad=grad, **layout)


def layer(x, w, b):
    return F.gelu(x @ w + b)


LAYOUTS = {
    "local": ({}, {}, {}),
    "data": (
        {"placement": PAIR, "sbp": S0},
        {"placement": PAIR, "sbp": B},
        {"placement": PAIR, "sbp": B},
    ),
    "columns": (
        {"placement": PAIR, "sbp": B},
        {"placement": PAIR, "sbp": S1},
        {"placement": PAIR, "sbp": S0},
    ),
    "rows": (
        {"placement": PAIR, "sbp": S1},
        {"placement": PAIR, "sbp": S0},
        {"placement": PAIR, "sbp": B},
    ),
    "mesh": (
        {"placement": MESH, "sbp": [S0, B]},
        {"placement": MESH, "sbp": [B, S1]},
        {"placement": MESH, "sbp": [B, S0]},
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", [layer, lambda x, w, b: layer(x, w, b).sum()])
def test_layouts(function, layout, world):
    xs, ws, bs = LAYOUTS[layout]
    assert_equals_eager(function, lambda: [tensor(6, 5, **xs), tensor(5, 4, **ws), tensor(4, **bs)])


def test_gradients_in_any_layout(world):
    """The layout in which a gradient arrives depends on what reads the output."""

    def matmul(x, w):
        return x @ w

    compiled = flow.compile(matmul)
    split, whole = {"placement": PAIR, "sbp": S1}, {"placement": PAIR, "sbp": S0}
    found = []
    for run in (matmul, compiled, compiled):
        found.append([])
        for cotangent_sbp in (B, S0, S1, P):
            x, w = tensor(4, 6, **split), tensor(6, 2, **whole)
            y = run(x, w)
            assert y.sbp == (P,)
            dy = tensor(4, 2, grad=False, placement=PAIR, sbp=B).to_global(sbp=cotangent_sbp)
            found[-1] += map(bits, (y, *flow.autograd.grad(y, [x, w], dy)))
            (dw,) = flow.autograd.grad(run(x, w), [w], dy)
            found[-1].append(bits(dw))
    assert_same(found[1], found[0])
    assert_same(found[2], found[0])
    assert len(compiled._entries) == 1


SAMPLES = samples.load()[::9]


class ReadsMore(flow.autograd.Function):
    """Twice x, whose backward reads x for partial gradients alone."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.exp())
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * 2 + (y * 0 if dy.sbp == (P,) else 0)


def test_a_layout_of_gradients_that_needs_more_than_is_saved(world):
    compiled = flow.compile(ReadsMore.apply)
    for given in (B, P, P, S0):
        x = tensor(4, placement=PAIR, sbp=B)
        dy = tensor(4, grad=False, placement=PAIR, sbp=B).to_global(sbp=given)
        (dx,) = flow.autograd.grad(compiled(x), [x], dy)
        np.testing.assert_array_equal(dx.numpy(), 2 * dy.numpy())


@pytest.mark.parametrize("sample", SAMPLES, ids=repr)
def test_samples(sample, world):
    if sample.name in ("nonzero", "argwhere", "unique", "masked_select", "lstm", "rnn_tanh"):
        pytest.skip("reads values")
    values = sample.tensors()
    (layouts,) = spread(values, MESH, 1, sample.seed)

    def make(value, nd_sbp=(B, B)):
        return make_global(value, MESH, nd_sbp, 1)

    def results(function):
        flow.manual_seed(5)
        given = [make(value, sbps) for value, sbps in zip(values, layouts, strict=True)]
        for x in given:
            if sample.grad and (x.dtype.is_floating_point or x.dtype.is_complex):
                x.requires_grad_()
        outputs = function(*given)
        ends = [(i, x) for i, x in enumerate(outputs) if x.requires_grad]
        leaves = [x for x in given if x.requires_grad]
        if not ends or not leaves:
            return [*map(bits, outputs)]
        seeds = [make(cotangent(x.shape, x.dtype, sample.seed + i)) for i, x in ends]
        grads = flow.autograd.grad([x for _, x in ends], leaves, seeds, allow_unused=True)
        return [*map(bits, outputs), *map(bits, grads)]

    def function(*given):
        return sample.run(list(given))

    compiled = flow.compile(function)
    wanted = results(function)
    try:
        for _ in range(2):
            assert_same(results(compiled), wanted)
    except OnefoldRuntimeError as error:
        if "the value of a tensor was asked for" not in str(error):
            raise


# What goes in and out.

Pair = namedtuple("Pair", "left right")


def test_trees(world):
    def function(x, pair, *, scale, options):
        y = {"sum": pair.left + x, "pair": Pair(x * scale, [pair.right, None, "text", x.shape])}
        return y, options["w"] * x if options["on"] else x

    compiled = flow.compile(function)
    x, a, b, w = (tensor(3, seed=i) for i in range(4))
    for scale, on in ((2.0, True), (3.0, True), (2.0, False), (2.0, True)):
        given = (x, Pair(a, b)), {"scale": scale, "options": {"on": on, "w": w}}
        (ours, last), (theirs, other) = (f(*given[0], **given[1]) for f in (compiled, function))
        assert list(ours) == list(theirs)
        assert type(ours["pair"]) is Pair
        assert ours["pair"].right[0] is b
        assert ours["pair"].right[1:] == [None, "text", (3,)]
        assert_same([bits(ours["sum"]), bits(last)], [bits(theirs["sum"]), bits(other)])
        assert (last is x) is not on
    assert len(compiled._entries) == 3


def two_views(x):
    return x.t(), x[0]


CASES = {
    "an input": (lambda x, y: (x, y * x), True),
    "an input as it is": (lambda x, y: (x * 2, x), True),
    "twice": (lambda x, y: 2 * (x * y,), True),
    "no gradient": (lambda x, y: (x * y, (x > 0), x.detach() + 1), True),
    "no output with a gradient": (lambda x, y: x.detach() * 2, True),
    "an unused input": (lambda x, y: y * 3, True),
    "nothing": (lambda x, y: None, True),
    "a named tuple": (lambda x, y: tuple((x * y).max(1)), True),
    "a view": (lambda x, y: (x.t(), x[0] * 2, y[1:]), True),
    "a detached view": (lambda x, y: (x.detach(), y.detach()[0], x * y), True),
    "two views of one": (lambda x, y: two_views(x * y), True),
    "chunks": (lambda x, y: x.chunk(2), True),
    "no_grad inside": (lambda x, y: flow.no_grad(lambda: x * 2)() * y, True),
    "the gradient of a gradient": (
        lambda x, y: flow.autograd.grad((x**3 * y).sum(), x, create_graph=True)[0],
        True,
    ),
    "a random mask": (lambda x, y: F.dropout(x * y, 0.5) + flow.rand(4, 4), True),
    "constants": (lambda x, y: x * flow.arange(4) + flow.ones(4), True),
    "a change": (lambda x, y: x.clone().mul_(y).add_(1), True),
    "a changed input": (lambda x, y: (x.add_(1), x * y), False),
    "a changed view of an input": (lambda x, y: x[0].mul_(2) * y, False),
    "an input changed with history": (lambda x, y: x.mul_(y), "y"),
    "an input saved and changed": (lambda x, y: (x * y, x.zero_())[0], None),
    "a checkpoint": (
        lambda x, y: flow.checkpoint.checkpoint(lambda x: F.dropout(x.exp() * y, 0.3), x).sin(),
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name, world):
    function, grad = CASES[name]
    grads = {True: (True, True), False: (False, True), "y": (False, True), None: (False, False)}

    def make():
        return [tensor(4, 4, seed=i, grad=g) for i, g in enumerate(grads[grad])]

    assert_equals_eager(function, make, calls=3)


def test_one_tensor_twice(world):
    def function(x, y):
        return (x * y + x).sum()

    compiled = flow.compile(function)
    for run in (function, compiled):
        x = tensor(3)
        run(x, x).backward()
        np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy() + 1, rtol=1e-6)
    compiled(tensor(3), tensor(3, seed=1))
    assert len(compiled._entries) == 2


def test_results_are_written_as_in_eager(world):
    """A view of an argument changes with it; what was computed belongs to nobody else."""

    def function(x):
        y = x * 2
        return x.t(), y, y

    x = tensor(2, 3, grad=False)
    compiled = flow.compile(function)
    for _ in range(2):
        view, y, same = compiled(x)
        assert y is same
        view[0].zero_()
        y.zero_()
        assert x[:, 0].tolist() == [0, 0]
        assert compiled(x)[1].sum().item() == (x * 2).sum().item()


def test_changed_arguments_that_overlap(world):
    compiled = flow.compile(lambda x, y: x.add_(1) + y)
    x = flow.zeros(2, 2)
    with pytest.raises(OnefoldRuntimeError, match="a view of another argument"):
        compiled(x, x[0])
    assert x.sum().item() == 0
    compiled(x, flow.ones(2))
    assert x.sum().item() == 4


# What is read from outside.


def test_tensors_from_outside_are_read_at_every_call(world):
    w, total = tensor(3), flow.zeros(())
    constants = {"scale": 2.0}

    def function(x):
        total.add_(1)
        return (x * w * constants["scale"]).sum()

    compiled = flow.compile(function)
    x = tensor(3, seed=1, grad=False)
    for step in range(4):
        if step == 3:
            constants["scale"] = 4.0  # it is captured again
        assert compiled(x).item() == (x * w * constants["scale"]).sum().item()
        with flow.no_grad():
            w.add_(1)
        assert total.item() == step + 1
    assert len(compiled._entries) == 2
    w = tensor(3, seed=2)  # another tensor of this name
    loss = compiled(x)
    loss.backward()
    assert loss.item() == (x * w * 4.0).sum().item()
    assert w.grad is not None
    w = w.detach()
    assert not compiled(x).requires_grad


@pytest.mark.parametrize("layout", [{}, {"placement": PAIR, "sbp": S0}], ids=["local", "global"])
def test_names_that_stand_for_other_tensors(layout, world):
    """A training in which every step makes new weights captures once."""
    found = []
    for compiles in (False, True):
        w, b = tensor(4, 2, **layout), tensor(2, seed=1, **layout)
        calls = []

        def loss_of(x, calls=calls):
            calls.append(x)
            return (flow.tanh(x @ w + b) ** 2).sum() + b.sum(), w  # noqa: B023

        run = flow.compile(loss_of) if compiles else loss_of
        found.append([])
        for step in range(4):
            loss, same = run(tensor(3, 4, seed=step, grad=False, **layout))
            assert same is w
            dw, db = flow.autograd.grad(loss, [w, b])
            found[-1] += map(bits, (loss, dw, db))
            w = (w - 0.1 * dw).detach().requires_grad_()
            b = (b - 0.1 * db).detach().requires_grad_()
        assert len(calls) == (1 if compiles else 4)
    assert_same(*found)


def test_programs_do_not_hold_the_first_arguments(world):
    w = tensor(3)
    compiled = flow.compile(lambda x, scale: (x * w).sum() * scale["by"])
    x = tensor(3)
    compiled(x, {"by": 2.0}).backward()
    gone = weakref.ref(x)
    x = tensor(3)
    compiled(x, {"by": 2.0}).backward()
    assert len(compiled._entries) == 1
    gc.collect()
    assert gone() is None


def test_a_tensor_from_outside_that_was_computed(world):
    results = []
    for compiles in (False, True):
        x = tensor(3)
        h = x.exp()
        h.register_hook(lambda dh: dh * 2)

        def function(y, h=h):
            return (h * y * h).sum()

        run = flow.compile(function) if compiles else function
        run(tensor(3, seed=1)).backward()
        results.append([bits(x.grad)])
    assert_same(*results)


def test_hooks_of_parameters_run_once(world):
    model = flow.compile(nn.Linear(3, 2))
    seen = []
    model.weight.register_hook(lambda dw: seen.append(dw.shape))
    model.weight.register_post_accumulate_grad_hook(lambda w: seen.append("added"))
    for _ in range(2):
        model(tensor(4, 3)).sum().backward()
    assert seen == [(2, 3), "added"] * 2


# Modes.


def test_grad_modes(world):
    calls = []

    @flow.compile
    def function(x):
        calls.append(flow.is_grad_enabled())
        return x * 2

    x = tensor(3)
    for _ in range(2):
        assert function(x).requires_grad
        with flow.no_grad():
            assert not function(x).requires_grad
        with flow.inference_mode():
            assert not function(x.detach()).requires_grad
    assert calls == [True, False, False]
    assert function.backward_program is None or function.program is not None


@pytest.mark.parametrize("layout", [{}, {"placement": PAIR, "sbp": B}], ids=["local", "global"])
def test_autocast(layout, world):
    found = []
    for compiles in (False, True, True):
        flow.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8, **layout), nn.GELU(), nn.Linear(8, 2, **layout))
        run = flow.compile(model) if compiles else model
        x = tensor(3, 4, **layout)
        with flow.autocast("cpu"):
            y = run(x)
        assert y.dtype is flow.bfloat16
        y.float().sum().backward()
        z = run(x)
        assert z.dtype is flow.float32
        found.append([bits(t) for t in (y, z, x.grad, *[p.grad for p in model.parameters()])])
    assert_same(found[1], found[0])
    assert_same(found[2], found[0])


def test_profiles_show_programs(world):
    model = nn.Linear(3, 2)
    compiled = flow.compile(model)
    x = tensor(4, 3)
    compiled(x).sum().backward()
    wanted = bits(x.grad)
    x.grad = None
    with flow.profiler.profile() as prof, flow.autocast("cpu", enabled=False):
        compiled(x).sum().backward()
    assert "linear" in prof.key_averages().table()
    assert_same([bits(x.grad)], [wanted])
    assert len(compiled._compiled._entries) == 1


def test_saved_tensors_hooks_and_retain_graph(world):
    packed = []

    @flow.compile
    def function(x):
        return (x.exp() * x).sum()

    x = tensor(3)
    with flow.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = function(x)
    assert packed
    y.backward(retain_graph=True)
    first = x.grad.numpy().copy()
    y.backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * first)
    with pytest.raises(AutogradError, match="a second time"):
        y.backward()


def test_inside_a_checkpoint(world):
    def function(x):
        return F.dropout(x.exp(), 0.5)

    compiled = flow.compile(function)
    found = []
    for run in (function, compiled, compiled):
        flow.manual_seed(1)
        x = tensor(8)
        y = flow.checkpoint.checkpoint(run, x)
        y.sum().backward()
        found.append([bits(y), bits(x.grad)])
    assert_same(found[1], found[0])
    assert_same(found[2], found[0])


def test_masks_of_several_calls_before_their_backwards(world):
    def function(x):
        return F.dropout(x, 0.5)

    compiled = flow.compile(function)
    x = tensor(50)
    first, second = compiled(x), compiled(x)
    assert first.tolist() != second.tolist()
    for y in (second, first):
        (dx,) = flow.autograd.grad(y.sum(), x)
        assert (dx * x).tolist() == y.tolist()


def test_a_change_between_forward_and_backward_is_an_error(world):
    x = tensor(3)
    y = flow.compile(lambda x: (x * x).sum())(x)
    with flow.no_grad():
        x.add_(1)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        y.backward()


# Modules.


class Net(nn.Module):
    def __init__(self, **layout):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8, **layout), nn.BatchNorm1d(8, **layout))
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(8, 3, **layout)
        self.calls = 0

    def forward(self, x, scale=1.0):
        self.calls += 1
        return self.head(self.dropout(flow.relu(self.body(x)))) * scale


@pytest.mark.parametrize("layout", [{}, {"placement": PAIR, "sbp": B}], ids=["local", "global"])
@pytest.mark.parametrize("form", ["module", "function"])
def test_training(form, layout, world):
    """Losses, parameters, gradients and running statistics of a training, and of evaluation."""
    given = {**layout, "sbp": S0} if layout else {}
    found = []
    for compiles in (False, True):
        flow.manual_seed(0)
        model = Net(**layout)
        optimizer = flow.optim.AdamW(model.parameters(), lr=0.01)

        def function(x, scale, model=model):
            return model(x, scale)

        run = flow.compile(model if form == "module" else function) if compiles else model
        found.append([])
        for step in range(4):
            model.train()
            loss = run(tensor(6, 4, seed=step, **given), 0.5).square().mean()
            loss.backward()
            optimizer.step()
            found[-1] += [bits(loss), *[bits(p.grad) for p in model.parameters()]]
            optimizer.zero_grad()
            model.eval()
            with flow.no_grad():
                found[-1].append(bits(run(tensor(6, 4, seed=step, **given), 0.5)))
        found[-1] += [bits(t) for t in (*model.parameters(), *model.buffers())]
        if compiles:
            entries = (run._compiled if form == "module" else run)._entries
            assert len(entries) == 2
            assert model.calls == 2
    assert_same(*found)


def test_a_compiled_module_is_the_module(world):
    model = Net()
    compiled = flow.compile(model)
    assert isinstance(compiled, nn.Module)
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert all(a is b for a, b in zip(compiled.parameters(), model.parameters(), strict=True))
    assert compiled.body is model.body
    compiled.eval()
    assert not model.training
    assert not model.body.training
    model.train()
    assert compiled.training
    assert next(nn.Sequential(compiled).named_parameters())[0] == "0.body.0.weight"
    assert repr(compiled) == repr(model).replace("Net(", "CompiledNet(")
    other = copy.deepcopy(compiled)
    assert other.head is not model.head
    x = tensor(3, 4)
    compiled.eval()
    assert_same([bits(compiled(x)), bits(other.eval()(x))], [bits(model(x))] * 2)
    compiled.load_state_dict(Net().state_dict())
    assert_same([bits(compiled(x))], [bits(model(x))])
    model.head = nn.Linear(8, 5)
    assert compiled(x).shape == (3, 5)


def test_forms_of_the_decorator(world):
    @flow.compile
    def plain(x):
        """Twice x."""
        return x * 2

    @flow.compile(fullgraph=True, dynamic=False, mode="max-autotune", backend="inductor")
    def with_options(x):
        return x * 2

    assert plain.__name__ == "plain"
    assert plain.__doc__ == "Twice x."
    assert plain(flow.ones(2)).tolist() == with_options(flow.ones(2)).tolist() == [2, 2]

    def function(x):
        return x

    assert flow.compile(function, disable=True) is function
    assert flow.compile(disable=True)(function) is function

    class Scaled:
        def __init__(self):
            self.scale = 3.0

        @flow.compile
        def method(self, x):
            return x * self.scale

    scaled = Scaled()
    assert scaled.method(flow.ones(1)).item() == 3
    scaled.scale = 4.0
    assert scaled.method(flow.ones(1)).item() == 4
    bound = flow.compile(scaled.method)
    assert bound(flow.ones(1)).item() == 4
    assert copy.deepcopy(plain)(flow.ones(2)).tolist() == [2, 2]


@needs_this_torch
def test_the_signature_is_torchs():
    ours, theirs = inspect.signature(flow.compile), inspect.signature(torch.compile)
    assert [(p.name, p.kind, p.default) for p in ours.parameters.values()] == [
        (p.name, p.kind, p.default) for p in theirs.parameters.values()
    ]


def test_the_latest_programs_are_kept(world):
    calls = []

    @flow.compile(recompile_limit=2)
    def function(x):
        calls.append(x.shape)
        return x + 1

    for size in (1, 2, 1, 3, 1, 2):
        assert function(flow.zeros(size)).tolist() == [1] * size
    assert calls == [(1,), (2,), (3,), (2,)]


def test_captures_in_most_calls_are_a_warning(world):
    scale = flow.compile(lambda x, factor: x * factor, recompile_limit=3)
    calls = iter(range(100))

    def repeat(call, count):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(count):
                call(next(calls))

    repeat(lambda n: scale(flow.ones(2), n / 8), 12)
    with pytest.warns(flow.RecaptureWarning, match=r"13 times, .* '1.375' is '1.5'.* flow.tensor"):
        scale(flow.ones(2), 1.5)
    repeat(lambda n: scale(flow.ones(2), n / 8), 12)  # only once
    repeat(lambda n: scale(flow.ones(2), flow.tensor(n / 8)), 20)

    rows = flow.compile(lambda x: x + 1)
    repeat(lambda n: rows(flow.ones(n)), 19)
    with pytest.warns(flow.RecaptureWarning, match=r"20 times, .*float32\[99\] cpu, at .*pad inp"):
        rows(flow.ones(99))

    numbers = [0]
    closure = flow.compile(lambda x: x + numbers[0], recompile_limit=1)

    def change(n):
        numbers[0] = n
        closure(flow.ones(2))

    repeat(change, 10)
    with pytest.warns(flow.RecaptureWarning, match="11 times, .* names outside of it refer to"):
        change(-1)

    layer = flow.compile(nn.Linear(2, 2), recompile_limit=1)
    repeat(lambda n: layer(flow.ones(n + 1, 2)), 10)
    with pytest.warns(flow.RecaptureWarning, match="11 times, .* an input was .* pad inputs"):
        layer(flow.ones(99, 2))

    graph = nn.Graph.trace(lambda x: x + 1)
    calls = iter(range(100))
    repeat(lambda n: graph(flow.ones(n)), 19)
    with pytest.warns(flow.RecaptureWarning, match="20 times, .*with_dynamic_input_shape"):
        graph(flow.ones(99))


def test_inside_other_programs(world):
    inner = flow.compile(lambda x: x * 2)
    outer = flow.compile(lambda x: inner(x) + 1)
    assert outer(flow.ones(2)).tolist() == [3, 3]
    graph = nn.Graph.trace(lambda x: inner(x) + 1)
    assert graph(flow.ones(2)).tolist() == [3, 3]
    assert flow.vmap(inner)(flow.ones(3, 2)).tolist() == [[2, 2]] * 3
    assert flow.func.grad(lambda x: inner(x).sum())(flow.ones(2)).tolist() == [2, 2]


def test_threads(world):
    """The first calls of several threads capture once; masks are those of their own backwards."""
    compiled = flow.compile(lambda x: F.dropout(x, 0.5))
    failed = []

    def work():
        x = tensor(20)
        for _ in range(20):
            y = compiled(x)
            (dx,) = flow.autograd.grad(y.sum(), x)
            if (dx * x).tolist() != y.tolist():
                failed.append(y)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failed
    assert len(compiled._entries) == 1


# Errors.

ERRORS = {
    "a value": (lambda x: x.sum().item(), "value of a tensor was asked for.*flow.compile"),
    "a branch": (lambda x: x if x.sum() > 0 else -x, "value of a tensor was.*flow.compile"),
    "backward": (lambda x: x.sum().backward(), "backward\\(\\) is a part of a training.*nn.Graph"),
    "a new leaf": (lambda x: flow.ones(2, requires_grad=True), "a leaf that it made"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name, world):
    function, text = ERRORS[name]
    x = tensor(2)
    with pytest.raises(OnefoldRuntimeError, match=text):
        flow.compile(function)(x)
    assert x.grad is None


def test_a_whole_step_names_graphs(world):
    model = nn.Linear(3, 1)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
    model(tensor(2, 3)).sum().backward()
    before = [bits(t) for p in model.parameters() for t in (p, p.grad)]

    def step(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    with pytest.raises(OnefoldRuntimeError, match=r"at test_compile.py:\d+ in step.*nn.Graph"):
        flow.compile(step)(tensor(2, 3))
    assert_same([bits(t) for p in model.parameters() for t in (p, p.grad)], before)


def test_second_gradients_are_an_error(world):
    x = tensor(3)
    (dx,) = flow.autograd.grad(flow.compile(lambda x: (x**3).sum())(x), x, create_graph=True)
    with pytest.raises(AutogradError, match=r"first gradients only.*disable=True"):
        dx.sum().backward()


def test_bad_arguments(world):
    for named, text in (
        ({"backend": "other"}, "no backend 'other'"),
        ({"mode": "fast"}, "mode must be one of"),
        ({"recompile_limit": 0}, "recompile_limit"),
    ):
        with pytest.raises(OnefoldValueError, match=text):
            flow.compile(lambda x: x, **named)
    with pytest.raises(OnefoldTypeError, match="a function or a module"):
        flow.compile(3)
    with pytest.raises(OnefoldTypeError, match="from_torch"):
        flow.compile(lambda x: x)(torch.ones(2))


def test_a_module_may_not_be_changed(world):
    class Changing(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", flow.zeros(2))

        def forward(self, x):
            self.mean = self.mean + x
            return x

    model = Changing()
    with pytest.raises(OnefoldRuntimeError, match=r"assigned .*mean"):
        flow.compile(model)(flow.ones(2))
    assert model.mean.tolist() == [0, 0]


# Memory.


def test_what_is_saved(world):
    """Values that backward reads, and neither arguments nor parameters a second time."""
    w = tensor(3, 3)
    function = flow.compile(lambda x: flow.relu(x @ w).sum())
    function(tensor(2, 3)).backward()
    assert len(function.program.outputs) == 2  # the sum, and the result of relu
    names = [repr(value) for value in function.backward_program.inputs]
    assert names[-1] == "%gradient.0"
    assert len(names) == 4


def test_nothing_is_held_after_backward(world):
    function = flow.compile(lambda x: (x.exp() * 2).sum())
    x = tensor(3)
    function(x).backward()
    gc.collect()
    gc.disable()
    try:
        y = function(x)
        node = weakref.ref(y.node.node)
        saved = weakref.ref(node().args[1])
        y.backward()
        assert saved() is None
        del y
        assert node() is None
    finally:
        gc.enable()


def test_two_processes(world):
    def train():
        flow.manual_seed(0)
        pair = flow.placement("cpu", [0, 1])
        model = Net(placement=pair, sbp=B)
        results = []
        for run in (model, flow.compile(model)):
            flow.manual_seed(1)
            model.zero_grad()
            for step in range(2):
                y = run(tensor(6, 4, seed=step, placement=pair, sbp=S0))
                y.square().mean().backward()
            results.append([y.numpy(), *[p.grad.numpy() for p in model.parameters()]])
        return [np.array_equal(a, b) for a, b in zip(*results, strict=True)]

    for equal in run_ranks(2, train):
        assert all(equal)

"""vmap calls a function once for all rows, or for each row where it must: with the same results."""

import contextlib

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils._pytree import tree_leaves
from vmap_checks import Calls, by_rows

import onefold as flow
from onefold.engine import dispatch_plan
from onefold.func import batching_rules

F = flow.nn.functional


class Squared(flow.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * 2 * x


class World:
    """Tensors that functions read, and may change."""

    def __init__(self):
        flow.manual_seed(0)
        self.x = flow.randn(3, 4, dtype=flow.float64, requires_grad=True)
        self.y = flow.randn(3, 4, dtype=flow.float64)
        self.w = flow.randn(4, 2, dtype=flow.float64, requires_grad=True)
        self.b = flow.randn(4, dtype=flow.float64)
        self.i = flow.tensor([0, 2, 1])
        self.generator = flow.Generator().manual_seed(3)

    def state(self):
        tensors = [vars(self)[name].detach().numpy().copy() for name in "xywbi"]
        gradients = [None if t.grad is None else t.grad.numpy() for t in (self.x, self.w, self.b)]
        return tensors, gradients, flow.get_rng_state(), self.generator.get_state()


AT_ONCE, FOR_EACH = {}, {}  # functions of the world


def at_once(function):
    AT_ONCE[function.__name__] = function
    return function


def for_each(function):
    FOR_EACH[function.__name__] = function
    return function


@for_each
def write_an_argument(m):
    return flow.vmap(lambda row: row.add_(1))(m.y)


@for_each
def write_a_part_of_an_argument(m):
    def f(row):
        row[0] = 7.0
        return row * 2

    return flow.vmap(f)(m.y)


@for_each
def write_a_tensor_from_outside(m):
    return flow.vmap(lambda row: m.b.add_(row).sum())(m.y)


@for_each
def write_a_view_of_a_tensor_from_outside(m):
    def f(row):
        m.b[1:].mul_(2)
        return row + m.b

    return flow.vmap(f)(m.y)


@at_once
def write_what_it_made(m):
    def f(row):
        made = flow.zeros(4, dtype=flow.float64)
        made[1:3] = row[:2]
        made.mul_(3)
        made[0].fill_(2.0)
        made.view(2, 2)[1].add_(row[3])
        return made

    return flow.vmap(f)(m.x)


@at_once
def write_by_mask_and_index(m):
    def f(row, i):
        made = row * 1
        made[row > 0] = 0.0
        made[i] = 5.0
        return made

    return flow.vmap(f)(m.x, m.i)


@at_once
def write_in_place_in_a_layer(m):
    return flow.vmap(lambda row: F.relu(row * 2, inplace=True))(m.x)


@for_each
def write_off_the_tape(m):
    def f(row):
        made = row * 2
        with flow.no_grad():
            made.mul_(2)
        return (made * made).sum()

    return flow.vmap(f)(m.x)


@for_each
def write_the_data(m):
    def f(row):
        made = row * 2
        made.data.mul_(2)
        return made.sin().sum()

    return flow.vmap(f)(m.x)


@for_each
def set_a_gradient(m):
    def f(row):
        m.b.grad = row * 1
        return row

    return flow.vmap(f)(m.y)


@for_each
def call_backward(m):
    def f(row):
        (row @ m.w).sum().backward()
        return row

    return flow.vmap(f)(m.y)


@at_once
def read_a_value_that_all_rows_have(m):
    return flow.vmap(lambda row: row * float(m.b.sum()) if bool(row.sum() < 99) else row)(m.y)


@for_each
def read_a_value(m):
    return flow.vmap(lambda row: row * row.sum().item())(m.y)


@for_each
def branch(m):
    return flow.vmap(lambda row: row * 2 if bool(row.sum() > 0) else row - 1)(m.y)


@for_each
def swallow_the_error(m):
    def f(row):
        with contextlib.suppress(RuntimeError):
            return row * row.sum().item()
        return row * 0

    return flow.vmap(f)(m.y)


@at_once
def index_by_a_row(m):
    return flow.vmap(lambda row, i: row[i])(m.x, m.i)


@at_once
def gradients_inside(m):
    return flow.vmap(flow.func.grad(lambda row: (row @ m.w).sin().sum()))(m.x)


@at_once
def gradients_outside(m):
    return flow.func.grad(lambda w: flow.vmap(lambda row: (row @ w).tanh().sum())(m.y).sum())(m.w)


@at_once
def gradients_of_gradients(m):
    def loss(w):
        return flow.vmap(flow.func.grad(lambda row: (row @ w).sin().sum()))(m.y).square().sum()

    return flow.func.grad(loss)(m.w)


@at_once
def autograd_grad_for_what_is_outside(m):
    def f(row):
        return flow.autograd.grad((row @ m.w).sin().sum(), m.w, create_graph=True)[0]

    return flow.vmap(f)(m.x)


@for_each
def autograd_grad_beyond_the_arguments(m):
    def f(row):
        return flow.autograd.grad((row * row).sum(), m.x, create_graph=True)[0]

    return flow.vmap(f)(m.x)


@at_once
def a_tape_from_outside_that_is_kept(m):
    made = m.w.sin()
    return flow.vmap(lambda r: flow.autograd.grad((r @ made).sum(), m.w, retain_graph=True)[0])(m.y)


@at_once
def hessians(m):
    return flow.vmap(flow.func.hessian(lambda row: (row**3).sum() * row[0]))(m.x)


@at_once
def jvps(m):
    def f(row, tangent):
        return flow.func.jvp(lambda row: row.sin() * row.sum(), (row,), (tangent,))

    return flow.vmap(f)(m.x, m.y)


@at_once
def nested(m):
    return flow.vmap(lambda a: flow.vmap(lambda b: (a * b).sum() * m.w.sum())(m.y))(m.x)


@at_once
def nested_with_gradients(m):
    def f(a):
        return flow.vmap(lambda b: (a * b).sin().sum())(m.y).sum()

    return flow.vmap(flow.func.grad(f))(m.x)


@for_each
def nested_write(m):
    def f(a):
        total = flow.zeros(4, dtype=flow.float64)
        flow.vmap(lambda b: total.add_(b).sum())(m.y)
        return total * a

    return flow.vmap(f)(m.x)


@for_each
def draw_the_same(m):
    return flow.vmap(lambda row: F.dropout(row, 0.5), randomness="same")(m.y)


@for_each
def draw_from_a_generator(m):
    def f(row):
        return row + flow.rand(4, generator=m.generator)

    return flow.vmap(f, randomness="different")(m.y)


@for_each
def a_function_with_a_gradient_of_its_own(m):
    return flow.vmap(lambda row: Squared.apply(row).sum())(m.x)


@for_each
def a_function_of_what_is_outside(m):
    return flow.vmap(lambda row: (Squared.apply(m.w) * row[0]).sum())(m.y)


@at_once
def gradients_of_a_function(m):
    return flow.vmap(flow.func.grad(lambda row: Squared.apply(row).sum()))(m.y)


@for_each
def a_hook(m):
    def f(row):
        made = row * 2
        made.register_hook(lambda gradient: gradient * 3)
        return made.sin()

    return flow.vmap(f)(m.x)


@at_once
def a_hook_of_a_gradient_inside(m):
    def f(row):
        made = row * 2
        made.register_hook(lambda gradient: gradient * 3)
        return made.sin().sum()

    return flow.vmap(flow.func.grad(f))(m.y)


@for_each
def a_checkpoint(m):
    return flow.vmap(lambda row: flow.checkpoint.checkpoint(lambda r: (r @ m.w).sin(), row))(m.x)


@for_each
def batch_norm_that_trains(m):
    layer = flow.nn.BatchNorm1d(4, dtype=flow.float64)
    rows = flow.arange(2.0, dtype=flow.float64).view(2, 1)
    made = flow.vmap(lambda row: layer(row.expand(2, 4) * rows))(m.y)
    return made.detach(), layer.running_mean, layer.running_var, layer.num_batches_tracked


@at_once
def results_have_memory_of_their_own(m):
    def f(row):
        made = row * 2
        return row, row[1:], made, made

    found = flow.vmap(f)(m.y)
    found[0].add_(1)
    found[1].add_(2)
    found[2].add_(3)
    return found


@at_once
def results_of_no_row(m):
    return flow.vmap(lambda row: (m.b, m.b * 2, row), out_dims=(0, None, 1))(m.y)


@at_once
def a_distribution_that_checks_its_parameters(m):
    return flow.vmap(lambda row: flow.distributions.Normal(row, 1.0).log_prob(row * 2))(m.x)


@at_once
def dtypes_of_scalars(m):
    narrow = m.y.float()
    return flow.vmap(lambda s, row: (s * row, row**s, s + 1))(m.y[:, 0].abs(), narrow)


@at_once
def a_compiled_function(m):
    return flow.vmap(flow.compile(lambda row: (row * 2).sin()))(m.y)


@at_once
def in_a_compiled_function(m):
    return flow.compile(flow.vmap(lambda row: (row @ m.w).sin().sum()))(m.x)


def run(function):
    """The results of a function, gradients through them, and the state that it leaves."""
    world = World()
    found = [x for x in tree_leaves(function(world)) if isinstance(x, flow.Tensor)]
    values = [x.detach().numpy().copy() for x in found]
    flags = [x.requires_grad for x in found]
    ends = [x for x in found if x.requires_grad]
    if ends:
        sum((x * x.detach().sin()).sum() for x in ends).backward()
    return [values, flags, world.state()]


def same(found, wanted):
    found, wanted = tree_leaves(found), tree_leaves(wanted)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        if isinstance(other, np.ndarray):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            tol = 1e-5 if other.dtype == np.float32 else 1e-9
            np.testing.assert_allclose(one, other, rtol=tol, atol=tol)
        else:
            assert one == other


@pytest.mark.parametrize("name", [*AT_ONCE, *FOR_EACH])
def test_functions_give_what_a_call_for_each_row_gives(name):
    function = (AT_ONCE | FOR_EACH)[name]
    with by_rows():
        wanted = run(function)
    with Calls() as calls:
        found = run(function)
    same(found, wanted)
    assert bool(calls.refusals) is (name in FOR_EACH), calls.refusals
    assert not calls.looped


# Networks, against torch.


def network(lib, kind):
    nn = lib.nn
    if kind == "mlp":
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    if kind == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, stride=2, groups=2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4, 3),
        )  # fmt: skip

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(6, 8)
            self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)
            self.mix, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
            self.wide, self.narrow = nn.Linear(8, 16), nn.Linear(16, 8)
            self.head = nn.Linear(8, 3)

        def forward(self, tokens):
            x = self.table(tokens)
            count, length, width = x.shape
            parts = self.mix(self.first(x)).reshape(count, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
            attend = lib.nn.functional.scaled_dot_product_attention
            seen = attend(*parts.unbind(0), is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(count, length, width))
            x = x + self.narrow(lib.nn.functional.gelu(self.wide(self.second(x))))
            return self.head(x.mean(1))

    return Block()


def inputs(kind, rows):
    generator = torch.Generator().manual_seed(0)
    if kind == "block":
        return torch.randint(0, 6, (rows, 5), generator=generator)
    shape = (5,) if kind == "mlp" else (1, 12, 12)
    return torch.randn(rows, *shape, generator=generator, dtype=torch.float64)


def both(kind, count):
    """As many networks with the same parameters, in torch and here."""
    theirs = [network(torch, kind).double() for _ in range(count)]
    mine = [network(flow, kind).double() for _ in range(count)]
    for one, other in zip(mine, theirs, strict=True):
        one.load_state_dict({name: flow.tensor(x) for name, x in other.state_dict().items()})
    return theirs, mine


def close(found, wanted):
    found, wanted = tree_leaves(found), tree_leaves(wanted)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), 1e-6, 1e-9)


KINDS = ("mlp", "cnn", "block")


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own
@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_samples_are_torchs(kind, ensemble):
    (theirs, *more), (mine, *others) = both(kind, 4 if ensemble else 1)
    x, y = inputs(kind, 4), torch.tensor([0, 2, 1, 1])
    found = []
    for lib, model, rest, rows in (
        (torch, theirs, more, (x, y)),
        (flow, mine, others, (flow.tensor(x), flow.tensor(y))),
    ):
        params = {name: p.detach() for name, p in model.named_parameters()}
        if ensemble:
            classes = [type(model)] * len(rest)
            for one, kept in zip(rest, classes, strict=True):
                one.__class__ = kept  # each call of `network` makes a class
            stacked, _ = lib.func.stack_module_state([model, *rest])
            params = {name: p.detach() for name, p in stacked.items()}

        def loss(params, x, y, lib=lib, model=model):
            out = lib.func.functional_call(model, params, (x[None],))
            return lib.nn.functional.cross_entropy(out, y[None])

        dims = (0 if ensemble else None, 0, 0)
        with Calls() as calls:
            found.append(lib.vmap(lib.func.grad(loss), dims)(params, *rows))
        assert not calls.looped and not calls.refusals
    close(found[1], found[0])


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("kind", KINDS)
def test_ensembles_are_torchs(kind):
    theirs, mine = both(kind, 3)
    x = inputs(kind, 2)
    found = []
    for lib, models, batch in ((torch, theirs, x), (flow, mine, flow.tensor(x))):
        for model in models:
            model.__class__ = models[0].__class__
        params, buffers = lib.func.stack_module_state(models)

        def call(params, buffers, x, lib=lib, model=models[0]):
            return lib.func.functional_call(model, (params, buffers), (x,))

        with Calls() as calls:
            made = lib.vmap(call, (0, 0, None))(params, buffers, batch)
        assert not calls.looped and not calls.refusals
        made.square().sum().backward()
        found.append((made, {name: p.grad for name, p in params.items()}))
    close(found[1], found[0])


# Kernels of Gaussian processes: all pairs of rows.
PAIRS = {
    "dot": lambda lib: lambda a, b: (a * b).sum(),
    "rbf": lambda lib: lambda a, b: lib.exp(-0.5 * ((a - b) ** 2).sum()),
    "distance": lambda lib: lambda a, b: lib.linalg.norm(a - b),
    "periodic": lambda lib: lambda a, b: lib.exp(-(lib.sin((a - b).abs() * 3).square()).sum()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_all_pairs_are_torchs(name):
    x, y = torch.randn(4, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    found = []
    for lib, points in ((torch, (x, y)), (flow, (flow.tensor(x), flow.tensor(y)))):
        f = PAIRS[name](lib)
        with Calls() as calls:
            pairs = lib.vmap(lib.vmap(f, (None, 0)), (0, None))
            slopes = lib.vmap(lib.vmap(lib.func.grad(f), (None, 0)), (0, None), 2)
            found.append((pairs(*points), slopes(*points)))
        assert not calls.looped and not calls.refusals
    close(found[1], found[0])


# Dims.

SHAPE = (2, 3, 4)


@st.composite
def dims(draw):
    """in_dims of two tensors, None for one at most, and out_dims of three results."""
    first = draw(st.one_of(st.none(), st.integers(-3, 2)))
    second = draw(st.integers(-3, 2) if first is None else st.one_of(st.none(), st.integers(-3, 2)))
    return (first, second), tuple(draw(st.integers(-2, 1)) for _ in range(3))


def tensor_with(dim, rows, seed):
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if dim is None:
        return x[0].contiguous()
    kept = [2, 4]
    kept.insert(dim % 3, rows)
    return torch.randn(kept, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@hypothesis.settings(deadline=None, max_examples=40)
@given(dims(), st.integers(1, 4), st.sampled_from([None, 1, 2, 3]))
def test_dims_are_torchs(drawn, rows, chunk_size):
    in_dims, out_dims = drawn

    def f(a, b):
        a, b = a.reshape(-1)[:8], b.reshape(-1)[:8]
        return a * b, a.sum() + b, (a.cos() - b).cumsum(0)

    args = [tensor_with(dim, rows, seed) for seed, dim in enumerate(in_dims)]
    options = {"in_dims": in_dims, "out_dims": out_dims, "chunk_size": chunk_size}
    wanted = torch.func.vmap(f, **options)(*args)
    with Calls() as calls:
        found = flow.vmap(f, **options)(*map(flow.tensor, args))
    close(found, wanted)
    assert not calls.refusals and not calls.looped
    for y in found:
        assert y.is_contiguous()


@hypothesis.settings(deadline=None, max_examples=25)
@given(st.permutations(range(3)), st.integers(0, 2), st.booleans())
def test_nested_dims_are_torchs(order, depth, inner_none):
    x = torch.randn(SHAPE, dtype=torch.float64).permute(order)
    y = torch.randn(x.shape[1], dtype=torch.float64)
    found = []
    for lib, a, b in ((torch, x, y), (flow, flow.tensor(x), flow.tensor(y))):
        f = lib.vmap(lambda a, b: (a * b).sin().sum(), (-1, None))
        if depth:
            f = lib.vmap(f, (0, None if inner_none else 0))
            a, b = (a.transpose(0, 1), b) if inner_none else (a, b.reshape(1, -1)[0])
        if inner_none:
            b = b[0]
        elif depth:
            a = a.transpose(0, 1)
        found.append(f(a, b) if depth or inner_none else f(a, b[0]))
    close(found[1], found[0])


# Layouts.

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum


@pytest.mark.parametrize("sbp", [S(0), S(1), B, P])
def test_layouts_of_networks(world, sbp):
    p = flow.placement("cpu", [0, 1])
    x = torch.randn(4, 6, dtype=torch.float64)
    w = torch.randn(6, 3, dtype=torch.float64)

    def loss(lib):
        return lambda w, x: lib.nn.functional.softmax((x @ w).tanh(), 0).square().sum()

    wanted = torch.func.vmap(torch.func.grad(loss(torch)), (None, 0))(w, x)
    args = flow.tensor(w, placement=p, sbp=B), flow.tensor(x, placement=p, sbp=sbp)
    with Calls() as calls:
        found = flow.vmap(flow.func.grad(loss(flow)), (None, 0))(*args)
    assert not calls.refusals and not calls.looped
    close(found, wanted)


def test_split_rows_stay_where_they_are(world):
    p = flow.placement("cpu", [0, 1])
    x = flow.tensor(torch.randn(4, 6), placement=p, sbp=S(0))
    w = flow.tensor(torch.randn(6, 3), placement=p, sbp=B)
    with flow.profiler.comm() as log:
        y = flow.vmap(lambda row: (row @ w).tanh().sum())(x)
    assert (y.sbp, log.count()) == ((S(0),), 0)


# Modes.


def test_autocast_casts_the_products_of_rows():
    x, w = flow.randn(3, 4), flow.randn(4, 2)
    with flow.autocast("cpu"), Calls() as calls:
        outside = flow.vmap(lambda row: row @ w)(x)
        slopes = flow.vmap(flow.func.grad(lambda row: (row @ w).float().sum()))(x)
    assert not calls.refusals

    def inside(row):
        with flow.autocast("cpu"):
            return row @ w

    assert outside.dtype is flow.vmap(inside)(x).dtype is torch.bfloat16
    assert slopes.dtype is torch.float32
    with by_rows(), flow.autocast("cpu"):
        close(outside.float(), flow.vmap(lambda row: row @ w)(x).float())


def test_a_graph_captures_the_ops_of_all_rows():
    layer = flow.nn.Linear(4, 2)

    class Graph(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def build(self, x):
            def loss(row):
                return self.layer(row).sin().sum()

            return flow.vmap(loss)(x), flow.vmap(flow.func.grad(loss))(x)

    x, graph = flow.randn(5, 4), Graph()
    found = graph(x)
    close(found[0], layer(x).sin().sum(1))
    with by_rows():
        close(found, Graph()(x))
    assert len(graph.program.steps) < 15


def test_errors_are_those_of_a_row():
    def f(row):
        return row @ flow.ones(3)

    with pytest.raises(RuntimeError, match=r"float32\[4\]") as error:
        flow.vmap(f)(flow.ones(2, 4))
    assert "[2, 4]" not in str(error.value)
    with pytest.raises(ValueError, match="chunk_size"):
        flow.vmap(f, chunk_size=0)


def test_a_tensor_that_is_kept_has_no_value():
    kept = []
    flow.vmap(lambda row: kept.append(row * 2) or row)(flow.ones(2, 4))
    with pytest.raises(RuntimeError, match="for each row"):
        kept[0] + 1


def test_a_tensor_that_is_the_same_for_each_row_may_be_kept():
    class Masked(flow.nn.Module):
        mask = None

        def forward(self, x):
            if self.mask is None:
                self.mask = flow.tril(flow.ones(3, 3))
                self.mask[0] = 2.0
            return self.mask @ x

    layer = Masked()
    with Calls() as calls:
        found = flow.vmap(layer)(flow.ones(2, 3))
    assert not calls.refusals
    assert found.tolist() == [[6, 2, 3]] * 2
    assert layer.mask.tolist() == [[2, 2, 2], [1, 1, 0], [1, 1, 1]]
    assert layer(flow.ones(3)).tolist() == [6, 2, 3]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_jacobians_take_one_backward_pass():
    x = torch.randn(4, dtype=torch.float64)

    def f(lib):
        return lambda x: lib.stack([x.sin() * x.sum(), x * x])

    for name in ("jacrev", "hessian"):
        for chunk_size in (None, 3)[: 1 + (name == "jacrev")]:
            options = {} if chunk_size is None else {"chunk_size": chunk_size}
            with Calls() as calls:
                found = getattr(flow.func, name)(f(flow), **options)(flow.tensor(x))
            assert not calls.refusals and not calls.looped
            close(found, getattr(torch.func, name)(f(torch), **options)(x))


def test_rules_are_for_ops():
    flow.split(flow.ones(4), 2)  # there is an op for each number of parts
    flow.unbind(flow.ones(2, 2), 0)
    assert set(batching_rules.RULES) <= set(dispatch_plan.ops)


def test_one_row_is_one_call():
    with Calls() as calls:
        assert flow.vmap(lambda row: row * row.sum().item())(flow.ones(1, 2)).tolist() == [[2, 2]]
    assert not calls.refusals

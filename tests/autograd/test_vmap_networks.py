"""vmap of networks, of pairs of rows, over any dims and layouts, against torch's."""

import hypothesis
import pytest
import torch
from hypothesis import given, strategies as st
from vmap_checks import Calls, close

import onefold as flow

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

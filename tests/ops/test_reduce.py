"""Reductions: layouts without communication, empties, errors, and exchanges instead of gathers."""

import math
import warnings

import pytest
import torch
from hypothesis import given, strategies as st

import onefold as flow
from onefold.engine.meta import Meta
from onefold.engine.names import names
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

RESULTS = [
    (lambda x: names.sum(x, 0), "(S0)", "(P)"),
    (names.sum, "(S1)", "(P)"),
    (lambda x: names.sum(x, 0), "(S1)", "(S0)"),
    (lambda x: names.sum(x, 0, True), "(S1)", "(S1)"),
    (lambda x: names.sum(x, 0), "(P)", "(P)"),
    (lambda x: names.mean(x, 0), "(S0)", "(P)"),
    (names.mean, "(P)", "(P)"),
    (lambda x: names.amax(x, 0), "(S0)", "(PMAX)"),
    (lambda x: names.amin(x, 0), "(S0)", "(PMIN)"),
    (names.max, "(S0)", "(PMAX)"),
    (lambda x: names.amax(names.amax(x, 0)), "(S0)", "(PMAX)"),
    (lambda x: names.any(names.gt(x, 0), 0), "(S0)", "(PMAX)"),
    (lambda x: names.all(names.gt(x, 0)), "(S0)", "(PMIN)"),
    (lambda x: names.all(names.all(names.gt(x, 0), 0)), "(S0)", "(PMIN)"),
    (names.count_nonzero, "(S0)", "(P)"),
    (lambda x: names.vector_norm(x, 1), "(S0)", "(P)"),
    (lambda x: names.vector_norm(x, math.inf), "(S0)", "(PMAX)"),
    (lambda x: names.vector_norm(x, -math.inf), "(S0)", "(PMIN)"),
    (lambda x: names.var(x, 1), "(S0)", "(S0)"),
    (lambda x: names.argmax(x, 1), "(S0)", "(S0)"),
    (lambda x: names.cumsum(x, 1), "(S0)", "(S0)"),
    (lambda x: names.cumsum(x, 1), "(P)", "(P)"),
]


@pytest.mark.parametrize("ranks", [[0, 1], [0, 1, 2]])
@pytest.mark.parametrize("case", range(len(RESULTS)))
def test_layouts_without_communication(case, ranks):
    call, layout, wanted = RESULTS[case]
    values = torch.randn(7, 4)
    x = make_global(values, flow.placement("cpu", ranks), parse(layout), 1)
    with flow.profiler.comm() as log:
        y = call(x)
    assert short(y.sbp) == wanted
    assert sum(log.total_bytes(rank) for rank in ranks) == 0
    assert torch.allclose(value_of(y), call(make_local(values)).shards[0], atol=1e-5)


EXCHANGES = [
    lambda x: names.var(x, 0),
    lambda x: names.std(x, 0, keepdim=True),
    lambda x: names.vector_norm(x, 2, 0),
    lambda x: names.vector_norm(x, 3, 0),
    lambda x: names.logsumexp(x, 0),
    lambda x: names.argmax(x, 0),
    lambda x: names.argmin(x, 0),
    lambda x: names.max(x, 0).values,
    lambda x: names.min(x, 0).indices,
]


@pytest.mark.parametrize("case", range(len(EXCHANGES)))
def test_a_split_dim_is_not_gathered(case):
    """The bytes do not grow with the reduced dim."""
    moved = []
    for rows in (30, 300):
        values = torch.randn(rows, 4)
        x = make_global(values, flow.placement("cpu", [0, 1, 2]), parse("(S0)"), 1)
        with flow.profiler.comm() as log:
            y = EXCHANGES[case](x).to_global(sbp=flow.sbp.broadcast)
        moved.append(log.total_bytes(0))
        wanted = EXCHANGES[case](make_local(values)).shards[0]
        assert torch.allclose(value_of(y), wanted, rtol=1e-4, atol=1e-5)
    assert moved[0] == moved[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.uint8])
def test_extrema_over_parts_that_are_empty(dtype):
    values = torch.tensor([[3, 0], [1, 2]]).to(dtype)
    x = make_global(values, flow.placement("cpu", [0, 1, 2, 3]), parse("(S0)"), 1)
    assert torch.equal(value_of(names.amax(x, 0)), values.amax(0))
    assert torch.equal(value_of(names.amin(x, 0)), values.amin(0))
    assert torch.equal(value_of(names.argmax(x, 0)), values.to(torch.int64).argmax(0))


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.integers(1, 4),
    st.sampled_from(["argmax", "argmin", "max", "min"]),
    st.booleans(),
)
def test_the_first_of_ties_is_found(values, ranks, name, flat):
    data = torch.tensor(values)
    data = data.reshape(-1, 1).expand(-1, 2).contiguous() if flat else data
    x = make_global(data, flow.placement("cpu", list(range(ranks))), parse("(S0)"), 1)
    if name.startswith("arg"):
        wanted = getattr(torch, name)(data, None if flat else 0)
        assert torch.equal(value_of(getattr(names, name)(x, None if flat else 0)), wanted)
    else:
        wanted = getattr(torch, "arg" + name)(data, 0)
        found = getattr(names, name)(x, 0)
        assert torch.equal(value_of(found.indices), wanted)
        assert torch.equal(value_of(found.values), getattr(torch, name)(data, 0).values)


def test_named_results():
    x = make_local(torch.randn(5, 3))
    found = names.max(x, 1)
    assert found.values.shape == found.indices.shape == (5,)
    assert names.aminmax(x).min.shape == ()
    variance, mean = names.var_mean(x, 0)
    assert variance.shape == mean.shape == (3,)


EMPTY = [
    (lambda n, x: n.sum(x, 0)),
    (lambda n, x: n.mean(x, 0)),
    (lambda n, x: n.mean(x)),
    (lambda n, x: n.prod(x, 0)),
    (lambda n, x: n.any(x)),
    (lambda n, x: n.all(x, 0)),
    (lambda n, x: n.amax(x, 1)),
    (lambda n, x: n.argmax(x, 1)),
    (lambda n, x: n.max(x, 1)[0]),
    (lambda n, x: n.logsumexp(x, 0)),
    (lambda n, x: n.cumsum(x, 0)),
    (lambda n, x: n.norm(x)),
]


@pytest.mark.parametrize("case", range(len(EMPTY)))
def test_empty(case):
    data = torch.zeros(0, 3)
    wanted = EMPTY[case](torch, data)
    placement = flow.placement("cpu", [0, 1])
    for x in (make_local(data), make_global(data, placement, parse("(S0)"), 1)):
        found = value_of(EMPTY[case](names, x))
        assert found.dtype == wanted.dtype
        assert torch.allclose(found.double(), wanted.double(), equal_nan=True)


BAD = [
    (lambda n, x: n.sum(x, 2), "sum"),
    (lambda n, x: n.sum(x, (0, 0)), "dim"),
    (lambda n, x: n.mean(x.int()), "mean"),
    (lambda n, x: n.amax(x[:0], 0), "amax"),
    (lambda n, x: n.max(x[:0]), "max"),
    (lambda n, x: n.argmax(x[:0]), "argmax"),
    (lambda n, x: n.max(x, 5), "max"),
    (lambda n, x: n.cumsum(x, 3), "cumsum"),
    (lambda n, x: n.prod(x, 4), "prod"),
    (lambda n, x: n.var(x, 7), "var"),
    (lambda n, x: n.logsumexp(x, 7), "logsumexp"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_errors_are_of_torchs_class(case):
    call, word = BAD[case]
    data = torch.randn(5, 3)
    with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)) as theirs:
        call(torch, data)
    with pytest.raises(OnefoldError, match=word) as ours:
        call(names, make_local(data))
    kinds = [k for k in (IndexError, TypeError, RuntimeError) if isinstance(theirs.value, k)]
    assert isinstance(ours.value, kinds[0])


def test_more_errors():
    x = make_local(torch.randn(5, 3))
    for call in (
        lambda: names.var(x, 0, True, correction=1),
        lambda: names.norm(x, "nuc"),
        lambda: names.max(x, (0, 1)),
    ):
        with pytest.raises(OnefoldError):
            call()


@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")  # the median gathers
@pytest.mark.parametrize("values", [[[1.0, 3.0, 3.0]], [[2.0, 2.0, 2.0]], [[1.0, math.nan, 3.0]]])
@pytest.mark.parametrize("name", ["amax", "max", "amin", "median"])
def test_ties_share_the_gradient(values, name):
    tx = torch.tensor(values, requires_grad=True)
    getattr(torch, name)(tx).backward()
    for layout in ("(S1)", "(B)"):
        x = make_global(tx.detach(), flow.placement("cpu", [0, 1]), parse(layout), 1)
        x.requires_grad = True
        getattr(names, name)(x).backward()
        assert torch.allclose(value_of(x.grad), tx.grad, equal_nan=True)


def test_sum_to_is_nothing_when_nothing_fits_better():
    x = make_local(torch.randn(5, 3))
    assert names.sum_to(x, x.meta) is x
    y = names.sum_to(x, Meta.of((3,), torch.float64, device=torch.device("cpu")))
    assert (y.shape, y.dtype) == ((3,), torch.float64)


@given(st.data())
def test_sum_to_undoes_broadcasting(data):
    shape = data.draw(st.lists(st.integers(1, 3), max_size=3))
    small = [1 if data.draw(st.booleans()) else size for size in shape]
    small = small[data.draw(st.integers(0, len(small))) :]
    values = torch.randn(shape, dtype=torch.float64)
    placement = flow.placement("cpu", [[0, 1], [2, 3]])
    layouts = ["B", "P", *(f"S{dim}" for dim in range(len(shape)))]
    pair = [data.draw(st.sampled_from(layouts)) for _ in range(2)]
    x = make_global(values, placement, parse(f"({', '.join(pair)})"), 1)
    y = names.sum_to(x, Meta.of(small, values.dtype))
    assert torch.allclose(value_of(y), values.sum_to_size(small))


def test_ones_like_whole_is_whole():
    placement = flow.placement("cpu", [[0, 1], [2, 3]])
    x = make_global(torch.randn(5, 3), placement, parse("(S0, P)"), 1)
    seed = names.ones_like_whole(x)
    assert short(seed.sbp) == "(S0, B)"
    assert torch.equal(value_of(seed), torch.ones(5, 3))


def test_the_gradient_of_a_loss_that_stays_partial():
    placement = flow.placement("cpu", [0, 1])
    values = torch.randn(5, 3)
    x = make_global(values, placement, parse("(S0)"), 1)
    x.requires_grad = True
    with flow.profiler.comm() as log:
        names.mean(x * x).backward()
    assert log.total_bytes(0) == 0
    assert torch.allclose(value_of(x.grad), values * 2 / 15)


def test_half_precision_means_of_parts_do_not_overflow():
    values = torch.full((4096, 2), 100.0, dtype=torch.float16)
    x = make_global(values, flow.placement("cpu", [0, 1]), parse("(S0)"), 1)
    assert torch.allclose(value_of(names.mean(x, 0)), values.mean(0))


def test_the_warning_of_too_few_elements_is_torchs():
    with pytest.warns(UserWarning, match="degrees of freedom"):
        names.var(make_local(torch.ones(1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        names.var(make_local(torch.ones(2)))


@pytest.mark.parametrize("name", ["prod", "cumprod"])
def test_products_have_every_derivative_also_at_zeros(name):
    value = torch.tensor([[1.5, 0.0, 2.0, -1.0], [0.0, 0.0, 3.0, 0.5]], dtype=torch.float64)

    def slow(x):
        """With nothing but multiplications, which torch differentiates again and again."""
        parts = [x[:, 0]]
        for column in range(1, x.shape[1]):
            parts.append(parts[-1] * x[:, column])
        return parts[-1] if name == "prod" else torch.stack(parts, 1)

    x, wanted = make_local(value), value.clone().requires_grad_()
    x.requires_grad = True
    y, ty = getattr(names, name)(x, 1), slow(wanted)
    for order in range(3):
        weights = torch.arange(1.0, ty.numel() + 1).reshape(ty.shape).double() ** (order + 1)
        (y,) = flow.autograd.grad(names.sum(y * make_local(weights)), x, create_graph=True)
        (ty,) = torch.autograd.grad((ty * weights).sum(), wanted, create_graph=True)
        assert torch.allclose(y.shards[0], ty)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float64])
@pytest.mark.parametrize("name", ["amax", "amin"])
def test_a_partial_extremum_is_negated(name, dtype):
    value = torch.tensor([0, 3, 5]).to(dtype)
    for ranks in (2, 3, 5):  # of five ranks two have no element
        x = make_global(value, flow.placement("cpu", range(ranks)), parse("(S0)"))
        found = value_of(names.neg(getattr(names, name)(x, 0)))
        assert found.tolist() == torch.neg(getattr(torch, name)(value, 0)).tolist()


@pytest.mark.filterwarnings("ignore:var..:UserWarning")
def test_the_variance_of_no_complex_numbers_is_real():
    value = torch.zeros(3, 0, dtype=torch.complex128)
    x = make_global(value, flow.placement("cpu", [0, 1]), parse("(S0)"))
    assert value_of(names.var(names.reshape(x, (0, 3)), 1)).dtype is torch.float64
    assert value_of(names.var(x[:0], 1)).dtype is torch.float64

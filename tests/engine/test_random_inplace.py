"""In-place random methods and samples: torch's distributions, the same numbers in every layout."""

import math
import warnings

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import OnefoldError
from onefold.kernels import random_ref
from onefold.testing.sample_checks import value_of

PLACES = [([0, 1], "(S0)"), ([0, 1, 2], "(S1)"), ([1, 0], "(B)"), ([0, 1], "(P)"),
          ([[0, 1], [2, 3]], "(S0, S1)")]  # fmt: skip
FILLS = {
    "uniform_": lambda x: x.uniform_(-2, 3),
    "uniform_ from": lambda x: x.uniform_(**{"from": -2.0, "to": 3.0}),
    "normal_": lambda x: x.normal_(1.0, 2.0),
    "log_normal_": lambda x: x.log_normal_(0.5, 0.25),
    "cauchy_": lambda x: x.cauchy_(1.0, 2.0),
    "exponential_": lambda x: x.exponential_(2.0),
    "geometric_": lambda x: x.geometric_(0.3),
    "bernoulli_": lambda x: x.bernoulli_(0.3),
    "random_": lambda x: x.random_(2, 9),
}


def layouts():
    for ranks, sbp in PLACES:
        yield {"placement": flow.placement("cpu", ranks), "sbp": parse(sbp)}


@pytest.mark.parametrize("name", FILLS)
def test_every_layout_has_the_same_numbers(name, world):
    flow.manual_seed(3)
    local = flow.zeros(5, 7)
    assert FILLS[name](local) is local
    for layout in layouts():
        flow.manual_seed(3)
        x = FILLS[name](flow.zeros(5, 7, **layout))
        assert x.sbp == layout["sbp"]
        assert torch.equal(value_of(x), local.to_torch())
    other = FILLS[name](flow.zeros(5, 7))
    assert not torch.equal(other.to_torch(), local.to_torch())


@pytest.mark.parametrize("name", FILLS)
def test_a_generator_is_used_and_no_other(name, world):
    own, before = flow.Generator().manual_seed(3), flow.get_rng_state()
    method, arguments = name.split()[0], (0.5,) if "geometric" in name else ()
    x = getattr(flow.zeros(40), method)(*arguments, generator=own)
    assert own.get_state() == (3, 1) and flow.get_rng_state() == before
    y = getattr(flow.zeros(40), method)(*arguments, generator=flow.Generator().manual_seed(3))
    assert torch.equal(x.to_torch(), y.to_torch())


# The distribution functions, and one of torch's with the same arguments.
CDFS = {
    "uniform_": lambda x: (x + 2) / 5,
    "normal_": lambda x: torch.special.ndtr((x - 1) / 2),
    "log_normal_": lambda x: torch.special.ndtr((x.log() - 0.5) / 0.25),
    "cauchy_": lambda x: torch.atan((x - 1) / 2) / math.pi + 0.5,
    "exponential_": lambda x: -torch.expm1(-2 * x),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CDFS)
def test_continuous_distributions(name, dtype):
    """Kolmogorov and Smirnov's distance, at a level of about 1e-4."""
    flow.manual_seed(1)
    n = 1 << 16
    drawn = FILLS[name](flow.zeros(n, dtype=dtype)).to_torch()
    for values in (drawn, FILLS[name](torch.zeros(n, dtype=dtype))):
        expected = CDFS[name](values.double().sort().values)
        distance = (expected - torch.arange(n) / n).abs().max()
        assert distance * math.sqrt(n) < 2.3


def test_discrete_distributions():
    flow.manual_seed(1)
    n = 1 << 16
    trials = flow.zeros(n, dtype=flow.int64).geometric_(0.3).to_torch()
    for count in range(1, 6):
        chance = 0.3 * 0.7 ** (count - 1)
        assert abs((trials == count).double().mean() - chance) < 4 * math.sqrt(chance / n)
    assert trials.min() == 1
    assert abs(float(flow.zeros(n).bernoulli_(0.3).mean()) - 0.3) < 0.01
    drawn = flow.zeros(n, dtype=flow.int32).random_(2, 9).to_torch()
    assert drawn.unique().tolist() == list(range(2, 9))
    assert flow.zeros(n).random_(4).to_torch().unique().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("dtype", "most"),
    [("bool", 1), ("uint8", 255), ("int8", 127), ("float16", 2**11), ("bfloat16", 2**8),
     ("float32", 2**24), ("int64", 2**63 - 1)],
)  # fmt: skip
def test_random_without_bounds(dtype, most):
    dtype = getattr(torch, dtype)
    for x in (flow.zeros(20_000, dtype=dtype).random_().to_torch(),
              torch.zeros(20_000, dtype=dtype).random_()):  # fmt: skip
        assert x.min() >= 0 and most * 0.99 <= x.max().item() <= most


@pytest.mark.parametrize("first", [0, 3, 100, -5])
@pytest.mark.parametrize(
    ("dtype", "most"), [("uint8", 255), ("int8", 127), ("float16", 2**11), ("float64", 2**53)]
)
def test_random_from_a_number_on(dtype, most, first, world):
    """`random_(from, None)` is not `random_(to)`."""
    if first < 0 and dtype == "uint8":
        with pytest.raises(OnefoldError):
            flow.zeros(3, dtype=flow.uint8).random_(first, None)
        return
    zeros = flow.zeros(20_000, dtype=getattr(flow, dtype))
    flow.manual_seed(1)
    x = zeros.clone().random_(first, None).to_torch()
    theirs = torch.zeros(20_000, dtype=x.dtype).random_(first, None)
    for each in (x, theirs):
        assert first <= each.min() <= first + most * 0.02 and most * 0.98 <= each.max() <= most
    for again in ({"from": first}, {"from": first, "to": None}):
        flow.manual_seed(1)
        assert torch.equal(zeros.clone().random_(**again).to_torch(), x)


def test_probabilities_of_each_element(world):
    p = torch.linspace(0, 1, 35, dtype=torch.float64).reshape(5, 7)
    flow.manual_seed(3)
    local = flow.bernoulli(flow.tensor(p))
    assert local.dtype == p.dtype and local.to_torch()[p == 0].sum() == 0
    assert local.to_torch()[p == 1].eq(1).all() and set(local.to_torch().unique().tolist()) == {
        0,
        1,
    }
    for layout in layouts():
        flow.manual_seed(3)
        x = flow.tensor(p, **layout)
        assert torch.equal(value_of(x.bernoulli()), local.to_torch())
        flow.manual_seed(3)
        x = flow.zeros(5, 7, dtype=flow.float64, **layout).bernoulli_(x)
        assert torch.equal(value_of(x), local.to_torch())


@pytest.mark.parametrize("given", ["mean", "std", "both"])
def test_a_mean_and_deviation_of_each_element(given, world):
    mean = torch.linspace(-3, 3, 35).reshape(5, 7) if given != "std" else 1.5
    std = torch.linspace(0, 2, 7) if given != "mean" else 2.0
    for layout in ({}, *layouts()):
        size = torch.normal(mean, std).shape
        flow.manual_seed(3)
        z = flow.randn(*size).to_torch()
        flow.manual_seed(3)
        placed = layout
        x, y = (
            flow.tensor(each, **placed if each.ndim > 1 or not layout else broadcast(layout))
            if isinstance(each, torch.Tensor)
            else each
            for each in (mean, std)
        )
        found = flow.normal(x, y)
        assert not found.requires_grad and found.dtype == torch.float32
        assert torch.equal(value_of(found), z * std + mean)


def broadcast(layout):
    return {**layout, "sbp": (flow.sbp.broadcast,) * layout["placement"].ndim}


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("shape", [(6,), (4, 6)])
def test_multinomial(shape, replacement, world):
    weights = torch.rand(shape)
    weights[..., 2] = 0
    weights[..., 4] = 0
    flow.manual_seed(3)
    local = flow.tensor(weights).multinomial(4, replacement)
    assert local.dtype == flow.int64 and local.shape == (*shape[:-1], 4)
    chosen = local.to_torch()
    assert not ((chosen == 2) | (chosen == 4)).any()
    if not replacement:
        assert all(len(set(row)) == 4 for row in chosen.reshape(-1, 4).tolist())
    rows = {1: ["(B)", "(P)"], 2: ["(S0)", "(B)", "(P)"]}[len(shape)]
    for sbp in map(parse, rows):
        flow.manual_seed(3)
        x = flow.tensor(weights, placement=flow.placement("cpu", [0, 1, 2]), sbp=sbp)
        found = flow.multinomial(x, 4, replacement)
        assert torch.equal(value_of(found), chosen)
        assert found.sbp[0].is_split or not sbp[0].is_split


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial_draws_in_proportion(replacement):
    flow.manual_seed(1)
    n, weights = 1 << 15, torch.tensor([1.0, 0.0, 2.0, 5.0])
    drawn = flow.multinomial(flow.tensor(weights).expand(n, 4), 2, replacement).to_torch()
    first = torch.bincount(drawn[:, 0], minlength=4) / n
    torch.testing.assert_close(first, weights / 8, atol=0.012, rtol=0)
    second = torch.bincount(drawn[:, 1], minlength=4) / n
    theirs = torch.multinomial(weights.expand(n, 4), 2, replacement)[:, 1]
    torch.testing.assert_close(second, torch.bincount(theirs, minlength=4) / n, atol=0.02, rtol=0)


def test_graphs_draw_anew_in_each_call(world):
    class Draws(flow.nn.Graph):
        def build(self, x):
            return flow.empty_like(x).exponential_(), flow.multinomial(x, 2), x.bernoulli()

    flow.manual_seed(3)
    graph, x = Draws(), flow.full((4, 6), 0.5)
    drawn = [[y.to_torch() for y in graph(x)] for _ in range(2)]
    flow.manual_seed(3)
    for each in drawn:
        wanted = (flow.empty_like(x).exponential_(), flow.multinomial(x, 2), x.bernoulli())
        for y, z in zip(each, wanted, strict=True):
            assert torch.equal(y, z.to_torch())
    assert not torch.equal(drawn[0][0], drawn[1][0])


REFUSED = {
    "low > high": lambda x: x.uniform_(3, 2),
    "unknown": lambda x: x.uniform_(form=2),
    "std < 0": lambda x: x.normal_(0, -1),
    "std = 0": lambda x: x.log_normal_(0, 0),
    "sigma": lambda x: x.cauchy_(0, 0),
    "lambda": lambda x: x.exponential_(0),
    "p = 0": lambda x: x.geometric_(0),
    "p > 1": lambda x: x.bernoulli_(1.5),
    "p > 1 somewhere": lambda x: x.bernoulli_(flow.tensor([0.0, 1.5, 1.0])),
    "p < 0 somewhere": lambda x: flow.bernoulli(x - 0.75),
    "p nan": lambda x: flow.bernoulli(x / 0 * 0),
    "std < 0 somewhere": lambda x: flow.normal(0.0, -x),
    "std < 0 of a tensor": lambda x: flow.normal(x, -1.0),
    "a size beside tensors": lambda x: flow.normal(x, 1.0, (3,)),
    "no size": lambda x: flow.normal(0.0, 1.0),
    "too large for half": lambda x: x.half().random_(0, 70_000),
    "from = to": lambda x: x.random_(3, 3),
    "integers": lambda x: x.long().normal_(),
    "integer probabilities": lambda x: x.long().bernoulli(),
    "a leaf": lambda x: x.requires_grad_().uniform_(),
    "too many": lambda x: x.multinomial(4),
    "none": lambda x: x.multinomial(0),
    "3 dims": lambda x: flow.ones(2, 2, 2).multinomial(1),
    "negative": lambda x: (x - 1).multinomial(1),
    "zeros": lambda x: (x * 0).multinomial(1),
    "nan": lambda x: (x / 0 * 0).multinomial(1),
    "integer weights": lambda x: x.long().multinomial(1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_calls_change_nothing(name, world):
    x, before = flow.full((3,), 0.5), flow.get_rng_state()
    with pytest.raises(OnefoldError):
        REFUSED[name](x)
    assert x.tolist() == [0.5] * 3 and flow.get_rng_state() == before


@pytest.mark.parametrize("bounds", [(0, 2**11 + 2), (-(2**11) - 1, 0), (0, 2**11 + 1), (3, 9)])
def test_bounds_beyond_exact_integers_warn_as_in_torch(bounds, world):
    told = []
    for lib in (torch, flow):
        with warnings.catch_warnings(record=True) as noticed:
            warnings.simplefilter("always")
            lib.zeros(3, dtype=lib.float16).random_(*bounds)
        told.append(len(noticed))
        assert not noticed or noticed[0].filename == __file__
    assert told[0] == told[1]


def test_no_numbers_below_zero(world):
    with pytest.raises(RuntimeError, match="from=0 >= to=0"):
        flow.zeros(4).random_(0)


@pytest.mark.parametrize("draw", [flow.rand, flow.randn, flow.randperm, flow.zeros(3).uniform_])
def test_another_kind_of_generator(draw, world):
    with pytest.raises(TypeError, match=r"generator must be a flow\.Generator"):
        draw(3, generator=torch.Generator())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_numbers_are_drawn_in_parts(world, dtype):
    """The parts are what real numbers of one more dim are, of half the variance if normal."""
    p = flow.placement("cpu", [0, 1])
    laid = {"placement": p, "sbp": flow.sbp.split(0)}
    size, half = (400, 3), 0.5**0.5
    makers = {
        "randn": (lambda lib, **to: lib.randn(*size, dtype=dtype, **to), half, 0),
        "rand": (lambda lib, **to: lib.rand(*size, dtype=dtype, **to), 1, 0),
        "normal_": (
            lambda lib, **to: lib.zeros(*size, dtype=dtype, **to).normal_(2, 3),
            3 * half,
            2 + 2j,
        ),
        "uniform_": (
            lambda lib, **to: lib.zeros(*size, dtype=dtype, **to).uniform_(-1, 3),
            4,
            -1 - 1j,
        ),
    }
    for name, (make, scale, shift) in makers.items():
        flow.manual_seed(3)
        found = make(flow).numpy()
        flow.manual_seed(3)
        draw = flow.randn if name in ("randn", "normal_") else flow.rand
        parts = draw(*size, 2, dtype=dtype.to_real()).numpy() * scale
        np.testing.assert_allclose(
            found, parts[..., 0] + 1j * parts[..., 1] + shift, rtol=1e-4, atol=1e-6
        )
        flow.manual_seed(3)
        np.testing.assert_array_equal(make(flow, **laid).numpy(), found)
        torchs = make(torch).numpy()
        np.testing.assert_allclose(found.mean(), torchs.mean(), atol=0.3)
        np.testing.assert_allclose(found.std(), torchs.std(), rtol=0.1)


def test_layers_with_complex_weights():
    for lib in (torch, flow):
        layer = lib.nn.Linear(4, 3, dtype=lib.complex64)
        bound = layer.weight.detach().numpy()
        assert np.abs(bound.real).max() <= 0.5
        assert np.abs(bound.imag).max() > 0
        assert layer(lib.ones(2, 4, dtype=lib.complex64)).dtype is torch.complex64


DRAWS = {
    "uniform": (lambda x: x.uniform_(-1, 3), random_ref.uniform, {"low": -1, "high": 3}),
    "normal": (lambda x: x.normal_(0.5, 2), random_ref.normal, {"mean": 0.5, "std": 2}),
    "exponential": (lambda x: x.exponential_(4), random_ref.exponential, {"scale": 0.25}),
    "random": (lambda x: x.random_(7), random_ref.randint, {"low": 0, "high": 7}),
    "randint": (
        lambda x: flow.randint(2, 9, x.shape, dtype=x.dtype),
        random_ref.randint,
        {"low": 2, "high": 9},
    ),
}


@pytest.mark.parametrize("dtype", [flow.float32, flow.float64])
@pytest.mark.parametrize("name", DRAWS)
def test_settings_of_planned_draws(name, dtype, world):
    draw, kernel, options = DRAWS[name]
    flow.manual_seed(3)
    for call in range(4):  # from the second on of a table
        made = draw(flow.zeros(5, 3, dtype=dtype)).numpy()
        expected = kernel((5, 3), (0, 0), (5, 3), seed=3, call=call, dtype=dtype, **options)
        assert made.tolist() == expected.tolist()


def test_planned_draws_tell_settings_apart(world):
    x = flow.zeros(4)
    assert x.normal_(1, 0).tolist() == [1] * 4
    assert x.normal_(2, 0).tolist() == [2] * 4
    for zero in (0.0, -0.0, 0):
        assert math.copysign(1, float(flow.zeros(()).uniform_(zero, zero))) == 1
    assert x.normal_(True, False).tolist() == [1] * 4
    assert {*flow.randint(3, 4, (5,)).tolist()} == {3}

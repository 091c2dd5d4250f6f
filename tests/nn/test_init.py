"""init: torch's distributions, the same numbers in every layout, in place."""

import math
from functools import partial

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import OnefoldValueError, SbpError
from onefold.testing.sample_checks import value_of

init = flow.nn.init
RANDOM = {
    "uniform_": partial(init.uniform_, a=-2.0, b=3.0),
    "normal_": partial(init.normal_, mean=1.0, std=0.5),
    "trunc_normal_": partial(init.trunc_normal_, std=2.0, a=-1.0, b=1.5),
    "kaiming_uniform_": init.kaiming_uniform_,
    "kaiming_uniform_ fan_out": partial(init.kaiming_uniform_, mode="fan_out", nonlinearity="relu"),
    "kaiming_normal_": partial(init.kaiming_normal_, a=0.3),
    "xavier_uniform_": partial(init.xavier_uniform_, gain=2.0),
    "xavier_normal_": init.xavier_normal_,
}


@pytest.mark.parametrize("name", RANDOM)
def test_the_distribution_is_torchs(name, world):
    ours, theirs = flow.empty(120, 50, 3), torch.empty(120, 50, 3)
    flow.manual_seed(0)
    torch.manual_seed(0)
    assert RANDOM[name](ours) is ours
    function = RANDOM[name]
    keywords = getattr(function, "keywords", {})
    getattr(torch.nn.init, name.split()[0])(theirs, **keywords)
    mine, wanted = ours.numpy(), theirs.numpy()
    assert abs(mine.mean() - wanted.mean()) < 0.06 * wanted.std()
    assert abs(mine.std() / wanted.std() - 1) < 0.03
    quantiles = np.linspace(0.01, 0.99, 25)
    found, right = np.quantile(mine, quantiles), np.quantile(wanted, quantiles)
    assert np.abs(found - right).max() < 0.1 * wanted.std()
    if "uniform" in name or "trunc" in name:
        assert mine.min() >= wanted.min() - 0.01 * wanted.std()
        assert mine.max() <= wanted.max() + 0.01 * wanted.std()


@pytest.mark.parametrize(
    "name", [*RANDOM, "zeros_", "ones_", "eye_", "orthogonal_", "sparse_ half"]
)
def test_the_layout_does_not_matter(name, world):
    function = RANDOM.get(name) or getattr(init, name.split()[0])
    function = partial(function, sparsity=0.5) if name.startswith("sparse_") else function
    values = []
    for ranks, sbp in [
        (None, ""), ([0, 1], "(B)"), ([1, 0, 2], "(S0)"), ([0, 1, 2], "(S1)"),
        ([[0, 3], [1, 2]], "(S0, S0)"), ([[0, 1], [2, 3]], "(S1, B)"),
    ]:  # fmt: skip
        layout = (
            {} if ranks is None else {"placement": flow.placement("cpu", ranks), "sbp": parse(sbp)}
        )
        x = flow.nn.Parameter(flow.zeros(5, 7, **layout))
        meta = x.meta
        flow.manual_seed(9)
        function(x)
        assert x.meta is meta and x.is_leaf and x.requires_grad
        values.append(value_of(x.detach()))
    assert all(torch.equal(values[0], other) for other in values[1:])


@pytest.mark.parametrize(
    ("shape", "groups"),
    [((4, 6, 3), 1), ((6, 2, 3, 5), 3), ((4, 4, 1, 2, 3), 2), ((5, 3, 4), 1), ((2, 4, 3), 1)],
)
def test_dirac(shape, groups, world):
    wanted = torch.nn.init.dirac_(torch.ones(shape), groups)
    place = flow.placement("cpu", [0, 1])
    for x in (
        flow.ones(shape),
        flow.ones(shape, placement=place, sbp=flow.sbp.split(0)),
        flow.ones(shape, placement=place, sbp=flow.sbp.split(1)),
    ):
        assert init.dirac_(x, groups) is x
        assert torch.equal(value_of(x), wanted)
    with pytest.raises(OnefoldValueError, match="3, 4, or 5 dimensions"):
        init.dirac_(flow.ones(2, 2))
    with pytest.raises(OnefoldValueError, match="dim 0 must be divisible by groups"):
        init.dirac_(flow.ones(3, 2, 2), 2)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 3), (0, 3)])
def test_orthogonal(shape, world):
    x = flow.ones(*shape, dtype=flow.float64)
    flow.manual_seed(1)
    assert init.orthogonal_(x, gain=2.0) is x
    matrix = value_of(x).flatten(1) / 2.0
    small = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    if shape[0]:
        torch.testing.assert_close(small, torch.eye(len(small), dtype=torch.float64))
    with pytest.raises(OnefoldValueError, match="2 or more dimensions"):
        init.orthogonal_(flow.ones(3))


def test_orthogonal_matrices_have_no_preferred_signs(world):
    flow.manual_seed(0)
    found = [init.orthogonal_(flow.empty(3, 3)).numpy() for _ in range(300)]
    assert np.abs(np.mean(found, 0)).max() < 0.15
    assert np.abs(np.mean(np.square(found), 0) - 1 / 3).max() < 0.08


def test_sparse(world):
    flow.manual_seed(0)
    x = init.sparse_(flow.ones(500, 20), 0.3, std=0.5)
    values = x.numpy()
    assert ((values == 0).sum(0) == 150).all()
    assert abs(values[values != 0].std() - 0.5) < 0.02
    rows = (values == 0).mean(1)
    assert rows.std() < 0.2 and not (values[:, 0] == values[:, 1]).all()
    with pytest.raises(OnefoldValueError, match="2 dimensions"):
        init.sparse_(flow.ones(3), 0.1)


def test_constants(world):
    x = flow.empty(3, 4)
    assert init.constant_(x, 2.5).tolist() == [[2.5] * 4] * 3
    assert init.zeros_(x).numpy().sum() == 0 and init.ones_(x).numpy().sum() == 12
    assert np.array_equal(init.eye_(x).numpy(), np.eye(3, 4, dtype="f4"))


def test_a_generator_of_ones_own(world):
    x, y = flow.empty(4), flow.empty(4)
    state = flow.get_rng_state()
    init.normal_(x, generator=flow.Generator().manual_seed(1))
    init.normal_(y, generator=flow.Generator().manual_seed(1))
    assert x.tolist() == y.tolist() and flow.get_rng_state() == state


def test_gains_and_fans(world):
    transposed = [f"conv_transpose{n}d" for n in (1, 2, 3)]
    for name in ("linear", "conv2d", *transposed, "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    assert init.calculate_gain("leaky_relu", 0.5) == pytest.approx(
        torch.nn.init.calculate_gain("leaky_relu", 0.5)
    )
    assert init.fan_in_and_out(flow.empty(4, 3, 2, 2)) == (12, 16)
    assert init.default_bound(0) == 0.0 and init.default_bound(4) == 0.5


@pytest.mark.parametrize("name", [name for name in RANDOM if name[0] in "kx"])
def test_the_data_format_says_where_the_channels_are(name, world):
    """OneFlow's argument: the fans are those of the same weight with its channels in dim 1."""
    drawn = []
    for shape, options in (((4, 8, 2, 3), {}), ((4, 2, 3, 8), {"data_format": "NHWC"})):
        x = flow.empty(shape)
        flow.manual_seed(0)
        RANDOM[name](x, **options)
        drawn.append(x.numpy().ravel())
    np.testing.assert_array_equal(*drawn)
    assert init.fan_in_and_out(flow.empty(4, 2, 3, 8), "NHWC") == (48, 24)


@pytest.mark.parametrize("name", ["kaiming_uniform_", "kaiming_normal_"])
@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)])
def test_nothing_to_draw(name, shape, world):
    for lib in (torch, flow):
        x = lib.empty(*shape)
        with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
            assert getattr(lib.nn.init, name)(x) is x


def test_linear_and_conv_start_within_torchs_bounds(world):
    for layer, fan in ((flow.nn.Linear(16, 300), 16), (flow.nn.Conv2d(4, 80, 3), 36)):
        for tensor in (layer.weight, layer.bias):
            largest = np.abs(tensor.numpy()).max()
            assert 0.95 / math.sqrt(fan) < largest <= 1 / math.sqrt(fan)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda x: init.kaiming_normal_(x, mode="fan"), OnefoldValueError, "mode must be 'fan_in'"),
        (
            lambda x: init.kaiming_normal_(x, nonlinearity="no"),
            OnefoldValueError,
            "unsupported nonlinearity",
        ),
        (lambda x: init.uniform_(x, 2.0, 1.0), OnefoldValueError, "needs low <= high"),
        (lambda x: init.xavier_normal_(x[0]), OnefoldValueError, "fewer than 2 dimensions"),
        (lambda x: init.eye_(x[0]), OnefoldValueError, "only tensors with 2 dimensions"),
        (
            lambda x: init.normal_(
                x.to_global(flow.placement("cpu", [0, 1]), flow.sbp.partial_sum)
            ),
            SbpError,
            "random source op only support broadcast or split",
        ),
    ],
)
def test_bad_arguments_change_nothing(call, kind, text, world):
    x, state = flow.ones(2, 2), flow.get_rng_state()
    with pytest.raises(kind, match=text):
        call(x)
    assert x.tolist() == [[1, 1], [1, 1]] and flow.get_rng_state() == state

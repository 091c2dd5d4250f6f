"""rotary: layouts without communication, what attention needs of it, errors."""

import pytest
import torch

import onefold as flow
from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of


def tables(length, pairs):
    angles = torch.outer(torch.arange(length).double(), 10.0 ** -torch.arange(pairs).double())
    return angles.cos(), angles.sin()


@pytest.mark.parametrize(
    ("x", "table", "wanted"),
    [
        ("(S0)", "(B)", "(S0)"),
        ("(S1)", "(B)", "(S1)"),
        ("(S2)", "(S0)", "(S2)"),
        ("(S2)", "(B)", "(S2)"),
        ("(P)", "(B)", "(P)"),
    ],
)
def test_layouts_stay(world, x, table, wanted):
    value, (cos, sin) = torch.randn(4, 4, 7, 8, dtype=torch.float64), tables(7, 4)
    placement = Placement("cpu", [0, 1])
    laid_out = make_global(value, placement, parse(x))
    with flow.profiler.comm() as log:
        y = names.rotary(laid_out, *(make_global(t, placement, parse(table)) for t in (cos, sin)))
    assert short(y.meta.nd_sbp) == wanted
    assert log.total_bytes(0) == 0
    torch.testing.assert_close(
        value_of(y), value_of(names.rotary(*map(make_local, (value, cos, sin))))
    )


@pytest.mark.parametrize("interleaved", [False, True])
def test_scores_depend_on_the_distance_only(interleaved):
    q, k = torch.randn(2, 1, 8, dtype=torch.float64).unbind(0)
    cos, sin = tables(9, 4)
    turned = [
        names.rotary(*map(make_local, (x.expand(9, 8), cos, sin)), interleaved=interleaved).shards[
            0
        ]
        for x in (q, k)
    ]
    scores = turned[0] @ turned[1].T
    for distance in range(-4, 5):
        torch.testing.assert_close(
            scores.diagonal(distance), scores.diagonal(distance)[:1].expand(9 - abs(distance))
        )


@pytest.mark.parametrize(
    ("x", "cos", "sin", "text"),
    [
        ((2, 5, 8), (4, 4), (4, 4), "the tables must be"),
        ((2, 5, 8), (3, 5, 4), (3, 5, 4), "the tables must be"),
        ((2, 5, 8), (5, 5), (5, 5), "half as many columns"),
        ((2, 5, 8), (5, 4), (5, 3), "must be alike"),
        ((8,), (1, 4), (1, 4), "Dimension out of range"),
    ],
)
def test_errors(x, cos, sin, text):
    with pytest.raises(OnefoldError, match=text):
        names.rotary(*(make_local(torch.zeros(shape)) for shape in (x, cos, sin)))

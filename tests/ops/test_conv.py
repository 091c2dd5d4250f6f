"""Convolution and pooling beyond the samples: layouts and errors."""

import pytest
import torch

from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldError
from onefold.testing.manual_layouts import make_global, make_local

TWO = Placement("cpu", [0, 1])


@pytest.mark.parametrize(
    ("x", "w", "groups", "y"),
    [
        ("(S0)", "(B)", 1, "(S0)"),
        ("(B)", "(S0)", 1, "(S1)"),
        ("(S1)", "(S1)", 1, "(P)"),
        ("(S1)", "(S0)", 4, "(S1)"),
    ],
)
def test_layouts(x, w, groups, y):
    data = make_global(torch.randn(2, 4, 5, 5), TWO, parse(x))
    weight = make_global(torch.randn(4, 4 // groups, 3, 3), TWO, parse(w))
    assert short(names.conv2d(data, weight, groups=groups).sbp) == y


def test_gradients_over_a_split_batch():
    x = make_global(torch.randn(4, 3, 5, 5), TWO, parse("(S0)")).requires_grad_()
    w = make_global(torch.randn(2, 3, 3, 3), TWO, parse("(B)")).requires_grad_()
    b = make_global(torch.randn(2), TWO, parse("(B)")).requires_grad_()
    names.sum(names.max_pool2d(names.conv2d(x, w, b), 2)).backward()
    assert [short(leaf.grad.sbp) for leaf in (x, w, b)] == ["(S0)", "(P)", "(P)"]


def test_errors():
    x, w = make_local(torch.randn(2, 4, 5, 5)), make_local(torch.randn(6, 4, 3, 3))
    calls = [
        lambda: names.conv2d(x, make_local(torch.randn(6, 3, 3, 3))),
        lambda: names.conv2d(x, w, padding="full"),
        lambda: names.conv2d(x, w, padding="same", stride=2),
        lambda: names.conv2d(x, w, stride=(1, 1, 1)),
        lambda: names.conv2d(x, w, groups=0),
        lambda: names.conv2d(make_local(torch.randn(5, 5)), w),
        lambda: names.max_pool2d(make_local(torch.randn(5)), 2),
        lambda: names.max_pool2d(x, 2, padding=2),
        lambda: names.avg_pool2d(x, 9),
    ]
    for call in calls:
        with pytest.raises(OnefoldError):
            call()

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


@pytest.mark.parametrize(
    ("name", "shape", "groups", "text"),
    [
        ("conv2d", (6, 3, 3, 3), 1, "groups=1, .* to have 3 channels, but got 4 .*in_channels=4"),
        ("conv2d", (6, 3, 3, 3), 2, "groups=2, .* to have 6 channels, but got 4 channels instead"),
        ("conv_transpose2d", (6, 3, 3, 3), 2, "transposed=1, .* to have 6 channels, but got 4 "),
    ],
)
def test_a_wrong_number_of_channels_is_told_as_torch_does(name, shape, groups, text):
    x, w = torch.randn(2, 4, 5, 5), torch.randn(shape)
    with pytest.raises(RuntimeError) as theirs:
        getattr(torch, name)(x, w, groups=groups)
    with pytest.raises(OnefoldError, match=text) as ours:
        getattr(names, name)(make_local(x), make_local(w), groups=groups)
    assert str(theirs.value) in str(ours.value) and "\n  groups: " in str(ours.value)

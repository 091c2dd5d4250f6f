"""Expressions of elementwise kernels: their torch functions are torch's, and their Triton text."""

import inspect
import math

import pytest
import torch

import onefold
from onefold.kernels import scalar_expression
from onefold.kernels.scalar_expression import expression, source_of

WIDTH = 0.5


@pytest.fixture(autouse=True)
def tables(monkeypatch):
    """What a test declares is forgotten behind it."""
    assert onefold.add
    for name in ("_ADAPT", "_TRITON", "_TORCH", "_WRITTEN"):
        monkeypatch.setattr(scalar_expression, name, dict(getattr(scalar_expression, name)))
    source_of.cache_clear()
    yield
    source_of.cache_clear()


def torch_functions():
    """The expressions that stand for a function of torch: (name, expression, torch's)."""
    return [
        (name, function, scalar_expression.torch_named(name))
        for name, function in scalar_expression._WRITTEN.items()
        if getattr(scalar_expression.torch_named(name), "__code__", None) is not function.__code__
    ]


def test_every_expression_equals_torchs_function():
    """In float64, on numbers of both signs around the places where the functions bend."""
    found = torch_functions()
    assert len(found) > 30
    for name, function, wanted in found:
        parameters = inspect.signature(function).parameters.values()
        generator = torch.Generator().manual_seed(0)
        given, number = [], 0.25
        for one in parameters:
            if "Tensor" in one.annotation:
                x = torch.rand(50, generator=generator, dtype=torch.float64)
                given.append(x if "cross" in name or "logit" in name else 10 * x - 5)
            else:
                number += 0.5
                given.append(number)
        torch.testing.assert_close(scalar_expression._as_torch(function)(*given), wanted(*given))


def test_every_expression_has_a_text_for_triton():
    for name in scalar_expression.triton_names():
        source = source_of(name)
        if source is not None:
            assert source.body.splitlines()[-1].startswith("return ")
            assert len(source.takes) == len(source.parameters)


def test_the_text():
    @expression()
    def tent(x: torch.Tensor, y: torch.Tensor, slope: float) -> torch.Tensor:
        """A docstring is no part of it."""
        apart = x.abs() - math.sqrt(4.0) * WIDTH
        return torch.where(apart < 0, 1 / apart, -y / (slope / 3) + torch.clamp_min(x, -WIDTH))

    source = source_of("tent")
    assert source.parameters == ("x", "y", "slope")
    assert source.takes == "rrr"
    assert source.body.splitlines() == [
        "apart = abs(x) - 1.0",
        "return tl.where(apart < 0, number_div(1, apart), "
        "div(neg(y), div_number(slope, 3)) + maximum(x, -0.5))",
    ]
    x, y = torch.randn(2, 5)
    inside = x.abs() - 1
    wanted = torch.where(inside < 0, 1 / inside, -y / 1.0 + x.clamp_min(-0.5))
    torch.testing.assert_close(tent(x, y, 3.0), wanted)


def test_what_is_true_or_false_is_computed_in_the_common_dtype():
    @expression()
    def is_near(x, y):
        return torch.abs(x - y) < WIDTH

    @expression()
    def is_far(x, y):
        return ~((x < y) & (y < x + WIDTH))

    assert source_of("is_near").takes == source_of("is_far").takes == "cc"


def refused():
    def power(x):
        return x**2

    def chosen(x):
        return x if x is None else -x

    def loop(x):
        for _ in range(3):
            x = x + x
        return x

    def text(x):
        return x + "1"

    def named(x):
        return torch.clamp(x, min=0.0)

    def several(x):
        return 0 < x < 1

    return [power, chosen, loop, text, named, several]


@pytest.mark.parametrize("function", refused(), ids=lambda function: function.__name__)
def test_what_no_expression_can_hold(function):
    expression()(function)
    with pytest.raises(ValueError, match="cannot be in an expression; there are assignments"):
        source_of(function.__name__)

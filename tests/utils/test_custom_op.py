"""Functions of torch as ops of a user's own."""

import pytest
import torch

import onefold as flow
from onefold.errors import OnefoldTypeError, OnefoldValueError
from onefold.testing import assert_sbp_equivalent
from onefold.utils.custom_op import torch_function

pytestmark = pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")


@torch_function("each")
def softcap(input, cap=30.0):
    """The input, bounded smoothly."""
    return cap * torch.tanh(input / cap)


@torch_function("but 1", outputs=("center", "spread"))
def summary(input):
    return input.mean(-1), input.std(-1)


@torch_function("each")
def centered(input):  # the rule is wrong: every mean is that of a shard
    return input - input.mean()


def test_it_is_right_in_any_layout_with_its_gradient():
    x = torch.randn(6, 8, dtype=torch.float64)
    assert_sbp_equivalent(lambda x: softcap(x, cap=2.0), x)
    assert_sbp_equivalent(lambda x: summary(x).spread, x)


def test_second_gradient():
    x = torch.randn(5, dtype=torch.float64)
    laid = flow.tensor(x, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0))
    laid.requires_grad_()
    x.requires_grad_()
    (once,) = flow.autograd.grad(softcap(laid, 2.0).sum(), laid, create_graph=True)
    (twice,) = flow.autograd.grad((once * once).sum(), laid)
    (wanted,) = torch.autograd.grad((2 * torch.tanh(x / 2)).sum(), x, create_graph=True)
    (wanted,) = torch.autograd.grad((wanted * wanted).sum(), x)
    torch.testing.assert_close(twice.to_torch(), wanted)
    assert twice.sbp == (flow.sbp.split(0),)


def test_it_looks_like_the_function():
    assert (softcap.__name__, softcap.__doc__) == ("softcap", "The input, bounded smoothly.")
    found = summary(flow.ones(2, 3))
    assert type(found).__name__ == "summary" and found._fields == ("center", "spread")


def test_a_wrong_rule_is_found():
    with pytest.raises(AssertionError, match="S0"):
        assert_sbp_equivalent(centered, torch.randn(6, 8, dtype=torch.float64))


def test_errors():
    with pytest.raises(OnefoldValueError, match="'every' is not a rule for batch dims"):
        torch_function("every")(softcap)
    with pytest.raises(OnefoldTypeError, match="missing a required argument: 'input'"):
        softcap()
    with pytest.raises(OnefoldTypeError, match=r"convert it with onefold\.from_torch"):
        softcap(torch.ones(2))

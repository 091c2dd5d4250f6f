"""Functions composed of others refuse what torch refuses."""

import pytest
import torch

import onefold as flow
from onefold.errors import OnefoldError, OnefoldTypeError, OnefoldValueError
from onefold.utils.custom_op import torch_function

X = flow.ones(2, 3)
CALLS = {
    "src of another shape": lambda: flow.select_scatter(X, flow.ones(1), 0, 0),
    "a dim out of range": lambda: flow.slice_scatter(X, X, 5),
    "unequal parts": lambda: flow.dsplit(flow.ones(2, 2, 5), 2),
    "no third dim": lambda: flow.dsplit(X, 1),
    "an input that does not broadcast": lambda: flow.addbmm(
        flow.ones(7, 3, 2), flow.ones(4, 3, 5), flow.ones(4, 5, 2)
    ),
    "weights of another length": lambda: flow.bincount(flow.tensor([0, 1]), flow.ones(3)),
    "a source of another length": lambda: flow.put(X, flow.tensor([0, 1]), flow.ones(1)),
    "too few dims": lambda: flow.nn.functional.feature_alpha_dropout(flow.ones(3), training=True),
    "a negative variance": lambda: flow.nn.functional.gaussian_nll_loss(X, X, -1.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_is_refused(name):
    with pytest.raises(OnefoldError):
        CALLS[name]()


@pytest.mark.parametrize("rule", ["", "but", "lead", "every", "each constnat", "but 2 linera"])
def test_rules_for_batch_dims_are_read_when_given(rule):
    def function(input):
        return torch.exp(input)

    with pytest.raises(OnefoldValueError, match="is not a rule for batch dims"):
        torch_function(rule)(function)


def test_a_function_without_a_signature_is_refused():
    with pytest.raises(OnefoldTypeError, match="exp shows no parameters"):
        torch_function("each")(torch.exp)


def test_correlations_are_bounded():
    x = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    assert float(flow.corrcoef(flow.tensor(x)).abs().max()) <= 1.0


def test_losses_with_a_given_variance_can_be_captured():
    class Loss(flow.nn.Graph):
        def build(self, x):
            return flow.nn.functional.gaussian_nll_loss(x, x * 0, 1.0)

    wanted = torch.nn.functional.gaussian_nll_loss(torch.ones(2, 3), torch.zeros(2, 3), 1.0)
    assert Loss()(X).item() == pytest.approx(wanted.item())

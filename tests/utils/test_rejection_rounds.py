"""Sampling by rejection stops where all is found, with the numbers that all rounds give."""

import itertools

import numpy as np
import pytest

import onefold as flow
from onefold import distributions as d
from onefold.distributions import standard_gamma, von_mises
from onefold.engine.ops import count_sampling
from onefold.engine.ops.rejection_rounds import RejectionRounds

SAMPLES = {
    "binomial": lambda x: flow.binomial(40 + 0 * x, (x + 0.1) / 2),
    "von Mises": lambda x: d.VonMises(x, x + 0.5).sample(),
    "gamma": lambda x: d.Gamma(x + 0.5, x + 1).sample(),
    "Dirichlet": lambda x: d.Dirichlet(x + 0.5).sample(),
}
LAYOUTS = [None, ([0, 1], flow.sbp.split(0)), ([0, 1], flow.sbp.broadcast)]


def drawn(name, layout, monkeypatch, whole):
    """A sample, the numbers drawn after it, and how many rounds there were."""
    counted = itertools.count()

    class Counted(RejectionRounds):
        def again(self, missing):
            goes_on = super().again(missing | True) if whole else super().again(missing)
            if goes_on:
                next(counted)
            return goes_on

    for module in (count_sampling, standard_gamma, von_mises):
        monkeypatch.setattr(module, "RejectionRounds", Counted)
    flow.manual_seed(3)
    x = flow.rand(6, 5)
    if layout is not None:
        x = x.to_global(flow.placement("cpu", layout[0]), flow.sbp.broadcast)
        x = x.to_global(sbp=layout[1])
    found = SAMPLES[name](x).numpy()
    return found, flow.get_rng_state(), next(counted)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_fewer_rounds_give_the_same_numbers(name, layout, monkeypatch, world):
    fewer = drawn(name, layout, monkeypatch, whole=False)
    monkeypatch.undo()
    whole = drawn(name, layout, monkeypatch, whole=True)
    np.testing.assert_array_equal(fewer[0], whole[0])
    assert fewer[1] == whole[1]
    assert 0 < fewer[2] < whole[2]


@pytest.mark.parametrize("name", SAMPLES)
def test_graphs_have_all_rounds(name, world):
    class Sample(flow.nn.Graph):
        def build(self, x):
            return SAMPLES[name](x)

    x = flow.rand(4, 3)
    flow.manual_seed(5)
    eager = SAMPLES[name](x).numpy()
    flow.manual_seed(5)
    np.testing.assert_array_equal(Sample()(x).numpy(), eager)

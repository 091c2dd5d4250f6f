"""poisson and binomial: torch's distributions, by Pearson's test, and what they refuse."""

import math

import pytest
import torch

import onefold as flow

theirs = torch.distributions


def pearson(drawn, chance):
    """How many deviations Pearson's statistic is above its mean, of counts expected often."""
    counts = torch.bincount(torch.from_numpy(drawn.numpy()).long(), minlength=400).double()
    expected = chance(torch.arange(len(counts), dtype=torch.float64)).exp() * drawn.numel()
    often = expected > 5
    statistic = ((counts - expected) ** 2 / expected)[often].sum()
    return float((statistic - often.sum()) / (2 * often.sum()).sqrt())


@pytest.mark.parametrize("rate", [0.01, 0.7, 4.0, 15.0, 120.0])
def test_poisson(rate):
    flow.manual_seed(1)
    drawn = flow.poisson(flow.full((20000,), rate, dtype=flow.float64))
    assert pearson(drawn, theirs.Poisson(rate).log_prob) < 4


@pytest.mark.parametrize(
    ("n", "p"), [(1, 0.3), (12, 0.1), (12, 0.93), (30, 0.5), (300, 0.2), (300, 0.96), (21, 0.48)]
)
def test_binomial(n, p):
    flow.manual_seed(1)
    count = flow.full((20000,), float(n), dtype=flow.float64)
    drawn = flow.binomial(count, flow.full((20000,), p, dtype=flow.float64))
    likely = theirs.Binomial(n, torch.tensor(p, dtype=torch.float64), validate_args=False).log_prob
    inside = torch.arange(400) <= n
    masked = pearson(drawn, lambda k: likely(k.clamp(max=n)).masked_fill(~inside, -math.inf))
    assert masked < 4


def test_counts_at_the_ends():
    big = flow.tensor([0.0, 1e-12, 1e9], dtype=flow.float64)
    drawn = flow.poisson(big).numpy()
    assert list(drawn[:2]) == [0, 0]
    assert abs(drawn[2] - 1e9) < 1e6
    n = flow.tensor([5.0, 5, 0, 1e6])
    drawn = flow.binomial(n, flow.tensor([0.0, 1, 0.5, 0.5])).numpy()
    assert list(drawn[:3]) == [0, 5, 0]
    assert abs(drawn[3] - 5e5) < 5e3
    for call, text in (
        (lambda: flow.poisson(flow.tensor([-1.0])), "input to be >= 0"),
        (lambda: flow.binomial(flow.tensor([-1.0]), flow.tensor(0.5)), "count to be >= 0"),
        (lambda: flow.binomial(flow.tensor([1.0]), flow.tensor(1.5)), r"prob to be in \[0, 1\]"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()
    for call in (
        lambda: flow.poisson(flow.tensor([1])),
        lambda: flow.binomial(flow.tensor([1]), flow.tensor([0.5])),
        lambda: flow.binomial(flow.ones(1), flow.ones(1, dtype=flow.float64)),
    ):
        with pytest.raises(TypeError, match="dtype"):
            call()


def test_counts_do_not_depend_on_the_layout(world):
    rate = torch.arange(12.0).reshape(4, 3)
    placed = {"placement": flow.placement("cpu", [0, 1]), "sbp": flow.sbp.split(0)}
    drawn = []
    for layout in ({}, placed):
        flow.manual_seed(5)
        x = flow.tensor(rate, **layout)
        drawn.append((flow.poisson(x).tolist(), flow.binomial(x, x / 12).tolist()))
    assert drawn[0] == drawn[1]
    assert flow.poisson(flow.tensor(rate, **placed)).sbp == (flow.sbp.split(0),)


def test_generators_are_taken():
    one = flow.poisson(flow.full((9,), 4.0), generator=flow.Generator().manual_seed(3))
    two = flow.poisson(flow.full((9,), 4.0), flow.Generator().manual_seed(3))
    assert one.tolist() == two.tolist()

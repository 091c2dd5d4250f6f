"""Every distribution against torch's: values, gradients, layouts, samples and divergences."""

import numpy as np
import pytest
import torch
from distribution_rows import ROWS, B, P, between, theirs

import onefold as flow
from onefold import distributions as ours

NAMES = [name for name in ROWS if hasattr(ours, name.split()[0].strip(","))]
PROPERTIES = ("mean", "mode", "variance", "stddev")
RANKS = ([0, 1], ["S0"]), ([[0, 1], [2, 3]], ["S0", "B"]), ([0, 1, 2], ["P"])


def pair(name, **grad):
    """The two distributions of a row, with the tensors they are made of."""
    given, make, value = ROWS[name]
    his = [x.clone().requires_grad_(bool(grad)) for x in given]
    mine = [flow.tensor(x, requires_grad=bool(grad)) for x in given]
    return make(theirs, *his), make(ours, *mine), his, mine, value


def outcome(distribution, name, *args):
    try:
        found = getattr(distribution, name)
        return found(*args) if callable(found) else found
    except NotImplementedError:
        return None


def same(found, wanted, rtol=1e-6):
    if wanted is None:  # what torch lacks may be there
        return
    assert found is not None
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    atol = 1e-7 if wanted.dtype is torch.float32 else 1e-9
    np.testing.assert_allclose(
        found.detach().numpy(), wanted.detach().numpy(), rtol=rtol, atol=atol
    )


@pytest.mark.parametrize("name", NAMES)
def test_values_are_torchs(name):
    wanted, found, _, _, value = pair(name)
    here = flow.tensor(value)
    rtol = 1e-5 if value.dtype is torch.float32 or "VonMises" in name else 1e-6
    if "around 1/2" in name:  # there torch has the uniform distribution function
        rtol = 5e-3
    assert (found.batch_shape, found.event_shape) == (wanted.batch_shape, wanted.event_shape)
    assert found.has_rsample == wanted.has_rsample
    assert found.has_enumerate_support == wanted.has_enumerate_support
    level = between(0.05, 0.95, seed=20).to(value.dtype)
    batch = (2, *(found.batch_shape or value.shape))
    for one, other in ((found, wanted), (found.expand(batch), wanted.expand(batch))):
        assert (one.batch_shape, one.event_shape) == (other.batch_shape, other.event_shape)
        for prop in PROPERTIES:
            same(outcome(one, prop), outcome(other, prop), rtol)
        same(one.log_prob(here), other.log_prob(value), rtol)
        same(outcome(one, "cdf", here), outcome(other, "cdf", value), rtol)
        same(outcome(one, "icdf", flow.tensor(level)), outcome(other, "icdf", level), rtol)
        if one is found or "Multinomial" not in name:  # torch's expanded ones have no entropy
            same(outcome(one, "entropy"), outcome(other, "entropy"), rtol)
        if wanted.has_enumerate_support and not name.startswith(("Independent", "Binomial of t")):
            for expand in (False, True):
                same(one.enumerate_support(expand), other.enumerate_support(expand))
        assert repr(one).startswith(repr(other).split("(")[0] + "(")


@pytest.mark.parametrize("name", NAMES)
def test_supports_are_torchs(name):
    """Values are checked: the same are in, and the same are refused."""
    wanted, found, _, _, value = pair(name)
    mine, his = found.support, wanted.support
    assert (mine.is_discrete, mine.event_dim) == (his.is_discrete, his.event_dim)
    for each in (value, value - 0.5, -value, value * 1.5, torch.full_like(value, torch.nan)):
        assert mine.check(flow.tensor(each)).tolist() == his.check(each).tolist()
    assert mine.check(found.sample((3,))).numpy().all()
    outside = torch.full_like(value, torch.nan)
    with pytest.raises(ValueError, match=f"{type(found).__name__}|Normal|Bernoulli"):
        found.log_prob(flow.tensor(outside))
    if found.batch_shape:
        with pytest.raises(ValueError, match="the value argument to log_prob must end with"):
            found.log_prob(flow.ones(7, 5, dtype=flow.float64))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_torchs(name):
    if not ROWS[name][0]:
        return
    wanted, found, his, mine, value = pair(name, grad=True)
    wanted.log_prob(value).sum().backward(retain_graph=True)
    found.log_prob(flow.tensor(value)).sum().backward(retain_graph=True)
    for one, other in zip(mine, his, strict=True):
        if other.grad is not None:
            same(one.grad, other.grad, 1e-5)
    entropy = outcome(wanted, "entropy")
    if entropy is not None and entropy.requires_grad and his:
        wished = torch.autograd.grad(entropy.sum(), his, allow_unused=True)
        made = flow.autograd.grad(found.entropy().sum(), mine, allow_unused=True)
        for one, other in zip(made, wished, strict=True):
            same(one, other, 1e-5)


WITHOUT_MOMENTS = ("Cauchy", "HalfCauchy", "FisherSnedecor", "InverseGamma", "VonMises")


@pytest.mark.parametrize("name", NAMES)
def test_samples_have_the_moments(name):
    """Of many samples: the mean and variance, and that the distribution function is uniform."""
    flow.manual_seed(0)
    wanted, found, _, _, value = pair(name)
    drawn = found.sample((4000,))
    assert drawn.shape == (4000, *found.batch_shape, *found.event_shape)
    assert not drawn.requires_grad
    assert found.sample().shape == found.batch_shape + found.event_shape
    if name == "Categorical":
        share = flow.nn.functional.one_hot(drawn, 3).double().mean(0)
        np.testing.assert_allclose(share.numpy(), found.probs.numpy(), atol=0.04)
        return
    values = torch.from_numpy(drawn.numpy())
    assert values.dtype == value.dtype
    if outcome(wanted, "cdf", value) is not None and not found.support.is_discrete:
        u = wanted.cdf(values).flatten(1).sort(0).values
        steps = torch.arange(4000, dtype=u.dtype).unsqueeze(1) / 4000
        assert (u - steps).abs().max() < 0.035
    mean, variance = outcome(wanted, "mean"), outcome(wanted, "variance")
    if mean is None or variance is None or name.startswith(WITHOUT_MOMENTS):
        return
    error = (values.mean(0) - mean).abs() / (variance / 4000).sqrt()
    assert (error < 4.5).all()
    np.testing.assert_allclose(values.var(0).numpy(), variance.numpy(), rtol=0.35, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_layouts_change_nothing(world, name):
    given, make, value = ROWS[name]
    flow.manual_seed(3)
    plain = make(ours, *map(flow.tensor, given))
    wanted = plain.sample((2,)).numpy()
    for ranks, sbps in RANKS:
        layout = {"S0": flow.sbp.split(0), "B": flow.sbp.broadcast, "P": flow.sbp.partial_sum}
        placed = {"placement": flow.placement("cpu", ranks), "sbp": [layout[x] for x in sbps]}
        if not given:
            continue
        whole = {**placed, "sbp": [flow.sbp.broadcast] * len(sbps)}
        there = make(ours, *[flow.tensor(x, **(placed if len(x) == B else whole)) for x in given])
        flow.manual_seed(3)
        np.testing.assert_allclose(
            there.sample((2,)).numpy(), wanted, rtol=1e-6 if value.dtype is torch.float32 else 1e-9
        )
        same(
            there.log_prob(flow.tensor(value, **placed)),
            torch.from_numpy(plain.log_prob(flow.tensor(value)).numpy()),
        )


@pytest.mark.parametrize("name", ["Gamma", "Beta", "Dirichlet"])
def test_implicit_gradients_are_torchs(name):
    """Torch's gradient at the sample drawn here."""
    given, make, _ = ROWS[name]
    mine = [flow.tensor(x, requires_grad=True) for x in given]
    flow.manual_seed(0)
    drawn = make(ours, *mine).rsample()
    weight = between(0.5, 2, drawn.shape, 12)
    (drawn * flow.tensor(weight)).sum().backward()
    x, his = torch.from_numpy(drawn.detach().numpy()), [x.clone() for x in given]
    if name == "Gamma":
        slope = torch._standard_gamma_grad(his[0], x * his[1])
        wished = [weight * slope / his[1], -weight * x / his[1]]
    elif name == "Beta":
        total = his[0] + his[1]
        up = torch._dirichlet_grad(x, his[0], total) * (1 - x)
        down = torch._dirichlet_grad(1 - x, his[1], total) * -x
        wished = [weight * up, weight * down]
    else:
        total = his[0].sum(-1, keepdim=True).expand_as(x)
        inner = (x * weight).sum(-1, keepdim=True)
        wished = [torch._dirichlet_grad(x, his[0], total) * (weight - inner)]
    for one, other in zip(mine, wished, strict=True):
        same(one.grad, other)


REPARAMETERIZED = [
    name
    for name in NAMES
    if name.split()[0]
    not in (*WITHOUT_MOMENTS, "OneHotCategoricalStraightThrough", "GeneralizedPareto")
    and pair(name)[1].has_rsample
    and outcome(pair(name)[0], "mean") is not None
    and outcome(pair(name)[0], "variance") is not None
    and ROWS[name][0]
]


@pytest.mark.parametrize("name", REPARAMETERIZED)
def test_gradients_of_samples_are_those_of_the_mean(name):
    """The mean of the samples' gradients is the gradient of the mean."""
    wanted, found, his, mine, _ = pair(name, grad=True)
    flow.manual_seed(1)
    drawn = found.rsample((6000,))
    assert drawn.requires_grad
    made = flow.autograd.grad(drawn.mean(0).sum(), mine, allow_unused=True)
    wished = torch.autograd.grad(wanted.mean.sum(), his, allow_unused=True)
    for one, other in zip(made, wished, strict=True):
        if other is not None:
            np.testing.assert_allclose(one.numpy(), other.numpy(), atol=0.15, rtol=0.2)


def test_straight_through_samples_have_the_gradient_of_the_probabilities():
    p = flow.tensor(P, requires_grad=True)
    weight = flow.tensor(between(0, 1, P.shape, 13))
    (ours.OneHotCategoricalStraightThrough(p).rsample() * weight).sum().backward()
    q = P.clone().requires_grad_()
    (theirs.OneHotCategorical(q).probs * torch.from_numpy(weight.numpy())).sum().backward()
    same(p.grad, q.grad)


def divergences():
    """The pairs of rows for which torch has a divergence."""
    made = {name: pair(name)[0] for name in NAMES if "numbers" not in name}
    for one, p in made.items():
        for other, q in made.items():
            try:
                theirs.kl_divergence(p, q)
            except (NotImplementedError, ValueError, RuntimeError):
                continue
            yield one, other


PAIRS = list(divergences())


@pytest.mark.parametrize("one", list(dict.fromkeys(p for p, _ in PAIRS)))
def test_divergences_are_torchs(one):
    for name, other in PAIRS:
        if name != one:
            continue
        p, mine = pair(one)[:2]
        q, yours = pair(other)[:2]
        wanted = theirs.kl_divergence(p, q)
        found = ours.kl_divergence(mine, yours)
        same(found.expand(wanted.shape), wanted, 1e-5)

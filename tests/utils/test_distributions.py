"""Distributions against torch.distributions: every method, gradients, layouts, moments."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold import distributions as ours
from onefold.distributions import scalar_constraints
from onefold.testing.recording import record

theirs = torch.distributions

SHAPE = (4, 3)


def values(low, high, shape=SHAPE, seed=0):
    drawn = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return low + (high - low) * drawn


BITS = torch.tensor([[0.0, 1, 1], [1, 0, 1], [0, 0, 0], [1, 1, 1]], dtype=torch.float64)
CASES = {
    "normal": ("Normal", {"loc": values(-1, 1), "scale": values(0.5, 2, seed=1)}, values(-2, 2)),
    "normal of numbers": ("Normal", {"loc": 1.0, "scale": 2.0}, values(-2, 2).float()),
    "normal of both": ("Normal", {"loc": values(-1, 1), "scale": 2.0}, values(-2, 2)),
    "uniform": ("Uniform", {"low": values(-2, 0), "high": values(1, 2, seed=1)}, values(0, 1)),
    "bernoulli": ("Bernoulli", {"probs": values(0.1, 0.9)}, BITS),
    "bernoulli, certain": ("Bernoulli", {"probs": BITS}, BITS),
    "bernoulli of logits": ("Bernoulli", {"logits": values(-3, 3)}, BITS),
    "bernoulli of a number": ("Bernoulli", {"probs": 0.3}, BITS.float()),
    "categorical": ("Categorical", {"probs": values(0.1, 5)}, torch.tensor([0, 2, 1, 1])),
    "categorical, zeros": (
        "Categorical",
        {"probs": torch.tensor([[0.0, 1, 3]] * 4)},
        torch.tensor([1, 2, 1, 1]),
    ),
    "categorical of logits": (
        "Categorical",
        {"logits": values(-3, 3)},
        torch.tensor([[0, 2, 1, 1], [2, 2, 2, 0]]),
    ),
}
LAYOUTS = [
    None,
    ([0, 1], ["S0"]),
    ([0, 1], ["P"]),
    ([[0, 1], [2, 3]], ["S0", "B"]),
    ([0, 1, 2], ["S0"]),
]


def placed(value, layout):
    if not isinstance(value, torch.Tensor):
        return value
    if layout is None or not value.ndim:
        return flow.tensor(value)
    sbps = {"S0": flow.sbp.split(0), "B": flow.sbp.broadcast, "P": flow.sbp.partial_sum}
    p = flow.placement("cpu", layout[0])
    return flow.tensor(value, placement=p, sbp=[sbps[text] for text in layout[1]])


def outcome(distribution, name, *args):
    try:
        return getattr(distribution, name)(*args)
    except NotImplementedError:
        return None


def same(found, wanted):
    if wanted is None or found is None:
        assert found is wanted
        return
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(
        found.detach().numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_methods_are_torchs(world, name, layout):
    kind, given, value = CASES[name]
    wanted = getattr(theirs, kind)(**given)
    found = getattr(ours, kind)(**{key: placed(x, layout) for key, x in given.items()})
    if any(isinstance(x, torch.Tensor) for x in given.values()):
        value_here = placed(value, layout)
    else:
        value_here = placed(value, None)
    if value.ndim == 2 and kind == "Categorical" and layout:
        value_here = value_here.to_global(sbp=[flow.sbp.broadcast] * len(layout[1]))
    assert (found.batch_shape, found.event_shape) == (wanted.batch_shape, wanted.event_shape)
    for prop in ("mean", "mode", "variance", "stddev"):
        same(getattr(found, prop), getattr(wanted, prop))
    batch = (2, *(found.batch_shape or SHAPE))
    for one, other in ((found, wanted), (found.expand(batch), wanted.expand(batch))):
        same(one.log_prob(value_here), other.log_prob(value))
        same(outcome(one, "cdf", value_here), outcome(other, "cdf", value))
        for method in (["entropy"], ["perplexity"], *(["enumerate_support", x] for x in (0, 1))):
            same(outcome(one, *method), outcome(other, *method))
    if found.has_rsample and value.ndim:
        level = values(0.05, 0.95)
        here = (
            placed(level, layout) if value_here.is_global else placed(level.to(value.dtype), None)
        )
        same(found.icdf(here), wanted.icdf(level.to(value.dtype)))
    assert found.has_rsample == wanted.has_rsample
    assert found.has_enumerate_support == wanted.has_enumerate_support


@pytest.mark.parametrize("kind", ["Normal", "Uniform", "Bernoulli", "Categorical"])
def test_divergences_are_torchs(kind):
    pairs = {
        "Normal": ((values(-1, 1), values(1, 2)), (values(-1, 1, seed=3), values(1, 2, seed=4))),
        "Uniform": ((values(0, 1), values(2, 3)), (values(-1, 0.5, seed=3), values(2, 4, seed=4))),
        "Bernoulli": ((BITS,), (values(0.1, 0.9),)),
        "Categorical": ((torch.tensor([[0.0, 1, 2]]),), (torch.tensor([[1.0, 0, 3], [1, 1, 1]]),)),
    }
    for p, q in (pairs[kind], pairs[kind][::-1]):
        wanted = theirs.kl_divergence(*(getattr(theirs, kind)(*x) for x in (p, q)))
        found = ours.kl_divergence(*(getattr(ours, kind)(*map(flow.tensor, x)) for x in (p, q)))
        same(found, wanted)


def test_divergences_of_the_certain_have_gradients():
    p, q = torch.tensor([0.0, 1, 0.3, 0, 1]), torch.tensor([0.2, 0.6, 0.9, 0, 1])
    made = [x.clone().requires_grad_() for x in (p, q)]
    mine = [flow.tensor(x, requires_grad=True) for x in (p, q)]
    wanted = theirs.kl_divergence(*map(theirs.Bernoulli, made))
    found = ours.kl_divergence(*map(ours.Bernoulli, mine))
    same(found, wanted)
    wanted.sum().backward()
    found.sum().backward()
    for one, other in zip(mine, made, strict=True):
        assert np.isfinite(one.grad.numpy()).all()
        same(one.grad, other.grad)


def test_divergences_of_binomials_of_other_counts(world):
    """What has no formula is refused, as in torch, and what q cannot be is infinite."""
    for lib in (torch, flow):
        few, many = (lib.distributions.Binomial(n, lib.tensor([0.3, 0.4])) for n in (3, 5))
        assert lib.distributions.kl_divergence(many, few).tolist() == [float("inf")] * 2
        with pytest.raises(NotImplementedError, match=r"q\.total_count > p\.total_count"):
            lib.distributions.kl_divergence(few, many)


def test_divergences_by_type():
    class Own(ours.Normal):
        pass

    p = ours.Normal(0.0, 1.0)
    assert ours.kl_divergence(Own(0.0, 1.0), p).item() == 0
    with pytest.raises(NotImplementedError, match="Normal and q type Bernoulli"):
        ours.kl_divergence(p, ours.Bernoulli(0.5))

    @ours.register_kl(Own, ours.Normal)
    def _(p, q):
        return p.loc + 7

    assert ours.kl_divergence(Own(0.0, 1.0), p).item() == 7


@pytest.mark.parametrize("name", CASES)
def test_samples_have_the_moments(name):
    kind, given, _ = CASES[name]
    flow.manual_seed(0)
    found = getattr(ours, kind)(**{key: placed(x, None) for key, x in given.items()})
    drawn = found.sample((4000,))
    assert drawn.shape == (4000, *found.batch_shape)
    assert not drawn.requires_grad
    if kind == "Categorical":
        share = flow.nn.functional.one_hot(drawn, 3).float().mean(0)
        np.testing.assert_allclose(share.numpy(), found.probs.numpy(), atol=0.03)
        assert not share.numpy()[found.probs.numpy() == 0].any()
        return
    assert drawn.dtype == found.mean.dtype
    np.testing.assert_allclose(drawn.mean(0).numpy(), found.mean.numpy(), atol=0.12)
    np.testing.assert_allclose(drawn.var(0).numpy(), found.variance.numpy(), rtol=0.1, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_samples_do_not_depend_on_the_layout(world, name):
    kind, given, _ = CASES[name]
    drawn = []
    for layout in LAYOUTS:
        flow.manual_seed(1)
        p = getattr(ours, kind)(**{key: placed(x, layout) for key, x in given.items()})
        drawn.append(p.sample((2,)).tolist())
    assert all(each == drawn[0] for each in drawn)


def test_gradients_are_torchs():
    loc, scale = values(-1, 1), values(1, 2)
    made = [x.clone().requires_grad_() for x in (loc, scale)]
    mine = [flow.tensor(x, requires_grad=True) for x in (loc, scale)]
    value = values(-1, 1, seed=5)
    (theirs.Normal(*made).log_prob(value).sum() + theirs.Normal(*made).entropy().sum()).backward()
    p = ours.Normal(*mine)
    (p.log_prob(flow.tensor(value)).sum() + p.entropy().sum()).backward()
    for one, other in zip(mine, made, strict=True):
        same(one.grad, other.grad)
    flow.manual_seed(0)
    drawn = p.rsample()
    noise = (drawn - p.loc) / p.scale
    found = flow.autograd.grad(drawn.sum(), mine)
    assert found[0].tolist() == np.ones(SHAPE).tolist()
    np.testing.assert_allclose(found[1].numpy(), noise.detach().numpy(), rtol=1e-6)
    low = flow.tensor(0.0, requires_grad=True)
    ours.Uniform(low, 1.0).rsample((5,)).sum().backward()
    assert 0 < low.grad.item() < 5


def test_arguments_are_checked():
    for make, text in (
        (lambda: ours.Normal(0.0, -1.0), "scale must be greater than 0"),
        (lambda: ours.Normal(float("nan"), 1.0), "loc"),
        (lambda: ours.Uniform(1.0, 1.0), "greater than low"),
        (lambda: ours.Bernoulli(1.5), r"in \[0, 1\]"),
        (ours.Bernoulli, "none"),
        (lambda: ours.Bernoulli(0.5, 0.0), "both"),
        (lambda: ours.Categorical(flow.tensor([-1.0, 2])), "at least 0"),
        (lambda: ours.Categorical(flow.zeros(2)), "not 0"),
        (lambda: ours.Categorical(flow.tensor([[1.0, 1], [np.inf, 1]])), "finite"),
        (lambda: ours.Categorical(logits=flow.tensor([np.inf, 0])), "below infinity"),
        (lambda: ours.Categorical(logits=flow.tensor([-np.inf] * 2)), "one is finite"),
        (lambda: ours.Categorical(flow.tensor(1.0)), "one-dimensional"),
        (lambda: ours.Categorical(flow.ones(2)).log_prob(flow.tensor(2)), r"in \[0, 1\]"),
        (lambda: ours.Uniform(0.0, 1.0).log_prob(flow.tensor(2.0)), "value must be in"),
        (lambda: ours.Bernoulli(0.5).log_prob(flow.tensor(0.5)), "0 or 1"),
    ):
        with pytest.raises(ValueError, match=text):
            make()
    with pytest.raises(TypeError, match="Tensor"):
        ours.Categorical([1.0, 2.0])
    with pytest.raises(TypeError, match=r"got torch.Tensor; use onefold.from_torch"):
        ours.Categorical(torch.ones(2))
    assert ours.Categorical(logits=flow.tensor([-np.inf, 0])).probs.tolist() == [0, 1]
    for p in (ours.Normal(0.0, 1.0), ours.Uniform(0.0, 1.0), ours.Bernoulli(0.5)):
        for method in ["log_prob"] if isinstance(p, ours.Bernoulli) else ["log_prob", "cdf"]:
            for value in (0.5, torch.tensor(0.5)):
                with pytest.raises(TypeError, match=f"value argument to {method} must be a Tensor"):
                    getattr(p, method)(value)
    with pytest.raises(TypeError, match="value argument"):
        ours.Categorical(flow.ones(2)).log_prob(1)
    unchecked = ours.Uniform(0.0, 1.0, validate_args=False)
    assert unchecked.log_prob(flow.tensor(2.0)).item() == -np.inf
    ours.Distribution.set_default_validate_args(False)
    try:
        ours.Normal(0.0, -1.0)
    finally:
        ours.Distribution.set_default_validate_args(True)


def test_in_a_graph():
    class Elbo(flow.nn.Graph):
        def build(self, loc, scale):
            p = ours.Normal(loc, scale)
            return p.rsample((2,)), ours.kl_divergence(p, ours.Normal(0.0, 1.0))

    loc, scale = flow.ones(3), flow.ones(3)
    flow.manual_seed(0)
    found = Elbo()(loc, scale)
    flow.manual_seed(0)
    p = ours.Normal(loc, scale)
    assert found[0].tolist() == p.rsample((2,)).tolist()
    assert found[1].tolist() == [0.5] * 3


def test_it_shows_its_parameters():
    assert repr(ours.Normal(0.0, 1.0)) == repr(theirs.Normal(0.0, 1.0))
    wide = {"loc": torch.zeros(3), "scale": torch.ones(3)}
    shown = ours.Normal(**{key: flow.tensor(x) for key, x in wide.items()})
    assert repr(shown) == repr(theirs.Normal(**wide))


def test_a_log_prob_runs_no_op_that_changes_nothing():
    """Of small tensors each op takes longer than its arithmetic."""
    d, value = flow.distributions.Categorical(logits=flow.randn(4, 3)), flow.tensor([0, 2, 1, 1])
    with record() as recorder:
        d.log_prob(value)
    ran = {call.op.name for call in recorder.calls.values()}
    assert "gather" in ran
    assert not ran & {"expand", "remainder", "detach"}


def test_the_text_of_a_rule_is_made_for_an_error_only(monkeypatch):
    d = flow.distributions.Uniform(flow.zeros(()), flow.ones(()))
    texts = []
    monkeypatch.setattr(scalar_constraints, "_shown", lambda bound: texts.append(bound) or "bound")
    d.log_prob(flow.tensor(0.5))
    assert texts == []
    with pytest.raises(ValueError, match=r"in \[bound, bound\], but got"):
        d.log_prob(flow.tensor(2.0))

"""Programs that define and use distributions as those written for torch do."""

import pkgutil
from importlib import import_module

import numpy as np
import pytest
import torch
from distribution_rows import POSITIVE, REAL, ROWS, SCALE, A, C, P

import onefold as flow
from onefold import distributions as ours

theirs = torch.distributions


def test_torchs_names_and_modules_are_there():
    assert set(theirs.__all__) <= set(ours.__all__)
    for module in pkgutil.iter_modules(theirs.__path__):
        wanted = import_module(f"torch.distributions.{module.name}")
        found = import_module(f"onefold.distributions.{module.name}")
        for name in getattr(wanted, "__all__", ()):
            assert hasattr(found, name), (module.name, name)


class Rayleigh:
    """A class body that is the same for both: a program with its imports swapped."""

    arg_constraints = {}  # noqa: RUF012  (as programs write it)
    has_rsample = True

    def __init__(self, scale, validate_args=None):
        self.scale = scale
        super().__init__(scale.shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(type(self), _instance)
        new.scale = self.scale.expand(batch_shape)
        super(type(self), new).__init__(new.scale)
        return new

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        return self.scale.expand(shape) * 2.0

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return value.log() - 2 * self.scale.log() - (value / self.scale) ** 2 / 2


def rayleigh(space):
    rows = {"scale": space.constraints.positive}
    names = {"arg_constraints": rows, "support": space.constraints.positive}
    return type("Rayleigh", (Rayleigh, space.Distribution), names)


def test_a_distribution_of_a_program():
    mine, other = rayleigh(ours), rayleigh(theirs)
    found, wanted = mine(flow.tensor(SCALE)), other(SCALE)
    value = flow.tensor(POSITIVE)
    np.testing.assert_allclose(found.log_prob(value).numpy(), wanted.log_prob(POSITIVE).numpy())
    assert found.sample((2,)).shape == (2, 4, 3)
    assert found.expand((5, 4, 3)).batch_shape == (5, 4, 3)
    assert repr(found) == repr(wanted)
    with pytest.raises(ValueError, match="Rayleigh: scale must be greater than 0"):
        mine(-flow.tensor(SCALE))
    with pytest.raises(ValueError, match="Rayleigh: value must be greater than 0"):
        found.log_prob(-value)
    with pytest.raises(TypeError, match="The value argument to log_prob must be a Tensor"):
        found.log_prob(1.0)
    with pytest.raises(NotImplementedError, match="Rayleigh has no mean"):
        _ = found.mean
    with pytest.warns(FutureWarning, match="sample_n"):
        assert found.sample_n(2).shape == (2, 4, 3)


def test_the_family_knows_entropies_and_divergences():
    """Of natural parameters, against the closed forms."""
    family = ours.ExponentialFamily
    kinds = {
        "Bernoulli": (P,), "Beta": (A, C), "Dirichlet": (A,), "Exponential": (A,),
        "Gamma": (A, C), "Normal": (REAL, SCALE), "Wishart": ROWS["Wishart"][0],
        "Categorical": (P,), "ContinuousBernoulli": (P,),
    }  # fmt: skip
    for name, given in kinds.items():
        p, q = (
            getattr(ours, name)(*[flow.tensor(x[rows], requires_grad=True) for x in given])
            for rows in (slice(0, 2), slice(2, 4))
        )
        assert isinstance(p, family)
        np.testing.assert_allclose(
            family.entropy(p).detach().numpy(), p.entropy().detach().numpy(), rtol=1e-6, atol=1e-9
        )
        if name == "Wishart":
            continue
        found = ours.divergences._exponential_family(p, q)
        np.testing.assert_allclose(
            found.detach().numpy(), ours.kl_divergence(p, q).detach().numpy(), rtol=1e-6
        )


def test_divergences_that_are_not_defined():
    normal = ours.Normal(flow.zeros(2, 3), 1.0)
    one, two = ours.Independent(normal, 1), ours.Independent(normal, 2)
    with pytest.raises(NotImplementedError, match="reinterpreted_batch_ndims"):
        ours.kl_divergence(one, two)
    affine = ours.TransformedDistribution(normal, ours.AffineTransform(0.0, 2.0))
    with pytest.raises(NotImplementedError, match="same transforms"):
        ours.kl_divergence(affine, ours.TransformedDistribution(normal, ours.ExpTransform()))
    with pytest.raises(NotImplementedError, match="Gamma and q type Weibull"):
        ours.kl_divergence(ours.Gamma(1.0, 1.0), ours.Weibull(1.0, 1.0))


def test_samples_of_probabilities_keep_later_gradients():
    """What a sample computes first, without gradients, has gradients later."""
    for kind in (ours.Bernoulli, ours.Geometric, ours.ContinuousBernoulli):
        x = flow.tensor(REAL, requires_grad=True)
        p = kind(logits=x)
        p.sample()
        p.mean.sum().backward()
        assert x.grad is not None


@pytest.mark.parametrize(
    "name", ["Gamma", "Dirichlet", "Poisson", "Binomial", "MultivariateNormal"]
)
def test_samples_in_a_graph(name):
    given, make, _ = ROWS[name]
    tensors = list(map(flow.tensor, given))

    class Sample(flow.nn.Graph):
        def build(self, *tensors):
            return make(ours, *tensors).sample((2,))

    flow.manual_seed(0)
    found = Sample()(*tensors)
    flow.manual_seed(0)
    np.testing.assert_allclose(found.numpy(), make(ours, *tensors).sample((2,)).numpy(), rtol=1e-9)


def test_an_elbo_with_implicit_gradients_in_a_graph():
    class Shape(flow.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = flow.nn.Parameter(flow.tensor([0.7, 2.0], dtype=flow.float64))

        def forward(self):
            return ours.Gamma(self.a, 1.0).rsample((50,)).mean()

    model = Shape()
    a = model.a

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD([a], lr=0.1))

        def build(self):
            loss = self.model()
            loss.backward()
            return loss

    flow.manual_seed(0)
    before = a.detach().numpy().copy()
    Step()()
    flow.manual_seed(0)
    other = flow.tensor(before, requires_grad=True)
    ours.Gamma(other, 1.0).rsample((50,)).mean().backward()
    np.testing.assert_allclose(a.detach().numpy(), before - 0.1 * other.grad.numpy(), rtol=1e-9)


def test_small_concentrations_do_not_underflow():
    flow.manual_seed(0)
    a = flow.full((1000, 3), 1e-3, requires_grad=True)
    shares = ours.Dirichlet(a).rsample()
    assert np.isfinite(shares.detach().numpy()).all()
    np.testing.assert_allclose(shares.sum(-1).detach().numpy(), 1, rtol=1e-5)
    drawn = ours.Gamma(a, 1.0).rsample()
    drawn.sum().backward()
    assert (drawn.detach().numpy() > 0).all()
    assert np.isfinite(a.grad.numpy()).all()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ours.Gamma(-1.0, 1.0), "Gamma: concentration must be greater than 0, but got"),
        (lambda: ours.Gamma(1.0, 0.0), "Gamma: rate must be greater than 0"),
        (lambda: ours.Poisson(-1.0), "rate must be at least 0"),
        (lambda: ours.HalfNormal(-1.0), "HalfNormal: scale must be greater than 0"),
        (lambda: ours.Geometric(0.0), "probs must be greater than 0"),
        (lambda: ours.Binomial(1.5, probs=0.5), "total_count must be an integer of at least 0"),
        (lambda: ours.Binomial(2), "none"),
        (lambda: ours.NegativeBinomial(1.0, probs=1.0), r"probs must be in \[0, 1\)"),
        (lambda: ours.Dirichlet(flow.tensor([1.0, -1.0])), "concentration must be greater"),
        (lambda: ours.Dirichlet(flow.tensor(1.0)), "at least one-dimensional"),
        (lambda: ours.MultivariateNormal(flow.zeros(2)), "Exactly one of"),
        (lambda: ours.MultivariateNormal(flow.zeros(2), flow.zeros(2, 2)), "positive eigenvalues"),
        (lambda: ours.MultivariateNormal(flow.zeros(2), flow.ones(2)), "two-dimensional"),
        (
            lambda: ours.LowRankMultivariateNormal(flow.zeros(2), flow.ones(3, 1), flow.ones(2)),
            "shape 2 x m",
        ),
        (lambda: ours.Wishart(0.5, flow.eye(2)), "df must be greater than 1"),
        (lambda: ours.LKJCholesky(1), "greater than or equal to 2"),
        (lambda: ours.Independent(ours.Normal(0.0, 1.0), 1), "reinterpreted_batch_ndims <="),
        (
            lambda: ours.TransformedDistribution(
                ours.Normal(0.0, 1.0), ours.StickBreakingTransform()
            ),
            "size at least 1",
        ),
        (
            lambda: ours.MixtureSameFamily(
                ours.Categorical(flow.ones(2)), ours.Normal(flow.zeros(3), 1.0)
            ),
            "2 categories",
        ),
        (lambda: ours.Beta(1.0, 1.0).log_prob(flow.tensor(2.0)), r"value must be in \[0, 1\]"),
        (lambda: ours.Pareto(1.0, 1.0).log_prob(flow.tensor(0.5)), "value must be at least 1"),
        (
            lambda: ours.Multinomial(2, flow.ones(2)).log_prob(flow.tensor([2.0, 1.0])),
            "add up to at most 2",
        ),
        (lambda: ours.OneHotCategorical(flow.ones(2)).log_prob(flow.ones(2)), "one-hot"),
        (lambda: ours.Normal(flow.zeros(3), 1.0).log_prob(flow.zeros(2)), "broadcast with"),
    ],
)
def test_messages_say_what_is_allowed(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_types_are_checked():
    with pytest.raises(TypeError, match="transforms must be a Transform"):
        ours.TransformedDistribution(ours.Normal(0.0, 1.0), [flow.exp])
    with pytest.raises(TypeError, match=r"instance of onefold\.distributions\.Categorical"):
        ours.MixtureSameFamily(ours.Normal(0.0, 1.0), ours.Normal(flow.zeros(2), 1.0))
    for given in ([1.0], (), np.ones(2), torch.ones(2), "1"):
        with pytest.raises(TypeError, match="argument 'loc' must be an onefold Tensor or a number"):
            ours.Normal(given, 1.0)
    with pytest.raises(NotImplementedError, match="total_count"):
        ours.Multinomial(flow.tensor([1, 2]), flow.ones(2))
    with pytest.warns(UserWarning, match="Low df"):
        ours.Wishart(1.5, flow.eye(2))

"""A row for each distribution: how to make it, in a space of torch's names, and a value of it."""

import torch

theirs = torch.distributions
B, K = 4, 3


def between(low, high, shape=(B, K), seed=0):
    drawn = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return low + (high - low) * drawn


def counts(high, shape=(B, K), seed=7):
    return between(0, high + 1, shape, seed).floor()


A, C = between(0.5, 3.0), between(0.6, 2.5, seed=1)
REAL, SCALE = between(-1, 1, seed=2), between(0.5, 2, seed=3)
P = between(0.1, 0.9, seed=4)
UNIT, POSITIVE, ANY = between(0.05, 0.95, seed=5), between(0.2, 3, seed=6), between(-2, 2, seed=8)
SHARES = between(0.1, 1, seed=9) / between(0.1, 1, seed=9).sum(-1, keepdim=True)
SHARES4 = torch.cat([SHARES * 0.75, torch.full((B, 1), 0.25, dtype=torch.float64)], -1)
ONE_HOT = torch.eye(K, dtype=torch.float64)[[0, 2, 1, 1]]
ROOT = torch.eye(K, dtype=torch.float64) * 1.5 + between(-0.5, 0.5, (B, K, K), 10).tril()
COV, WIDE = ROOT @ ROOT.mT, between(-1, 1, (B, K, 2), 11)
HEAT = torch.tensor(0.7, dtype=torch.float64)

# Name: the tensors, the function that makes the distribution of them, and a value.
ROWS = {
    "Bernoulli": ((P,), lambda d, p: d.Bernoulli(p), counts(1)),
    "Beta": ((A, C), lambda d, a, c: d.Beta(a, c), UNIT),
    "Beta of numbers": ((), lambda d: d.Beta(2.0, 3.0), UNIT.float()),
    "Binomial": ((P,), lambda d, p: d.Binomial(10, p), counts(10)),
    "Binomial of logits": ((REAL,), lambda d, x: d.Binomial(4, logits=x), counts(4)),
    "Binomial of tensors": ((counts(9) + 1, P), lambda d, n, p: d.Binomial(n, p), counts(0)),
    "Categorical": ((P,), lambda d, p: d.Categorical(p), counts(2, (B,))),
    "Cauchy": ((REAL, SCALE), lambda d, a, c: d.Cauchy(a, c), ANY),
    "Chi2": ((A,), lambda d, a: d.Chi2(a), POSITIVE),
    "ContinuousBernoulli": ((P,), lambda d, p: d.ContinuousBernoulli(p), UNIT),
    "ContinuousBernoulli around 1/2": (
        (between(0.498, 0.502),), lambda d, p: d.ContinuousBernoulli(p), UNIT
    ),
    "ContinuousBernoulli of logits": (
        (REAL,), lambda d, x: d.ContinuousBernoulli(logits=x), UNIT
    ),
    "Dirichlet": ((A,), lambda d, a: d.Dirichlet(a), SHARES),
    "Exponential": ((A,), lambda d, a: d.Exponential(a), POSITIVE),
    "FisherSnedecor": ((2 * A, 4 * C), lambda d, a, c: d.FisherSnedecor(a, c), POSITIVE),
    "Gamma": ((A, C), lambda d, a, c: d.Gamma(a, c), POSITIVE),
    "Gamma of a number": ((A,), lambda d, a: d.Gamma(a, 2.0), POSITIVE),
    "GeneralizedPareto": (
        (REAL.float(), SCALE.float(), between(-0.4, 0.2).float()),
        lambda d, *x: d.GeneralizedPareto(*x),
        (REAL + UNIT / 2).float(),
    ),
    "Geometric": ((P,), lambda d, p: d.Geometric(p), counts(5)),
    "Geometric of logits": ((REAL,), lambda d, x: d.Geometric(logits=x), counts(5)),
    "Gumbel": ((REAL, SCALE), lambda d, a, c: d.Gumbel(a, c), ANY),
    "HalfCauchy": ((SCALE,), lambda d, c: d.HalfCauchy(c), POSITIVE),
    "HalfNormal": ((SCALE,), lambda d, c: d.HalfNormal(c), POSITIVE),
    "Independent": (
        (REAL, SCALE), lambda d, a, c: d.Independent(d.Normal(a, c), 1), ANY
    ),
    "Independent, all dims": (
        (P,), lambda d, p: d.Independent(d.Bernoulli(p), 2), counts(1)
    ),
    "InverseGamma": ((A, C), lambda d, a, c: d.InverseGamma(a, c), POSITIVE),
    "Kumaraswamy": ((A, C), lambda d, a, c: d.Kumaraswamy(a, c), UNIT),
    "LKJCholesky": (
        (A[:, 0],),
        lambda d, a: d.LKJCholesky(3, a),
        theirs.transform_to(theirs.constraints.corr_cholesky)(ANY),
    ),
    "Laplace": ((REAL, SCALE), lambda d, a, c: d.Laplace(a, c), ANY),
    "LogNormal": ((REAL, SCALE), lambda d, a, c: d.LogNormal(a, c), POSITIVE),
    "LogisticNormal": ((REAL, SCALE), lambda d, a, c: d.LogisticNormal(a, c), SHARES4),
    "LowRankMultivariateNormal": (
        (REAL, WIDE, SCALE), lambda d, *x: d.LowRankMultivariateNormal(*x), ANY
    ),
    "LowRankMultivariateNormal, one matrix": (
        (REAL, WIDE[0], SCALE[0]), lambda d, *x: d.LowRankMultivariateNormal(*x), ANY
    ),
    "MixtureSameFamily": (
        (P, REAL, SCALE),
        lambda d, p, a, c: d.MixtureSameFamily(d.Categorical(p), d.Normal(a, c)),
        ANY[:, 0],
    ),
    "MixtureSameFamily of vectors": (
        (P[0], between(-1, 1, (B, K, 2)), between(0.5, 1, (B, K, 2))),
        lambda d, p, a, c: d.MixtureSameFamily(
            d.Categorical(p), d.Independent(d.Normal(a, c), 1)
        ),
        ANY[:, :2],
    ),
    "Multinomial": ((P,), lambda d, p: d.Multinomial(6, p), ONE_HOT * 6),
    "Multinomial of logits": ((REAL,), lambda d, x: d.Multinomial(2, logits=x), ONE_HOT * 2),
    "MultivariateNormal": ((REAL, COV), lambda d, a, c: d.MultivariateNormal(a, c), ANY),
    "MultivariateNormal of a precision": (
        (REAL, COV), lambda d, a, c: d.MultivariateNormal(a, precision_matrix=c), ANY
    ),
    "MultivariateNormal of one root": (
        (REAL, ROOT[0]), lambda d, a, c: d.MultivariateNormal(a, scale_tril=c), ANY
    ),
    "NegativeBinomial": ((A, P), lambda d, n, p: d.NegativeBinomial(n, p), counts(6)),
    "NegativeBinomial of logits": (
        (REAL,), lambda d, x: d.NegativeBinomial(3.0, logits=x), counts(6)
    ),
    "Normal": ((REAL, SCALE), lambda d, a, c: d.Normal(a, c), ANY),
    "OneHotCategorical": ((P,), lambda d, p: d.OneHotCategorical(p), ONE_HOT),
    "OneHotCategorical of logits": (
        (REAL,), lambda d, x: d.OneHotCategorical(logits=x), ONE_HOT
    ),
    "OneHotCategoricalStraightThrough": (
        (P,), lambda d, p: d.OneHotCategoricalStraightThrough(p), ONE_HOT
    ),
    "Pareto": ((SCALE, 5 + A), lambda d, a, c: d.Pareto(a, c), SCALE + POSITIVE),
    "Poisson": ((4 * A,), lambda d, a: d.Poisson(a), counts(8)),
    "RelaxedBernoulli": ((P,), lambda d, p: d.RelaxedBernoulli(_heat(p), p), UNIT),
    "RelaxedBernoulli of logits": (
        (REAL,), lambda d, x: d.RelaxedBernoulli(_heat(x), logits=x), UNIT
    ),
    "RelaxedOneHotCategorical": (
        (P,), lambda d, p: d.RelaxedOneHotCategorical(_heat(p), p), SHARES
    ),
    "StudentT": ((4 * A, REAL, SCALE), lambda d, *x: d.StudentT(*x), ANY),
    "TransformedDistribution": (
        (REAL, SCALE),
        lambda d, a, c: d.TransformedDistribution(
            d.Uniform(a.new_zeros(B, K), a.new_ones(B, K)),
            [d.SigmoidTransform().inv, d.AffineTransform(a, -c)],
        ),
        ANY,
    ),
    "TransformedDistribution of vectors": (
        (REAL, SCALE),
        lambda d, a, c: d.TransformedDistribution(
            d.Normal(a, c), [d.AffineTransform(1.0, 2.0), d.StickBreakingTransform()]
        ),
        SHARES4,
    ),
    "Uniform": ((REAL, REAL + SCALE), lambda d, a, c: d.Uniform(a, c), REAL + UNIT / 2),
    "VonMises": ((REAL, SCALE), lambda d, a, c: d.VonMises(a, c), ANY),
    "Weibull": ((SCALE, 1 + A), lambda d, a, c: d.Weibull(a, c), POSITIVE),
    "Wishart": (
        (4 + A[:, 0], COV), lambda d, n, c: d.Wishart(n, c), COV.roll(1, 0)
    ),
}  # fmt: skip


def _heat(like):
    return like.new_tensor(0.7)

"""Transforms, constraints and their registries against torch's."""

import numpy as np
import pytest
import torch
from distribution_rows import ANY, COV, POSITIVE, SCALE, SHARES, UNIT, between

import onefold as flow
from onefold import distributions as ours

theirs = torch.distributions
CUBE = between(-1, 1, (2, 4, 3), 30)
# Name: the function that makes the transform, in a space of torch's names, and its argument.
TRANSFORMS = {
    "exp": (lambda d, t: d.ExpTransform(), ANY),
    "power": (lambda d, t: d.PowerTransform(t(SCALE)), POSITIVE),
    "power of a number": (lambda d, t: d.PowerTransform(t(torch.tensor(-2.0))), POSITIVE),
    "sigmoid": (lambda d, t: d.SigmoidTransform(), ANY),
    "softplus": (lambda d, t: d.SoftplusTransform(), ANY),
    "tanh": (lambda d, t: d.TanhTransform(), ANY),
    "abs": (lambda d, t: d.AbsTransform(), ANY),
    "affine": (lambda d, t: d.AffineTransform(t(ANY), t(-SCALE)), ANY),
    "affine of numbers": (lambda d, t: d.AffineTransform(1.0, -3.0, event_dim=1), ANY),
    "affine of vectors": (lambda d, t: d.AffineTransform(0.0, t(SCALE), event_dim=1), CUBE),
    "softmax": (lambda d, t: d.SoftmaxTransform(), ANY),
    "stick breaking": (lambda d, t: d.StickBreakingTransform(), CUBE),
    "lower cholesky": (lambda d, t: d.LowerCholeskyTransform(), COV),
    "positive definite": (lambda d, t: d.PositiveDefiniteTransform(), COV),
    "correlations": (lambda d, t: d.CorrCholeskyTransform(), CUBE),
    "reshape": (lambda d, t: d.ReshapeTransform((4, 3), (2, 6)), CUBE),
    "inverse": (lambda d, t: d.TanhTransform().inv, UNIT),
    "composed": (
        lambda d, t: d.ComposeTransform(
            [d.AffineTransform(1.0, 2.0), d.StickBreakingTransform(), d.ExpTransform()]
        ),
        CUBE,
    ),
    "nothing": (lambda d, t: d.identity_transform, ANY),
    "independent": (lambda d, t: d.IndependentTransform(d.ExpTransform(), 2), CUBE),
    "independent of vectors": (
        lambda d, t: d.IndependentTransform(d.StickBreakingTransform(), 1), CUBE
    ),
    "cat": (
        lambda d, t: d.CatTransform([d.ExpTransform(), d.TanhTransform()], 1, [1, 2]), ANY
    ),
    "cat of events": (
        lambda d, t: d.CatTransform(
            [d.AffineTransform(1.0, 2.0, event_dim=1), d.ExpTransform()], -2, [1, 3]
        ),
        CUBE,
    ),
    "stack": (
        lambda d, t: d.StackTransform([d.ExpTransform(), d.identity_transform], 0), CUBE
    ),
    "cumulative": (
        lambda d, t: d.CumulativeDistributionTransform(d.Normal(t(ANY), t(SCALE))), ANY / 2
    ),
}  # fmt: skip


def made(name):
    make, x = TRANSFORMS[name]
    space = theirs.transforms
    space.Normal = theirs.Normal
    try:
        return make(space, lambda t: t), make(ours, flow.tensor), x
    finally:
        del space.Normal


def same(found, wanted, **tolerance):
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), **tolerance)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_torchs(name):
    wanted, found, x = made(name)
    here = flow.tensor(x, requires_grad=True)
    y = found(here)
    his = wanted(x)
    same(y, his, rtol=1e-9)
    same(found.inv(y), wanted.inv(his), rtol=1e-7, atol=1e-9)
    assert found.bijective == wanted.bijective
    for mine, other in ((found.domain, wanted.domain), (found.codomain, wanted.codomain)):
        assert mine.event_dim == other.event_dim
    if wanted.bijective or name == "cumulative":
        slopes = found.log_abs_det_jacobian(here, y)
        same(slopes, wanted.log_abs_det_jacobian(x, his), rtol=1e-7, atol=1e-9)
        same(found.inv.log_abs_det_jacobian(y, here), -slopes)
    assert tuple(found.forward_shape(x.shape)) == tuple(wanted.forward_shape(x.shape))
    assert tuple(found.inverse_shape(y.shape)) == tuple(wanted.inverse_shape(his.shape))
    try:
        sign = wanted.sign
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            _ = found.sign
    else:
        mine = found.sign
        assert (mine.tolist() if isinstance(mine, flow.Tensor) else mine) == (
            sign.tolist() if isinstance(sign, torch.Tensor) else sign
        )
    y.sum().backward()
    assert here.grad is not None


@pytest.mark.parametrize("name", TRANSFORMS)
def test_equal_transforms(name):
    """Those of one kind and of equal parameters, and their inverses; of one distribution."""
    found = made(name)[1]
    for other in TRANSFORMS:
        another = made(other)[1]
        assert (found == another) == (found.inv == another.inv) == (name == other != "cumulative")
    assert hash(found) == hash(found.inv.inv)


def test_a_cache_keeps_what_rounding_loses():
    tanh = ours.TanhTransform(cache_size=1)
    x = flow.tensor([30.0])
    y = tanh(x)
    assert tanh.inv(y) is x
    assert ours.TanhTransform().inv(y).item() == np.inf
    both = ours.ComposeTransform([ours.TanhTransform(), ours.AffineTransform(0.0, 2.0)], 1)
    assert both.inv(both(x)) is x
    assert ours.ExpTransform().with_cache().inv.with_cache(0)._cache_size == 0
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        ours.ExpTransform(cache_size=2)


NAMES = (
    "real positive nonnegative unit_interval simplex lower_cholesky positive_definite corr_cholesky"
    " real_vector positive_semidefinite"
).split()
CONSTRAINTS = {
    **{name: lambda c, name=name: getattr(c, name) for name in NAMES},
    "greater_than": lambda c: c.greater_than(2.0),
    "greater_than_eq": lambda c: c.greater_than_eq(-1.0),
    "less_than": lambda c: c.less_than(2.0),
    "interval": lambda c: c.interval(-1.0, 3.0),
    "half_open_interval": lambda c: c.half_open_interval(0.0, 3.0),
    "independent": lambda c: c.independent(c.positive, 2),
    "cat": lambda c: c.cat([c.positive, c.unit_interval], 2, [1, 2]),
    "stack": lambda c: c.stack([c.positive, c.real, c.unit_interval, c.less_than(1.0)], 1),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
def test_registries_are_torchs(registry, name):
    square = name in ("lower_cholesky", "positive_definite", "positive_semidefinite")
    x = COV if square else CUBE
    wished = CONSTRAINTS[name](theirs.constraints)
    try:
        wanted = getattr(theirs, registry)(wished)
    except NotImplementedError:
        with pytest.raises(NotImplementedError, match="Cannot transform"):
            getattr(ours, registry)(CONSTRAINTS[name](ours.constraints))
        return
    constraint = CONSTRAINTS[name](ours.constraints)
    y = getattr(ours, registry)(constraint)(flow.tensor(x))
    same(y, wanted(x), rtol=1e-9)
    assert constraint.check(y).numpy().all()
    assert repr(constraint) == repr(wished)


OTHERS = {
    "boolean": lambda c: c.boolean,
    "one_hot": lambda c: c.one_hot,
    "nonnegative_integer": lambda c: c.nonnegative_integer,
    "positive_integer": lambda c: c.positive_integer,
    "integer_interval": lambda c: c.integer_interval(0, 2),
    "multinomial": lambda c: c.multinomial(3),
    "lower_triangular": lambda c: c.lower_triangular,
    "square": lambda c: c.square,
    "symmetric": lambda c: c.symmetric,
}
VALUES = {
    "whole": torch.tensor([[0.0, 1, 0], [1, 2, 3], [-1, 0, 1], [0.5, 0.5, 0]]),
    "random": ANY,
    "shares": SHARES,
    "matrices": COV,
    "lower": COV.tril(),
    "oblong": CUBE,
    "nan": torch.full((2, 3, 3), torch.nan),
}


@pytest.mark.parametrize("name", {**CONSTRAINTS, **OTHERS})
def test_constraints_are_torchs(name):
    make = {**CONSTRAINTS, **OTHERS}[name]
    wanted, found = make(theirs.constraints), make(ours.constraints)
    assert (found.is_discrete, found.event_dim) == (wanted.is_discrete, wanted.event_dim)
    assert name == "multinomial" or repr(found) == repr(wanted)
    assert isinstance(found.rule, str)
    for value in [CUBE] if name == "stack" else VALUES.values():
        try:
            wished = wanted.check(value)
        except (RuntimeError, ValueError, AssertionError):
            continue
        assert found.check(flow.tensor(value)).tolist() == wished.tolist()


def test_dependent_constraints():
    constraints = ours.constraints
    assert constraints.is_dependent(ours.Uniform.arg_constraints["low"])
    assert constraints.is_dependent(ours.Uniform.support)
    assert not constraints.is_dependent(ours.Uniform(0.0, 1.0).support)
    assert constraints.dependent(event_dim=2).event_dim == 2
    with pytest.raises(NotImplementedError, match="cannot be determined"):
        _ = constraints.dependent.event_dim
    with pytest.raises(ValueError, match="dependent"):
        constraints.dependent.check(flow.ones(2))


def test_a_constraint_of_a_program():
    constraints = ours.constraints

    class Even(constraints.Constraint):
        is_discrete = True

        def check(self, value):
            return value % 2 == 0

    @ours.transform_to.register(Even)
    def doubled(constraint):
        return ours.AffineTransform(0, 2)

    assert ours.transform_to(Even())(flow.tensor([1.0, 3.0])).tolist() == [2, 6]
    with pytest.raises(TypeError, match="Constraint subclass"):
        ours.transform_to.register(int, doubled)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ours.ComposeTransform([flow.exp]), "must be a Transform"),
        (lambda: ours.StackTransform([1]), "must be a Transform"),
        (lambda: ours.StackTransform([ours.ExpTransform()])(flow.ones(2)), "as many parts"),
        (lambda: ours.CatTransform([ours.ExpTransform()], 0, [1, 2]), "a length for each"),
        (lambda: ours.ReshapeTransform((2, 3), (5,)), "different numbers"),
        (lambda: ours.ReshapeTransform((2,), (2, 1))(flow.ones(3)), "Shape mismatch"),
        (lambda: ours.SoftmaxTransform().forward_shape(()), "Too few dim"),
        (lambda: ours.CorrCholeskyTransform()(flow.ones(2)), "do not fill"),
        (lambda: ours.StickBreakingTransform().log_abs_det_jacobian(1, 2), "Tensor|attribute"),
        (lambda: ours.constraints.cat([ours.constraints.real], 0, [1, 2]), "a length for each"),
        (lambda: ours.constraints.stack([1]), "must be a Constraint"),
        (
            lambda: ours.constraints.stack([ours.constraints.real]).check(flow.ones(2)),
            "as many parts",
        ),
    ],
)
def test_bad_arguments(make, text):
    with pytest.raises((TypeError, ValueError, AttributeError), match=text):
        make()
